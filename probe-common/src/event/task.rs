//! A task, its end, and what ended it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Header;
use crate::{id::TaskKey, text::Comm};

/// A process as a hook saw it: `bpf_get_current_task()` and what it points to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Task {
    /// `group_leader.start_boottime`, ns.
    pub start: u64,
    /// `real_parent.group_leader.start_boottime`, ns.
    pub parent_start: u64,
    /// Id of its cgroup in the hierarchy that identifies containers.
    pub cgroup: u64,
    /// `tgid`: what user space calls the pid.
    pub pid: u32,
    /// `pid`: the thread.
    pub tid: u32,
    /// `real_parent.tgid`.
    pub parent: u32,
    /// `nsproxy.net_ns.ns.inum`; 0 once the task has given up its namespaces.
    pub netns: u32,
    /// The name of the thread group's leader.
    pub comm: Comm,
}

const _: () = assert!(size_of::<Task>() == 56);

impl Task {
    #[must_use]
    pub const fn key(&self) -> TaskKey {
        TaskKey::new(self.pid, self.start)
    }

    #[must_use]
    pub const fn parent_key(&self) -> TaskKey {
        TaskKey::new(self.parent, self.parent_start)
    }
}

/// The last thread of a process ended (`sched_process_exit` with `signal.live` at 0); `header.task` is the
/// process.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Exit {
    pub header: Header,
    /// As `wait(2)` returns it: signal in the low 7 bits, core flag in bit 7, exit code in bits 8 to 15.
    pub status: u32,
    /// Bits of `event::class`.
    pub class: u32,
}

/// A fatal signal was queued to a process that matters (`signal_generate`), or the OOM killer chose it
/// (`mark_victim`). `header.task` is the sender; for the OOM killer it is merely the task that asked for
/// memory.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Signal {
    pub header: Header,
    pub target: Task,
    pub signal: u32,
    /// `kernel_siginfo.si_code`: 0 `kill`, 0x80 the kernel, negative otherwise from user space.
    pub code: i32,
}
