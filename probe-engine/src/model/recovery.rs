//! The recovery of a node after a restart: what was seen of it, each thing with how well its time is known.
//!
//! [`Recovery`] is what one boot left, and all of it that is kept on disk or in a recording; what it means
//! (`engine::boot::report`) is made anew from it whenever somebody asks.
//!
//! **Invariant:** times are of this boot's clock but for the order, which was given before it began: that one is on
//! the wall clock.

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
    time::{Nanoseconds, Timestamp},
};

/// What first listens after so long does so for another reason than that it was started.
pub(crate) const WITHIN: Duration = Duration::from_secs(10 * 60);

/// What can be told otherwise.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Without another pod for so long, the last one was the last.
    #[serde(rename = "quiet_ns")]
    #[serde_as(as = "Nanoseconds")]
    pub quiet: Duration,
    /// Namespaces whose pods serve the node or the cluster: none of them is a service pod.
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
    /// A socket of them listens. One that does not is back as with `Started`: at once, or, where it listened before the
    /// restart, when it has not done so for [`WITHIN`].
    Listening,
}

impl Default for Rules {
    fn default() -> Self {
        let (quiet, recovered) = (Duration::from_secs(60), Recovered::default());
        Self { quiet, system: vec!["kube-system".to_owned()], recovered, target: target() }
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

/// What a pod is to the node.
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
    /// A socket of it was seen to listen.
    #[serde(default)]
    pub listens: bool,
    /// Its interfaces that a plugin made or that have an address, sorted; without the loopback.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
}

/// A pod that runs again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveredPod {
    pub pod: Pod,
    /// Its first container started that did not end well before another one's start (as init containers do).
    pub mark: TimedSource,
    /// The first socket of that one, or of another that started after it, listened.
    pub listened: Option<Timestamp>,
}

/// The network of one sandbox was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkAttempt {
    pub sandbox: ContainerId,
    pub began: Timestamp,
    /// The last of its plugins ended.
    pub ended: Timestamp,
    /// The plugin that failed.
    pub failed: Option<String>,
}

/// A plugin was called for a sandbox's network, and has not ended.
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
    /// The least number of other pods, for which there was no room.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pods_left_out: u32,
}

/// What one boot left.
#[serde_as]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    pub boot: Option<BootRead>,
    /// The rules in force, for whoever reads it later.
    #[serde_as(as = "Nanoseconds")]
    pub quiet: Duration,
    #[serde(default)]
    pub recovered: Recovered,
    #[serde_as(as = "Option<Nanoseconds>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Duration>,
    /// Sockets that listen were looked for.
    #[serde(default)]
    pub hears: bool,
    /// When the agent began to look: what was before is known from files alone.
    pub watched_since: Option<Timestamp>,
    pub init: Option<TimedSource>,
    pub runtime: Option<TimedSource>,
    pub kubelet: Option<TimedSource>,
    /// When the kubelet first listened at each of its ports, in the order of the ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kubelet_listens: Vec<KubeletListens>,
    /// The runtimes and the kubelet of this recovery by name and, where their files tell it, version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_program: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_program: Option<String>,
    /// The first configuration of a network that was written in this boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_configured: Option<TimedSource>,
    pub tries: Vec<NetworkAttempt>,
    /// Calls of ADD that are under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trying: Vec<OpenAttempt>,
    /// Calls of plugins for further sandboxes, for which there was no room.
    #[serde(default)]
    pub tries_left_out: u32,
    /// When the oldest address on record was written down, if that was in this boot.
    pub leased_since: Option<Timestamp>,
    pub pods: Vec<RecoveredPod>,
    /// At least so many more were back, for which there was no room.
    #[serde(default)]
    pub pods_left_out: u32,
    pub order: Option<Order>,
    /// The restarts of runtimes and of the kubelet alone, since the boot.
    #[serde(default, skip_serializing_if = "is_default")]
    pub restarts: Restarts,
    /// The last pod was the last, as it seemed then.
    pub closed: bool,
    /// Until when it was looked at.
    pub seen_until: Timestamp,
    /// Another one whenever any of the above is, but for the last.
    #[serde_as(as = "DisplayFromStr")]
    pub revision: u64,
}

impl Source {
    /// The event's own time.
    #[must_use]
    pub(crate) fn is_exact(self) -> bool {
        self.precision().is_zero()
    }

    /// How far the true time can be from the one given; zero for an event's own.
    #[must_use]
    pub fn precision(self) -> Duration {
        match self {
            Self::Boot | Self::Hook => Duration::ZERO,
            // A file system dates by the timer's tick, of which there are at least 100 a second.
            Self::ProcStart | Self::FileTime => Duration::from_millis(10),
            Self::Journal => Duration::from_millis(1),
            Self::Wtmp | Self::Cri => Duration::from_secs(1),
        }
    }
}

impl TimedSource {
    /// A hook saw it.
    #[must_use]
    pub fn hooked(at: Timestamp) -> Self {
        Self { at, source: Source::Hook }
    }

    /// The earlier of two; at the same time the one that is known better.
    pub(crate) fn offer(slot: &mut Option<Self>, mark: Self) {
        let order = |mark: &Self| (mark.at, mark.source);
        if slot.as_ref().is_none_or(|known| order(&mark) < order(known)) {
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

    /// What tells its kind, in a word.
    #[must_use]
    pub fn kind_by(&self) -> &'static str {
        match self.kind {
            Kind::Static => "uid",
            Kind::System => "namespace",
            Kind::Service if self.uid.is_some() => "uid",
            Kind::Service => "assumed",
        }
    }

    /// Whether they are one pod to its users: a pod keeps its name over a restart, and most keep their UID.
    #[must_use]
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.has(other.namespace.as_ref(), other.name.as_ref(), other.uid.as_ref())
    }

    /// Whether this is its name, by the same rule.
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
    /// The pods that are back by the rule in force, each with the time that counts.
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

    /// When the first of those that are still to listen counts by its start after all.
    pub(crate) fn patience(&self, now: Timestamp) -> Option<Timestamp> {
        let awaited = self.pods.iter().filter(|it| self.counts(it, now).is_none());
        awaited.map(|it| it.mark.at + WITHIN).min()
    }

    /// `None`: it started, and is still to listen.
    fn counts(&self, it: &RecoveredPod, now: Timestamp) -> Option<TimedSource> {
        match (self.recovered, it.listened) {
            (Recovered::Started, _) => Some(it.mark),
            (Recovered::Listening, Some(at)) => Some(TimedSource { at, source: Source::Hook }),
            (Recovered::Listening, None) => {
                let mut before = self.expected().unwrap_or_default().iter();
                let listened = before.any(|pod| pod.listens && pod.is(&it.pod));
                // Of one that was found running it is not known.
                let is_heard = self.hears && it.mark.source == Source::Hook;
                let is_awaited = listened && is_heard && now < it.mark.at + WITHIN;
                (!is_awaited).then_some(it.mark)
            }
        }
    }

    /// The pods that were there before, if that was kept.
    #[must_use]
    pub(crate) fn expected(&self) -> Option<&[Pod]> {
        self.boot.as_ref()?.before.pods.as_deref()
    }
}

pub(crate) fn ns(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}
