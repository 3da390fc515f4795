//! The processes of runtimes, containers and CNI plugins, and the signals that may end them.

mod name;
pub(in crate::engine) mod table;

pub(super) use name::makes_pods;

use name::class_of;
use probe_common::event::class;
use serde::{Deserialize, Serialize};

use crate::{
    engine::world::{EventContext, World, argv, daemon, process_of},
    model::{
        change::{self, ChangeKind},
        fact::{Executed, Exited, ProcessFound, SIGKILL, Signaled, Task},
        id::{CgroupKey, ContainerId, TaskKey},
        recovery::{DaemonEnd, Source, TimedSource},
        time::Timestamp,
    },
};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub(crate) key: TaskKey,
    pub(crate) parent: TaskKey,
    pub(crate) comm: String,
    pub(crate) cgroup: CgroupKey,
    /// The inode of its network namespace. Zero: not known.
    pub(crate) netns: u32,
    pub(crate) program: Program,
    /// When its latest observed exec was.
    pub(crate) executed_at: Option<Timestamp>,
    pub(crate) found_at: Option<Timestamp>,
    /// A CNI plugin runs it as a helper (iptables), so its end is not reported.
    pub(crate) quiet: bool,
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    #[default]
    Running,
    Exited {
        at: Timestamp,
    },
}

/// The program that a process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    /// The path of a runtime's or a kubelet's executable. Empty for other programs: nobody asks for theirs.
    pub(crate) filename: String,
    /// The bits of `probe_common::event::class`.
    pub(crate) class: u32,
    /// The process's pid in its own pid namespace.
    pub(crate) ns_pid: u32,
    /// The container for which it works, if it is a program of a runtime, a shim or a monitor.
    pub(crate) about: Option<ContainerId>,
}

/// A fatal signal that was sent, or a choice of the OOM killer. It is kept apart from the process, because that may not
/// be known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    pub(crate) target: TaskKey,
    pub(crate) at: Timestamp,
    pub(crate) signal: u32,
    pub(crate) oom: bool,
    pub(crate) sender: change::Process,
}

/// At most this many signals are kept for one process. Runtimes send fewer, and a flood of signals must not cost
/// memory.
const SIGNALS: usize = 8;

/// SIGINT, SIGKILL and SIGTERM: with these a daemon is told to end.
const STOPS: [u32; 3] = [2, SIGKILL, 15];

impl State {
    /// A process ends only once.
    fn step(self, at: Timestamp) -> Option<Self> {
        match self {
            Self::Running => Some(Self::Exited { at }),
            Self::Exited { .. } => None,
        }
    }

    /// Whether it ended at `at` or later.
    fn is_since(self, at: Timestamp) -> bool {
        match self {
            Self::Running => false,
            Self::Exited { at: ended } => ended >= at,
        }
    }
}

impl Signal {
    pub(super) fn tells_to_end(&self) -> bool {
        !self.oom && STOPS.contains(&self.signal)
    }
}

impl World {
    pub(super) fn executed(&mut self, ctx: EventContext, it: Executed) {
        let key = it.task.key;
        if self.processes.get(key).is_some_and(|known| known.executed_at == Some(ctx.at)) {
            return;
        }
        if self.only_orders(ctx, &it) {
            return;
        }
        self.learn_host_netns(&it.task, it.class);
        let init = argv::is_init(&it.task.comm, &it.argv);
        // Arguments count only for programs that the hooks class as a runtime's or a monitor's, outside of containers.
        let of_node = it.class & class::RUNTIME != 0 && !self.cgroups.is_in_container(it.task.cgroup);
        let about = if of_node { argv::about(&it.argv) } else { None };
        // The arguments of a runtime's init do not name its container. Those of its parent do.
        let parent = self.processes.get(it.task.parent).filter(|_| init);
        let about = about.or_else(|| parent?.program.about.clone());
        let program = Program {
            filename: daemon::kept_path(&it.task.comm, &it.filename),
            class: it.class,
            ns_pid: it.ns_pid,
            about: about.clone(),
        };
        self.began(ctx, &it.task, program);
        self.started_at(&it.task, it.class, TimedSource::hooked(ctx.at));
        if about.is_some() && self.boot.is_restarting() && !argv::is_ending(&it.argv) {
            self.runtime_works(TimedSource::hooked(ctx.at), self.runtime_of(it.task.parent));
        }
        let made = about.as_ref().and_then(|_| argv::read(&it.argv));
        if let Some(id) = about.as_ref().filter(|_| argv::is_ending(&it.argv)) {
            self.sandbox_stopping(ctx, id);
        }
        let own = self.cgroups.own_container(it.task.cgroup);
        let is_top = it.class & class::CONTAINER_TOP != 0;
        let hides = (made.is_some() || is_top) && argv::hides_programs(&it.argv, &it.filename);
        let hidden = if hides {
            about.clone().or_else(|| own.clone().filter(|id| self.containers.may_be_first(id, key)))
        } else {
            None
        };
        let mut subject = self.cgroups.subject_of(&it.task);
        subject.container = about.or(subject.container);
        let (task, class) = (it.task, it.class);
        let argv_seen: usize = it.argv.iter().map(|arg| arg.len() + 1).sum();
        let argv_cut = usize::try_from(it.argv_total).is_ok_and(|total| total > argv_seen);
        let wait = self.wait_of(&subject);
        let process = process_of(&task);
        self.tell(
            ctx,
            subject,
            wait,
            ChangeKind::ProcessExec { process, filename: it.filename, argv: it.argv, argv_cut },
        );
        if let Some(made) = made {
            self.made(ctx, made);
        }
        if let Some(id) = hidden {
            self.programs_hidden(&id);
        }
        if let Some(id) = own
            && !init
        {
            self.ran_in_container(ctx, &id, &task, class);
        }
    }

    /// Adds a process to the table, or gives a known process its new program.
    pub(super) fn began(&mut self, ctx: EventContext, task: &Task, program: Program) {
        self.supersede(ctx, task.key);
        let known = self.processes.get(task.key);
        if known.is_some_and(|known| known.executed_at > Some(ctx.at)) {
            return;
        }
        let row = Process {
            key: task.key,
            parent: task.parent,
            comm: task.comm.clone(),
            cgroup: task.cgroup,
            netns: task.netns,
            program,
            executed_at: Some(ctx.at),
            found_at: known.and_then(|known| known.found_at),
            quiet: false,
            // It runs a program now, even if a listing before this exec did not have it.
            state: known.map(|known| known.state).filter(|state| state.is_since(ctx.at)).unwrap_or_default(),
        };
        self.processes.insert(row);
    }

    pub(super) fn exited(&mut self, ctx: EventContext, it: &Exited) {
        let key = it.task.key;
        self.supersede(ctx, key);
        let known = self.processes.get(key);
        let state = known.map(|known| known.state).unwrap_or_default();
        let Some(ended) = state.step(ctx.at) else { return };
        // If a process's beginning was not seen, its end is reported only if the process itself matters.
        let matters = it.class & (class::CONTAINER_TOP | class::PAUSE | class::CALLER) != 0
            && !argv::is_init(&it.task.comm, &[]);
        let quiet = known.map_or(!matters, |known| known.quiet);
        let cgroup = known.map_or(it.task.cgroup, |known| known.cgroup);
        let about = known.and_then(|known| known.program.about.clone());
        let daemon = known.filter(|known| daemon::is_named(&known.comm, known.program.class)).cloned();
        if known.is_some() {
            self.processes.set_state(key, ended);
        } else {
            self.processes.insert(Process { state: ended, ..unseen(&it.task) });
        }
        self.schedule_reap(ctx.at);
        self.caller_ended(ctx.at, key);

        let stopped_at = self.stopped_at(key);
        let told = daemon.as_ref().and_then(|_| self.processes.told_to_end(key));
        let end = self.processes.take_end(key, it.status);
        if let Some(row) = daemon {
            self.daemon_ended(&row, ctx.at, Some(DaemonEnd { at: ctx.at, end: end.clone(), told }));
        }
        if let Some(call) = self.calls.remove(&key) {
            self.cni_finished(ctx, call, Some(end));
            return;
        }
        // A process that was killed before it had become the pause process ends its sandbox all the same.
        if end.signal.is_some()
            && let Some(id) = self.cgroups.own_container(cgroup)
            && !self.hides_programs(&id)
        {
            self.sandbox_died(ctx, &id, &end);
        }
        if quiet {
            return;
        }
        let mut subject = self.cgroups.subject_of(&it.task);
        if !self.cgroups.contains_key(&it.task.cgroup) {
            subject.cgroup = Some(cgroup);
        }
        subject.container = about.or(subject.container);
        let wait = self.wait_of(&subject);
        let process = process_of(&it.task);
        self.tell(ctx, subject, wait, ChangeKind::ProcessExit { process: process.clone(), end: end.clone() });
        for id in [self.cgroups.own_container(cgroup), self.cgroups.own_container(it.task.cgroup)]
            .into_iter()
            .flatten()
        {
            self.container_exited(ctx, &id, &process, &end, stopped_at);
        }
    }

    /// When a runtime was first seen to send it a fatal signal.
    fn stopped_at(&self, key: TaskKey) -> Option<Timestamp> {
        let heard = self.processes.signals.get(&key).into_iter().flatten();
        heard.filter(|heard| !heard.oom && self.is_of_runtime(&heard.sender)).map(|heard| heard.at).min()
    }

    pub(super) fn signaled(&mut self, ctx: EventContext, it: Signaled, oom: bool) {
        let target = self.processes.target_of(ctx, &it);
        let ended = self.processes.get(target).filter(|known| known.state != State::Running);
        if let Some(known) = ended {
            // The OOM killer's choice is reported after the signal. The reported end stays as it is, but verdicts use
            // the OOM kill.
            if let Some(id) = self.cgroups.own_container(known.cgroup).filter(|_| oom) {
                self.sandboxes.oom_killed(ctx, &id);
            }
            if oom {
                self.daemon_oom_killed(target);
            }
            return;
        }
        let signal = Signal { target, at: ctx.at, signal: it.signal, oom, sender: process_of(&it.sender) };
        let heard = self.processes.signals.entry(target).or_default();
        // The first SIGKILL ends the process. Signals that can be caught may have been caught, so only the last of each
        // counts.
        if signal.signal != SIGKILL || oom {
            heard.retain(|other| other.signal != signal.signal || other.oom != oom);
        } else if heard.iter().any(|other| other.signal == SIGKILL && !other.oom) {
            return;
        }
        let killer = (signal.signal == SIGKILL && !oom).then(|| signal.sender.clone());
        if heard.len() < SIGNALS {
            heard.push(signal);
        }
        if killer.is_some_and(|killer| self.is_of_runtime(&killer)) {
            self.container_killed(ctx, target);
        }
        self.schedule_reap(ctx.at);
    }

    /// Ends the process that had the same pid before.
    fn supersede(&mut self, ctx: EventContext, key: TaskKey) {
        if let Some(stale) = self.processes.stale(key) {
            self.vanished(ctx, stale);
        }
    }

    /// A process is gone, and no hook saw its end.
    pub(super) fn vanished(&mut self, ctx: EventContext, key: TaskKey) {
        let Some(row) = self.processes.get(key) else { return };
        let Some(ended) = row.state.step(ctx.at) else { return };
        let cgroup = row.cgroup;
        let daemon = Some(row).filter(|row| daemon::is_named(&row.comm, row.program.class)).cloned();
        self.processes.set_state(key, ended);
        self.schedule_reap(ctx.at);
        self.caller_ended(ctx.at, key);
        self.processes.signals.remove(&key);
        if let Some(row) = daemon {
            self.daemon_ended(&row, ctx.at, None);
        }
        if let Some(call) = self.calls.remove(&key) {
            self.cni_finished(ctx, call, None);
        }
        if let Some(id) = self.cgroups.own_container(cgroup) {
            self.container_vanished(ctx, &id, key);
        }
    }

    pub(super) fn process_found(&mut self, ctx: EventContext, it: ProcessFound) {
        let key = it.task.key;
        let known = self.processes.get(key);
        if known.is_some_and(|known| known.state != State::Running) {
            return;
        }
        let class = match known {
            Some(known) => known.program.class,
            None if it.forged => 0,
            None => class_of(&it.task.comm),
        };
        let was_seen = known.is_some_and(|known| known.executed_at.is_some());
        let mut row = known.cloned().unwrap_or_else(|| unseen(&it.task));
        row.found_at = Some(ctx.at);
        if row.executed_at.is_none() {
            let about = argv::about(&it.argv);
            let filename = daemon::kept_path(&row.comm, &it.filename);
            row.program = Program { filename, class, ns_pid: it.ns_pid, about };
        }
        self.supersede(ctx, key);
        self.processes.insert(row);
        if key.pid == 1 || class & class::CALLER != 0 {
            self.learn_host_netns(&it.task, class::CALLER);
        }
        self.cgroup_named(ctx, it.task.cgroup, &it.cgroup_path);
        if !was_seen {
            self.started_at(
                &it.task,
                class,
                TimedSource { at: Timestamp(key.start), source: Source::ProcStart },
            );
        }
        if let Some(made) = argv::read(&it.argv)
            && !self.cgroups.is_in_container(it.task.cgroup)
        {
            self.made(ctx, made);
        }
        let first_in =
            self.cgroups.own_container(it.task.cgroup).filter(|id| self.containers.may_be_first(id, key));
        let about = argv::about(&it.argv).filter(|_| !self.cgroups.is_in_container(it.task.cgroup));
        if argv::hides_programs(&it.argv, &it.filename)
            && let Some(id) = about.or(first_in)
        {
            self.programs_hidden(&id);
        }
        if let Some(variables) = it.cni {
            self.cni_found(ctx, &it.task, &it.filename, variables);
        } else if let Some(id) = self.cgroups.own_container(it.task.cgroup)
            && !argv::is_init_found(&it.task.comm, &it.argv)
        {
            self.found_in_container(ctx, &id, &it.task, it.ns_pid, class);
        }
    }

    /// Whether a process is in a container: by its cgroup, or by the hook that reported its program.
    pub(super) fn is_contained(&self, row: &Process) -> bool {
        row.program.class & class::IN_CONTAINER != 0 || self.cgroups.is_in_container(row.cgroup)
    }

    /// Learns the node's own network namespace. Runtimes and their callers run in it, and CNI plugins begin in it.
    pub(super) fn learn_host_netns(&mut self, task: &Task, class: u32) {
        if self.node.host_netns == 0
            && class & (class::CALLER | class::CNI) != 0
            && !self.cgroups.is_in_container(task.cgroup)
        {
            self.node.host_netns = task.netns;
        }
    }
}

fn unseen(task: &Task) -> Process {
    Process {
        key: task.key,
        parent: task.parent,
        comm: task.comm.clone(),
        cgroup: task.cgroup,
        netns: task.netns,
        ..Process::default()
    }
}
