//! Why a process matters. It is read from the kernel's own memory of the process, so the programs need no
//! table of "tracked" processes, which somebody would have to fill first.

use probe_common::{
    event::class::{CALLER, CONTAINER_TOP, IN_CONTAINER, PAUSE, RUNTIME},
    name,
    text::Comm,
};

use crate::{
    branchless::Names,
    kernel::{cgroup::Container, task::Task},
};

const CALLERS: Names<{ name::CALLERS.len() }> = Names::new(&name::CALLERS);
const RUNTIMES: Names<{ name::RUNTIMES.len() }> = Names::new(&name::RUNTIMES);
const PAUSES: Names<{ name::PAUSES.len() }> = Names::new(&name::PAUSES);
const ORDERS: Names<{ name::ORDERS.len() }> = Names::new(&name::ORDERS);
const PLUGINS: Names<{ name::PLUGINS.len() }> = Names::new(&name::PLUGINS);

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Class {
    /// Bits of `event::class`.
    pub(crate) bits: u32,
    pub(crate) container: Container,
}

impl Class {
    /// Classifies a process. Anybody can give a program any name, so a name counts only outside of containers
    /// and for a process of root. A kubelet that is the top of a container keeps its bit if it is root's,
    /// which does not make it the node's yet. A pause process is known only by its name, so inside a
    /// container it must also be the top.
    ///
    /// The top of a container has its parent outside of all containers: the shim, conmon, or the runtime
    /// itself. In a container with the host's pid namespace an orphan has such a parent too.
    #[inline(always)]
    pub(crate) fn of(task: Task) -> Self {
        Self::with(task, || task.leader().comm(), task.parent(), task.cgroup().container())
    }

    /// Like `of`, for callers that have read the parent and the container already. `comm` returns the
    /// process's name, which is not needed for most programs in containers.
    #[inline(always)]
    pub(crate) fn with(task: Task, comm: impl Fn() -> Comm, parent: Task, container: Container) -> Self {
        let is_inside = container.is_some();
        if is_inside && (task.shares_cgroups(parent) || parent.cgroup().container().is_some()) {
            return Self { bits: IN_CONTAINER, container };
        }
        let named = class_of_name(comm());
        let counts = if is_inside { named & CALLER } else { named };
        let counted = if counts == 0 { 0 } else { counts * task.is_root_by_itself() as u32 };
        let bits = if is_inside { IN_CONTAINER | CONTAINER_TOP | counted | named & PAUSE } else { counted };
        Self { bits, container }
    }

    /// Whether there is a reason to report the process, other than that it is in a container.
    #[inline(always)]
    pub(crate) fn matters(self) -> bool {
        self.bits & !IN_CONTAINER != 0
    }

    /// Whether the process may order a restart of the node. Such a program in a container restarts nothing
    /// but the container. A user who is not root has to ask logind, which writes that down.
    #[inline(always)]
    pub(crate) fn may_order(self, task: Task, comm: Comm) -> bool {
        self.bits & IN_CONTAINER == 0 && ORDERS.contain(comm) == 1 && task.is_root_by_itself() == 1
    }

    #[inline(always)]
    pub(crate) fn is_top(self) -> bool {
        self.bits & CONTAINER_TOP != 0
    }
}

/// Whether a process is one of the node's own programs that call CNI plugins: it has the name of such a
/// program, is root's, and is in no container.
#[inline(always)]
pub(crate) fn is_host_caller(leader: Task) -> bool {
    is_named_caller(leader.comm())
        && leader.is_root_by_itself() == 1
        && !leader.cgroup().container().is_some()
}

/// Whether a name is that of a program that calls CNI plugins. It proves nothing: see `is_host_caller`.
#[inline(always)]
pub(crate) fn is_named_caller(comm: Comm) -> bool {
    CALLERS.contain(comm) == 1
}

/// Whether a name is that of a plugin of the CNI project itself.
#[inline(always)]
pub(crate) fn is_named_plugin(comm: Comm) -> bool {
    PLUGINS.contain(comm) == 1
}

/// Returns bits of `event::class`; a name is of one kind at most.
#[inline(always)]
fn class_of_name(comm: Comm) -> u32 {
    let caller = CALLERS.contain(comm) * u64::from(CALLER);
    let runtime = RUNTIMES.contain(comm) * u64::from(RUNTIME);
    let pause = PAUSES.contain(comm) * u64::from(PAUSE);
    (caller | runtime | pause) as u32
}
