//! Loads the eBPF object and attaches each hook by the first of its ways that works.
//!
//! **Invariant:** a program that is not attached is not loaded; what did not work is kept, with the reason.

mod ladder;
mod reason;
mod run;
#[cfg(test)]
mod stack;
mod support;
mod symbol;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::fd::{AsFd as _, OwnedFd},
    time::{Duration, Instant},
};

use aya::{
    Btf as AyaBtf, Ebpf, EbpfLoader, VerifierLogLevel, include_bytes_aligned,
    maps::{MapData, PerCpuArray, RingBuf},
    sys::{Stats, enable_stats},
    util::nr_cpus,
};
use aya_log::EbpfLogger;
use probe_common::{knob::NETS_MAX, table, tally::Tally};
use zerocopy::IntoBytes;

use self::{
    ladder::Ladder,
    support::{CLEANUP_NET, Support},
    symbol::Symbol,
};
use super::{
    btf::{BTF, Btf},
    error::Error,
    knob,
    log::{Forward, Logger},
    plan::{HOOKS, Need},
    tally::Totals,
};
use crate::{
    model::fact::{Attached, Mechanism, Signal},
    source::{cgroup::Hierarchy, host::HostRoot, lack::Lack},
};

/// The object, as the build script made it.
pub static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/probe-ebpf"));

/// What to load and for which node.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    pub root: &'a HostRoot,
    /// The one that identifies containers.
    pub hierarchy: &'a Hierarchy,
    /// Every exec, not only those that matter.
    pub all_execs: bool,
    /// The programs' own diagnostics.
    pub log: bool,
    /// Sizes of the rings in bytes: powers of two, of whole pages.
    pub lifecycle: u32,
    pub bulk: u32,
    /// Have the kernel count runs of programs and their time, of all on the node, as long as the probe lives.
    pub stats: bool,
    /// How many network namespaces are kept an eye on where neither fentry nor kprobes tell of their ends; a power of two.
    pub nets: u32,
    /// Mechanisms not to be used, as if this kernel lacked them.
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
    /// `None`: by no program.
    pub mechanism: Option<Mechanism>,
    /// The programs that see it.
    pub programs: Vec<&'static str>,
    /// What is less precise than with the best mechanism; empty if nothing.
    pub note: &'static str,
    /// Whether rtnetlink could tell of it instead.
    pub netlink: bool,
    /// What was tried before, and one line on why it did not work.
    pub missed: Vec<(Mechanism, String)>,
    /// What the best way lacks that can be had here, so that it is not used; empty if it is, or if nobody can give it.
    pub(crate) lacks: BTreeSet<Lack>,
}

impl HookReport {
    /// Whether rtnetlink has something to tell of it: all, where no hook does, or what the hook has no room for.
    #[must_use]
    pub fn needs_netlink(&self) -> bool {
        self.netlink && (self.mechanism.is_none() || self.is_limited())
    }

    /// Whether the hook keeps an eye on so many network namespaces and no more.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.signal == Signal::NetnsDropped && self.mechanism == Some(Mechanism::RawTracepoint)
    }

    /// As the engine is told.
    #[must_use]
    pub fn fact(&self) -> Attached {
        Attached {
            signal: self.signal,
            mechanism: self.mechanism,
            note: self.note.to_owned(),
            missed: self.missed.clone(),
        }
    }
}

/// The two rings, in the order in which they are to be drained.
pub struct Rings {
    pub lifecycle: RingBuf<MapData>,
    pub bulk: RingBuf<MapData>,
}

/// The programs, attached as long as this lives.
pub struct Probe {
    ebpf: Ebpf,
    rings: Option<Rings>,
    logger: Option<Logger>,
    tally: PerCpuArray<MapData, PodTally>,
    reports: Vec<HookReport>,
    took: Duration,
    /// Counting goes on until it is closed.
    _stats: Option<OwnedFd>,
}

/// aya copies map values only as types that are marked so.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PodTally(Tally);

// SAFETY: `Tally` is `repr(C)` and made of `u64` alone (zerocopy has it `FromBytes`): any bytes are one.
unsafe impl aya::Pod for PodTally {}

impl Probe {
    /// Whether this process may load anything, before something is made ready for it.
    pub fn permitted() -> Result<(), Error> {
        support::permitted()
    }

    /// Attaches every hook that works here; fails if one cannot be that nothing works without.
    pub fn load(options: &Options<'_>) -> Result<Self, Error> {
        let probe = Self::survey(options)?;
        match probe.reports.iter().find(|report| report.need == Need::Core && report.mechanism.is_none()) {
            None => Ok(probe),
            Some(report) => Err(Error::core(report.signal, &report.missed)),
        }
    }

    /// Attaches what it can, to see what this kernel allows.
    pub fn survey(options: &Options<'_>) -> Result<Self, Error> {
        let start = Instant::now();
        support::permitted()?;
        let btf = read_btf()?;
        let offsets = knob::offsets(&btf)?;
        let cleanup_net = Symbol::find(CLEANUP_NET);
        let switches = {
            let Options { root, hierarchy, all_execs, nets, .. } = *options;
            knob::switches(&btf, root, hierarchy, all_execs, cleanup_net.address(), nets)?
        };

        let log_level = if options.log { u8::MAX } else { 0 };
        let mut loader = EbpfLoader::new();
        // It has read the kernel's types for relocations, which our object has none of; they are large.
        loader.btf(None);
        let aya_btf = AyaBtf::from_sys_fs();
        loader
            .override_global("OFFSETS", offsets.as_bytes(), true)
            .override_global("SWITCHES", switches.as_bytes(), true)
            .override_global(aya_log::LEVEL, &log_level, true)
            .map_max_entries("LIFECYCLE", options.lifecycle)
            .map_max_entries("BULK", options.bulk)
            // Its verdict alone: with every step of a large program the log would be as long as its verification.
            .verifier_log_level(VerifierLogLevel::STATS);
        let cpus = possible_cpus()?;
        for (name, entries) in table::ALL {
            loader.map_max_entries(name, table::size(entries, cpus));
        }
        if !options.log {
            // It is there whether used or not; one page is the least.
            loader.map_max_entries("AYA_LOGS", support::page_size());
        }
        let mut ebpf = loader.load(OBJECT).map_err(Error::object)?;

        let support = Support::probe(&btf, &offsets, &cleanup_net, options.refused);
        let mut ladder = Ladder { ebpf: &mut ebpf, btf: aya_btf.as_ref().ok(), support };
        let reports = HOOKS.iter().map(|hook| ladder.climb(hook)).collect();

        let rings = Rings { lifecycle: ring(&mut ebpf, "LIFECYCLE")?, bulk: ring(&mut ebpf, "BULK")? };
        let tally = ebpf.take_map("TALLY").ok_or(Error::Foreign("TALLY"))?;
        let tally = PerCpuArray::try_from(tally).map_err(|source| Error::Map { name: "TALLY", source })?;
        let stats = options.stats.then(|| enable_stats(Stats::RunTime)).transpose().map_err(Error::Stats)?;
        let logger = options.log.then(|| EbpfLogger::init_with_logger(&mut ebpf, Forward).ok()).flatten();
        Ok(Self { ebpf, rings: Some(rings), logger, tally, reports, took: start.elapsed(), _stats: stats })
    }

    /// The rings; `None` once taken.
    pub fn take_rings(&mut self) -> Option<Rings> {
        self.rings.take()
    }

    /// The reader of the programs' diagnostics, if they were asked for; `None` once taken.
    pub fn take_logger(&mut self) -> Option<Logger> {
        self.logger.take()
    }

    /// All counters, as they stand.
    pub fn totals(&self) -> Result<Totals, Error> {
        let values = self.tally.get(&0, 0).map_err(|source| Error::Map { name: "TALLY", source })?;
        let cpus = values.iter().map(|value| value.0).collect();
        let mut programs = BTreeMap::new();
        for (name, program) in self.ebpf.programs() {
            // One that is not loaded has no descriptor.
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

    /// From nothing to attached.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.took
    }
}

fn read_btf() -> Result<Btf, Error> {
    let bytes = fs::read(BTF).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NoBtf,
        _ => Error::UnreadableBtf { source: error },
    })?;
    Btf::parse(bytes).map_err(|source| Error::BadBtf { source })
}

/// How many CPUs the kernel has set itself up for, which may be many more than there are.
fn possible_cpus() -> Result<u32, Error> {
    let cpus = nr_cpus().map_err(|(path, source)| Error::Cpus { path, source })?;
    Ok(u32::try_from(cpus).unwrap_or(u32::MAX))
}

fn ring(ebpf: &mut Ebpf, name: &'static str) -> Result<RingBuf<MapData>, Error> {
    let map = ebpf.take_map(name).ok_or(Error::Foreign(name))?;
    RingBuf::try_from(map).map_err(|source| Error::Map { name, source })
}
