//! Collects what the report on the node's recovery needs: when the daemons started, and which pods are back.
//! `engine::boot` makes the report of it.
//!
//! Pods are looked at a moment after a change of one. By then their names are known, and it has shown whether a
//! container that ended without error was followed by another.
//!
//! **Invariant:** bounded: the numbers of pods and of network attempts are limited, and nothing is added once the
//! recovery is over.

mod network;
mod running;

use std::time::Duration;

use probe_common::event::class;

use crate::{
    engine::{
        boot::{WINDOW, order, report::RecoveryReport},
        held::{Subject, Wait},
        timer,
        world::{
            EventContext, World,
            container::State,
            daemon::{is_kubelet, is_runtime, is_trusted},
            process_of,
            sandbox::{ContainerRun, Sandbox},
        },
    },
    model::{
        change::ChangeKind,
        fact::{Executed, Origin, PodName, Task},
        id::ContainerId,
        recovery::{
            BootRead, LONGEST_SHUTDOWN, Order, Pod, RecoveredPod, Recovery, Rules, Source, TimedSource,
        },
        time::Timestamp,
    },
};

/// How long to wait for names and ends before pods are looked at.
const SETTLE: Duration = Duration::from_secs(1);

/// An agent has listed the node so long after its start.
const FIRST_LISTING: Duration = Duration::from_secs(60);

/// At most this many pods are noted as back.
pub(in crate::engine) const PODS: usize = 1024;

/// The networks of at most this many sandboxes are noted.
pub(in crate::engine) const TRIES: usize = 1024;

/// A further order within this time is a part of the same restart.
const ONE_ORDER: Duration = Duration::from_secs(10 * 60);

/// A restart begins within this time after its order, unless it was ordered for later.
pub(in crate::engine) const WITHOUT_EFFECT: Duration = Duration::from_secs(2 * 60);

/// The recovery of the node in this boot, and the rules by which it is judged.
#[derive(Debug, Default)]
pub(in crate::engine) struct Boot {
    pub(super) recovery: Recovery,
    pub(super) rules: Rules,
}

impl World {
    /// The facts that are known of the recovery.
    pub(in crate::engine) fn recovery(&self) -> &Recovery {
        &self.boot.recovery
    }

    pub(super) fn boot_read(&mut self, ctx: EventContext, boot: BootRead) {
        self.boot.recovery.boot = Some(boot);
        self.boot.recovery.watched_since.get_or_insert(ctx.at);
        self.node.began_at = Some(ctx.at);
        self.noted(ctx.at);
        // Only the history of this boot may have told of the restarts that go on.
        if self.boot.is_restarting() {
            self.look_at_restarts(ctx.at);
        }
    }

    /// The facts changed: the recovery is looked at soon.
    fn noted(&mut self, at: Timestamp) {
        self.boot.by_rules();
        self.boot.recovery.revision = self.boot.recovery.revision.wrapping_add(1);
        self.timers.arm_earlier(timer::Name::Recovery, at + SETTLE);
    }

    /// A process was added to the table and has run since `mark`. Notes it if it is init, a runtime or the kubelet.
    pub(super) fn started_at(&mut self, task: &Task, class: u32, mark: TimedSource) {
        let is_contained = class & class::IN_CONTAINER != 0 || self.cgroups.is_in_container(task.cgroup);
        let mut row = self.processes.get(task.key).into_iter().filter(|_| is_contained);
        let is_kubelet = row.any(|row| self.is_contained_kubelet(row))
            || !is_contained && is_kubelet(&task.comm) && is_trusted(class);
        if is_contained && !is_kubelet {
            return;
        }
        let before = [self.boot.recovery.init, self.boot.recovery.runtime, self.boot.recovery.kubelet];
        if task.key.pid == 1 && mark.source == Source::ProcStart {
            TimedSource::offer(&mut self.boot.recovery.init, mark);
        }
        let is_runtime = is_runtime(&task.comm) && is_trusted(class);
        if is_runtime {
            TimedSource::offer(&mut self.boot.recovery.runtime, mark);
        }
        if is_kubelet {
            TimedSource::offer(&mut self.boot.recovery.kubelet, mark);
        }
        if before != [self.boot.recovery.init, self.boot.recovery.runtime, self.boot.recovery.kubelet] {
            self.noted(mark.at);
            if self.boot.recovery.boot.is_some() {
                self.ask_version_of(task.key);
            }
        }
        if is_runtime || is_kubelet {
            self.daemon_runs(task.key, &task.comm, mark);
        }
    }

    /// Notes a program that orders a restart. Returns whether the program is reported for no other reason. Then the
    /// process is not remembered, because its end is not reported.
    pub(super) fn only_orders(&mut self, ctx: EventContext, it: &Executed) -> bool {
        let orders = self.may_order(ctx, it);
        let only = it.class & class::ORDER != 0;
        if only && orders {
            let (filename, argv) = (it.filename.clone(), it.argv.clone());
            let what =
                ChangeKind::ProcessExec { process: process_of(&it.task), filename, argv, argv_cut: false };
            self.tell(ctx, Subject::default(), Wait::Nothing, what);
        }
        only
    }

    /// A program outside of containers may order the restart or cancel the order. Returns whether it does.
    fn may_order(&mut self, ctx: EventContext, it: &Executed) -> bool {
        let Some(said) = order::read(&it.filename, &it.argv) else { return false };
        if it.class & class::IN_CONTAINER != 0 || self.cgroups.is_in_container(it.task.cgroup) {
            return false;
        }
        match said {
            order::Said::Cancelled => self.boot.recovery.order = None,
            order::Said::Down => {
                let known = self.boot.recovery.order.as_ref();
                if known.is_none_or(|known| ctx.at >= known.at + ONE_ORDER) {
                    let running = self.running_pods(ctx.at);
                    self.boot.recovery.order = Some(Order { at: ctx.at, by: it.argv.join(" "), running });
                }
            }
        }
        self.noted(ctx.at);
        true
    }

    /// Names the runtimes and the kubelet by which the pods come back. One that is started after the last pod was back made none
    /// of them; the version of another one may still become known.
    fn name_daemons(&mut self) {
        let last = self.boot.recovery.pods.iter().map(|back| back.mark.at).max();
        let by = last.filter(|_| self.boot.recovery.closed).unwrap_or(Timestamp(u64::MAX));
        let [runtime, kubelet] = self.daemons_with_versions(by);
        let closed = self.boot.recovery.closed;
        let name = |known: &mut Option<String>, found: Option<String>| {
            let found = found.filter(|found| !closed || is_version_of(found, known.as_deref()));
            *known = found.or(known.take());
        };
        name(&mut self.boot.recovery.runtime_program, runtime);
        name(&mut self.boot.recovery.kubelet_program, kubelet);
    }

    /// A program's version was found out.
    pub(super) fn version_found(&mut self, at: Timestamp) {
        let programs = |it: &Recovery| (it.runtime_program.clone(), it.kubelet_program.clone());
        let before = programs(&self.boot.recovery);
        self.name_daemons();
        if before != programs(&self.boot.recovery) {
            self.boot.recovery.revision = self.boot.recovery.revision.wrapping_add(1);
        }
        self.pod_may_be_back(at);
    }

    /// Drops an order that had no effect. A program with the name of one that restarts the node may do something else,
    /// or be refused. The order had no effect if the runtime and the kubelet still run and no container was stopped
    /// since. It had none either if they still make pods after `WITHOUT_EFFECT`, which a node that shuts down does not.
    fn take_back_order(&mut self, now: Timestamp) {
        let Some(order) = self.boot.recovery.order.as_ref().filter(|order| !order::is_for_later(&order.by))
        else {
            return;
        };
        let (at, due) = (order.at, order.at + WITHOUT_EFFECT);
        if now < due {
            self.timers.arm_earlier(timer::Name::Recovery, due);
            return;
        }
        let run_on = self.cleaners_since().is_some_and(|since| since <= at);
        let mut ran = self.sandboxes.all().flat_map(Sandbox::containers);
        let was_stopped = ran.any(|ran| ran.ended.is_some_and(|ended| ended.at >= at && !ended.by_itself()));
        let is_new = |row: &Sandbox| row.origin == Origin::Kernel && row.first_at >= due;
        if run_on && (!was_stopped || self.sandboxes.all().any(is_new)) {
            self.boot.recovery.order = None;
            self.boot.recovery.revision = self.boot.recovery.revision.wrapping_add(1);
        } else {
            self.timers.arm_earlier(timer::Name::Recovery, now + WITHOUT_EFFECT);
        }
    }

    /// Something happened to a container.
    pub(super) fn pod_may_be_back(&mut self, at: Timestamp) {
        if !self.is_recovered(at) {
            self.timers.arm_earlier(timer::Name::Recovery, at + SETTLE);
        }
        if self.boot.is_restarting() {
            self.look_at_restarts(at);
        }
    }

    /// Whether the recovery is over, so that nothing that happens now belongs to it. Where the node was listed and no pod is one of
    /// the recovery's, as for an agent that was installed long after the boot, none will be.
    fn is_recovered(&self, at: Timestamp) -> bool {
        let recovery = &self.boot.recovery;
        let is_without =
            || recovery.pods.is_empty() && self.node.began_at.is_some_and(|began| at > began + FIRST_LISTING);
        at > Timestamp::ZERO + WINDOW && (recovery.closed || is_without()) && self.boot.awaited(at).is_empty()
    }

    /// Finds the pods that are back, and whether all are.
    pub(super) fn assess(&mut self, now: Timestamp) {
        let found: Vec<_> = self.sandboxes.all().filter_map(|row| self.back(row)).collect();
        let state = |it: &Recovery| {
            let programs = (it.runtime_program.clone(), it.kubelet_program.clone());
            (it.pods.clone(), it.closed, it.pods_left_out, programs)
        };
        let before = state(&self.boot.recovery);
        let left_out = found.into_iter().filter_map(|(back, first)| self.boot.note_back(back, first));
        let left_out = u32::try_from(left_out.count()).unwrap_or(u32::MAX);
        // The pods that found no room are not remembered. At least as many exist as were counted at one time.
        self.boot.recovery.pods_left_out = self.boot.recovery.pods_left_out.max(left_out);
        self.boot.by_rules();
        self.name_daemons();
        self.take_back_order(now);
        let study = RecoveryReport::of(&self.boot.recovery, now);
        self.boot.recovery.closed = study.is_closed();
        self.boot.recovery.seen_until = now;
        if before != state(&self.boot.recovery) {
            self.boot.recovery.revision = self.boot.recovery.revision.wrapping_add(1);
        }
        let last = study.last_service.map(|last| last.mark.at + self.boot.rules.quiet);
        let next = last.into_iter().chain(self.boot.recovery.patience(now)).min();
        if let Some(next) = next.filter(|_| !self.boot.recovery.closed) {
            self.timers.arm_earlier(timer::Name::Recovery, next);
        }
    }

    /// The pod of a sandbox in which a container runs or ran, and when its first container started.
    fn back(&self, sandbox: &Sandbox) -> Option<(RecoveredPod, Timestamp)> {
        let row = sandbox.pod.and_then(|pod| self.pods.get(&pod));
        let mut named = row.map(|row| row.named.clone()).unwrap_or_default();
        named.learn(&sandbox.reported.pod);
        let PodName { namespace, name, uid } = named;
        if name.is_none() && uid.is_none() {
            return None;
        }
        let mut runs: Vec<(&ContainerRun, TimedSource)> =
            sandbox.containers().iter().filter_map(|ran| Some((ran, self.mark_of(ran)?))).collect();
        runs.sort_by_key(|(_, mark)| mark.at);
        let mut own = runs.as_slice();
        let first = own.first()?.1.at;
        while let Some(((ran, _), rest)) = own.split_first()
            && let Some((next, started)) = rest.first()
        {
            let ended_well = ran.ended.is_some_and(|end| end.code == Some(0) && end.at <= started.at);
            let again = ran.name.is_some() && ran.name == next.name;
            if !ended_well || again {
                break;
            }
            own = rest;
        }
        let mark = own.first()?.1;
        let listened = own.iter().filter_map(|(ran, _)| ran.listening).map(|it| it.at).min();
        let kind = Pod::kind_of(namespace.as_deref(), uid.as_ref(), &self.boot.rules);
        let interfaces = self.interfaces_of(sandbox).into_iter().collect();
        let pod = Pod { namespace, name, uid, kind, listens: listened.is_some(), interfaces };
        Some((RecoveredPod { pod, mark, listened }, first))
    }

    /// When a container's program was executed. For a container that was found running: the date in the runtime's
    /// files, or, without one, the time at which the runtime forked the process, which is not later. For a container
    /// that was found and has ended: not known.
    fn mark_of(&self, ran: &ContainerRun) -> Option<TimedSource> {
        let hooked = TimedSource::hooked(ran.started_at);
        let Some(row) = self.containers.get(&ran.id) else { return Some(hooked) };
        match row.state {
            State::Running { process, listed: true, .. } => {
                let forked = TimedSource { at: Timestamp(process.start), source: Source::ProcStart };
                let dated = row.run.dated.filter(|at| *at >= forked.at);
                Some(dated.map_or(forked, |at| TimedSource { at, source: Source::FileTime }))
            }
            State::Running { listed: false, .. } => Some(hooked),
            State::Exited { .. } | State::Created => (row.origin != Origin::Listed).then_some(hooked),
        }
    }
}

/// Whether `found` is the name that is known, and its version.
fn is_version_of(found: &str, known: Option<&str>) -> bool {
    known.is_some_and(|known| found.strip_prefix(known).is_some_and(|rest| rest.starts_with(' ')))
}

impl Boot {
    /// Goes on with other rules.
    pub(in crate::engine) fn adopt(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// The wall clock was set, so the time since the order has changed.
    pub(in crate::engine) fn clock_set(&mut self, boot_wall_ns: i64) {
        if let Some(boot) = &mut self.recovery.boot {
            let step = boot.boot_wall_ns.abs_diff(boot_wall_ns);
            boot.boot_wall_ns = boot_wall_ns;
            // Small corrections of the clock happen all the time, so they make no new revision.
            self.recovery.revision = self.recovery.revision.wrapping_add(u64::from(step >= 1_000_000_000));
        }
    }

    fn by_rules(&mut self) {
        let Rules { quiet, recovered, target, .. } = self.rules;
        let recovery = &mut self.recovery;
        (recovery.quiet, recovery.recovered, recovery.target) = (quiet, recovered, Some(target));
    }

    /// Whether this boot's sources report listening sockets.
    pub(in crate::engine::world) fn listening_seen(&mut self, is_seen: bool) {
        self.recovery.hears = is_seen;
    }

    /// Whether this pod ran before the restart and is not back.
    pub(in crate::engine::world) fn is_awaited(&self, named: &PodName, now: Timestamp) -> bool {
        let recovery = &self.recovery;
        let expected = recovery.expected().unwrap_or_default();
        expected.iter().any(|pod| {
            pod.has(named.namespace.as_ref(), named.name.as_ref(), named.uid.as_ref())
                && !recovery.is_back(pod, now)
        })
    }

    /// The pods that ran before the restart and are not back.
    fn awaited(&self, now: Timestamp) -> Vec<&Pod> {
        let recovery = &self.recovery;
        recovery.expected().unwrap_or_default().iter().filter(|pod| !recovery.is_back(pod, now)).collect()
    }

    /// Notes that a pod is back. Returns the pod if it belongs to the recovery and there is no room for it.
    fn note_back(&mut self, back: RecoveredPod, first: Timestamp) -> Option<RecoveredPod> {
        let in_time = back.mark.at <= Timestamp::ZERO + WINDOW;
        let awaited = || self.recovery.expected().unwrap_or_default().iter().any(|pod| pod.is(&back.pod));
        if !in_time && !awaited() {
            return None;
        }
        let pods = &mut self.recovery.pods;
        let Some(known) = pods.iter_mut().find(|known| known.pod.is(&back.pod)) else {
            if pods.len() >= PODS {
                return Some(back);
            }
            pods.push(back);
            return None;
        };
        // In the same life of the pod, the container that started first may turn out to be an init container.
        let same = known.pod.uid == back.pod.uid;
        if back.mark.at < known.mark.at || same && first <= known.mark.at {
            // The container that listened may turn out to be an init container as well.
            (known.mark, known.listened) = (back.mark, back.listened);
        }
        known.listened = known.listened.or(back.listened);
        known.pod.listens = known.listened.is_some();
        let Pod { namespace, name, uid, kind, listens: _, interfaces } = back.pod;
        known.pod.interfaces.extend(interfaces);
        known.pod.interfaces.sort_unstable();
        known.pod.interfaces.dedup();
        known.pod.interfaces.truncate(network::INTERFACES);
        known.pod.namespace = known.pod.namespace.take().or(namespace);
        known.pod.name = known.pod.name.take().or(name);
        known.pod.uid = known.pod.uid.take().or(uid);
        known.pod.kind = kind;
        None
    }

    /// The ADD for this sandbox that began at this time has ended, or is known to have begun at another.
    pub(in crate::engine::world) fn network_not_trying(&mut self, id: &ContainerId, began: Timestamp) {
        self.recovery.trying.retain(|it| it.sandbox != *id || it.began != began);
    }

    /// Whether a restart goes on.
    pub(in crate::engine::world) fn is_restarting(&self) -> bool {
        !self.recovery.restarts.open.is_empty()
    }

    /// Whether the node is being shut down.
    pub(in crate::engine::world) fn is_going_down(&self, at: Timestamp) -> bool {
        self.recovery.order.as_ref().is_some_and(|order| at < order.at + LONGEST_SHUTDOWN)
    }

    /// A pod by its name. None: it has none.
    pub(in crate::engine::world) fn pod_named(&self, named: &PodName) -> Option<Pod> {
        let PodName { namespace, name, uid } = named.clone();
        if name.is_none() && uid.is_none() {
            return None;
        }
        let kind = Pod::kind_of(namespace.as_deref(), uid.as_ref(), &self.rules);
        Some(Pod { namespace, name, uid, kind, listens: false, interfaces: Vec::new() })
    }
}
