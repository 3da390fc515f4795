//! Pins the hooks of this agent, and takes over those of the agent before.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    os::fd::OwnedFd,
    path::Path,
    time::Duration,
};

use aya::{
    Ebpf,
    maps::Map,
    programs::{
        KProbe, ProbeKind, Program, ProgramError, TracePoint,
        links::{FdLink, PinnedLink},
    },
};
use probe_common::{reader_page::VERSION, table};
use serde::{Deserialize, Serialize};

use super::{
    HookReport, OBJECT, Options,
    hook_maps::{HookMaps, leave_report},
    run,
};
use crate::{
    model::fact::{Attached, Mechanism},
    source::live::{
        error::Error,
        pin::{PinError, PinnedSet, Pins, SetName},
        plan::{self, HOOKS, Need},
    },
};

/// The maps of a set that the next agent opens; the tables are pinned for `bpftool`.
const MAPS: [&str; 5] = ["LIFECYCLE", "BULK", "TALLY", "READER", "REPORT"];

/// How each signal is seen, as it is left in the kernel.
#[derive(Serialize, Deserialize)]
struct Left {
    attached: Vec<Attached>,
    /// A better mechanism could be had if somebody allowed it.
    can_improve: bool,
}

/// Hooks that were taken over.
pub(super) struct TakenOver {
    pub(super) maps: HookMaps,
    pub(super) programs: Vec<(&'static str, OwnedFd)>,
    /// The hooks stay attached as long as these live, even if somebody removes the pins.
    pub(super) links: Vec<PinnedLink>,
    /// The programs that are attached only as long as these live.
    pub(super) attached_again: Vec<Program>,
    pub(super) reports: Vec<HookReport>,
    /// The programs that were detached while no agent ran, because the kernel cannot pin their links.
    pub(super) detached: Vec<&'static str>,
}

/// Equal for hooks that do the same: the same programs with the same settings.
pub(super) fn identity(options: &Options<'_>) -> u64 {
    let Options {
        root: _,
        hierarchy,
        all_execs,
        log,
        lifecycle,
        bulk,
        stats: _,
        nets,
        refused,
        pins: _,
        patience,
    } = *options;
    let mut hasher = DefaultHasher::new();
    (OBJECT, &hierarchy.mount, hierarchy.id, all_execs, log).hash(&mut hasher);
    (lifecycle, bulk, nets, refused, patience).hash(&mut hasher);
    hasher.finish()
}

/// Pins the loaded hooks. `links` are those that the kernel lets us pin. They are given back: a hook stays attached as long
/// as its link is pinned or open.
pub(super) fn pin(
    pins: &Pins,
    identity: u64,
    ebpf: &mut Ebpf,
    reports: &[HookReport],
    links: BTreeMap<&'static str, FdLink>,
) -> Result<Vec<PinnedLink>, PinError> {
    let refused = |what: &str, why: String| PinError::Refused { what: what.to_owned(), why };
    let hooks = match ebpf.map("LIFECYCLE") {
        Some(Map::RingBuf(ring)) => {
            ring.info().map_err(|error| refused("the rings", error.to_string()))?.id()
        }
        _ => return Err(refused("the rings", "the object has none".to_owned())),
    };
    leave_report(ebpf, &report(reports)).map_err(|error| refused("a report", error.to_string()))?;
    let name = SetName { version: VERSION, identity, hooks };
    pins.add(name, |folder| {
        let tables = table::ALL.map(|(name, _)| name);
        for name in MAPS.into_iter().chain(tables) {
            let Some(map) = ebpf.map(name) else { continue };
            map.pin(folder.map(name)).map_err(|error| refused(name, root_cause(&error)))?;
        }
        for name in reports.iter().flat_map(|report| &report.programs) {
            let Some(program) = ebpf.program_mut(name) else { continue };
            program.pin(folder.program(name)).map_err(|error| refused(name, root_cause(&error)))?;
        }
        let pinned = links.into_iter().map(|(name, link)| {
            link.pin(folder.link(name)).map_err(|error| refused(name, root_cause(&error)))
        });
        pinned.collect()
    })
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// The report as it is left to the next agent.
fn report(reports: &[HookReport]) -> Vec<u8> {
    let attached = reports.iter().map(HookReport::fact).collect();
    let can_improve = reports.iter().any(|report| report.may_improve || !report.lacks.is_empty());
    serde_json::to_vec(&Left { attached, can_improve }).unwrap_or_default()
}

/// Takes hooks over. `None` if new ones should be loaded: these have done nothing for a while, a required one of them is
/// missing, or better mechanisms may be allowed by now.
pub(super) fn take_over(set: &PinnedSet, patience: Duration) -> Result<Option<TakenOver>, Error> {
    let folder = set.folder();
    let maps = HookMaps::open(&folder)?;
    if maps.page.unread_for() > patience {
        return Ok(None);
    }
    let Ok(left) = serde_json::from_slice::<Left>(&maps.report()?) else { return Ok(None) };
    if left.can_improve {
        return Ok(None);
    }
    let mut reports = Vec::new();
    let (mut programs, mut links) = (Vec::new(), Vec::new());
    let (mut detached, mut attached_again) = (Vec::new(), Vec::new());
    for hook in HOOKS {
        let Some(attached) = left.attached.iter().find(|attached| attached.signal == hook.signal) else {
            return Ok(None);
        };
        let by = hook.tries.iter().find(|one| Some(one.mechanism) == attached.mechanism);
        if by.is_none() && hook.need == Need::Core {
            return Ok(None);
        }
        for program in by.map_or(&[][..], |one| one.programs) {
            let refused = |source| Error::TakenOver { program: program.name, source };
            let opened = run::open(&folder.program(program.name));
            let opened = opened.map_err(|error| refused(error.into()))?;
            match PinnedLink::from_pin(folder.link(program.name)) {
                Ok(link) => links.push(link),
                Err(_) => {
                    let path = folder.program(program.name);
                    attached_again.push(attach(&path, attached.mechanism, program.target).map_err(refused)?);
                    detached.push(program.name);
                }
            }
            programs.push((program.name, opened));
        }
        reports.push(HookReport {
            signal: hook.signal,
            need: hook.need,
            mechanism: by.map(|one| one.mechanism),
            programs: by.map_or_else(Vec::new, plan::Try::names),
            note: by.map_or("", |one| one.note),
            netlink: hook.netlink,
            missed: attached.missed.clone(),
            lacks: BTreeSet::new(),
            may_improve: false,
        });
    }
    // From now on the hooks do not stop by themselves.
    maps.page.reads();
    Ok(Some(TakenOver { maps, programs, links, attached_again, reports, detached }))
}

/// Attaches a program again whose link cannot be pinned.
fn attach(path: &Path, mechanism: Option<Mechanism>, target: &str) -> Result<Program, ProgramError> {
    Ok(match mechanism {
        Some(Mechanism::Tracepoint) => {
            let (category, name) = target.split_once(':').unwrap_or(("", target));
            let mut own = TracePoint::from_pin(path)?;
            own.attach(category, name)?;
            Program::TracePoint(own)
        }
        Some(Mechanism::Kprobe | Mechanism::Kretprobe) => {
            let is_entry = mechanism == Some(Mechanism::Kprobe);
            let kind = if is_entry { ProbeKind::Entry } else { ProbeKind::Return };
            let mut own = KProbe::from_pin(path, kind)?;
            own.attach(target, 0)?;
            Program::KProbe(own)
        }
        Some(Mechanism::Fentry | Mechanism::Fexit | Mechanism::RawTracepoint | Mechanism::Netlink) | None => {
            return Err(ProgramError::NotLoaded);
        }
    })
}
