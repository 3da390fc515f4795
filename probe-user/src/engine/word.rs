//! What signals and mechanisms are called, by whoever speaks of them to people.

use super::fact::{Mechanism, Signal};

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
