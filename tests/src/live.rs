//! The hooks, attached in the kernel that the tests run on, and everything that they report.
//!
//! This uses the agent's own loader, ring readers and channel, and rtnetlink where the hooks cannot see. Nothing is
//! filtered out.

use std::{
    ops::{Deref, DerefMut},
    path::PathBuf,
    process,
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use probe_user::{
    model::{
        change::Question,
        fact::{Fact, Loss, Mechanism, Observation, Signal, Task},
        id::NetnsKey,
        time::Timestamp,
    },
    source::{
        backfill,
        cgroup::Layout,
        channel::{self, Batch, CancellationSource, QuestionSender},
        host::HostRoot,
        live::{
            attach::{HookReport, Options, Probe},
            ring::{RingReader, SLACK},
            tally::Totals,
        },
        netlink::Netlink,
    },
};
use tokio::{runtime, sync::watch};

use crate::{
    cgroupfs::{self, Hierarchy},
    clock,
    guard::cgroup::CgroupGuard,
    machine, skipped,
};

/// The settings of the hooks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup<'a> {
    /// The hierarchy that identifies containers; the agent's own choice if `None`.
    pub hierarchy: Option<u32>,
    pub all_execs: bool,
    /// Mechanisms that are not to be used.
    pub refused: &'a [Mechanism],
    /// Bytes of the bulk ring; the agent's own choice if `None`.
    pub bulk: Option<u32>,
    /// How many network namespaces are kept an eye on by tracepoints; the agent's own choice if `None`.
    pub nets: Option<u32>,
    /// Whether the kernel counts what each program's runs take.
    pub stats: bool,
}

/// Attached hooks.
pub struct Live {
    hierarchy: Hierarchy,
    reports: Vec<HookReport>,
    seen: Vec<Observation>,
    /// Everything up to this time has been reported.
    mark: Timestamp,
    batches: Receiver<Batch>,
    /// The counters, as the drain read them last.
    totals: watch::Receiver<Totals>,
    netlink: Option<QuestionSender>,
    stopper: Option<CancellationSource>,
    worker: Option<JoinHandle<Result<Totals>>>,
}

/// Everything that the hooks reported, after they were detached.
pub struct Told {
    pub seen: Vec<Observation>,
    pub totals: Totals,
}

impl Live {
    pub fn start(setup: Setup<'_>) -> Result<Self> {
        let (probe, hierarchy) = load(setup)?;
        let reports = probe.reports().to_vec();
        let (stopper, stop) = channel::stop();
        let (sender, batches) = mpsc::channel();
        let (feed, mut received) = channel::feed();
        let (counted, totals) = mpsc::channel();
        let mut netlink = None;
        if reports.iter().any(HookReport::needs_netlink) {
            let (asker, asks) = channel::questions();
            Netlink::open(PathBuf::from("/"))?.start(feed.clone(), asks, stop.clone())?;
            netlink = Some(asker);
        }
        let worker = thread::Builder::new().name("drain".to_owned()).spawn(move || {
            runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
                let drain = RingReader::new(probe, SLACK)?;
                counted.send(drain.totals())?;
                // Without a bound: a test that is busy must not hold the drain up.
                let passed_on = tokio::spawn(async move {
                    while let Some(batch) = received.recv().await {
                        if sender.send(batch).is_err() {
                            break;
                        }
                    }
                });
                let totals = drain.run(&feed, stop).await;
                drop(feed);
                passed_on.await?;
                Ok(totals)
            })
        })?;
        let totals = totals.recv().context("the hooks are not drained")?;
        let (stopper, worker) = (Some(stopper), Some(worker));
        Ok(Self {
            hierarchy,
            reports,
            seen: Vec::new(),
            mark: Timestamp::ZERO,
            batches,
            totals,
            netlink,
            stopper,
            worker,
        })
    }

    /// The hierarchy that identifies containers.
    #[must_use]
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Whether netlink has to tell what the hooks do not.
    #[must_use]
    pub fn needs_netlink(&self) -> bool {
        self.reports.iter().any(HookReport::needs_netlink)
    }

    /// How a signal is seen; `None`: by no program.
    #[must_use]
    pub fn mechanism(&self, signal: Signal) -> Option<Mechanism> {
        self.reports.iter().find(|report| report.signal == signal).and_then(|report| report.mechanism)
    }

    /// Why better mechanisms are not used, for the message of a failed check.
    #[must_use]
    pub fn missed(&self, signal: Signal) -> Vec<(Mechanism, String)> {
        let report = self.reports.iter().find(|report| report.signal == signal);
        report.map(|report| report.missed.clone()).unwrap_or_default()
    }

    /// Has rtnetlink watch a namespace, as the engine does with each that it knows; nothing where hooks see all.
    pub fn watch(&self, netns: NetnsKey, by: &Task) {
        if let Some(netlink) = &self.netlink {
            netlink.ask(Question::Watch { netns, by: by.clone() });
        }
    }

    /// Waits until `found` finds what it is looking for in what has been told so far.
    pub fn until<T>(&mut self, what: &str, mut found: impl FnMut(&[Observation]) -> Option<T>) -> Result<T> {
        let patience = machine::patience();
        let mut deadline = Instant::now() + patience;
        loop {
            if let Some(it) = found(&self.seen) {
                return Ok(it);
            }
            match self.batches.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(batch) => {
                    if batch.iter().any(|one| matches!(one.fact, Fact::Lost { what: Loss::SkippedRun, .. })) {
                        deadline = deadline.min(Instant::now() + skipped::PATIENCE);
                    }
                    self.take(batch);
                    self.take_all();
                }
                Err(RecvTimeoutError::Timeout) => {
                    let n = self.seen.len();
                    bail!("{what}: not told within {} s, among {n} other facts", patience.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => bail!("{what}: the hooks have ended"),
            }
        }
    }

    /// Everything that was reported of the time until now. Nothing of that time is reported later.
    pub fn settled(&mut self) -> Result<Vec<Observation>> {
        let now = Timestamp(clock::boot_ns()?);
        // Without records there are no watermarks either.
        CgroupGuard::create(&self.hierarchy)?.end()?;
        let patience = machine::patience();
        let deadline = Instant::now() + patience;
        while self.mark < now {
            let left = deadline.saturating_duration_since(Instant::now());
            let batch = self.batches.recv_timeout(left);
            self.take(batch.with_context(|| format!("no watermark within {} s", patience.as_secs()))?);
        }
        Ok(std::mem::take(&mut self.seen))
    }

    /// Has what was told until now forgotten, with the runs that the kernel skipped until now, which are counted later.
    fn forget(&mut self) -> Result<()> {
        let counted = self.totals.borrow_and_update().skipped();
        let skipped = skipped::of_process(process::id())?;
        self.settled()?;
        if skipped > counted {
            // What was settled last is itself counted within a second.
            clock::poll("a look at the counters", machine::patience(), || {
                Ok(self.totals.has_changed()?.then_some(()))
            })?;
            self.settled()?;
        }
        Ok(())
    }

    fn take_all(&mut self) {
        while let Ok(batch) = self.batches.try_recv() {
            self.take(batch);
        }
    }

    fn take(&mut self, batch: Batch) {
        for one in batch {
            match one.fact {
                Fact::Watermark => self.mark = self.mark.max(one.at),
                _ => self.seen.push(one),
            }
        }
    }

    /// Detaches the hooks and gives all that they told.
    pub fn finish(mut self) -> Result<Told> {
        self.stopper.take();
        self.netlink.take();
        let worker = self.worker.take().ok_or_else(|| anyhow!("the hooks have ended"))?;
        let totals = worker.join().map_err(|_panic| anyhow!("the drain panicked"))??;
        self.take_all();
        Ok(Told { seen: std::mem::take(&mut self.seen), totals })
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stopper.take();
        self.netlink.take();
        if let Some(worker) = self.worker.take() {
            let skipped = || skipped::of_process(process::id()).unwrap_or(0);
            let before = skipped();
            // The hooks of one test must not burden the next; what became of them nobody asks any more.
            let _ = worker.join();
            skipped::detached(before.saturating_sub(skipped()));
        }
    }
}

/// Attaches the hooks alone, for those who read the rings themselves.
pub fn load(setup: Setup<'_>) -> Result<(Probe, Hierarchy)> {
    let root = HostRoot::open("/".as_ref())?;
    let layout = Layout::read(&root).context("read the cgroup mounts")?;
    let chosen = match setup.hierarchy {
        Some(id) => layout.hierarchies.iter().find(|hierarchy| hierarchy.id == id),
        None => layout.choose(|hierarchy| backfill::has_container(&root, hierarchy)),
    };
    let chosen = chosen.context("the cgroup hierarchy is not mounted")?;
    let mut options = Options::new(&root, chosen);
    options.all_execs = setup.all_execs;
    options.refused = setup.refused;
    options.stats = setup.stats;
    options.nets = setup.nets.unwrap_or(options.nets);
    options.bulk = setup.bulk.unwrap_or(options.bulk);
    let probe = Probe::load(&options)?;
    let own = cgroupfs::hierarchies()?;
    let own = own.into_iter().find(|hierarchy| hierarchy.id == chosen.id);
    Ok((probe, own.context("the cgroup hierarchy is not mounted here")?))
}

/// That nothing was lost on the way, and nothing was unreadable.
pub fn is_whole(seen: &[Observation]) -> Result<()> {
    let lost: Vec<_> = seen.iter().filter(|seen| matches!(seen.fact, Fact::Lost { .. })).collect();
    ensure!(lost.is_empty(), "lost: {lost:?}");
    Ok(())
}

/// Hooks as the agent attaches them, for the tests that need no others one after the other: to attach them takes seconds
/// where the machine is emulated.
pub struct Shared(MutexGuard<'static, Option<Live>>);

impl Shared {
    /// What was told before is forgotten.
    pub fn start() -> Result<Self> {
        static SHARED: Mutex<Option<Live>> = Mutex::new(None);
        // A test that failed has not harmed them.
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.is_none() {
            *shared = Some(Live::start(Setup::default())?);
        }
        let mut shared = Self(shared);
        shared.forget()?;
        Ok(shared)
    }
}

impl Deref for Shared {
    type Target = Live;

    fn deref(&self) -> &Live {
        self.0.as_ref().expect("it is there since the start")
    }
}

impl DerefMut for Shared {
    fn deref_mut(&mut self) -> &mut Live {
        self.0.as_mut().expect("it is there since the start")
    }
}
