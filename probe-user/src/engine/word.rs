//! What signals, mechanisms, and the causes and forms that are part of a finding's key are called, by whoever speaks of
//! them.

use super::{
    fact::{Mechanism, Signal},
    finding::{Cause, Duplicate},
};

impl Signal {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Exit => "exit",
            Self::FatalSignal => "fatal signal",
            Self::OomKill => "oom kill",
            Self::NetnsCreated => "netns created",
            Self::NetnsDropped => "netns dropped",
            Self::NetnsFreed => "netns freed",
            Self::AddressV4 => "address ipv4",
            Self::AddressV6 => "address ipv6",
            Self::CgroupCreated => "cgroup created",
            Self::CgroupRemoved => "cgroup removed",
            Self::CgroupReleased => "cgroup released",
            Self::CgroupEntered => "cgroup entered",
            Self::CgroupEmptied => "cgroup emptied",
            Self::Listening => "listening",
        }
    }
}

impl Mechanism {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Fentry => "fentry",
            Self::Fexit => "fexit",
            Self::Kprobe => "kprobe",
            Self::Kretprobe => "kretprobe",
            Self::RawTracepoint => "raw tracepoint",
            Self::Tracepoint => "tracepoint",
            Self::Netlink => "netlink",
        }
    }
}

impl Cause {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::DelMissing => "del_missing",
            Self::DelBlind => "del_blind",
            Self::DelFailed => "del_failed",
            Self::AddFailed => "add_failed",
            Self::RuntimeEnded => "runtime_ended",
            Self::StaleRecord => "stale_record",
        }
    }
}

impl Duplicate {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Concurrent => "concurrent",
            Self::AfterCompletion => "after_completion",
            Self::UnusedRebuild => "unused_rebuild",
        }
    }
}
