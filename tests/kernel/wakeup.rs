//! The reasons for an agent to read its rings while it still holds the space of records that it has read. It
//! holds the space until the results are saved. The kernel wakes only a reader that has returned all space.

use std::{
    mem,
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use probe_user::{
    engine::decode::decode,
    model::fact::{Fact, Observation},
    source::live::{
        attach::{RingMap, Rings},
        pin::Pins,
    },
};
use tests::{
    guard::{cgroup::CgroupGuard, netns::OpenNetns},
    live::{Live, Setup, load},
    machine, skipped,
    succession::Place,
};
use tokio::{io::unix::AsyncFd, runtime, time};

/// How often a step is repeated if the kernel skipped the hook's run, or if others made namespaces meanwhile.
const ATTEMPTS: usize = 20;

/// A ring whose space nobody returns. It is watched as the agent watches it: by wakeups, not by content.
struct Held {
    ring: RingMap,
    ready: AsyncFd<OwnedFd>,
}

impl Held {
    /// Whether the kernel wakes the reader within a moment.
    async fn is_woken(&self) -> Result<bool> {
        let moment = Duration::from_millis(if machine::is_emulated() { 2000 } else { 200 });
        match time::timeout(moment, self.ready.readable()).await {
            Ok(guard) => {
                guard?.clear_ready();
                Ok(true)
            }
            Err(_elapsed) => Ok(false),
        }
    }

    /// Whether the kernel wakes the reader for the result of `make`. Repeats `make` until the hooks saw the
    /// result and no namespace of others.
    async fn is_woken_for<T>(
        &mut self,
        what: &str,
        make: impl Fn() -> Result<T>,
        is_it: impl Fn(&T, &Fact) -> bool,
    ) -> Result<bool> {
        for _ in 0..ATTEMPTS {
            if self.is_woken().await? {
                // Others have made a namespace.
                read(&mut self.ring)?;
                continue;
            }
            let made = make()?;
            let is_woken = self.is_woken().await?;
            let facts = read(&mut self.ring)?;
            let is_alone = !facts.iter().any(|fact| is_namespace(fact) && !is_it(&made, fact));
            if is_alone && facts.iter().any(|fact| is_it(&made, fact)) {
                return Ok(is_woken);
            }
        }
        bail!("{what}: not seen alone in {ATTEMPTS} attempts")
    }
}

/// Returns the content of the ring. A record that is not dropped keeps its space.
fn read(ring: &mut RingMap) -> Result<Vec<Fact>> {
    let mut facts = Vec::new();
    while let Some(record) = ring.next() {
        facts.push(decode(&record).context("a record is unreadable")?.fact);
        mem::forget(record);
    }
    Ok(facts)
}

fn is_namespace(fact: &Fact) -> bool {
    matches!(fact, Fact::NetnsCreated { .. })
}

fn is_creation(fact: &Fact, id: u64) -> bool {
    matches!(fact, Fact::CgroupCreated { cgroup, .. } if cgroup.key.id == id)
}

/// The watch of a namespace must begin before its first address is added.
#[test]
fn a_new_namespace_and_nothing_else_wakes_a_reader_that_holds_room() -> Result<()> {
    let (mut probe, hierarchy) = load(Setup::default())?;
    let Rings { lifecycle: ring, .. } = probe.take_rings().context("the rings are taken")?;
    runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let own = ring.as_fd().try_clone_to_owned()?;
        // SAFETY: an `OwnedFd` stays open and the same descriptor until it is dropped.
        let ready = unsafe { AsyncFd::register(own) }?;
        let mut held = Held { ring, ready };
        // The first record wakes the reader, because nothing was read before it. From then on its space is
        // held.
        for _ in 0..ATTEMPTS {
            CgroupGuard::create(&hierarchy)?.end()?;
            if !read(&mut held.ring)?.is_empty() {
                break;
            }
        }
        ensure!(held.is_woken().await?, "the ring is watched");
        let cgroup = || CgroupGuard::create(&hierarchy);
        let is_created = |cgroup: &CgroupGuard, fact: &Fact| is_creation(fact, cgroup.id().id);
        ensure!(!held.is_woken_for("a cgroup", cgroup, is_created).await?, "a cgroup wakes");
        let is_made = |netns: &OpenNetns, fact: &Fact| matches!(fact, Fact::NetnsCreated { netns: key, .. } if key.inode == netns.inode());
        ensure!(held.is_woken_for("a namespace", OpenNetns::create, is_made).await?, "a namespace does not wake");
        Ok(())
    })
}

/// Otherwise a listing of the node would be far ahead of the records.
#[test]
fn records_are_read_while_room_is_held_though_the_kernel_wakes_nobody() -> Result<()> {
    skipped::retry(|_| {
        let place = Place::new()?;
        let pins = Pins::open(&place.pins)?;
        // Nobody takes the values whose drop returns the space.
        let mut live = Live::start(Setup { pins: Some(&pins), ..Setup::default() })?;
        live.counted()?;
        see_a_cgroup(&mut live)?;
        // After this, nothing is due for minutes.
        live.counted()?;
        see_a_cgroup(&mut live)
    })
}

fn see_a_cgroup(live: &mut Live) -> Result<()> {
    let cgroup = CgroupGuard::create(live.hierarchy())?;
    let is_its =
        |seen: &[Observation]| seen.iter().any(|one| is_creation(&one.fact, cgroup.id().id)).then_some(());
    live.until("a cgroup", is_its)
}
