//! The identity of a container: its role, its sandbox, its pod and its name.

use std::mem;

use super::{Container, State};
use crate::{
    engine::world::{EventContext, World, argv::Made, hint::Hint, presence::Voucher},
    model::{
        change::{Question, StopReason},
        fact::{ContainerFound, NameSource, Role},
        id::ContainerId,
    },
};

/// A container's role is asked for at most this often: when its id is first seen, when its cgroup is made, and when its
/// program runs.
const ASKS: u32 = 3;

impl World {
    /// Gives a sandbox and its pause container the same pod. Either of the two may have become known first.
    pub(super) fn pod_of_sandbox(&mut self, ctx: EventContext, id: &ContainerId) {
        let Some(row) = self.containers.rows.get_mut(id) else { return };
        let Some(sandbox) = self.sandboxes.get(id) else { return };
        let (of_row, of_sandbox) = (row.pod, sandbox.pod);
        row.pod = of_row.or(of_sandbox);
        self.sandboxes.set_pod(id, of_sandbox.or(of_row));
        if let (Some(one), Some(other)) = (of_row, of_sandbox) {
            self.pods_are_one(ctx, one, other);
        }
    }

    pub(super) fn ask_role(&mut self, id: &ContainerId) {
        if let Some(row) = self.containers.rows.get_mut(id)
            && row.role.is_none()
            && !row.question.is_open
            && row.question.asked < ASKS
        {
            row.question.asked += 1;
            row.question.is_open = true;
            self.ask(Question::Container { id: id.clone() });
        }
    }

    /// Another agent is there, which was not asked for any role yet.
    pub(in crate::engine::world) fn ask_roles_again(&mut self) {
        let mut lost = Vec::new();
        self.containers.rows.update(|id, row| {
            let is_lost = mem::take(&mut row.question.is_open);
            if is_lost {
                row.question.asked = row.question.asked.saturating_sub(1);
                lost.push(id.clone());
            }
            is_lost
        });
        lost.iter().for_each(|id| self.ask_role(id));
    }

    /// A runtime, shim or monitor is about to make or hold the container.
    pub(in crate::engine::world) fn made(&mut self, ctx: EventContext, made: Made) {
        let Made { id, pod, name } = made;
        self.container_seen(ctx, &id, None, None);
        if pod.is_some() {
            let role = if name.as_deref() == Some("POD") { Role::Sandbox } else { Role::Container };
            let source = NameSource::Argv;
            self.learn(ctx, &Hint { at: ctx.at, role: Some(role), name, pod, ..Hint::new(id, source) });
        }
    }

    pub(in crate::engine::world) fn container_found(&mut self, ctx: EventContext, it: ContainerFound) {
        if let Some(row) = self.containers.rows.get_mut(&it.id) {
            row.question.is_open = false;
        }
        let ContainerFound { id, role, sandbox, name, pod, source, started } = it;
        let role = Some(role);
        let hint = Hint { at: ctx.at, role, sandbox, name, pod, started, ..Hint::new(id.clone(), source) };
        self.hint(ctx, hint);
        self.answered(ctx, &id);
    }

    pub(in crate::engine::world) fn container_unknown(&mut self, ctx: EventContext, id: &ContainerId) {
        if let Some(row) = self.containers.rows.get_mut(id) {
            row.question.is_open = false;
        }
        self.infer_role(id);
        self.answered(ctx, id);
    }

    /// A sandbox that is over may have waited for this answer.
    fn answered(&mut self, ctx: EventContext, id: &ContainerId) {
        let sandbox = self.containers.get(id).and_then(|row| row.sandbox.clone());
        let is_over = |id: &ContainerId| self.sandboxes.recall(id).is_some_and(|row| row.over_at().is_some());
        if let Some(sandbox) = sandbox.filter(is_over) {
            self.start_over(ctx, &sandbox);
        }
    }

    /// A container has ended before anybody could read what it is, so that no later answer will tell. If its pod had
    /// just one sandbox when its program began, it was a container of that sandbox: a sandbox is known as one before
    /// its own program begins, by its CNI calls, its namespace or the name of that program.
    pub(super) fn infer_role(&mut self, id: &ContainerId) {
        let Some(row) = self.containers.get(id) else { return };
        let State::Exited { at } = row.state else { return };
        let Some(began) = row.run.began.filter(|began| !began.listed) else { return };
        if row.role.is_some() || row.question.is_open {
            return;
        }
        let sandbox = row.sandbox.clone().or_else(|| self.only_sandbox_at(row.pod?, began.at));
        let Some(sandbox) = sandbox else { return };
        let code = row.run.code;
        if let Some(row) = self.containers.rows.get_mut(id) {
            row.role = Some(Role::Container);
            row.sandbox = Some(sandbox);
        }
        self.container_ran(id);
        self.run_ended(at, id, code);
    }

    /// Stores the facts of a hint about a container that is known to exist.
    pub(in crate::engine::world) fn learn(&mut self, ctx: EventContext, hint: &Hint) {
        // An answer can come after the container has ended.
        let lives =
            self.containers.get(&hint.id).is_some_and(|row| !matches!(row.state, State::Exited { .. }))
                || self.sandboxes.get(&hint.id).is_some_and(|row| !row.is_stopped());
        let known = self.containers.get(&hint.id).and_then(|row| row.pod);
        let known = known.or_else(|| self.sandboxes.get(&hint.id).and_then(|row| row.pod));
        let pod = hint.pod.as_ref().and_then(|name| match known {
            Some(id) if self.pods.is(id, name) => {
                self.pods.learn(id, name, hint.source);
                let by_uid = name.uid.as_ref().and_then(|uid| self.pods.by_uid(uid)).unwrap_or(id);
                self.pods_are_one(ctx, by_uid, id);
                Some(by_uid)
            }
            Some(_) | None if lives => self.pod_lives(ctx, name, hint.source),
            Some(_) | None => self.pods.learn_if_known(name, hint.source),
        });
        let sandbox = hint.sandbox.as_ref().filter(|sandbox| **sandbox != hint.id);
        let says_more = |row: &Container| {
            pod.is_some() && row.pod != pod
                || hint.name.is_some() && row.name != hint.name
                || hint.started.is_some() && row.run.dated != hint.started
                || sandbox.is_some() && row.sandbox.as_ref() != sandbox
        };
        if self.containers.get(&hint.id).is_some_and(says_more)
            && let Some(row) = self.containers.rows.get_mut(&hint.id)
        {
            row.pod = pod.or(row.pod);
            row.name = hint.name.clone().or_else(|| row.name.take());
            row.run.dated = hint.started.or(row.run.dated);
            row.sandbox = sandbox.cloned().or_else(|| row.sandbox.take());
        }
        self.sandboxes.set_pod(&hint.id, pod);
        if matches!(hint.source, NameSource::Bundle | NameSource::Cri) {
            self.sandboxes.vouch(&hint.id, Voucher::Runtime, ctx.at);
        }
        if let Some(role) = hint.role {
            self.has_role(ctx, &hint.id, role);
        }
        if let Some(path) = &hint.netns_path {
            self.claim_by_path(ctx, &hint.id, path);
        }
    }

    pub(in crate::engine::world) fn has_role(&mut self, ctx: EventContext, id: &ContainerId, role: Role) {
        if self.containers.get(id).is_none_or(|row| row.role.is_some()) {
            return;
        }
        let Some(row) = self.containers.rows.get_mut(id) else { return };
        row.role = Some(role);
        let (first, pod, running, code) = (ctx.back_at(row.first_at), row.pod, row.state, row.run.code);
        let origin = row.origin;
        match role {
            Role::Sandbox => self.sandbox_seen(EventContext { origin, ..first }, id, pod),
            Role::Container => {
                self.sandbox_of(ctx, id);
                self.container_ran(id);
                // The container may have ended before its role was answered.
                if let State::Exited { at } = running {
                    self.run_ended(at, id, code);
                }
            }
        }
        match running {
            State::Created => {}
            State::Running { since, .. } => self.is_up(EventContext { origin, ..ctx.back_at(since) }, id),
            State::Exited { .. } if self.hides_programs(id) => {}
            State::Exited { at } => {
                self.stop(EventContext { origin, ..ctx.back_at(at) }, id, StopReason::PauseExited)
            }
        }
    }

    /// A container proves that its sandbox exists.
    fn sandbox_of(&mut self, ctx: EventContext, id: &ContainerId) {
        let Some(row) = self.containers.get(id) else { return };
        let (sandbox, pod) = (row.sandbox.clone(), row.pod);
        // If the agent saw the making of the pod's cgroup, the sandbox is not from before the agent. It existed by the
        // time of this container's first sign. Otherwise its age is not known.
        let is_young = pod.is_some_and(|pod| self.is_seen_from_birth(pod));
        let first =
            if is_young { EventContext { origin: row.origin, ..ctx.back_at(row.first_at) } } else { ctx };
        let Some(sandbox) = sandbox else { return };
        if !self.sandboxes.contains_key(&sandbox) {
            self.sandbox_seen(first, &sandbox, pod);
        }
        self.sandboxes.vouch(&sandbox, Voucher::Runtime, ctx.at);
    }
}
