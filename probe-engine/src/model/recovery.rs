//! The recovery of a node after a restart: what was seen of it, with the source of each time.
//!
//! [`Recovery`] is everything about one boot that is kept on disk or in a recording. Its report
//! (`engine::boot::report`) is computed from it on request.
//!
//! **Invariant:** times are of this boot's clock, except the time of the order, which was given before the
//! boot: that is wall time.

mod grouping;
mod previous;
mod restart;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use strum::IntoStaticStr;

pub use grouping::Grouping;
pub use previous::{Alive, BootRead, LONGEST_SHUTDOWN, Last, Ordered, PreviousBoot, Unseen};
pub use restart::{
    Calls, Daemon, DaemonEnd, FirstPod, HeldPod, LessNetwork, Restart, RestartClose, Restarts, Told,
};

use crate::model::{
    id::{ContainerId, PodUid},
    scalar::is_default,
    time::{Nanoseconds, Span, Timestamp},
};

/// A socket that first listens later than this after the start does so for another reason than the start.
pub(crate) const WITHIN: Duration = Duration::from_secs(10 * 60);

/// The rules that can be configured.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// The recovery is complete if no other pod comes back for this long.
    #[serde(rename = "quiet_ns")]
    #[serde_as(as = "Nanoseconds")]
    pub quiet: Duration,
    /// Namespaces whose pods serve the node or the cluster, and so are not service pods.
    pub system: Vec<String>,
    #[serde(default)]
    pub recovered: Recovered,
    /// How long a recovery may take.
    #[serde(rename = "target_ns", default = "target", skip_serializing_if = "is_usual_target")]
    #[serde_as(as = "Nanoseconds")]
    pub target: Duration,
}

fn target() -> Duration {
    Duration::from_secs(5 * 60)
}

fn is_usual_target(span: &Duration) -> bool {
    *span == target()
}

/// When a pod counts as back.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Recovered {
    /// The first of its own containers started.
    #[default]
    Started,
    /// A socket of its containers listens. A pod that does not listen is back as with `Started`: at once, or,
    /// if it listened before the restart, when it has not done so for [`WITHIN`].
    Listening,
}

/// Namespaces into which clusters and CNI plugins are installed, by the plugins' own manifests.
const SYSTEM: [&str; 8] = [
    "kube-system",
    "calico-apiserver",
    "calico-system",
    "cilium",
    "kube-flannel",
    "openshift-multus",
    "openshift-ovn-kubernetes",
    "tigera-operator",
];

impl Default for Rules {
    fn default() -> Self {
        Self {
            quiet: Duration::from_secs(60),
            system: SYSTEM.map(str::to_owned).to_vec(),
            recovered: Recovered::default(),
            target: target(),
        }
    }
}

/// How a time is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TimeSource")]
pub enum Source {
    /// The clock's own zero.
    Boot,
    /// A hook, at the event.
    Hook,
    /// `/proc/PID/stat`: when the process was forked, in ticks of 10 ms.
    ProcStart,
    /// The date of a file that was written then.
    FileTime,
    /// The journal: when systemd-logind said so.
    Journal,
    /// `/var/log/wtmp`.
    Wtmp,
    /// A runtime answered over CRI, which it is asked to every second as long as it does not.
    Cri,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedSource {
    pub at: Timestamp,
    pub source: Source,
}

/// The role of a pod on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "PodKind")]
pub enum Kind {
    /// From a manifest on the node: the kubelet gives it a UID of 32 hex digits, the manifest's hash.
    Static,
    /// In one of [`Rules::system`].
    System,
    /// Any other.
    Service,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub uid: Option<PodUid>,
    pub kind: Kind,
    /// One of its sockets was seen to listen.
    #[serde(default)]
    pub listens: bool,
    /// Its interfaces that a plugin created or that have an address, sorted; without the loopback.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
}

/// A pod that runs again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveredPod {
    pub pod: Pod,
    /// When its first container started, not counting containers that ended well before another's start (as
    /// init containers do).
    pub mark: TimedSource,
    /// When the first socket of that container, or of one that started after it, listened.
    pub listened: Option<Timestamp>,
}

/// The calls of ADD for the network of one sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkAttempt {
    pub sandbox: ContainerId,
    pub began: Timestamp,
    /// When the last of its plugins ended.
    pub ended: Timestamp,
    /// The plugin that failed.
    pub failed: Option<String>,
}

/// An ADD for a sandbox's network that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenAttempt {
    pub sandbox: ContainerId,
    pub began: Timestamp,
}

/// The kubelet listens at one of its usual ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeletListens {
    pub port: u16,
    pub at: Timestamp,
}

/// Containers that the kubelet could not make at first, because it had not read the Services yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicesUnread {
    pub containers: u32,
    /// From the first try that failed until the last of the containers was made.
    pub span: Span,
}

/// The order that ends this boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub at: Timestamp,
    pub by: String,
    /// The pods that ran at that time.
    #[serde(flatten)]
    pub running: RunningPods,
}

/// The pods that run or ran at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningPods {
    pub pods: Vec<Pod>,
    /// The number of other pods that were not kept, at least.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pods_left_out: u32,
}

/// Everything that is kept of one boot's recovery.
#[serde_as]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    pub boot: Option<BootRead>,
    /// The rule in force, for later readers.
    #[serde_as(as = "Nanoseconds")]
    pub quiet: Duration,
    #[serde(default)]
    pub recovered: Recovered,
    #[serde_as(as = "Option<Nanoseconds>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Duration>,
    /// Listening sockets are seen.
    #[serde(default)]
    pub hears: bool,
    /// When the agent began to watch. Earlier events are known from files only.
    pub watched_since: Option<Timestamp>,
    pub init: Option<TimedSource>,
    pub runtime: Option<TimedSource>,
    pub kubelet: Option<TimedSource>,
    /// When the kubelet first listened at each of its ports, in the order of the ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kubelet_listens: Vec<KubeletListens>,
    /// The runtime and the kubelet of this recovery by name and, if their files show it, version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_program: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_program: Option<String>,
    /// When the first network configuration of this boot was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_configured: Option<TimedSource>,
    pub tries: Vec<NetworkAttempt>,
    /// Calls of ADD that are under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trying: Vec<OpenAttempt>,
    /// Calls of plugins for further sandboxes that were not kept.
    #[serde(default)]
    pub tries_left_out: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services_unread: Option<ServicesUnread>,
    /// When the oldest address on record was written, if that was in this boot.
    pub leased_since: Option<Timestamp>,
    pub pods: Vec<RecoveredPod>,
    /// The number of other pods that were back and not kept, at least.
    #[serde(default)]
    pub pods_left_out: u32,
    pub order: Option<Order>,
    /// The restarts of only a runtime or the kubelet since the boot.
    #[serde(default, skip_serializing_if = "is_default")]
    pub restarts: Restarts,
    /// The recovery was complete when it was last judged.
    pub closed: bool,
    /// Until when it was watched.
    pub seen_until: Timestamp,
    /// Changes whenever any member above does, except `seen_until`.
    #[serde_as(as = "DisplayFromStr")]
    pub revision: u64,
}

impl Source {
    /// Whether it is the event's own time.
    #[must_use]
    pub(crate) fn is_exact(self) -> bool {
        self.precision().is_zero()
    }

    /// Returns how far the true time can be from the given one; zero for an event's own.
    #[must_use]
    pub fn precision(self) -> Duration {
        match self {
            Self::Boot | Self::Hook => Duration::ZERO,
            // A file system's times have the resolution of the timer tick, of which there are at least 100 a
            // second.
            Self::ProcStart | Self::FileTime => Duration::from_millis(10),
            Self::Journal => Duration::from_millis(1),
            Self::Wtmp | Self::Cri => Duration::from_secs(1),
        }
    }
}

impl TimedSource {
    /// Makes the time of an event that a hook saw.
    #[must_use]
    pub fn hooked(at: Timestamp) -> Self {
        Self { at, source: Source::Hook }
    }

    /// Keeps the earlier of two; at the same time, the one with the better source.
    pub(crate) fn offer(slot: &mut Option<Self>, mark: Self) {
        if slot.is_none_or(|known| (mark.at, mark.source) < (known.at, known.source)) {
            *slot = Some(mark);
        }
    }
}

impl Pod {
    #[must_use]
    pub(crate) fn kind_of(namespace: Option<&str>, uid: Option<&PodUid>, rules: &Rules) -> Kind {
        if uid.is_some_and(|uid| !uid.as_str().contains('-')) {
            Kind::Static
        } else if namespace.is_some_and(|own| rules.system.iter().any(|name| name == own)) {
            Kind::System
        } else {
            Kind::Service
        }
    }

    /// Returns what its kind is derived from, in a word.
    #[must_use]
    pub fn kind_by(&self) -> &'static str {
        match self.kind {
            Kind::Static => "uid",
            Kind::System => "namespace",
            Kind::Service if self.uid.is_some() => "uid",
            Kind::Service => "assumed",
        }
    }

    /// Whether both are the same pod to its users: a pod keeps its name over a restart, and most keep their
    /// UID.
    #[must_use]
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.has(other.namespace.as_ref(), other.name.as_ref(), other.uid.as_ref())
    }

    /// Whether it has this name, by the rule of [`is`](Self::is).
    #[must_use]
    pub(crate) fn has(
        &self,
        namespace: Option<&String>,
        name: Option<&String>,
        uid: Option<&PodUid>,
    ) -> bool {
        if self.name.is_some() && name.is_some() {
            return self.name.as_ref() == name && self.namespace.as_ref() == namespace;
        }
        self.uid.is_some() && self.uid.as_ref() == uid
    }
}

impl Recovery {
    /// Returns the pods that are back by the rule in force, each with the time that counts.
    #[must_use]
    pub(crate) fn back(&self, now: Timestamp) -> Vec<RecoveredPod> {
        self.pods
            .iter()
            .filter_map(|it| Some(RecoveredPod { mark: self.counts(it, now)?, ..it.clone() }))
            .collect()
    }

    /// Whether a pod that was expected is back by the rule in force.
    pub(crate) fn is_back(&self, pod: &Pod, now: Timestamp) -> bool {
        self.pods.iter().any(|it| it.pod.is(pod) && self.counts(it, now).is_some())
    }

    /// Returns when the first pod that does not listen yet will count by its start after all.
    pub(crate) fn patience(&self, now: Timestamp) -> Option<Timestamp> {
        let awaited = self.pods.iter().filter(|it| self.counts(it, now).is_none());
        awaited.map(|it| it.mark.at + WITHIN).min()
    }

    /// Returns when a pod was back. `None`: it started, and does not listen yet.
    fn counts(&self, it: &RecoveredPod, now: Timestamp) -> Option<TimedSource> {
        match (self.recovered, it.listened) {
            (Recovered::Started, _) => Some(it.mark),
            (Recovered::Listening, Some(at)) => Some(TimedSource { at, source: Source::Hook }),
            (Recovered::Listening, None) => {
                let mut before = self.expected().unwrap_or_default().iter();
                let listened = before.any(|pod| pod.listens && pod.is(&it.pod));
                // If the pod was found running, it may have listened before.
                let is_heard = self.hears && it.mark.source == Source::Hook;
                let is_awaited = listened && is_heard && now < it.mark.at + WITHIN;
                (!is_awaited).then_some(it.mark)
            }
        }
    }

    /// Returns the pods that were there before the restart, if they were kept.
    #[must_use]
    pub(crate) fn expected(&self) -> Option<&[Pod]> {
        self.boot.as_ref()?.before.pods.as_deref()
    }
}

pub(crate) fn ns(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}
