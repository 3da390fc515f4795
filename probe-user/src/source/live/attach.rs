//! Loads the eBPF object and attaches each hook by the first mechanism that works, or takes over the hooks
//! that the last agent left.
//!
//! **Invariant:** a program that is not attached is not loaded; each mechanism that failed is kept with the
//! reason.

mod hand_over;
mod hook_maps;
mod ladder;
#[cfg(test)]
mod map_memory;
mod pinned;
mod reader_page;
mod reason;
mod ring_map;
mod run;
#[cfg(test)]
mod size;
#[cfg(test)]
mod stack;
mod support;
mod symbol;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io, mem,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use aya::{
    Btf as AyaBtf, Ebpf, EbpfLoader, Endianness, VerifierLogLevel,
    programs::{Program as Loaded, links::PinnedLink},
    sys::{Stats, enable_stats},
    util::nr_cpus,
};
use aya_log::EbpfLogger;
use probe_common::{knob::NETS_MAX, table, tally::Ring};
use tracing::warn;
use zerocopy::IntoBytes;

pub use self::ring_map::RingMap;
pub(crate) use self::{hook_maps::HookMaps, reader_page::ReaderPage, ring_map::HeldRoom};
use self::{
    pinned::{Fate, TakenOver},
    support::{CLEANUP_NET, Support},
    symbol::Symbol,
};
use super::{
    btf::{BTF, Btf},
    error::Error,
    knob::{self, NodeId},
    log::{Forward, Logger},
    pin::{Folder, PinError, PinnedSet, Pins},
    plan::{Need, targets},
    tally::{Runs, Totals},
};
use crate::{
    model::fact::{Attached, Mechanism, RingsRead, Signal},
    source::{
        host::HostRoot,
        node::{cgroup::Hierarchy, clock, missing_right::MissingRight},
    },
};

/// The object that the build script made, packed.
static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probe-ebpf.lz4"));

/// Unpacks the object that the build script made. It is needed only to load it.
pub(crate) fn object() -> Vec<u8> {
    lz4_flex::block::decompress_size_prepended(PACKED).expect("the build script packed it")
}

/// The options of a load.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    pub root: &'a HostRoot,
    /// The hierarchy whose cgroups identify containers.
    pub hierarchy: &'a Hierarchy,
    /// Record every exec, not only those that matter.
    pub all_execs: bool,
    /// Enable the log of the eBPF programs.
    pub log: bool,
    /// The sizes of the rings in bytes: powers of two, in whole pages.
    pub lifecycle: u32,
    pub bulk: u32,
    /// Have the kernel measure the runs and run time of all eBPF programs of the node, while the probe lives.
    pub stats: bool,
    /// How many network namespaces are tracked if neither fentry nor kprobes report their end; a power of
    /// two.
    pub nets: u32,
    /// Mechanisms that are not used, as if this kernel lacked them.
    pub refused: &'a [Mechanism],
    /// The folder in which hooks are left for the next agent, and from which the last agent's are taken over.
    pub pins: Option<&'a Pins>,
    /// If no agent has read for this long, the hooks do nothing.
    pub patience: Duration,
}

/// How long hooks continue to work without an agent.
pub const MAX_UNREAD: Duration = Duration::from_secs(60 * 60);

impl<'a> Options<'a> {
    #[must_use]
    pub fn new(root: &'a HostRoot, hierarchy: &'a Hierarchy) -> Self {
        Self {
            root,
            hierarchy,
            all_execs: false,
            log: false,
            stats: false,
            nets: NETS_MAX,
            lifecycle: 4 << 20,
            bulk: 8 << 20,
            refused: &[],
            pins: None,
            patience: MAX_UNREAD,
        }
    }
}

/// How the kernel's signal is received.
#[derive(Clone, Debug)]
pub struct HookReport {
    pub signal: Signal,
    pub need: Need,
    /// `None` if no program reports it.
    pub mechanism: Option<Mechanism>,
    /// The programs that report it.
    pub programs: Vec<&'static str>,
    /// What is less precise than with the best mechanism; empty if nothing is.
    pub note: &'static str,
    /// Whether rtnetlink can report the signal instead.
    pub netlink: bool,
    /// The mechanisms that failed before, each with the reason in one line.
    pub missed: Vec<(Mechanism, String)>,
    /// The unmet requirements of the best mechanism that could be met here; empty if the best is in use, or
    /// if none can be met.
    pub(crate) lacks: BTreeSet<MissingRight>,
    /// A better mechanism failed for a reason that may have passed when the next agent tries it.
    pub(crate) may_improve: bool,
}

impl HookReport {
    /// Returns whether rtnetlink adds to this signal: all of it if no hook is attached, or the namespaces
    /// that the hook has no room for.
    #[must_use]
    pub fn needs_netlink(&self) -> bool {
        self.netlink && (self.mechanism.is_none() || self.is_limited())
    }

    /// Returns whether the hook tracks only a limited number of network namespaces.
    #[must_use]
    pub(crate) fn is_limited(&self) -> bool {
        self.signal == Signal::NetnsDropped && self.mechanism == Some(Mechanism::RawTracepoint)
    }

    /// Returns the fact for the engine.
    #[must_use]
    pub(crate) fn fact(&self) -> Attached {
        Attached {
            signal: self.signal,
            mechanism: self.mechanism,
            note: self.note.to_owned(),
            missed: self.missed.clone(),
        }
    }
}

/// The two rings, in the order in which they are read.
pub struct Rings {
    pub lifecycle: RingMap,
    pub bulk: RingMap,
}

/// The hooks. They stay attached as long as this lives, or longer if they are pinned.
pub struct Probe {
    attached: Programs,
    maps: HookMaps,
    logger: Option<Logger>,
    reports: Vec<HookReport>,
    took: Duration,
    pinning: Pinning,
    /// The pinned links. Without them the hooks would end when the pins are removed.
    _links: Vec<PinnedLink>,
    /// Earlier hooks that were not taken over, and what they left.
    earlier: Vec<Earlier>,
    /// Network namespaces for which these hooks had no room when they replaced others.
    not_handed_over: u64,
    /// The kernel measures runs until this is closed.
    _stats: Option<OwnedFd>,
}

enum Programs {
    Loaded(Ebpf),
    TakenOver {
        programs: Vec<(&'static str, OwnedFd)>,
        /// The programs that are attached only as long as these live.
        _attached_again: Vec<Loaded>,
    },
}

/// Whether the hooks outlive this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// Pinning is off.
    Off,
    /// They cannot be pinned.
    Failed(String),
    /// The programs with links that the kernel cannot pin end with the process.
    Pinned { is_taken_over: bool, unpinned: Vec<&'static str> },
}

/// Hooks that still run, and that this agent replaces with its own.
pub(crate) struct Earlier {
    /// `None` if this program cannot read their rings.
    pub(crate) maps: Option<HookMaps>,
    set: PinnedSet,
}

impl Earlier {
    /// Opens the hooks; `None` if they are left alone, because another node's agent left them.
    fn open(set: PinnedSet, node: NodeId, patience: Duration) -> Option<Self> {
        let maps = set.is_readable().then(|| HookMaps::open(&set.folder()));
        let maps = maps.transpose().inspect_err(|error| {
            warn!(%error, "what the hooks of an earlier agent left cannot be read");
        });
        let maps = maps.ok().flatten();
        match maps.as_ref().map_or(Fate::Read, |maps| Fate::of_hooks(maps, node, patience)) {
            Fate::Read => Some(Self { maps, set }),
            Fate::Stay => None,
            Fate::Go => Some(Self { maps: None, set }),
        }
    }

    /// Returns whether all hooks were attached while no agent ran. The links of some programs cannot be
    /// pinned on some kernels.
    pub(crate) fn outlived(&self) -> bool {
        self.set.folder().has_all_links()
    }

    /// Returns the folder with the hooks' tables, if the hooks have worked until now.
    fn known(&self, patience: Duration) -> Option<Folder> {
        let maps = self.maps.as_ref()?;
        (maps.page.unread_for() <= patience).then(|| self.set.folder())
    }

    /// Ends the hooks.
    pub(crate) fn remove(self) -> Result<(), PinError> {
        self.set.remove()
    }
}

impl Probe {
    /// Checks whether this process may load programs at all. This is done before any preparation.
    pub(crate) fn permitted() -> Result<(), Error> {
        support::permitted()
    }

    /// Attaches every hook that works here. Fails if a required hook does not work.
    pub fn load(options: &Options<'_>) -> Result<Self, Error> {
        let probe = Self::survey(options)?;
        match probe.reports.iter().find(|report| report.need == Need::Core && report.mechanism.is_none()) {
            None => Ok(probe),
            Some(report) => Err(Error::core(report.signal, &report.missed)),
        }
    }

    /// Attaches every hook that works here, to find what this kernel allows.
    pub fn survey(options: &Options<'_>) -> Result<Self, Error> {
        let start = Instant::now();
        support::permitted()?;
        let node = NodeId::read(options.root, options.hierarchy)?;
        let mut earlier = options.pins.map(Pins::sets).unwrap_or_default();
        if let Some(probe) = Self::take_over(options, node, &mut earlier, start)? {
            return Ok(probe);
        }
        let earlier =
            earlier.into_iter().filter_map(|set| Earlier::open(set, node, options.patience)).collect();
        Self::attach(options, node, earlier, start)
    }

    /// Takes over hooks that do the same as this agent's would, and removes them from `sets`.
    fn take_over(
        options: &Options<'_>,
        node: NodeId,
        sets: &mut Vec<PinnedSet>,
        start: Instant,
    ) -> Result<Option<Self>, Error> {
        // The reader of the programs' log is made with the programs.
        if options.log {
            return Ok(None);
        }
        let identity = pinned::identity(options, node);
        let same = sets.iter().position(|set| set.is_readable() && set.name.identity == identity);
        let Some(same) = same else { return Ok(None) };
        let found = match sets.get(same).map(|set| pinned::take_over(set, options.patience)) {
            Some(Ok(found)) => found,
            Some(Err(error)) => {
                warn!(%error, "the hooks of the last agent cannot be taken over, and are replaced");
                None
            }
            None => None,
        };
        let Some(found) = found else { return Ok(None) };
        let TakenOver { maps, programs, links, attached_again, reports, detached, not_handed_over } = found;
        sets.remove(same);
        let earlier = sets.drain(..).filter_map(|set| Earlier::open(set, node, options.patience)).collect();
        let stats = stats(options)?;
        Ok(Some(Self {
            attached: Programs::TakenOver { programs, _attached_again: attached_again },
            maps,
            logger: None,
            reports,
            took: start.elapsed(),
            pinning: Pinning::Pinned { is_taken_over: true, unpinned: detached },
            _links: links,
            earlier,
            not_handed_over,
            _stats: stats,
        }))
    }

    fn attach(
        options: &Options<'_>,
        node: NodeId,
        earlier: Vec<Earlier>,
        start: Instant,
    ) -> Result<Self, Error> {
        let (mut loader, cleanup_net, btf) = read_kernel();
        let btf = btf?;
        let offsets = knob::offsets(&btf)?;
        let switches = {
            let Options { hierarchy, all_execs, nets, patience, .. } = *options;
            knob::switches(&btf, node, hierarchy, all_execs, cleanup_net.address(), nets, patience)?
        };

        let log_level = if options.log { u8::MAX } else { 0 };
        loader
            .override_global("OFFSETS", offsets.as_bytes(), true)
            .override_global("SWITCHES", switches.as_bytes(), true)
            .override_global(aya_log::LEVEL, &log_level, true)
            .map_max_entries("LIFECYCLE", options.lifecycle)
            .map_max_entries("BULK", options.bulk)
            // Only the verifier's result: a log of every step would be as long as the verification.
            .verifier_log_level(VerifierLogLevel::STATS);
        let cpus = possible_cpus()?;
        for (name, entries) in table::ALL {
            loader.map_max_entries(name, table::size(entries, cpus));
        }
        if !options.log {
            // The map exists even if logging is off. One page is the smallest size.
            loader.map_max_entries("AYA_LOGS", support::page_size());
        }
        let mut ebpf = loader.load(&object()).map_err(Error::object)?;

        let support = Support::probe(&btf, &offsets, &cleanup_net, options.refused);
        // The types, aya's copy and the rings take megabytes each. So each is freed before the next is made.
        let functions = btf.functions_alone(targets());
        drop(btf);
        let aya_btf = AyaBtf::parse(&functions, Endianness::default());
        drop(functions);
        // Without this, the hooks would assume that no agent has read for long.
        let page = hook_maps::page(&ebpf)?;
        page.reads();
        let pins = if options.log { None } else { options.pins };
        let takes_links = pins.is_some();
        let (reports, links) = ladder::climb_all(&mut ebpf, aya_btf.as_ref().ok(), &support, takes_links);
        drop(aya_btf);
        let room = knob::room(options.nets);
        let known = earlier.iter().filter_map(|one| one.known(options.patience));
        let not_handed_over = known.map(|known| hand_over::hand_over(&known, &mut ebpf, room)).sum();
        // From now on these hooks know everything that the earlier ones know. Until now the earlier ones
        // report.
        page.begin(clock::now());

        let missing = reports.iter().find(|report| report.need == Need::Core && report.mechanism.is_none());
        let missing = missing.map(|report| report.signal);
        let unpinned = reports.iter().flat_map(|report| &report.programs).copied();
        let unpinned: Vec<&str> = unpinned.filter(|name| !links.contains_key(name)).collect();
        let pinned = match (pins, missing) {
            (None, _) => None,
            // No agent runs with these hooks, so the next agent must not take them over.
            (Some(_), Some(signal)) => {
                drop(links);
                Some(Err(PinError::Refused {
                    what: "the hooks".to_owned(),
                    why: format!("{signal} is not seen, and no agent can do without"),
                }))
            }
            (Some(pins), None) => {
                let left = (node, not_handed_over);
                Some(pinned::pin(pins, pinned::identity(options, node), &mut ebpf, &reports, left, links))
            }
        };
        let (pinning, links) = match pinned {
            None => (Pinning::Off, Vec::new()),
            Some(Ok(links)) => (Pinning::Pinned { is_taken_over: false, unpinned }, links),
            // Links that could not be pinned are closed by now.
            Some(Err(error)) => {
                drop(ebpf);
                warn!(%error, "hooks do not outlive this agent");
                let probe = Self::attach(&Options { pins: None, ..*options }, node, earlier, start)?;
                return Ok(Self { pinning: Pinning::Failed(error.to_string()), ..probe });
            }
        };
        let maps = HookMaps::take(&mut ebpf)?;
        let stats = stats(options)?;
        let logger = options.log.then(|| EbpfLogger::init_with_logger(&mut ebpf, Forward).ok()).flatten();
        Ok(Self {
            attached: Programs::Loaded(ebpf),
            maps,
            logger,
            reports,
            took: start.elapsed(),
            pinning,
            _links: links,
            earlier,
            not_handed_over,
            _stats: stats,
        })
    }

    /// Takes the rings; `None` if they were taken before.
    pub fn take_rings(&mut self) -> Option<Rings> {
        self.maps.rings.take()
    }

    /// Returns how many records found no room in a ring since the hooks were loaded, by kind.
    pub(crate) fn lost(&self) -> Option<Vec<u64>> {
        let totals = Totals::new(self.maps.tally().ok()?, BTreeMap::new());
        let lifecycle = totals.lost(Ring::Lifecycle);
        let bulk = totals.lost(Ring::Bulk);
        Some(lifecycle.into_iter().zip(bulk).map(|(one, other)| one.saturating_add(other)).collect())
    }

    /// Takes the reader of the programs' log, if it was enabled; `None` if it was taken before.
    pub(crate) fn take_logger(&mut self) -> Option<Logger> {
        self.logger.take()
    }

    /// Reads all counters.
    pub fn totals(&self) -> Result<Totals, Error> {
        let mut programs = BTreeMap::new();
        match &self.attached {
            Programs::Loaded(ebpf) => {
                for (name, program) in ebpf.programs() {
                    // A program that is not loaded has no descriptor.
                    let Ok(fd) = program.fd() else { continue };
                    programs.insert(name.to_owned(), runs(name, fd.as_fd())?);
                }
            }
            Programs::TakenOver { programs: opened, .. } => {
                for (name, program) in opened {
                    programs.insert((*name).to_owned(), runs(name, program.as_fd())?);
                }
            }
        }
        Ok(Totals::new(self.maps.tally()?, programs).with_not_handed_over(self.not_handed_over))
    }

    /// Returns whether the hooks outlive this process.
    #[must_use]
    pub fn pinning(&self) -> &Pinning {
        &self.pinning
    }

    /// Returns which hooks these are, and how far their rings were read before.
    pub(crate) fn begins(&self) -> RingsRead {
        self.maps.begins()
    }

    /// Returns the page that the agent shares with its hooks, and with the next agent.
    pub(crate) fn page(&self) -> &ReaderPage {
        &self.maps.page
    }

    /// Returns the maps that the hooks share with their reader.
    pub(crate) fn maps(&self) -> &HookMaps {
        &self.maps
    }

    /// Takes the hooks that these replace.
    pub(crate) fn take_earlier(&mut self) -> Vec<Earlier> {
        mem::take(&mut self.earlier)
    }

    /// Returns how each signal is received, in the order of the plan.
    #[must_use]
    pub fn reports(&self) -> &[HookReport] {
        &self.reports
    }

    /// Returns how long loading and attaching took.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.took
    }
}

fn runs(name: &str, program: BorrowedFd<'_>) -> Result<Runs, Error> {
    run::of(program).map_err(|source| Error::Uncounted { program: name.to_owned(), source })
}

/// Reads the kernel's symbols and types at the same time, and makes a loader.
fn read_kernel<'a>() -> (EbpfLoader<'a>, Symbol, Result<Btf, Error>) {
    thread::scope(|scope| {
        let symbol = thread::Builder::new().name("symbols".to_owned()).spawn_scoped(scope, cleanup_net);
        // A new loader reads all types, for relocations that our object does not have. They take much memory,
        // so they are freed before the types are read here.
        let mut loader = EbpfLoader::new();
        loader.btf(None);
        let btf = read_btf();
        let symbol = symbol.ok().and_then(|thread| thread.join().ok());
        (loader, symbol.unwrap_or_else(cleanup_net), btf)
    })
}

fn cleanup_net() -> Symbol {
    Symbol::find(CLEANUP_NET)
}

fn read_btf() -> Result<Btf, Error> {
    let bytes = fs::read(BTF).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NoBtf,
        _ => Error::UnreadableBtf { source: error },
    })?;
    Btf::parse(bytes).map_err(|source| Error::BadBtf { source })
}

/// Returns the number of CPUs that the kernel is prepared for. It may be much larger than the number of CPUs.
fn possible_cpus() -> Result<u32, Error> {
    let cpus = nr_cpus().map_err(|(path, source)| Error::Cpus { path, source })?;
    Ok(u32::try_from(cpus).unwrap_or(u32::MAX))
}

/// Makes the kernel measure runs, if the options ask for it.
fn stats(options: &Options<'_>) -> Result<Option<OwnedFd>, Error> {
    options.stats.then(|| enable_stats(Stats::RunTime)).transpose().map_err(Error::Stats)
}
