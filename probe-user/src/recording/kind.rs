//! The words of closed sets, as they stand in the file.

use super::mirror::mirror;
use crate::engine::fact;

mirror! { enum fact::Origin { Kernel, Netlink, Listed, Delegated, Cri, Agent } }

mirror! { enum fact::List { Processes, Netns, Addresses, Cgroups, Containers, Pods, CniCache, Ipam, Runtimes } }

mirror! { enum fact::Role { Sandbox, Container } }

mirror! { enum fact::NameSource { CniArgs, CgroupPath, Bundle, LogFolder, Argv, CniCache, Cri } }

mirror! {
    #[expect(clippy::enum_variant_names, reason = "a fatal signal is a signal of ours that tells of one of the kernel's")]
    enum fact::Signal {
        Exec, Exit, FatalSignal, OomKill,
        NetnsCreated, NetnsDropped, NetnsFreed,
        AddressV4, AddressV6,
        CgroupCreated, CgroupRemoved, CgroupReleased, CgroupEntered, CgroupEmptied,
        Listening,
    }
}

mirror! { enum fact::Family { Ipv4, Ipv6 } }

mirror! { enum fact::Mechanism { Fentry, Fexit, Kprobe, Kretprobe, RawTracepoint, Tracepoint, Netlink } }

mirror! { enum fact::Loss { LifecycleRing, BulkRing, NetlinkSocket, Record, Channel, SkippedRun } }
