//! Decides when a pod's cgroup is read during the pod's start, and when the start is complete.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    engine::{
        held::{Subject, Wait},
        timer,
        world::{
            EventContext, World, container, phase,
            pod::Pod,
            sandbox::{self, Sandbox},
        },
    },
    model::{
        change::{ChangeKind, Question},
        fact::{Origin, PressureRead, Role},
        id::{ContainerId, PodUid},
        phase::{Listening, Phase, Start},
        time::Timestamp,
    },
};

/// At most this many complete starts are remembered, even if their pods are gone.
pub(in crate::engine) const STARTS: usize = 1024;
/// At most this many phases of all remembered starts are kept.
const PHASES: usize = 32 * 1024;

/// The complete starts, the latest last.
#[derive(Debug, Default)]
pub(in crate::engine) struct Table {
    pub(in crate::engine) rows: VecDeque<Start>,
    phases: usize,
    /// Changes whenever a row changes.
    pub(in crate::engine) revision: u64,
}

impl Table {
    pub(in crate::engine) fn push(&mut self, start: Start) {
        self.forget(&start.sandbox);
        self.phases += start.phases.len();
        self.rows.push_back(start);
        while self.rows.len() > STARTS || self.phases > PHASES && self.rows.len() > 1 {
            self.drop_row(0);
        }
        self.revision += 1;
    }

    fn forget(&mut self, sandbox: &ContainerId) {
        if let Some(place) = self.rows.iter().position(|row| row.sandbox == *sandbox) {
            self.drop_row(place);
        }
    }

    fn drop_row(&mut self, place: usize) {
        let phases = self.rows.remove(place).map_or(0, |row| row.phases.len());
        self.phases = self.phases.saturating_sub(phases);
    }

    fn listens(&mut self, sandbox: &ContainerId, listening: Vec<Listening>) {
        if let Some(row) = self.rows.iter_mut().rev().find(|row| row.sandbox == *sandbox) {
            row.listening = listening;
            self.revision += 1;
        }
    }

    /// Changes the phases of the start in this sandbox, if it was reported.
    pub(super) fn divide(&mut self, sandbox: &ContainerId, change: impl FnMut(&mut Phase)) {
        if let Some(row) = self.rows.iter_mut().rev().find(|row| row.sandbox == *sandbox) {
            row.phases.iter_mut().for_each(change);
            self.revision += 1;
        }
    }

    pub(in crate::engine) fn of(&self, sandbox: &ContainerId) -> Option<&Start> {
        self.rows.iter().rev().find(|row| row.sandbox == *sandbox)
    }
}

impl World {
    /// The start in this sandbox: as it was reported, or else as it is now.
    pub(in crate::engine) fn start_of(&self, sandbox: &ContainerId, now: Timestamp) -> Option<Start> {
        self.starts.of(sandbox).cloned().or_else(|| phase::of(self, sandbox, now))
    }

    /// A phase may have ended. If the pod is starting, its cgroup is read.
    pub(super) fn phase_turns(&mut self, pod: Option<u64>) {
        let is_starting = |pod: &u64| self.pods.get(pod).is_some_and(|row| !row.start.is_complete);
        if let Some(pod) = pod.filter(is_starting) {
            self.ask_pressure(pod);
        }
    }

    /// Has the pod's cgroup read, if its counters are those of this start.
    pub(super) fn ask_pressure(&mut self, pod: u64) {
        let is_its = |row: &&Pod| row.start.made_at.is_some() && row.is_present();
        let Some(row) = self.pods.get(&pod).filter(is_its) else { return };
        let made = |key| self.cgroups.get(key).filter(|row| row.is_live() && row.created_at.is_some());
        let Some(cgroup) = row.cgroups.iter().find_map(made) else { return };
        let question = Question::Pressure { cgroup: cgroup.key, path: cgroup.path.clone() };
        self.ask(question);
    }

    pub(super) fn pressure_read(&mut self, ctx: EventContext, it: PressureRead) {
        let pod = self.cgroups.get(&it.cgroup).and_then(|row| self.pods.by_uid(row.pod.as_ref()?));
        let Some(pod) = pod else { return };
        self.pods.counted(pod, ctx.at, it.pressure);
        let listens = |row: &&Sandbox| row.containers().iter().any(|ran| ran.listening.is_some());
        let listening: Vec<ContainerId> =
            self.all_of_pod(pod).into_iter().filter(listens).map(|row| row.id.clone()).collect();
        listening.iter().for_each(|id| self.start_listens(id));
    }

    /// A container of the sandbox began or ended, so the start may be complete after a while.
    pub(super) fn start_turns(&mut self, id: &ContainerId) {
        let due = self.sandboxes.recall(id).filter(|row| row.work.started_at.is_none());
        if let Some(due) = due.and_then(|row| phase::settles_at(self, row)) {
            self.timers.arm_earlier(timer::Name::Starts, due);
        }
    }

    /// The kubelet's record names the containers that the pod will have.
    pub(super) fn containers_expected(&mut self, uid: &PodUid, names: Vec<String>) {
        let Some(pod) = self.pods.by_uid(uid) else { return };
        self.pods.expect(pod, names);
        let is_open = |row: &&Sandbox| row.work.started_at.is_none();
        let open: Vec<ContainerId> =
            self.all_of_pod(pod).into_iter().filter(is_open).map(|row| row.id.clone()).collect();
        open.iter().for_each(|id| self.start_turns(id));
    }

    /// Asks for the containers that the pod of this sandbox will have, while they are not known and the pod is
    /// starting.
    pub(super) fn ask_expected(&mut self, sandbox: &ContainerId) {
        let Some(row) = self.sandboxes.recall(sandbox).filter(|row| row.work.started_at.is_none()) else {
            return;
        };
        let pod = self.pods.of_sandbox(row).and_then(|pod| self.pods.get(&pod));
        if let Some(pod) = pod.filter(|pod| pod.start.expected.is_empty())
            && let Some(uid) = pod.named.uid.clone()
        {
            self.ask(Question::Expected { uid });
        }
    }

    /// Another agent is there. Asks it about the starts that go on, unless the last one was answered.
    pub(super) fn ask_about_starts_again(&mut self, now: Timestamp) {
        let open = self.sandboxes.all_of(sandbox::Group::Starting).filter(|row| !row.containers().is_empty());
        let open: Vec<ContainerId> = open.map(|row| row.id.clone()).collect();
        for sandbox in open {
            self.ask_expected(&sandbox);
            self.ask_held_requests(&sandbox, now);
            let ran = self.sandboxes.recall(&sandbox).map_or(&[][..], Sandbox::containers);
            let unexplained = ran.iter().filter(|ran| ran.parts.is_empty()).map(|ran| ran.id.clone());
            for id in unexplained.collect::<Vec<_>>() {
                self.ask_image_work(&sandbox, &id);
            }
        }
    }

    /// The containers that the sandbox's pod will have. Empty: not known.
    pub(in crate::engine) fn expected_in(&self, row: &Sandbox) -> &[String] {
        let pod = self.pods.of_sandbox(row).and_then(|pod| self.pods.get(&pod));
        pod.map_or(&[], |pod| &pod.start.expected)
    }

    /// Reports the starts that are complete by now.
    pub(super) fn starts_due(&mut self, now: Timestamp) {
        let open = self.sandboxes.all_of(sandbox::Group::Starting);
        let mut due: Vec<(Timestamp, ContainerId)> =
            open.filter_map(|row| Some((phase::settles_at(self, row)?, row.id.clone()))).collect();
        due.sort_unstable();
        for (at, id) in due {
            if at > now {
                self.timers.arm_earlier(timer::Name::Starts, at);
                break;
            }
            self.started_in(EventContext { at, origin: Origin::Agent, late: false }, &id);
        }
    }

    /// The sandbox is over, so no further container can come. One that has come may still be without an answer to what
    /// it is.
    pub(super) fn start_over(&mut self, ctx: EventContext, id: &ContainerId) {
        let is_open = |row: &&Sandbox| row.work.started_at.is_none() && !row.containers().is_empty();
        let Some(row) = self.sandboxes.recall(id).filter(is_open) else { return };
        if self.has_unanswered(row) {
            self.start_turns(id);
        } else {
            self.started_in(EventContext { origin: Origin::Agent, ..ctx }, id);
        }
    }

    fn started_in(&mut self, ctx: EventContext, id: &ContainerId) {
        self.sandboxes.start_told(id, ctx.at);
        let Some(start) = phase::of(self, id, ctx.at) else { return };
        let pod = self.sandboxes.recall(id).and_then(|row| self.pods.of_sandbox(row));
        if let Some(pod) = pod {
            self.pods.set_started(pod, true);
        }
        self.starts.push(start.clone());
        let subject = Subject { pod, ..self.sandbox_subject(id) };
        self.tell(ctx, subject, Wait::Name, ChangeKind::PodStarted(Box::new(start)));
    }

    /// A container listens. If its start was reported as complete, the start's row now shows it.
    pub(super) fn start_listens(&mut self, id: &ContainerId) {
        if self.starts.of(id).is_some() {
            let listening =
                self.sandboxes.recall(id).map(|row| phase::listening(self, row)).unwrap_or_default();
            self.starts.listens(id, listening);
        }
    }

    /// A container came that belongs to a start which counted as complete.
    pub(super) fn start_goes_on(&mut self, id: &ContainerId) {
        self.sandboxes.start_revised(id);
        self.starts.forget(id);
        let pod = self.sandboxes.recall(id).and_then(|row| self.pods.of_sandbox(row));
        if let Some(pod) = pod {
            self.pods.set_started(pod, false);
        }
    }

    /// The sandboxes of a pod, with remembered ones, sorted by id.
    pub(in crate::engine) fn all_of_pod(&self, pod: u64) -> Vec<&Sandbox> {
        let uid = self.pods.get(&pod).and_then(|row| row.named.uid.clone());
        let by_uid = uid.into_iter().flat_map(|uid| self.sandboxes.all_of(sandbox::Group::Uid(uid)));
        let all = self.sandboxes.all_of(sandbox::Group::Pod(pod)).chain(by_uid);
        let of_pod = all.filter(|row| self.pods.of_sandbox(row) == Some(pod));
        of_pod.map(|row| (&row.id, row)).collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// The pod's sandbox at that time, if it had no other.
    pub(super) fn only_sandbox_at(&self, pod: u64, at: Timestamp) -> Option<ContainerId> {
        let is_of_then = |row: &&Sandbox| row.first_at <= at && row.over_at().is_none_or(|over| at <= over);
        let mut all = self.all_of_pod(pod).into_iter().filter(is_of_then);
        let only = all.next()?.id.clone();
        all.next().is_none().then_some(only)
    }

    /// Whether a program ran in the pod that may be one of this sandbox's containers: what it is was asked for, and not
    /// answered yet.
    pub(in crate::engine) fn has_unanswered(&self, sandbox: &Sandbox) -> bool {
        let is_unanswered = |row: &container::Container| {
            row.role.is_none()
                && row.question.is_open
                && row.run.began.is_some_and(|began| !began.listed && began.at >= sandbox.first_at)
        };
        let pod = self.pods.of_sandbox(sandbox);
        pod.is_some_and(|pod| self.containers.group(container::Group::Pod(pod)).any(is_unanswered))
    }

    /// When the latest container of this sandbox was announced that has not run yet and is not known to be a restart.
    pub(in crate::engine) fn announced_at(&self, sandbox: &Sandbox) -> Option<Timestamp> {
        let pod = self.pods.of_sandbox(sandbox);
        let is_of = |row: &&container::Container| {
            row.state == container::State::Created
                && row.role != Some(Role::Sandbox)
                && row.id != sandbox.id
                && (row.name.is_none() || sandbox.containers().iter().all(|ran| ran.name != row.name))
        };
        let own = self.containers.group(container::Group::Sandbox(sandbox.id.clone()));
        let of_pod = pod.into_iter().flat_map(|pod| self.containers.group(container::Group::Pod(pod)));
        let all = own.chain(of_pod.filter(|row| row.sandbox.is_none()));
        all.filter(is_of).map(|row| row.first_at).max()
    }
}

#[cfg(test)]
mod tests {
    use super::{PHASES, STARTS, Table};
    use crate::model::{
        fact::PodName,
        id::ContainerId,
        phase::{Cause, Kind, Phase, Start},
        time::Timestamp,
    };

    fn start(number: u64, phases: usize) -> Start {
        let phase = Phase {
            kind: Kind::Image,
            container: None,
            begin: Timestamp(1),
            end: Timestamp(1),
            gapped: false,
            cause: Cause::default(),
            parts: Vec::new(),
        };
        Start {
            pod: PodName::default(),
            sandbox: ContainerId::parse(&format!("{number:064x}")).expect("an id"),
            begin: Timestamp(1),
            end: Timestamp(1),
            phases: vec![phase; phases],
            plugins: Vec::new(),
            listening: Vec::new(),
            complete: true,
            containers_known: true,
            missing: Vec::new(),
            revised: false,
            rebuilt: false,
            listed: false,
            suspended: false,
            waits: false,
        }
    }

    #[test]
    fn the_latest_starts_are_kept_each_once() {
        let mut table = Table::default();
        for number in 0..2_000 {
            table.push(start(number, 9));
            table.push(start(number, 9));
        }
        assert_eq!(table.rows.len(), STARTS);
        assert_eq!(table.rows.back(), Some(&start(1_999, 9)));
        assert_eq!(table.of(&start(0, 9).sandbox), None);
        for number in 0..10 {
            table.push(start(number, PHASES / 4));
        }
        assert_eq!(table.rows.len(), 4, "large ones take the place of many");
        table.push(start(11, 2 * PHASES));
        assert_eq!(table.rows.len(), 1, "one is always kept");
    }
}
