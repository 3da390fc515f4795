//! The phases of a pod's start. Each begins where the one before ends, so that together they are the whole
//! start. `docs/phases.md` says from which event to which each goes.

mod image;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::serde_as;
use strum::{IntoStaticStr, VariantNames};

pub use image::{Part, PartKind, WaitsFor};

use crate::model::{
    fact::{Listener, PodName, Pressure, ProgramFound, Stall},
    id::ContainerId,
    reference::ContainerRef,
    scalar::is_default,
    time::{Nanoseconds, Timestamp},
};

/// The start of a pod in one of its sandboxes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub pod: PodName,
    pub sandbox: ContainerId,
    pub begin: Timestamp,
    /// When the last of its containers ran; for an incomplete start, when this was reported.
    pub end: Timestamp,
    pub phases: Vec<Phase>,
    /// The plugins that set up its network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<ProgramFound>,
    /// When its containers first listened, for those that have by now. It is not part of the total.
    #[serde(default)]
    pub listening: Vec<Listening>,
    /// All containers that the pod should have began. If these are not known: nothing has begun for
    /// [`QUIET`], or the sandbox is over.
    pub complete: bool,
    /// It is known which containers the pod should have.
    #[serde(default)]
    pub containers_known: bool,
    /// The containers that have not begun.
    #[serde(default)]
    pub missing: Vec<String>,
    /// It was reported as complete before, and went on.
    pub revised: bool,
    /// The pod had run in another sandbox before, so this start begins with the sandbox's own first sign.
    pub rebuilt: bool,
    /// Its beginning, or part of it, was only found by a listing.
    pub listed: bool,
    /// The node was suspended between its beginning and this report.
    pub suspended: bool,
    /// It goes on: the last phase is not over, and its end is the time of this report.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    pub kind: Kind,
    /// The container that the phase belongs to; none for the sandbox's own phases.
    pub container: Option<ContainerRef>,
    pub begin: Timestamp,
    pub end: Timestamp,
    /// Records were lost meanwhile: the event that really began or ended it may be missing.
    pub gapped: bool,
    pub cause: Cause,
    /// What the pod's cgroup counted, and, in `image`, the runtime's.
    #[serde(default)]
    pub pressure: Pressure,
    /// The parts of the phase; empty if no log or file shows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// The time from the start of a container's program to its first listening socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    pub container: ContainerRef,
    pub begin: Timestamp,
    pub end: Timestamp,
    pub socket: Listener,
    /// Records were lost meanwhile: an earlier socket may be missing.
    pub gapped: bool,
    /// The node was suspended meanwhile.
    pub suspended: bool,
    /// What the pod's cgroup counted in this time.
    #[serde(default)]
    pub pressure: Pressure,
}

/// What the node did in a phase.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr, VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Kind {
    /// The pod's cgroup exists, and no sandbox yet.
    Prepare,
    /// Sandboxes that failed, and the wait for the one that did not.
    Retry,
    /// The sandbox has given its first sign, and no plugin was called yet.
    Netns,
    /// A plugin's ADD, including retries.
    Cni { plugin: String, ifname: String },
    /// Between two plugins.
    Between,
    /// The network is set up, and the pause process does not run yet.
    Pause,
    /// The next container has given no sign yet: its image is pulled, it is created, or something is slow to
    /// begin.
    Image,
    /// The container's runtime runs, and has not created the cgroup.
    Runtime,
    /// The container's cgroup exists, and its program does not run yet.
    Cgroup,
    /// The runtime executed a program in a container that had just begun, before the next container. It is
    /// taken for a postStart hook.
    PostStart,
    /// A container runs that ended before the next one began. It is taken for an init container.
    Init,
    /// A container's program runs, and no socket of it listens yet. It comes after the start and is not a
    /// phase of it.
    Listening,
}

/// Why a phase took this long. Zeros are left out.
#[serde_as]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    /// Calls of ADD.
    #[serde(default, skip_serializing_if = "is_default")]
    pub adds: u32,
    /// Calls of ADD that failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: u32,
    /// How long the failed calls took, together.
    #[serde_as(as = "Nanoseconds")]
    #[serde(rename = "failed_ns", default, skip_serializing_if = "is_default")]
    #[schemars(with = "Nanoseconds")]
    pub wasted: Duration,
    /// How long the plugin itself ran, including time that belongs to other phases.
    #[serde_as(as = "Nanoseconds")]
    #[serde(rename = "plugin_ns", default, skip_serializing_if = "is_default")]
    #[schemars(with = "Nanoseconds")]
    pub took: Duration,
    /// Sandboxes that failed before this one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sandboxes: u32,
    /// How often an init container ran.
    #[serde(default, skip_serializing_if = "is_default")]
    pub runs: u32,
    /// How long another network namespace was being taken apart meanwhile.
    #[serde_as(as = "Nanoseconds")]
    #[serde(rename = "teardown_ns", default, skip_serializing_if = "is_default")]
    #[schemars(with = "Nanoseconds")]
    pub teardown: Duration,
}

impl Start {
    #[must_use]
    pub fn total(&self) -> Duration {
        self.end.since(self.begin)
    }

    /// Returns the time that the Kubernetes objective for pod starts counts: all but image pulls and init
    /// containers (`pod_startup_latency`, kubernetes/community, sig-scalability/slos). An `image` phase
    /// without parts is left out whole.
    #[must_use]
    pub fn without_pulls(&self) -> Duration {
        let left_out = self.phases.iter().map(|phase| match phase.kind {
            Kind::Init => phase.took(),
            Kind::Image if phase.parts.is_empty() => phase.took(),
            Kind::Image => phase.parts.iter().filter(|part| part.is_of_pull()).map(|part| part.took).sum(),
            Kind::Prepare
            | Kind::Retry
            | Kind::Netns
            | Kind::Cni { .. }
            | Kind::Between
            | Kind::Pause
            | Kind::Runtime
            | Kind::Cgroup
            | Kind::PostStart
            | Kind::Listening => Duration::ZERO,
        });
        self.total().saturating_sub(left_out.sum())
    }

    /// Returns the longest phase; the first of several.
    #[must_use]
    pub fn slowest(&self) -> Option<&Phase> {
        self.phases.iter().rev().max_by_key(|phase| phase.took())
    }

    /// Returns the container that took longest to listen, of those that do.
    #[must_use]
    pub fn listens(&self) -> Option<&Listening> {
        self.listening.iter().rev().max_by_key(|it| it.took())
    }

    #[must_use]
    pub fn is_gapped(&self) -> bool {
        self.phases.iter().any(|phase| phase.gapped)
    }

    /// Whether the whole start was seen, from its beginning to its end. Only such starts are compared.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.complete && !self.rebuilt && !self.listed && !self.suspended && !self.is_gapped()
    }
}

impl Phase {
    #[must_use]
    pub fn took(&self) -> Duration {
        self.end.since(self.begin)
    }

    /// Returns how long the runtime waited for I/O, if it is known to have pulled the image in this phase.
    #[must_use]
    pub fn runtime_stall(&self) -> Option<Stall> {
        let has_pulled = self.parts.iter().any(|it| matches!(it.kind, PartKind::Pull | PartKind::Unpack));
        if has_pulled { self.pressure.runtime_io } else { None }
    }
}

impl Listening {
    #[must_use]
    pub fn took(&self) -> Duration {
        self.end.since(self.begin)
    }
}

impl Kind {
    /// Returns the kind without the interface's name.
    #[must_use]
    pub(crate) fn of_any(&self) -> Self {
        let mut kind = self.clone();
        if let Self::Cni { ifname, .. } = &mut kind {
            ifname.clear();
        }
        kind
    }
}
