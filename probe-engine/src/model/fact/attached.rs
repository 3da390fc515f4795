//! How well the agent sees the node: the mechanism of each signal, and where records were lost.

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use strum::IntoStaticStr;

use crate::model::time::{Timestamp, on_the_clock};

/// How a signal is seen, and why not better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    pub signal: Signal,
    /// `None`: the signal is not seen at all.
    pub mechanism: Option<Mechanism>,
    /// What is less precise than with the best mechanism; may be empty.
    pub note: String,
    /// The better mechanisms, and why each failed.
    pub missed: Vec<(Mechanism, String)>,
}

#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    IntoStaticStr,
    strum::Display,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str)]
pub enum Signal {
    #[strum(serialize = "exec")]
    Exec,
    #[strum(serialize = "exit")]
    Exit,
    #[strum(serialize = "fatal signal")]
    FatalSignal,
    #[strum(serialize = "oom kill")]
    OomKill,
    #[strum(serialize = "netns created")]
    NetnsCreated,
    #[strum(serialize = "netns dropped")]
    NetnsDropped,
    #[strum(serialize = "netns freed")]
    NetnsFreed,
    #[strum(serialize = "address ipv4")]
    AddressV4,
    #[strum(serialize = "address ipv6")]
    AddressV6,
    #[strum(serialize = "cgroup created")]
    CgroupCreated,
    #[strum(serialize = "cgroup removed")]
    CgroupRemoved,
    #[strum(serialize = "cgroup released")]
    CgroupReleased,
    #[strum(serialize = "cgroup entered")]
    CgroupEntered,
    #[strum(serialize = "cgroup emptied")]
    CgroupEmptied,
    #[strum(serialize = "listening")]
    Listening,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str)]
pub enum Mechanism {
    #[strum(serialize = "fentry")]
    Fentry,
    #[strum(serialize = "fexit")]
    Fexit,
    #[strum(serialize = "kprobe")]
    Kprobe,
    #[strum(serialize = "kretprobe")]
    Kretprobe,
    #[strum(serialize = "raw tracepoint")]
    RawTracepoint,
    #[strum(serialize = "tracepoint")]
    Tracepoint,
    #[strum(serialize = "netlink")]
    Netlink,
}

closed_set! {
    /// Where records were lost.
    pub enum Loss {
        LifecycleRing,
        BulkRing,
        /// A netlink socket's buffer was full.
        NetlinkSocket,
        /// A record that could not be read.
        Record,
        /// The channel between a source and the engine was full.
        Channel,
        /// Runs of hooks that the kernel skipped; not each would have reported something.
        SkippedRun,
        /// No agent ran. It is not known how much was lost.
        NoAgent,
        /// The state that the last agent kept. It is not known how much of it had not been reported.
        State,
    }
}

impl Loss {
    /// Returns whether the lost records can be about the lifecycle of pods. Containers can fill the bulk ring
    /// by starting programs, and runs that the kernel skips mostly concern nothing.
    #[must_use]
    pub fn is_grave(self) -> bool {
        match self {
            Self::LifecycleRing
            | Self::NetlinkSocket
            | Self::Record
            | Self::Channel
            | Self::NoAgent
            | Self::State => true,
            Self::BulkRing | Self::SkippedRun => false,
        }
    }
}

/// How far an agent has read the rings of one set of hooks. All records before these positions have been
/// observed, and all losses up to these counts have been reported.
#[serde_as]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingsRead {
    /// The hooks: the kernel's id of their lifecycle ring, which no other ring of this boot gets.
    pub hooks: u32,
    /// These hooks report what happens from then on; earlier hooks reported what was before.
    #[serde(deserialize_with = "on_the_clock")]
    pub since: Timestamp,
    pub lifecycle: RingRead,
    pub bulk: RingRead,
    /// Runs of hooks that the kernel skipped.
    #[serde_as(as = "DisplayFromStr")]
    pub skipped: u64,
    /// Runs of hooks that did nothing, because no agent had read for a long time.
    #[serde_as(as = "DisplayFromStr")]
    pub unread: u64,
}

/// How far one ring was read.
#[serde_as]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingRead {
    /// The position after the last record, in bytes since the ring was made.
    #[serde_as(as = "DisplayFromStr")]
    pub position: u64,
    /// Records that did not fit.
    #[serde_as(as = "DisplayFromStr")]
    pub lost: u64,
}
