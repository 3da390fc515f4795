//! A pod's start and its phases as the members of objects; `docs/phases.md` describes them.

use std::time::Duration;

use serde::Serialize;

use super::{
    SCHEMA,
    event::{Container, Socket, Text, nanos},
};
use crate::{
    engine::share::Share,
    model::{
        change::ContainerRef,
        fact::{CpuUse, MemoryEvents, Pressure, Stall},
        phase::{self, Cause, Kind},
    },
    sink::{Label, wall::Rfc3339},
};

#[derive(Serialize)]
pub(super) struct Start<'a> {
    begin_ns: Text<u64>,
    total_ns: Text<u128>,
    complete: bool,
    containers_known: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    missing: &'a [String],
    #[serde(skip_serializing_if = "no")]
    revised: bool,
    #[serde(skip_serializing_if = "no")]
    rebuilt: bool,
    #[serde(skip_serializing_if = "no")]
    listed: bool,
    #[serde(skip_serializing_if = "no")]
    suspended: bool,
    #[serde(skip_serializing_if = "no")]
    gapped: bool,
    phases: Vec<Phase<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    listening: Vec<Listening<'a>>,
}

/// A start by itself, with the members of an event that tell whose it is.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    schema: u32,
    node: &'a str,
    boot_id: &'a str,
    /// When it began.
    at: Text<Rfc3339>,
    pod: Pod<'a>,
    sandbox: Sandbox<'a>,
    start: Start<'a>,
}

#[derive(Serialize)]
struct Pod<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
}

#[derive(Serialize)]
struct Sandbox<'a> {
    id: &'a str,
}

#[derive(Serialize)]
struct Phase<'a> {
    #[serde(flatten)]
    name: Name<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<Container<'a>>,
    begin_ns: Text<u64>,
    duration_ns: Text<u128>,
    #[serde(skip_serializing_if = "no")]
    inferred: bool,
    #[serde(skip_serializing_if = "no")]
    gapped: bool,
    #[serde(flatten)]
    cause: Causes,
}

#[derive(Serialize)]
struct Listening<'a> {
    container: Container<'a>,
    begin_ns: Text<u64>,
    duration_ns: Text<u128>,
    #[serde(flatten)]
    socket: Socket,
    #[serde(skip_serializing_if = "no")]
    gapped: bool,
    #[serde(skip_serializing_if = "no")]
    suspended: bool,
}

#[derive(Serialize)]
struct Name<'a> {
    phase: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ifname: Option<&'a str>,
}

/// What is nothing is left out.
#[derive(Serialize)]
struct Causes {
    #[serde(skip_serializing_if = "is_none")]
    adds: u32,
    #[serde(skip_serializing_if = "is_none")]
    failed: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_ns: Option<Text<u128>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin_ns: Option<Text<u128>>,
    #[serde(skip_serializing_if = "is_none")]
    sandboxes: u32,
    #[serde(skip_serializing_if = "is_none")]
    runs: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    teardown_ns: Option<Text<u128>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stall: Option<Stalls>,
}

#[derive(Serialize)]
struct Cpu {
    used_ns: Text<u128>,
    throttled_ns: Text<u128>,
    throttled_periods: Text<u64>,
}

#[derive(Serialize)]
struct Memory {
    high: Text<u64>,
    max: Text<u64>,
    oom: Text<u64>,
}

#[derive(Serialize)]
struct Stalls {
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<Waited>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Waited>,
    #[serde(skip_serializing_if = "Option::is_none")]
    io: Option<Waited>,
}

#[derive(Serialize)]
struct Waited {
    some_ns: Text<u128>,
    full_ns: Text<u128>,
}

/// How long a phase takes on the node; with no phase, the whole start.
#[derive(Serialize)]
pub(super) struct Shared<'a> {
    #[serde(flatten)]
    name: Option<Name<'a>>,
    starts: u32,
    p50_ns: Text<u128>,
    p90_ns: Text<u128>,
    p99_ns: Text<u128>,
}

impl<'a> Start<'a> {
    pub(super) fn of(start: &'a phase::Start) -> Self {
        Self {
            begin_ns: Text(start.begin.0),
            total_ns: nanos(start.total()),
            complete: start.complete,
            containers_known: start.containers_known,
            missing: &start.missing,
            revised: start.revised,
            rebuilt: start.rebuilt,
            listed: start.listed,
            suspended: start.suspended,
            gapped: start.is_gapped(),
            phases: start.phases.iter().map(Phase::of).collect(),
            listening: start.listening.iter().map(Listening::of).collect(),
        }
    }
}

impl<'a> Line<'a> {
    pub(super) fn of(start: &'a phase::Start, label: &'a Label) -> Self {
        let pod = &start.pod;
        Self {
            schema: SCHEMA,
            node: &label.node,
            boot_id: &label.boot_id,
            at: Text(Rfc3339(label.wall_ns(start.begin))),
            pod: Pod {
                namespace: pod.namespace.as_deref(),
                name: pod.name.as_deref(),
                uid: pod.uid.as_ref().map(|uid| uid.as_str()),
            },
            sandbox: Sandbox { id: start.sandbox.as_str() },
            start: Start::of(start),
        }
    }
}

impl<'a> Phase<'a> {
    fn of(phase: &'a phase::Phase) -> Self {
        Self {
            name: Name::of(&phase.kind),
            container: phase.container.as_ref().map(container),
            begin_ns: Text(phase.begin.0),
            duration_ns: nanos(phase.took()),
            inferred: matches!(phase.kind, Kind::Init | Kind::PostStart),
            gapped: phase.gapped,
            cause: Causes::of(&phase.cause),
        }
    }
}

impl<'a> Listening<'a> {
    fn of(it: &'a phase::Listening) -> Self {
        Self {
            container: container(&it.container),
            begin_ns: Text(it.begin.0),
            duration_ns: nanos(it.took()),
            socket: Socket::of(it.socket),
            gapped: it.gapped,
            suspended: it.suspended,
        }
    }
}

fn container(it: &ContainerRef) -> Container<'_> {
    Container { id: it.id.as_str(), name: it.name.as_deref() }
}

impl<'a> Name<'a> {
    fn of(kind: &'a Kind) -> Self {
        let (plugin, ifname) = match kind {
            Kind::Cni { plugin, ifname } => (Some(plugin.as_str()), Some(ifname.as_str())),
            _ => (None, None),
        };
        Self { phase: kind.into_str(), plugin, ifname: ifname.filter(|name| !name.is_empty()) }
    }
}

impl Causes {
    fn of(cause: &Cause) -> Self {
        let Cause { adds, failed, wasted, took, sandboxes, runs, teardown, pressure } = cause;
        let Pressure { cpu, memory, cpu_stall, memory_stall, io_stall } = pressure;
        let stall = Stalls {
            cpu: cpu_stall.map(Waited::of),
            memory: memory_stall.map(Waited::of),
            io: io_stall.map(Waited::of),
        };
        let has_stall = stall.cpu.is_some() || stall.memory.is_some() || stall.io.is_some();
        Self {
            adds: *adds,
            failed: *failed,
            failed_ns: some(*wasted),
            plugin_ns: some(*took),
            sandboxes: *sandboxes,
            runs: *runs,
            teardown_ns: some(*teardown),
            cpu: cpu.map(|CpuUse { used, throttled, periods }| Cpu {
                used_ns: nanos(used),
                throttled_ns: nanos(throttled),
                throttled_periods: Text(periods),
            }),
            memory: memory.map(|MemoryEvents { high, max, oom }| Memory {
                high: Text(high),
                max: Text(max),
                oom: Text(oom),
            }),
            stall: has_stall.then_some(stall),
        }
    }
}

impl Waited {
    fn of(Stall { some, full }: Stall) -> Self {
        Self { some_ns: nanos(some), full_ns: nanos(full) }
    }
}

impl<'a> Shared<'a> {
    pub(super) fn of(share: &'a Share) -> Self {
        Self {
            name: share.kind.as_ref().map(Name::of),
            starts: share.starts,
            p50_ns: nanos(share.p50),
            p90_ns: nanos(share.p90),
            p99_ns: nanos(share.p99),
        }
    }
}

fn some(span: Duration) -> Option<Text<u128>> {
    (!span.is_zero()).then(|| nanos(span))
}

fn is_none(number: &u32) -> bool {
    *number == 0
}

fn no(flag: &bool) -> bool {
    !flag
}
