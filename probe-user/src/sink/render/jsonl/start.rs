//! A pod's start and its phases as the members of objects; `docs/phases.md` describes them.
//!
//! The form of starts and phases differs from the model: it has durations where the model has times. Parts
//! and causes are the model's own.

use schemars::JsonSchema;
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::scalar::{Decimal, Version, names, nanos};
use crate::{
    engine::share::Share,
    model::{
        change::ContainerRef,
        fact::{CpuUse, Listener, MemoryEvents, PodName, Pressure, ProgramFound, Stall},
        id::ContainerId,
        phase::{self, Cause, Kind, Part},
    },
    sink::{
        Label,
        render::{chart::pod::meaning, phase as wording, wall_clock::Rfc3339},
    },
};

/// A start and its phases (docs/phases.md).
#[derive(Serialize, JsonSchema)]
pub(super) struct Start<'a> {
    /// When the pod's cgroup was made, or else the first sign of its sandbox; since boot.
    begin_ns: Decimal<u64>,
    /// Time until the last of its containers ran, which is the sum of the phases.
    total_ns: Decimal<u128>,
    /// All expected containers began. If they are not known: no container began for some time, or the sandbox
    /// is over.
    complete: bool,
    /// It is known which containers the pod should have.
    containers_known: bool,
    /// Expected containers that did not begin.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    missing: &'a [String],
    /// The start was reported before, and went on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    revised: bool,
    /// The pod had run in another sandbox before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    rebuilt: bool,
    /// Its beginning or a part of it was not seen but found in a listing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    listed: bool,
    /// The node was suspended between its beginning and this report.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    suspended: bool,
    /// The start goes on: the last phase is not over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    waiting: bool,
    /// Records were lost during one of its phases.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    gapped: bool,
    /// Why the start is not whole, in words for people.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    marks: Vec<&'static str>,
    phases: Vec<Phase<'a>>,
    /// The plugins that set up its network.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    plugins: &'a [ProgramFound],
    /// The containers that listen by now, which is not part of the start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    listening: Vec<Listening<'a>>,
}

/// A start by itself, with the members of an event that identify it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "StartLine")]
pub(super) struct Line<'a> {
    schema: Version,
    node: &'a str,
    boot_id: &'a str,
    /// When it began.
    at: Rfc3339,
    pod: &'a PodName,
    sandbox: Sandbox<'a>,
    start: Start<'a>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "StartSandbox")]
struct Sandbox<'a> {
    id: &'a ContainerId,
}

/// A part of a start. Each phase begins where the previous one ends.
#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
struct Phase<'a> {
    #[serde(flatten)]
    name: Name<'a>,
    container: Option<&'a ContainerRef>,
    begin_ns: Decimal<u64>,
    duration_ns: Decimal<u128>,
    /// No event shows this phase: it is inferred from the events before and after it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    inferred: bool,
    /// Records were lost meanwhile.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    gapped: bool,
    #[serde(flatten)]
    cause: &'a Cause,
    #[serde(flatten)]
    load: Load,
    /// In `image`: how long the runtime waited for I/O, if it pulled the image.
    runtime_stall: Option<RuntimeStall>,
    /// In `prepare` and `image`: its parts in order; absent if they are not known.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    parts: &'a [Part],
    /// The name of the phase.
    title: String,
    /// Why the phase took this long, a sentence each, in words for people.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// How long a container took to listen.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "StartListening")]
struct Listening<'a> {
    container: &'a ContainerRef,
    begin_ns: Decimal<u64>,
    duration_ns: Decimal<u128>,
    #[serde(flatten)]
    socket: Listener,
    /// Records were lost meanwhile, so an earlier socket may be missing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    gapped: bool,
    /// The node was suspended meanwhile.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    suspended: bool,
    #[serde(flatten)]
    load: Load,
    /// The name of the time.
    title: String,
    /// Facts about it, a sentence each, in words for people.
    notes: Vec<String>,
}

#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
struct Name<'a> {
    #[schemars(schema_with = "names::<Kind>")]
    phase: &'static str,
    plugin: Option<&'a str>,
    ifname: Option<&'a str>,
}

/// Counters of the pod's cgroup.
#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
struct Load {
    cpu: Option<CpuUse>,
    memory: Option<MemoryEvents>,
    stall: Option<Stalls>,
}

/// How long tasks of the pod's cgroup waited for each resource.
#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
struct Stalls {
    cpu: Option<Waited>,
    memory: Option<Waited>,
    io: Option<Waited>,
}

/// How long the tasks of the runtime's cgroup waited.
#[derive(Serialize, JsonSchema)]
struct RuntimeStall {
    io: Waited,
}

/// How long some of the tasks waited, and how long all of them waited.
#[derive(Serialize, JsonSchema)]
struct Waited {
    some_ns: Decimal<u128>,
    full_ns: Decimal<u128>,
}

/// How long a phase takes on the node; without a phase, how long the whole start takes.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PhaseShare")]
pub struct Shared<'a> {
    #[serde(flatten)]
    name: Option<Name<'a>>,
    /// The number of starts that had the phase.
    starts: u32,
    p50_ns: Decimal<u128>,
    p90_ns: Decimal<u128>,
    p99_ns: Decimal<u128>,
    /// The name of the phase.
    title: String,
}

/// The meaning of a phase, in words for people.
#[derive(Serialize, JsonSchema)]
pub struct PhaseMeaning {
    #[schemars(schema_with = "names::<Kind>")]
    phase: &'static str,
    text: &'static str,
}

/// The meanings of the phases, in the order in which they come. A postStart hook has the meaning of an init
/// container.
#[must_use]
pub fn legend() -> Vec<PhaseMeaning> {
    let cni = Kind::Cni { plugin: String::new(), ifname: String::new() };
    let kinds = [
        Kind::Prepare,
        Kind::Retry,
        Kind::Netns,
        cni,
        Kind::Between,
        Kind::Pause,
        Kind::Image,
        Kind::Runtime,
        Kind::Cgroup,
        Kind::Init,
        Kind::Listening,
    ];
    kinds.iter().map(|kind| PhaseMeaning { phase: kind.into_str(), text: meaning(kind) }).collect()
}

impl<'a> Start<'a> {
    pub(super) fn of(start: &'a phase::Start) -> Self {
        Self {
            begin_ns: Decimal(start.begin.0),
            total_ns: nanos(start.total()),
            complete: start.complete,
            containers_known: start.containers_known,
            missing: &start.missing,
            revised: start.revised,
            rebuilt: start.rebuilt,
            listed: start.listed,
            suspended: start.suspended,
            waiting: start.waits,
            gapped: start.is_gapped(),
            marks: wording::marks(start),
            phases: start.phases.iter().map(Phase::of).collect(),
            plugins: &start.plugins,
            listening: start.listening.iter().map(Listening::of).collect(),
        }
    }
}

impl<'a> Line<'a> {
    pub(super) fn of(start: &'a phase::Start, label: &'a Label) -> Self {
        Self {
            schema: Version,
            node: &label.node,
            boot_id: &label.boot_id,
            at: Rfc3339(label.wall_ns(start.begin)),
            pod: &start.pod,
            sandbox: Sandbox { id: &start.sandbox },
            start: Start::of(start),
        }
    }
}

impl<'a> Phase<'a> {
    fn of(phase: &'a phase::Phase) -> Self {
        Self {
            name: Name::of(&phase.kind),
            container: phase.container.as_ref(),
            begin_ns: Decimal(phase.begin.0),
            duration_ns: nanos(phase.took()),
            inferred: matches!(phase.kind, Kind::Init | Kind::PostStart),
            gapped: phase.gapped,
            cause: &phase.cause,
            load: Load::of(&phase.pressure),
            runtime_stall: phase.runtime_stall().map(|stall| RuntimeStall { io: Waited::of(stall) }),
            parts: &phase.parts,
            title: wording::title(phase),
            notes: wording::causes(phase),
        }
    }
}

impl<'a> Listening<'a> {
    fn of(it: &'a phase::Listening) -> Self {
        Self {
            container: &it.container,
            begin_ns: Decimal(it.begin.0),
            duration_ns: nanos(it.took()),
            socket: it.socket,
            gapped: it.gapped,
            suspended: it.suspended,
            load: Load::of(&it.pressure),
            title: wording::title_of(&Kind::Listening, &it.container),
            notes: wording::listening(it),
        }
    }
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

impl Load {
    fn of(pressure: &Pressure) -> Self {
        let Pressure { cpu, memory, cpu_stall, memory_stall, io_stall, runtime_io: _ } = pressure;
        let stall = Stalls {
            cpu: cpu_stall.map(Waited::of),
            memory: memory_stall.map(Waited::of),
            io: io_stall.map(Waited::of),
        };
        let has_stall = stall.cpu.is_some() || stall.memory.is_some() || stall.io.is_some();
        Self { cpu: *cpu, memory: *memory, stall: has_stall.then_some(stall) }
    }
}

impl Waited {
    fn of(Stall { some, full }: Stall) -> Self {
        Self { some_ns: nanos(some), full_ns: nanos(full) }
    }
}

impl<'a> Shared<'a> {
    #[must_use]
    pub fn of(share: &'a Share) -> Self {
        Self {
            name: share.kind.as_ref().map(Name::of),
            starts: share.starts,
            p50_ns: nanos(share.p50),
            p90_ns: nanos(share.p90),
            p99_ns: nanos(share.p99),
            title: wording::share(share),
        }
    }
}
