//! Why a process matters, told from what the kernel has of it: no table of "tracked" processes that would have to be
//! there first.

use probe_common::{
    event::class::{CALLER, CONTAINER_TOP, IN_CONTAINER, PAUSE, RUNTIME},
    name::{CALLERS, ORDERS, PAUSES, RUNTIMES},
    text::Comm,
};

use crate::{
    branchless::is_one_of,
    kernel::{cgroup::Container, task::Task},
};

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Class {
    /// Bits of `event::class`.
    pub(crate) bits: u32,
    pub(crate) container: Container,
}

impl Class {
    /// A name counts only outside of containers and of a process that is root's: anybody else can name a program as he
    /// likes. A kubelet that is the top of a container is told to be root's too, which does not make it the node's yet. A
    /// pause process has nothing but its name to be known by, so inside it must also be the container's top.
    ///
    /// The top of a container is what has its parent outside of all containers: the shim, conmon, or the runtime
    /// itself. With the host's pid namespace an orphan in the container has such a parent too.
    #[inline(always)]
    pub(crate) fn of(task: Task) -> Self {
        let container = task.cgroup().container();
        let named = class_of_name(task.leader().comm());
        let bits = if !container.is_some() {
            named * task.is_root_by_itself() as u32
        } else if !task.parent().cgroup().container().is_some() {
            let caller = (named & CALLER) * task.is_root_by_itself() as u32;
            IN_CONTAINER | CONTAINER_TOP | caller | named & PAUSE
        } else {
            IN_CONTAINER
        };
        Self { bits, container }
    }

    /// Whether there is any reason to tell of it beyond its being in a container.
    #[inline(always)]
    pub(crate) fn matters(self) -> bool {
        self.bits & !IN_CONTAINER != 0
    }

    /// Whether it may order a restart: a container that runs such a program restarts nothing but itself, and who is not
    /// root has to ask for it, which logind writes down.
    #[inline(always)]
    pub(crate) fn may_order(self, task: Task) -> bool {
        let ordering = is_one_of(zerocopy::transmute!(task.leader().comm().0), &ORDERS);
        self.bits & IN_CONTAINER == 0 && ordering & task.is_root_by_itself() != 0
    }

    #[inline(always)]
    pub(crate) fn is_top(self) -> bool {
        self.bits & CONTAINER_TOP != 0
    }
}

/// Whether a process is one of the node's own that call CNI plugins: known by name, root's, and not in a container.
#[inline(always)]
pub(crate) fn is_host_caller(leader: Task) -> bool {
    u64::from(class_of_name(leader.comm()) & CALLER) * leader.is_root_by_itself() != 0
        && !leader.cgroup().container().is_some()
}

/// Bits of `event::class`; a name is of one kind at most.
#[inline(always)]
fn class_of_name(comm: Comm) -> u32 {
    let comm = zerocopy::transmute!(comm.0);
    let caller = is_one_of(comm, &CALLERS) * u64::from(CALLER);
    let runtime = is_one_of(comm, &RUNTIMES) * u64::from(RUNTIME);
    let pause = is_one_of(comm, &PAUSES) * u64::from(PAUSE);
    (caller | runtime | pause) as u32
}
