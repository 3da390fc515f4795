//! How well the agent sees the node: by which mechanism each signal is seen, and where something was lost.

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// How a signal is seen, and why not better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    pub signal: Signal,
    /// `None`: it is not seen at all.
    pub mechanism: Option<Mechanism>,
    /// What is less precise than with the best mechanism; empty if nothing.
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
    /// Where something was lost.
    pub enum Loss {
        LifecycleRing,
        BulkRing,
        /// A netlink socket's buffer was full.
        NetlinkSocket,
        /// A record that could not be read.
        Record,
        /// The channel between a source and the engine was full.
        Channel,
        /// Runs of hooks that the kernel skipped; not each would have told something.
        SkippedRun,
        /// No agent ran. It is not known how much was lost.
        NoAgent,
    }
}
