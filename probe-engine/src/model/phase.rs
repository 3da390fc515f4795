//! Where the time of a pod's start went: phases, each of which begins where the one before ends, so that together they
//! are the whole. `docs/phases.md` says from which event to which each goes.

mod image;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_with::serde_as;
use strum::{IntoStaticStr, VariantNames};

pub use image::{Part, PartKind, WaitsFor};

use crate::model::{
    fact::{Listener, PodName, Pressure, ProgramFound, Stall},
    id::ContainerId,
    reference::ContainerRef,
    time::{Nanoseconds, Timestamp},
};

/// How a pod came to run in one of its sandboxes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub pod: PodName,
    pub sandbox: ContainerId,
    pub begin: Timestamp,
    /// The last of its containers runs; of one that is not complete, when this was told.
    pub end: Timestamp,
    pub phases: Vec<Phase>,
    /// The plugins that set up its network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<ProgramFound>,
    /// When its containers first listened, as far as they do by now: no part of the whole.
    #[serde(default)]
    pub listening: Vec<Listening>,
    /// All containers that the pod is to have began; where these are not known, it has been quiet since for [`QUIET`], or
    /// the sandbox is over.
    pub complete: bool,
    /// Which containers the pod is to have is known.
    #[serde(default)]
    pub containers_known: bool,
    /// Those of them that have not begun.
    #[serde(default)]
    pub missing: Vec<String>,
    /// It was held to be complete before, and went on.
    pub revised: bool,
    /// The pod had run in another sandbox before: this began with the sandbox's own first sign.
    pub rebuilt: bool,
    /// Its beginning, or part of it, was only found by a listing.
    pub listed: bool,
    /// The node was suspended since it began, before this was told.
    pub suspended: bool,
    /// It goes on: the last phase is not over, and ends here because this was told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    pub kind: Kind,
    /// Whose part of the start it is; none of the sandbox's own.
    pub container: Option<ContainerRef>,
    pub begin: Timestamp,
    pub end: Timestamp,
    /// Something was lost meanwhile: an event that would have ended it, or begun it, may be missing.
    pub gapped: bool,
    pub cause: Cause,
    /// What it consists of; empty where nothing tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// How long a container took from its program's beginning to the first of its sockets that listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    pub container: ContainerRef,
    pub begin: Timestamp,
    pub end: Timestamp,
    pub socket: Listener,
    /// Something was lost meanwhile: an earlier one may be missing.
    pub gapped: bool,
    /// The node was suspended meanwhile.
    pub suspended: bool,
    /// What the pod's cgroup counted in this time.
    #[serde(default)]
    pub pressure: Pressure,
}

/// What the node was about.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr, VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Kind {
    /// The pod's cgroup is there, and no sandbox yet.
    Prepare,
    /// Sandboxes that came to nothing, and the wait for the one that did not.
    Retry,
    /// The sandbox's first sign is there, and no plugin was called yet.
    Netns,
    /// A plugin's ADD, retries of it included.
    Cni { plugin: String, ifname: String },
    /// Between two plugins.
    Between,
    /// The network is there, and what holds the sandbox does not run yet.
    Pause,
    /// Nothing of the next container is there: its image, its creation, and whoever is in no hurry.
    Image,
    /// The container's runtime runs, and has not made its cgroup.
    Runtime,
    /// The container's cgroup is there, and its own program does not run.
    Cgroup,
    /// A program runs that the runtime executed into a container that had just begun, before the next one: a postStart
    /// hook, as is inferred.
    PostStart,
    /// An init container runs, as is inferred from its end before the next.
    Init,
    /// A container's program runs, and no socket of it listens yet: beyond the start, and no phase of it.
    Listening,
}

/// What is known of why a phase took as long as it did.
#[serde_as]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Calls of ADD.
    pub adds: u32,
    pub failed: u32,
    /// How long the failed ones took, together.
    #[serde_as(as = "Nanoseconds")]
    pub wasted: Duration,
    /// Of a plugin, from exec to exit, also while the phase was another's.
    #[serde_as(as = "Nanoseconds")]
    pub took: Duration,
    /// Sandboxes that came to nothing.
    pub sandboxes: u32,
    /// How often an init container ran.
    pub runs: u32,
    /// So much of it another network namespace was being taken apart.
    #[serde_as(as = "Nanoseconds")]
    pub teardown: Duration,
    /// What the pod's cgroup counted, and, in `image`, the runtime's.
    pub pressure: Pressure,
}

impl Start {
    #[must_use]
    pub fn total(&self) -> Duration {
        self.end.since(self.begin)
    }

    /// What the objective of Kubernetes for starts of pods counts: all but pulls of images and init containers
    /// (`pod_startup_latency`, kubernetes/community, sig-scalability/slos). An `image` phase without parts is left out whole.
    #[must_use]
    pub fn without_pulls(&self) -> Duration {
        let left_out = self.phases.iter().map(|phase| match phase.kind {
            Kind::Init => phase.took(),
            Kind::Image if phase.parts.is_empty() => phase.took(),
            Kind::Image => phase.parts.iter().filter(|part| part.is_of_pull()).map(Part::took).sum(),
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

    /// The first of the longest.
    #[must_use]
    pub fn slowest(&self) -> Option<&Phase> {
        self.phases.iter().rev().max_by_key(|phase| phase.took())
    }

    /// That of its containers which took longest to listen, of those that do.
    #[must_use]
    pub fn listens(&self) -> Option<&Listening> {
        self.listening.iter().rev().max_by_key(|it| it.took())
    }

    #[must_use]
    pub fn is_gapped(&self) -> bool {
        self.phases.iter().any(|phase| phase.gapped)
    }

    /// Whether it is a whole start, seen from its beginning to its end: only those are compared.
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

    /// How long the runtime waited for I/O, if it is known to have pulled the image in this phase.
    #[must_use]
    pub fn runtime_stall(&self) -> Option<Stall> {
        let has_pulled = self.parts.iter().any(|it| matches!(it.kind, PartKind::Pull | PartKind::Unpack));
        self.cause.pressure.runtime_io.filter(|_| has_pulled)
    }
}

impl Listening {
    #[must_use]
    pub fn took(&self) -> Duration {
        self.end.since(self.begin)
    }
}

impl Kind {
    /// The same of any interface.
    #[must_use]
    pub(crate) fn of_any(&self) -> Self {
        let mut kind = self.clone();
        if let Self::Cni { ifname, .. } = &mut kind {
            ifname.clear();
        }
        kind
    }
}
