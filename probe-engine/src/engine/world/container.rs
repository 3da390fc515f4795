//! The containers of runtimes: workload containers, and the pause containers of sandboxes.

mod identity;
mod listening;
mod table;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use probe_common::event::class;

pub(in crate::engine) use table::Table;

use crate::{
    engine::{
        grouped::Grouped,
        held::{Subject, Wait},
        world::{EventContext, World, cgroup::Cgroup, presence::Voucher, process_of},
    },
    model::{
        change::{ChangeKind, End, Process, StopReason},
        fact::{Listener, Origin, Role, Task},
        id::{CgroupKey, ContainerId, TaskKey},
        time::Timestamp,
    },
};

/// A pod or a sandbox by which the table finds containers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) enum Group {
    Pod(u64),
    Sandbox(ContainerId),
}

impl Grouped for Container {
    type Group = Group;

    fn groups(&self) -> impl Iterator<Item = Group> {
        self.pod.map(Group::Pod).into_iter().chain(self.sandbox.clone().map(Group::Sandbox))
    }
}

#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    pub(crate) id: ContainerId,
    /// None: the role is not known yet.
    pub(crate) role: Option<Role>,
    pub(crate) name: Option<String>,
    pub(crate) sandbox: Option<ContainerId>,
    /// The `world::pod::Pod::id` of its pod.
    #[serde_as(as = "Option<DisplayFromStr>")]
    pub(crate) pod: Option<u64>,
    pub(crate) cgroup: Option<CgroupKey>,
    /// The time of the first evidence of the container.
    pub(crate) first_at: Timestamp,
    pub(crate) origin: Origin,
    /// Its programs are no processes of the node: a virtual machine runs them, or a kernel that is a process itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) hides_programs: bool,
    pub(crate) question: RoleQuestion,
    pub(crate) run: Run,
    pub(crate) state: State,
}

/// The state of asking for a container's role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RoleQuestion {
    /// How often the role was asked for.
    pub(crate) asked: u32,
    /// An answer may still come.
    pub(crate) is_open: bool,
    /// A `sandbox.created` waits in the outbox for the role.
    pub(crate) is_awaited: bool,
}

/// The observations of a container's own program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) began: Option<Began>,
    /// When the program began, by a date in the runtime's files. It is used for a container that was found running.
    pub(crate) dated: Option<Timestamp>,
    /// The first socket of the container that listened.
    pub(crate) listening: Option<Listening>,
    /// The first program that was executed into the container right after its own program began.
    pub(crate) hook: Option<Hook>,
    /// When the runtime first sent it a fatal signal, if that was before its end.
    pub(crate) stopped_at: Option<Timestamp>,
    /// When the runtime first sent it SIGKILL.
    #[serde(default)]
    pub(crate) killed_at: Option<Timestamp>,
    /// Its exit code, if its end was seen.
    pub(crate) code: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Began {
    pub(crate) at: Timestamp,
    /// The container was found running at that time.
    pub(crate) listed: bool,
}

/// The first time that a socket of a container listened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) at: Timestamp,
    pub(crate) socket: Listener,
}

/// A program that the runtime executed into a container right after its start. It is most likely a postStart hook: the
/// kubelet runs that hook before it goes on with the pod, and runs no probe of the container until the hook has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hook {
    pub(crate) process: TaskKey,
    pub(crate) ended_at: Option<Timestamp>,
}

/// A hook begins at most this long after the start of the container's own program.
const HOOKED: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No program of the container runs yet.
    #[default]
    Created,
    Running {
        process: TaskKey,
        /// When it started. For a container that was found running: when it was found.
        since: Timestamp,
        listed: bool,
    },
    Exited {
        at: Timestamp,
    },
}

/// The transitions of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Run { process: TaskKey, listed: bool },
    End,
}

impl State {
    fn step(self, step: Step, at: Timestamp) -> Option<Self> {
        match (self, step) {
            (Self::Created, Step::Run { process, listed }) => {
                Some(Self::Running { process, since: at, listed })
            }
            (Self::Created | Self::Running { .. }, Step::End) => Some(Self::Exited { at }),
            // Only the first program changes the state. The workload may run any other programs.
            (Self::Running { .. } | Self::Exited { .. }, Step::Run { .. })
            | (Self::Exited { .. }, Step::End) => None,
        }
    }
}

impl Container {
    #[must_use]
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    #[must_use]
    pub(crate) fn process(&self) -> Option<TaskKey> {
        match self.state {
            State::Running { process, .. } => Some(process),
            State::Created | State::Exited { .. } => None,
        }
    }
}

impl World {
    /// Evidence shows that a container or sandbox of this id exists.
    pub(super) fn container_seen(
        &mut self,
        ctx: EventContext,
        id: &ContainerId,
        pod: Option<u64>,
        cgroup: Option<CgroupKey>,
    ) {
        let is_new = !self.containers.contains_key(id);
        let is_sandbox = self.sandboxes.contains_key(id);
        let row = self.containers.rows.entry(id.clone()).or_insert_with(|| Container {
            id: id.clone(),
            role: is_sandbox.then_some(Role::Sandbox),
            name: None,
            sandbox: None,
            pod: None,
            cgroup: None,
            first_at: ctx.at,
            origin: ctx.origin,
            hides_programs: false,
            question: RoleQuestion::default(),
            run: Run::default(),
            state: State::Created,
        });
        row.pod = row.pod.or(pod);
        row.cgroup = row.cgroup.or(cgroup);
        self.pod_of_sandbox(ctx, id);
        if is_new && let Some(hint) = self.hints.remove(id) {
            self.learn(ctx, &hint);
        }
        if cgroup.is_some() {
            self.sandboxes.vouch(id, Voucher::Cgroupfs, ctx.at);
        }
        if let Some(pod) = self.containers.get(id).and_then(|row| row.pod).filter(|_| is_new) {
            self.ask_name(ctx, pod);
        }
        if is_new && self.containers.get(id).is_some_and(|row| row.role.is_none()) {
            // The role becomes known a moment later. If it is a sandbox, its `sandbox.created` belongs here in the
            // stream.
            if let Some(row) = self.containers.rows.get_mut(id) {
                row.question.is_awaited = true;
            }
            let subject = Subject { container: Some(id.clone()), ..Subject::default() };
            self.tell(ctx, subject, Wait::Role(Role::Sandbox), ChangeKind::SandboxCreated);
        }
        self.ask_role(id);
    }

    /// Its maker, what holds it, or its first process shows that the container's programs are no processes of the node.
    pub(super) fn programs_hidden(&mut self, id: &ContainerId) {
        if self.containers.get(id).is_some_and(|row| !row.hides_programs)
            && let Some(row) = self.containers.rows.get_mut(id)
        {
            row.hides_programs = true;
        }
        self.sandboxes.hide_programs(id);
    }

    /// Whether the programs of a container, or of a sandbox's containers, are no processes of the node. Then no absence of a
    /// process, and no end of one, tells anything of them.
    pub(in crate::engine) fn hides_programs(&self, id: &ContainerId) -> bool {
        self.containers.get(id).is_some_and(|row| row.hides_programs)
            || self.sandboxes.recall(id).is_some_and(|row| row.hides_programs)
    }

    /// A program began in a container's own cgroup.
    pub(super) fn ran_in_container(&mut self, ctx: EventContext, id: &ContainerId, task: &Task, bits: u32) {
        if bits & (class::CONTAINER_TOP | class::PAUSE) == 0 {
            return;
        }
        let Some(row) = self.containers.rows.get_mut(id) else { return };
        // The container was found with processes in it, so it has started already and this program is an `exec` into
        // it.
        let cgroup = row.cgroup.and_then(|key| self.cgroups.get(&key));
        let had_processes = |cgroup: &Cgroup| cgroup.created_at.is_none() && cgroup.populated == Some(true);
        if row.origin == Origin::Listed && cgroup.is_none_or(had_processes) {
            return;
        }
        let Some(running) = row.state.step(Step::Run { process: task.key, listed: false }, ctx.at) else {
            self.executed_into(ctx, id, task.key);
            return;
        };
        row.state = running;
        row.run.began = Some(Began { at: ctx.at, listed: false });
        self.kernel_started(ctx.at, id);
        self.started(ctx, id, process_of(task), bits);
    }

    /// A program began in a container that runs already, and it is no child of the container's own program.
    fn executed_into(&mut self, ctx: EventContext, id: &ContainerId, process: TaskKey) {
        let Some(row) = self.containers.rows.get_mut(id) else { return };
        if let State::Running { process: main, since, listed: false } = row.state
            && main != process
            && row.run.hook.is_none()
            && ctx.at <= since + HOOKED
        {
            let hook = Hook { process, ended_at: None };
            row.run.hook = Some(hook);
            self.run_hooked(id, hook);
        }
    }

    fn hook_exited(&mut self, ctx: EventContext, id: &ContainerId, process: TaskKey) {
        let Some(row) = self.containers.rows.get_mut(id) else { return };
        if let Some(hook) = row.run.hook.filter(|hook| hook.process == process && hook.ended_at.is_none()) {
            let hook = Hook { ended_at: Some(ctx.at), ..hook };
            row.run.hook = Some(hook);
            self.run_hooked(id, hook);
        }
    }

    /// A process was found in a container's own cgroup.
    pub(super) fn found_in_container(
        &mut self,
        ctx: EventContext,
        id: &ContainerId,
        task: &Task,
        ns_pid: u32,
        bits: u32,
    ) {
        let outside = self.processes.get(task.parent).is_none_or(|parent| parent.cgroup != task.cgroup);
        let Some(row) = self.containers.rows.get_mut(id) else { return };
        if ns_pid != 1 && !outside {
            return;
        }
        let Some(running) = row.state.step(Step::Run { process: task.key, listed: true }, ctx.at) else {
            return;
        };
        row.state = running;
        row.run.began = Some(Began { at: ctx.at, listed: true });
        self.started(ctx, id, process_of(task), bits);
    }

    fn started(&mut self, ctx: EventContext, id: &ContainerId, process: Process, bits: u32) {
        if bits & class::PAUSE != 0 && self.containers.get(id).is_some_and(|row| row.pod.is_some()) {
            self.has_role(ctx, id, Role::Sandbox);
        }
        self.ask_role(id);
        let role = self.containers.get(id).and_then(|row| row.role);
        let subject = self.containers.subject_of(id);
        match role {
            Some(Role::Sandbox) => {}
            Some(Role::Container) => {
                self.container_ran(id);
                self.tell(ctx, subject, Wait::Name, ChangeKind::ContainerStarted { process });
            }
            None => {
                self.tell(ctx, subject, Wait::Role(Role::Container), ChangeKind::ContainerStarted { process })
            }
        }
        self.is_up(ctx, id);
        self.phase_turns(self.containers.get(id).and_then(|row| row.pod));
    }

    pub(super) fn container_exited(
        &mut self,
        ctx: EventContext,
        id: &ContainerId,
        process: &Process,
        end: &End,
        stopped_at: Option<Timestamp>,
    ) {
        self.hook_exited(ctx, id, process.key);
        let Some(row) = self.containers.rows.get_mut(id) else { return };
        let State::Running { process: top, since, listed } = row.state else { return };
        let Some(ended) = row.state.step(Step::End, ctx.at).filter(|_| top == process.key) else { return };
        row.state = ended;
        row.run.code = Some(end.code);
        row.run.stopped_at = stopped_at;
        let (role, pod) = (row.role, row.pod);
        self.schedule_reap(ctx.at);
        self.kernel_ended(ctx.at, id, Some(end.code));
        if role == Some(Role::Sandbox) {
            if self.hides_programs(id) {
                return;
            }
            self.sandbox_died(ctx, id, end);
            self.stop(ctx, id, StopReason::PauseExited);
            return;
        }
        self.run_ended(ctx.at, id, Some(end.code));
        self.infer_role(id);
        let role = self.containers.get(id).and_then(|row| row.role);
        let ran = (!listed).then(|| ctx.at.since(since));
        let wait = if role.is_some() { Wait::Name } else { Wait::Role(Role::Container) };
        let what = ChangeKind::ContainerExited { process: process.clone(), end: end.clone(), ran };
        self.tell(ctx, self.containers.subject_of(id), wait, what);
        if let Some(pod) = pod {
            self.pod_may_be_gone(ctx, pod);
        }
    }

    /// The runtime sent SIGKILL to a process in a container.
    pub(super) fn container_killed(&mut self, ctx: EventContext, process: TaskKey) {
        let cgroup = self.processes.get(process).map(|row| row.cgroup);
        let Some(id) = cgroup.and_then(|key| self.cgroups.own_container(key)) else { return };
        let is_it = |row: &Container| row.process() == Some(process) && row.run.killed_at.is_none();
        if self.containers.get(&id).is_some_and(is_it)
            && let Some(row) = self.containers.rows.get_mut(&id)
        {
            row.run.killed_at = Some(ctx.at);
        }
    }

    /// The container's process is gone, and no hook saw its end.
    pub(super) fn container_vanished(&mut self, ctx: EventContext, id: &ContainerId, process: TaskKey) {
        if self.containers.get(id).is_some_and(|row| row.process() == Some(process)) {
            self.container_over(ctx, id, StopReason::NotListed);
        }
    }

    pub(super) fn container_emptied(&mut self, ctx: EventContext, id: &ContainerId) {
        let is_sandbox = self.containers.get(id).is_some_and(|row| row.role == Some(Role::Sandbox));
        if is_sandbox && !self.hides_programs(id) {
            self.stop(ctx, id, StopReason::Emptied);
        }
    }

    pub(super) fn container_cgroup_gone(&mut self, ctx: EventContext, id: &ContainerId) {
        self.sandboxes.withdraw(id, Voucher::Cgroupfs);
        self.container_over(ctx, id, StopReason::Emptied);
    }

    fn container_over(&mut self, ctx: EventContext, id: &ContainerId, why: StopReason) {
        let Some(row) = self.containers.rows.get_mut(id) else { return };
        if let Some(ended) = row.state.step(Step::End, ctx.at) {
            row.state = ended;
            self.schedule_reap(ctx.at);
            self.kernel_ended(ctx.at, id, None);
            self.run_ended(ctx.at, id, None);
            self.infer_role(id);
        }
        let pod = self.containers.get(id).and_then(|row| row.pod);
        if why != StopReason::NotListed || !self.hides_programs(id) {
            self.stop(ctx, id, why);
        }
        if let Some(pod) = pod {
            self.pod_may_be_gone(ctx, pod);
        }
    }
}
