//! Pins the hooks of this agent, and takes over those of the last agent.

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
    HookReport, Options, PACKED,
    hook_maps::{HookMaps, leave_report},
    run,
};
use crate::{
    model::fact::{Attached, Mechanism},
    source::live::{
        error::Error,
        knob::NodeId,
        pin::{PinError, PinnedSet, Pins, SetName},
        plan::{self, HOOKS, Need},
    },
};

/// The maps of a set that the next agent reads. The tables are pinned too: some are handed over to the hooks
/// that replace these (`hand_over`), and `bpftool` shows all.
const MAPS: [&str; 5] = ["LIFECYCLE", "BULK", "TALLY", "READER", "REPORT"];

/// The report that is left with the hooks in the kernel: how each signal is received, and for which node.
#[derive(Serialize, Deserialize)]
struct Left {
    attached: Vec<Attached>,
    /// A better mechanism would work if it were allowed.
    can_improve: bool,
    /// The node whose agent left the hooks. Older versions did not record it.
    node: Option<Owner>,
    /// Network namespaces for which there was no room when these hooks replaced others.
    #[serde(default)]
    not_handed_over: u64,
}

/// Identifies a node among agents that share a folder. The network namespace of the node's first process is
/// not used: an agent that may not read it uses its own pod's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    root_cgroup: u64,
    pid_ns: u32,
}

impl From<NodeId> for Owner {
    fn from(NodeId { root_cgroup, pid_ns, netns: _ }: NodeId) -> Self {
        Self { root_cgroup, pid_ns }
    }
}

/// What happens to hooks that this agent does not take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// They are this node's: their records are read, then they are removed.
    Read,
    /// They are another node's; its next agent takes them over.
    Stay,
    /// They were another node's, and no longer do anything.
    Go,
}

impl Fate {
    /// Returns the fate of hooks. `unread`: how long no agent has read their records.
    fn of(left_by: Option<Owner>, own: Owner, unread: Duration, patience: Duration) -> Self {
        match left_by {
            Some(owner) if owner != own && unread <= patience => Self::Stay,
            Some(owner) if owner != own => Self::Go,
            Some(_) | None => Self::Read,
        }
    }

    pub(super) fn of_hooks(maps: &HookMaps, node: NodeId, patience: Duration) -> Self {
        let left = maps.report().ok().and_then(|report| serde_json::from_slice::<Left>(&report).ok());
        Self::of(left.and_then(|left| left.node), node.into(), maps.page.unread_for(), patience)
    }
}

/// Hooks that were taken over.
pub(super) struct TakenOver {
    pub(super) maps: HookMaps,
    pub(super) programs: Vec<(&'static str, OwnedFd)>,
    /// The hooks stay attached as long as these live, even if the pins are removed.
    pub(super) links: Vec<PinnedLink>,
    /// The programs that are attached only as long as these live.
    pub(super) attached_again: Vec<Program>,
    pub(super) reports: Vec<HookReport>,
    /// The programs that were detached while no agent ran, because the kernel cannot pin their links.
    pub(super) detached: Vec<&'static str>,
    pub(super) not_handed_over: u64,
}

/// Returns a hash that is equal for hooks that do the same: the same programs with the same settings, on the
/// same node.
pub(super) fn identity(options: &Options<'_>, node: NodeId) -> u64 {
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
    (PACKED, &hierarchy.mount, hierarchy.id, all_execs, log).hash(&mut hasher);
    (lifecycle, bulk, nets, refused, patience, node).hash(&mut hasher);
    hasher.finish()
}

/// Pins the loaded hooks. `links` are the links that the kernel can pin. Returns them: a hook stays attached
/// as long as its link is pinned or open.
pub(super) fn pin(
    pins: &Pins,
    identity: u64,
    ebpf: &mut Ebpf,
    reports: &[HookReport],
    (node, not_handed_over): (NodeId, u64),
    links: BTreeMap<&'static str, FdLink>,
) -> Result<Vec<PinnedLink>, PinError> {
    let hooks = match ebpf.map("LIFECYCLE") {
        Some(Map::RingBuf(ring)) => {
            ring.info().map_err(|error| refused("the rings", error.to_string()))?.id()
        }
        _ => return Err(refused("the rings", "the object has none".to_owned())),
    };
    leave_report(ebpf, &report(reports, node, not_handed_over))
        .map_err(|error| refused("a report", error.to_string()))?;
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

fn refused(what: &str, why: String) -> PinError {
    PinError::Refused { what: what.to_owned(), why }
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Serializes the report for the next agent.
fn report(reports: &[HookReport], node: NodeId, not_handed_over: u64) -> Vec<u8> {
    let attached = reports.iter().map(HookReport::fact).collect();
    let can_improve = reports.iter().any(|report| report.may_improve || !report.lacks.is_empty());
    let left = Left { attached, can_improve, node: Some(node.into()), not_handed_over };
    serde_json::to_vec(&left).unwrap_or_default()
}

/// Takes hooks over. `None` if new hooks should be loaded: these have done nothing for a while, a required
/// hook is missing, or better mechanisms may be allowed now.
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
    let mut programs = Vec::new();
    let mut links = Vec::new();
    let mut detached = Vec::new();
    let mut attached_again = Vec::new();
    for hook in HOOKS {
        let Some(attached) = left.attached.iter().find(|attached| attached.signal == hook.signal) else {
            return Ok(None);
        };
        let by = hook.tries.iter().find(|one| Some(one.mechanism) == attached.mechanism);
        if by.is_none() && hook.need == Need::Core {
            return Ok(None);
        }
        for program in by.map_or(&[][..], |one| one.programs) {
            let opened = run::open(&folder.program(program.name));
            let opened =
                opened.map_err(|error| Error::TakenOver { program: program.name, source: error.into() })?;
            match PinnedLink::from_pin(folder.link(program.name)) {
                Ok(link) => links.push(link),
                Err(_) => {
                    let path = folder.program(program.name);
                    let attached = attach(&path, attached.mechanism, program.target);
                    let attached =
                        attached.map_err(|source| Error::TakenOver { program: program.name, source })?;
                    attached_again.push(attached);
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
    let not_handed_over = left.not_handed_over;
    // From now on the hooks do not stop by themselves.
    maps.page.reads();
    Ok(Some(TakenOver { maps, programs, links, attached_again, reports, detached, not_handed_over }))
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

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use super::{Fate, Left, NodeId, Options, identity};
    use crate::source::{host::HostRoot, node::cgroup::Hierarchy};

    const NODE: NodeId = NodeId { root_cgroup: 1, pid_ns: 2, netns: 3 };

    /// Two kind nodes have everything else in common.
    #[test]
    fn hooks_of_another_node_do_not_do_the_same() {
        let place = tempfile::tempdir().expect("a folder");
        let root = HostRoot::open(place.path()).expect("the root");
        let hierarchy = Hierarchy { id: 0, controllers: Vec::new(), mount: "/sys/fs/cgroup".to_owned() };
        let options = Options::new(&root, &hierarchy);
        let others = [
            NODE,
            NodeId { root_cgroup: 9, ..NODE },
            NodeId { pid_ns: 9, ..NODE },
            NodeId { netns: 9, ..NODE },
        ];
        assert_eq!(identity(&options, NODE), identity(&options, NODE));
        assert_eq!(others.map(|node| identity(&options, node)).into_iter().collect::<BTreeSet<_>>().len(), 4);
    }

    #[test]
    fn hooks_of_another_node_stay_as_long_as_its_agent_can_take_them_over() {
        let patience = Duration::from_secs(60);
        for (left_by, unread, fate) in [
            (Some(NODE), 1, Fate::Read),
            (Some(NODE), 61, Fate::Read),
            // An agent that may not read the first process finds another network namespace each time.
            (Some(NodeId { netns: 9, ..NODE }), 1, Fate::Read),
            (Some(NodeId { pid_ns: 9, ..NODE }), 60, Fate::Stay),
            (Some(NodeId { root_cgroup: 9, ..NODE }), 60, Fate::Stay),
            (Some(NodeId { pid_ns: 9, ..NODE }), 61, Fate::Go),
            // A version that did not record its node left these.
            (None, 1, Fate::Read),
        ] {
            let unread = Duration::from_secs(unread);
            let found = Fate::of(left_by.map(Into::into), NODE.into(), unread, patience);
            assert_eq!(found, fate, "{left_by:?} {unread:?}");
        }
    }

    #[test]
    fn what_a_version_left_that_told_nothing_of_its_node_is_read() {
        let left: Left = serde_json::from_str(r#"{"attached":[],"can_improve":false}"#).expect("a report");
        assert_eq!((left.node, left.not_handed_over), (None, 0));
    }
}
