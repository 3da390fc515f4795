//! The hooks, attached in the kernel that the tests run on, and everything that they report.
//!
//! This uses the agent's own loader, ring readers and channel, and rtnetlink where the hooks cannot see.
//! Nothing is filtered out.

use std::{
    ops::{Deref, DerefMut},
    path::PathBuf,
    process,
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
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
        host::HostRoot,
        live::{
            attach::{HookReport, Options, Probe},
            pin::Pins,
            ring::{RingReader, SLACK},
            tally::Totals,
        },
        netlink::Netlink,
        node::cgroup::Layout,
        task::channel::{self, Batch, CancellationSource, QuestionSender},
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
    /// The hierarchy that identifies containers. `None`: the agent chooses.
    pub hierarchy: Option<u32>,
    pub all_execs: bool,
    /// Mechanisms that may not be used.
    pub refused: &'a [Mechanism],
    /// The size of the bulk ring in bytes. `None`: the agent's size.
    pub bulk: Option<u32>,
    /// The size of the lifecycle ring in bytes. `None`: the agent's size.
    pub lifecycle: Option<u32>,
    /// How many network namespaces the tracepoints can track. `None`: the agent's number.
    pub nets: Option<u32>,
    /// Whether the kernel measures the time of each program's runs.
    pub stats: bool,
    /// How long hooks work without a reader. `None`: the agent's time.
    pub patience: Option<Duration>,
    /// The folder in which hooks are left for the next agent.
    pub pins: Option<&'a Pins>,
}

/// Attached hooks.
pub struct Live {
    hierarchy: Hierarchy,
    reports: Vec<HookReport>,
    seen: Vec<Observation>,
    /// Everything up to this time has been reported.
    mark: Timestamp,
    batches: Receiver<Batch>,
    /// The counters at the reader's last look.
    totals: watch::Receiver<Totals>,
    netlink: Option<QuestionSender>,
    stopper: Option<CancellationSource>,
    worker: Option<JoinHandle<Result<Totals>>>,
}

/// Everything that the hooks had reported when they were detached.
pub struct Finished {
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
            let (questions, queue) = channel::questions();
            Netlink::open(PathBuf::from("/"))?.start(feed.clone(), queue, stop.clone())?;
            netlink = Some(questions);
        }
        let worker = thread::Builder::new().name("reader".to_owned()).spawn(move || {
            runtime::Builder::new_current_thread().enable_all().build()?.block_on(async move {
                let reader = RingReader::new(probe, SLACK)?;
                counted.send(reader.totals())?;
                // The channel has no bound, so that a busy test does not block the reader.
                let passed_on = tokio::spawn(async move {
                    while let Some(batch) = received.recv().await {
                        if sender.send(batch).is_err() {
                            break;
                        }
                    }
                });
                let totals = reader.run(&feed, stop).await;
                drop(feed);
                passed_on.await?;
                Ok(totals)
            })
        })?;
        let totals = totals.recv().context("the hooks' rings are not read")?;
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

    /// Returns the hierarchy that identifies containers.
    #[must_use]
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Whether netlink must report what the hooks cannot see.
    #[must_use]
    pub fn needs_netlink(&self) -> bool {
        self.reports.iter().any(HookReport::needs_netlink)
    }

    /// Returns the mechanism that sees a signal. `None`: no program sees it.
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

    /// Makes rtnetlink watch a namespace, as the engine does with each one that it knows. Does nothing where
    /// the hooks see everything.
    pub fn watch(&self, netns: NetnsKey, by: &Task) {
        if let Some(netlink) = &self.netlink {
            netlink.ask(Question::Watch { netns, by: by.clone(), unheard_since: None });
        }
    }

    /// Waits until `found` returns a value for the observations so far.
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
                    bail!("{what}: not reported within {} s, among {n} other facts", patience.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => bail!("{what}: the hooks have ended"),
            }
        }
    }

    /// Everything that was reported of the time until now. Nothing of that time is reported later.
    pub fn settled(&mut self) -> Result<Vec<Observation>> {
        let now = Timestamp(clock::boot_ns()?);
        // The source sends a watermark only after a record.
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

    /// Forgets the observations so far. It waits for the reports of the hook runs that the kernel skipped so
    /// far.
    fn forget(&mut self) -> Result<()> {
        let counted = self.totals.borrow_and_update().skipped();
        let skipped = skipped::of_process(process::id())?;
        self.settled()?;
        if skipped > counted {
            // The runs of the call above are in the next reading.
            self.counted()?;
            self.settled()?;
        }
        Ok(())
    }

    /// Waits until the counters were read once more since the last look at them: when the reader begins, and
    /// a second after the first record since they were read.
    pub fn counted(&mut self) -> Result<()> {
        clock::poll("a reading of the counters", machine::patience(), || {
            Ok(self.totals.has_changed()?.then_some(()))
        })?;
        self.totals.mark_unchanged();
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

    /// Detaches the hooks and returns all that they reported.
    pub fn finish(mut self) -> Result<Finished> {
        let ended = self.detach().ok_or_else(|| anyhow!("the hooks have ended"))?;
        let totals = ended.map_err(|_panic| anyhow!("the ring reader panicked"))??;
        self.take_all();
        Ok(Finished { seen: std::mem::take(&mut self.seen), totals })
    }

    /// Detaches the hooks, and counts the runs of them that the kernel skipped. Returns the worker's result,
    /// once.
    fn detach(&mut self) -> Option<thread::Result<Result<Totals>>> {
        let skipped = || skipped::of_process(process::id()).unwrap_or(0);
        // Once the worker is told to stop, its hooks may not be counted any more.
        let before = skipped();
        self.stopper.take();
        self.netlink.take();
        let ended = self.worker.take()?.join();
        skipped::detached(before.saturating_sub(skipped()));
        Some(ended)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // The hooks must not slow down the next test. Nobody needs the worker's result.
        let _ = self.detach();
    }
}

/// Attaches the hooks without a reader, for a test that reads the rings itself.
pub fn load(setup: Setup<'_>) -> Result<(Probe, Hierarchy)> {
    let root = HostRoot::open("/".as_ref())?;
    let layout = Layout::read(&root).context("read the cgroup mounts")?;
    let chosen = match setup.hierarchy {
        Some(id) => layout.hierarchies.iter().find(|hierarchy| hierarchy.id == id),
        None => layout.choose(|hierarchy| backfill::has_container(&root, hierarchy), || ()),
    };
    let chosen = chosen.context("the cgroup hierarchy is not mounted")?;
    let mut options = Options::new(&root, chosen);
    options.all_execs = setup.all_execs;
    options.refused = setup.refused;
    options.stats = setup.stats;
    options.nets = setup.nets.unwrap_or(options.nets);
    options.bulk = setup.bulk.unwrap_or(options.bulk);
    options.lifecycle = setup.lifecycle.unwrap_or(options.lifecycle);
    options.patience = setup.patience.unwrap_or(options.patience);
    options.pins = setup.pins;
    let probe = Probe::load(&options)?;
    let own = cgroupfs::hierarchies()?;
    let own = own.into_iter().find(|hierarchy| hierarchy.id == chosen.id);
    Ok((probe, own.context("the cgroup hierarchy is not mounted here")?))
}

/// Checks that no observation reports a loss.
pub fn check_no_loss(seen: &[Observation]) -> Result<()> {
    let lost: Vec<_> = seen.iter().filter(|seen| matches!(seen.fact, Fact::Lost { .. })).collect();
    ensure!(lost.is_empty(), "lost: {lost:?}");
    Ok(())
}

/// Hooks attached as the agent attaches them, shared by the tests that need no other settings. Attaching
/// takes seconds on an emulated machine.
pub struct Shared(MutexGuard<'static, Option<Live>>);

impl Shared {
    /// Returns the hooks without the observations of earlier tests.
    pub fn start() -> Result<Self> {
        static SHARED: Mutex<Option<Live>> = Mutex::new(None);
        // A failed test leaves the hooks intact.
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
