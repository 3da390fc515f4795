//! The self-test receives the events that it causes, reports none of them, and leaves nothing behind.
//! Afterwards the ring reader is idle.

use std::{fs, path::Path, time::Duration};

use anyhow::{Result, ensure};
use probe_user::{
    model::fact::{Fact, Observation, Signal},
    source::{
        live::{
            ring::{RingReader, SLACK},
            selftest::{Outcome, SelfTest},
        },
        task::channel::{self, Batch},
    },
};
use tests::{
    live::{Setup, load},
    machine,
};
use tokio::{runtime, sync::mpsc, time};

/// The time in which nothing may happen.
const IDLE: Duration = Duration::from_secs(2);

#[test]
fn every_hook_fires_and_the_self_tests_events_are_not_reported() -> Result<()> {
    let (probe, hierarchy) = load(Setup::default())?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut reader = RingReader::new(probe, SLACK)?;
        let test = SelfTest::run(&mut reader, &hierarchy.mount, machine::patience()).await;
        let fired = |signal| test.outcomes.contains(&(signal, Outcome::Fired));
        for signal in
            [Signal::NetnsCreated, Signal::NetnsDropped, Signal::CgroupCreated, Signal::CgroupRemoved]
        {
            ensure!(fired(signal), "{signal:?}: {:?}", test.outcomes);
        }
        ensure!(test.silent().next().is_none(), "{:?}", test.outcomes);
        ensure!(left_behind(&hierarchy.mount)?.is_empty());

        let (feed, mut batches) = channel::feed();
        let (stopper, stop) = channel::stop();
        let reading = tokio::spawn(async move { reader.run(&feed, stop).await });
        let seen = collect(&mut batches, IDLE).await;
        drop(stopper);
        reading.await?;
        let own = |one: &&Observation| match &one.fact {
            Fact::CgroupCreated { cgroup, .. } | Fact::CgroupRemoved { cgroup, .. } => ours(&cgroup.path),
            Fact::NetnsCreated { by, .. } => by.key.pid == std::process::id(),
            _ => false,
        };
        let reported: Vec<_> = seen.iter().filter(own).collect();
        ensure!(reported.is_empty(), "{reported:?}");
        Ok(())
    })
}

/// When the verifier refuses a program, root gets another mechanism without a message. A user with fewer
/// rights then sees less.
#[test]
fn no_program_is_refused_by_the_verifier() -> Result<()> {
    let (probe, _hierarchy) = load(Setup::default())?;
    let missed = probe.reports().iter().flat_map(|report| report.missed.iter().map(|it| (report.signal, it)));
    // A kernel that forbids tracing of its functions refuses the program with EPERM before it verifies it.
    let is_refused =
        |why: &str| why.contains("refuses the program") && !why.contains("Operation not permitted");
    let refused: Vec<_> = missed.filter(|(_, (_, why))| is_refused(why)).collect();
    ensure!(refused.is_empty() && !probe.reports().is_empty(), "{refused:?}");
    Ok(())
}

async fn collect(batches: &mut mpsc::Receiver<Batch>, span: Duration) -> Batch {
    let mut seen = Batch::new();
    let all = async {
        while let Some(batch) = batches.recv().await {
            seen.extend(batch);
        }
    };
    // The collection ends when the time is up.
    time::timeout(span, all).await.ok();
    seen
}

fn left_behind(mount: &Path) -> Result<Vec<String>> {
    let names = fs::read_dir(mount)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names: Vec<String> = names.collect::<Result<_>>()?;
    Ok(names.into_iter().filter(|name| ours(name)).collect())
}

fn ours(path: &str) -> bool {
    path.ends_with(&format!("sandprobe-selftest-{}", std::process::id()))
}
