//! Pods come and go while programs start and end as fast as the machine can. Every unreported program is
//! counted, and no event of the pods is lost.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use tests::{
    clock, machine,
    node::Node,
    skipped::SKIPPED,
    storm::{self, Storm},
    stream::{Received, Stream},
};

use crate::{
    life::{ONE_CONTAINER, check_life_with_unnamed_netns},
    many::{check_many, live_many, until_gone},
};

/// The load that is enough for this machine. The storm goes on longer until the last pod is gone.
struct Enough {
    execs: usize,
    pods: usize,
    at_once: usize,
}

impl Enough {
    fn of_this_machine() -> Self {
        // An emulated machine needs a hundred times as long to start a program.
        if machine::is_emulated() {
            Self { execs: 200, pods: 1, at_once: 1 }
        } else {
            Self { execs: 20_000, pods: 12, at_once: 4 }
        }
    }
}

#[test]
fn pods_are_reported_completely_in_a_storm_of_programs() -> Result<()> {
    let enough = Enough::of_this_machine();
    let node = Node::start()?;
    let storm = Storm::new()?;
    let mut stream = Stream::start(&["watch", "--all-execs"])?;
    let pods_are_gone = AtomicBool::new(false);
    let (lives, made, calm) = thread::scope(|scope| -> Result<_> {
        let raging = scope.spawn(|| rage(&storm, enough.execs, &pods_are_gone));
        let lives = node.kubelet().and_then(|kubelet| live_many(&kubelet, enough.pods, enough.at_once));
        pods_are_gone.store(true, Ordering::Relaxed);
        let (made, calm) = raging.join().map_err(|_panic| anyhow!("the storm panicked"))??;
        Ok((lives?, made, calm))
    })?;
    for life in &lives {
        ensure!(life.sandbox.removed.done <= calm, "{} outlived a storm of {made} programs", life.name);
    }
    until_gone(&mut stream, &lives)?;
    let (received, stderr) = stream.end()?;
    let skipped = check_all_reported_or_counted(&received, storm.path()?, made).context(stderr)?;
    check_many(&lives, skipped, |life| check_life_with_unnamed_netns(&received, life, ONE_CONTAINER))?;
    node.stop()
}

/// Starts at least `enough` programs and goes on while there are pods, up to a limit. Returns the number of
/// programs, and when the last had ended.
fn rage(storm: &Storm, enough: usize, pods_are_gone: &AtomicBool) -> Result<(usize, u64)> {
    /// The storm runs in this many parts, with hardly a moment between them.
    const PARTS: usize = 8;
    const MOST: usize = 8 * PARTS;
    let mut made = 0;
    for part in 0..MOST {
        if part >= PARTS && pods_are_gone.load(Ordering::Relaxed) {
            break;
        }
        storm.start(enough / PARTS)?.end()?;
        made += enough / PARTS;
    }
    Ok((made, clock::boot_ns()?))
}

/// Checks that only counted events of the storm are missing, and that nothing else is lost. Returns how many
/// hook runs the kernel skipped.
fn check_all_reported_or_counted(received: &Received, path: &str, made: usize) -> Result<u64> {
    let execs = received.named("process.exec").filter(|event| event["process"]["filename"] == path).count();
    let exits =
        received.named("process.exit").filter(|event| event["process"]["comm"] == storm::NAME).count();
    let mut losses = received.losses()?;
    let bulk = losses.remove("bulk_ring").unwrap_or(0);
    let skipped = losses.remove(SKIPPED).unwrap_or(0);
    ensure!(losses.is_empty(), "lost more than the storm's events: {losses:?}");
    // Execs and exits are checked apart. The exit of a program whose exec was not seen is not reported
    // either.
    for received in [execs, exits] {
        let missing = made.checked_sub(received).map(u64::try_from).transpose()?;
        ensure!(
            missing.is_some_and(|missing| missing <= bulk + skipped),
            "made {made}, reported {execs} execs and {exits} exits, counted {bulk} as lost and {skipped} as skipped"
        );
    }
    Ok(skipped)
}
