//! Loads the eBPF object and attaches each hook by the first mechanism that works.
//!
//! **Invariant:** a program that is not attached is not loaded; each mechanism that failed is kept with the reason.

mod ladder;
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
    fs, io,
    os::fd::{AsFd as _, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use aya::{
    Btf as AyaBtf, Ebpf, EbpfLoader, Endianness, VerifierLogLevel, include_bytes_aligned,
    maps::{Map, MapData, PerCpuArray},
    sys::{Stats, enable_stats},
    util::nr_cpus,
};
use aya_log::EbpfLogger;
use probe_common::{knob::NETS_MAX, table, tally::Tally};
use zerocopy::IntoBytes;

pub use self::ring_map::RingMap;
use self::{
    support::{CLEANUP_NET, Support},
    symbol::Symbol,
};
use super::{
    btf::{BTF, Btf},
    error::Error,
    knob,
    log::{Forward, Logger},
    plan::{Need, targets},
    tally::Totals,
};
use crate::{
    model::fact::{Attached, Mechanism, Signal},
    source::{cgroup::Hierarchy, host::HostRoot, lack::Lack},
};

/// The object that the build script made.
pub(crate) static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/probe-ebpf"));

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
    /// How many network namespaces are tracked where neither fentry nor kprobes report their end; a power of two.
    pub nets: u32,
    /// Mechanisms that are not used, as if this kernel lacked them.
    pub refused: &'a [Mechanism],
}

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
        }
    }
}

/// How a signal is seen.
#[derive(Clone, Debug)]
pub struct HookReport {
    pub signal: Signal,
    pub need: Need,
    /// `None` if no program sees it.
    pub mechanism: Option<Mechanism>,
    /// The programs that see it.
    pub programs: Vec<&'static str>,
    /// What is less precise than with the best mechanism; empty if nothing is.
    pub note: &'static str,
    /// Whether rtnetlink can report the signal instead.
    pub netlink: bool,
    /// The mechanisms that failed before, each with the reason in one line.
    pub missed: Vec<(Mechanism, String)>,
    /// The unmet requirements of the best mechanism that could be met here; empty if it is in use, or if nobody can
    /// meet them.
    pub(crate) lacks: BTreeSet<Lack>,
}

impl HookReport {
    /// Whether rtnetlink adds to this signal: all of it where no hook is attached, or what the hook has no room for.
    #[must_use]
    pub fn needs_netlink(&self) -> bool {
        self.netlink && (self.mechanism.is_none() || self.is_limited())
    }

    /// Whether the hook tracks only a limited number of network namespaces.
    #[must_use]
    pub(crate) fn is_limited(&self) -> bool {
        self.signal == Signal::NetnsDropped && self.mechanism == Some(Mechanism::RawTracepoint)
    }

    /// The form in which the engine is told.
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

/// The programs, which stay attached as long as this lives.
pub struct Probe {
    ebpf: Ebpf,
    rings: Option<Rings>,
    logger: Option<Logger>,
    tally: PerCpuArray<MapData, PodTally>,
    reports: Vec<HookReport>,
    took: Duration,
    /// The kernel measures runs until this is closed.
    _stats: Option<OwnedFd>,
}

/// aya copies map values only as types with its own marker trait.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PodTally(Tally);

// SAFETY: `Tally` is `repr(C)` and made of `u64` alone (zerocopy has it `FromBytes`): any bytes are one.
unsafe impl aya::Pod for PodTally {}

impl Probe {
    /// Whether this process may load programs at all; checked before any preparation.
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

    /// Attaches what works, to see what this kernel allows.
    pub fn survey(options: &Options<'_>) -> Result<Self, Error> {
        let start = Instant::now();
        support::permitted()?;
        let (mut loader, cleanup_net, btf) = read_kernel();
        let btf = btf?;
        let offsets = knob::offsets(&btf)?;
        let switches = {
            let Options { root, hierarchy, all_execs, nets, .. } = *options;
            knob::switches(&btf, root, hierarchy, all_execs, cleanup_net.address(), nets)?
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
        let mut ebpf = loader.load(OBJECT).map_err(Error::object)?;

        let support = Support::probe(&btf, &offsets, &cleanup_net, options.refused);
        // The types, aya's copy and the rings take megabytes each. So each is freed before the next is made.
        let functions = btf.functions_alone(targets());
        drop(btf);
        let aya_btf = AyaBtf::parse(&functions, Endianness::default());
        drop(functions);
        let reports = ladder::climb_all(&mut ebpf, aya_btf.as_ref().ok(), &support);
        drop(aya_btf);

        let rings = Rings { lifecycle: ring(&mut ebpf, "LIFECYCLE")?, bulk: ring(&mut ebpf, "BULK")? };
        let tally = ebpf.take_map("TALLY").ok_or(Error::Foreign("TALLY"))?;
        let tally = PerCpuArray::try_from(tally).map_err(|source| Error::Map { name: "TALLY", source })?;
        let stats = options.stats.then(|| enable_stats(Stats::RunTime)).transpose().map_err(Error::Stats)?;
        let logger = options.log.then(|| EbpfLogger::init_with_logger(&mut ebpf, Forward).ok()).flatten();
        Ok(Self { ebpf, rings: Some(rings), logger, tally, reports, took: start.elapsed(), _stats: stats })
    }

    /// The rings; `None` once they were taken.
    pub fn take_rings(&mut self) -> Option<Rings> {
        self.rings.take()
    }

    /// The reader of the programs' log, if it was enabled; `None` once it was taken.
    pub(crate) fn take_logger(&mut self) -> Option<Logger> {
        self.logger.take()
    }

    /// Reads all counters.
    pub fn totals(&self) -> Result<Totals, Error> {
        let values = self.tally.get(&0, 0).map_err(|source| Error::Map { name: "TALLY", source })?;
        let cpus = values.iter().map(|value| value.0).collect();
        let mut programs = BTreeMap::new();
        for (name, program) in self.ebpf.programs() {
            // A program that is not loaded has no descriptor.
            let Ok(fd) = program.fd() else { continue };
            let runs = run::of(fd.as_fd())
                .map_err(|source| Error::Uncounted { program: name.to_owned(), source })?;
            programs.insert(name.to_owned(), runs);
        }
        Ok(Totals::new(cpus, programs))
    }

    /// How each signal is seen, in the order of the plan.
    #[must_use]
    pub fn reports(&self) -> &[HookReport] {
        &self.reports
    }

    /// How long loading and attaching took.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.took
    }
}

/// Reads the kernel's symbols and types at the same time, and makes a loader.
fn read_kernel<'a>() -> (EbpfLoader<'a>, Symbol, Result<Btf, Error>) {
    let read_symbol = || Symbol::find(CLEANUP_NET);
    thread::scope(|scope| {
        let symbol = thread::Builder::new().name("symbols".to_owned()).spawn_scoped(scope, read_symbol);
        // A new loader reads all types, for relocations that our object does not have. They take much memory, so they are
        // freed before the types are read here.
        let mut loader = EbpfLoader::new();
        loader.btf(None);
        let btf = read_btf();
        let symbol = symbol.ok().and_then(|thread| thread.join().ok());
        (loader, symbol.unwrap_or_else(read_symbol), btf)
    })
}

fn read_btf() -> Result<Btf, Error> {
    let bytes = fs::read(BTF).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NoBtf,
        _ => Error::UnreadableBtf { source: error },
    })?;
    Btf::parse(bytes).map_err(|source| Error::BadBtf { source })
}

/// The number of CPUs that the kernel is prepared for. It may be much larger than the number of CPUs.
fn possible_cpus() -> Result<u32, Error> {
    let cpus = nr_cpus().map_err(|(path, source)| Error::Cpus { path, source })?;
    Ok(u32::try_from(cpus).unwrap_or(u32::MAX))
}

fn ring(ebpf: &mut Ebpf, name: &'static str) -> Result<RingMap, Error> {
    let Some(Map::RingBuf(map)) = ebpf.take_map(name) else { return Err(Error::Foreign(name)) };
    let size = map.info().map_err(|source| Error::Map { name, source })?.max_entries();
    RingMap::new(map.fd().as_fd(), size).map_err(|source| Error::Ring { name, source })
}
