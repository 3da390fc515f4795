//! The events that change a sandbox's state.

use std::time::Duration;

use super::{Group, Sandbox, State, Step};
use crate::{
    engine::{
        held::{Subject, Wait},
        world::{
            EventContext, World,
            attachment::{Attachment, Outcome},
            presence::Voucher,
        },
    },
    model::{
        change::{ChangeKind, Process, StopReason},
        fact::{Origin, Role},
        id::ContainerId,
        time::Timestamp,
    },
};

/// Records that a listing overtook come within this time.
const OVERTAKEN: Duration = Duration::from_millis(500);

impl World {
    /// Evidence shows that this sandbox exists.
    pub(in crate::engine::world) fn sandbox_seen(
        &mut self,
        ctx: EventContext,
        id: &ContainerId,
        pod: Option<u64>,
    ) {
        if let Some(row) = self.sandboxes.get_mut(id) {
            row.pod = row.pod.or(pod);
            return;
        }
        let container = self.containers.get(id);
        let tentative = container.is_some_and(|row| row.question.is_awaited);
        let first = container
            .map_or(ctx, |row| EventContext { origin: row.origin, ..ctx.back_at(row.first_at.min(ctx.at)) });
        let cgroup = container.is_some_and(|row| row.cgroup.is_some());
        let hides_programs = container.is_some_and(|row| row.hides_programs);
        self.containers.holds_sandbox(id, pod);
        let is_gapped = first.origin == Origin::Listed && self.lists.is_marked();
        let row = self.sandboxes.begin(first, id, is_gapped);
        row.pod = pod;
        row.hides_programs |= hides_programs;
        if cgroup {
            row.presence.vouch(Voucher::Cgroupfs, first.at);
        }
        if !tentative {
            self.tell(first, self.sandbox_subject(id), Wait::Name, ChangeKind::SandboxCreated);
        }
        if let Some(hint) = self.hints.remove(id) {
            self.container_seen(ctx, id, pod, None);
            self.learn(ctx, &hint);
        }
    }

    /// The runtime calls DEL for a sandbox of which nothing but its record was known: it was made before the agent started,
    /// or it failed before its network was made. It is over, and has a row from now on.
    pub(in crate::engine::world) fn sandbox_recalled(&mut self, ctx: EventContext, id: &ContainerId) {
        if self.sandboxes.recall(id).is_some() || !self.records.is_on_record(id) {
            return;
        }
        let known_since = self.records.known_since.get(id).copied().unwrap_or(ctx.at);
        let first = EventContext { at: known_since.min(ctx.at), origin: Origin::Listed, ..ctx };
        let pod = self.pod_of_nameless(id);
        let row = self.sandboxes.begin(first, id, false);
        row.state = State::Remembered { stopped_at: ctx.at };
        row.reported.pod = pod;
    }

    /// The program of a container, or the pause process of a sandbox, runs.
    pub(in crate::engine::world) fn is_up(&mut self, ctx: EventContext, id: &ContainerId) {
        let Some(row) = self.containers.get(id) else { return };
        let Some(role) = row.role else { return };
        let Some(process) = row.process().and_then(|key| self.processes.get(key)) else { return };
        let inode = process.netns;
        let on_host = inode != 0 && inode == self.node.host_netns;
        let sandbox = match role {
            Role::Sandbox => Some(id.clone()),
            Role::Container => self.sandbox_for(id),
        };
        let Some(sandbox) = sandbox else { return };
        let is_host = on_host && !self.has_adds(&sandbox);
        if let Some(row) = self.sandboxes.get_mut(&sandbox) {
            row.up_since = Some(row.up_since.map_or(ctx.at, |since| since.min(ctx.at)));
            row.network.is_host |= is_host;
        }
        if inode != 0
            && !on_host
            && let Some(life) = self.netns.live(inode).map(|row| row.life)
        {
            self.claim(ctx, life, &sandbox, true);
        }
        // A container that runs has its network, even if the making of the network was not seen.
        let proven = role == Role::Container || self.node.host_netns == 0;
        self.may_be_ready(ctx, &sandbox, proven);
    }

    /// The sandbox of a container: the one that the runtime names, or the only live one of its pod.
    pub(in crate::engine::world) fn sandbox_for(&mut self, id: &ContainerId) -> Option<ContainerId> {
        let row = self.containers.get(id)?;
        if let Some(sandbox) = &row.sandbox {
            return Some(sandbox.clone());
        }
        let pod = row.pod?;
        let mut live = self.sandboxes.group(Group::Pod(pod)).filter(|sandbox| !sandbox.is_stopped());
        let only = live.next()?.id.clone();
        if live.next().is_some() {
            return None;
        }
        self.containers.lives_in(id, &only);
        Some(only)
    }

    /// Whether an ADD for the sandbox was seen.
    pub(in crate::engine::world) fn has_adds(&self, id: &ContainerId) -> bool {
        self.has_found_add(id) || self.attachments.of(id).any(Attachment::was_seen)
    }

    /// Since when its network has been ready: all ADDs have succeeded, or none is needed.
    fn connected_since(&self, row: &Sandbox) -> Option<Timestamp> {
        if row.network.is_host {
            return Some(row.first_at);
        }
        if self.has_found_add(&row.id) {
            return None;
        }
        let adds = || self.attachments.of(&row.id).flat_map(Attachment::adds);
        let all = adds().all(|add| add.outcome == Some(Outcome::Succeeded));
        adds().map(|add| add.last_at).max().filter(|_| all)
    }

    /// A namespace turned out to be this sandbox's.
    pub(in crate::engine::world) fn sandbox_has_netns(&mut self, at: Timestamp, id: &ContainerId, life: u64) {
        let is_live = self.netns.get(life).is_some_and(|row| row.is_live());
        let is_known = |row: &Sandbox| {
            row.network.netns == Some(life) && (!is_live || row.presence.is_vouched(Voucher::Kernel, at))
        };
        if !self.sandboxes.get(id).is_some_and(is_known)
            && let Some(row) = self.sandboxes.get_mut(id)
        {
            row.network.netns = Some(life);
            if is_live {
                row.presence.vouch(Voucher::Kernel, at);
            }
        }
    }

    /// The sandbox of a namespace, or the time of its making, became known.
    pub(in crate::engine::world) fn sandbox_netns_created(&mut self, life: u64) {
        let Some(netns) = self.netns.get(life) else { return };
        let Some(id) = &netns.sandbox else { return };
        let is_new = |row: &Sandbox| row.network.netns_created_at != netns.created_at;
        if self.sandboxes.recall(id).is_some_and(is_new)
            && let Some(row) = self.sandboxes.recall_mut(id)
        {
            row.network.netns_created_at = netns.created_at;
        }
    }

    /// Makes the sandbox ready if it is up and has its network. `proven`: if no ADD is open, none will follow.
    pub(in crate::engine::world) fn may_be_ready(
        &mut self,
        ctx: EventContext,
        id: &ContainerId,
        proven: bool,
    ) {
        let Some(row) = self.sandboxes.get(id) else { return };
        let none = (proven && !self.has_adds(id)).then_some(row.first_at);
        let Some((up, connected)) = row.up_since.zip(self.connected_since(row).or(none)) else { return };
        // If the network is made for a process that runs already, a further plugin may follow.
        let is_through = connected <= up || self.chains_are_through(id);
        if !is_through && !proven {
            return;
        }
        let at = if is_through { up.max(connected) } else { ctx.at };
        let was_found_ready = row.origin == Origin::Listed && !self.was_seen_made(id);
        self.note_loopback(at, id);
        let Some(row) = self.sandboxes.get_mut(id) else { return };
        let Some(ready) = row.state.step(Step::Ready, at) else { return };
        row.state = ready;
        let since_created = (row.origin != Origin::Listed).then(|| at.since(row.first_at));
        self.await_pulls(at);
        // If the sandbox was found ready, the time at which it became ready is not known.
        if !was_found_ready {
            self.tell(
                ctx.back_at(at),
                self.sandbox_subject(id),
                Wait::Name,
                ChangeKind::SandboxReady { since_created },
            );
        }
    }

    /// A sandbox has its network.
    fn note_loopback(&mut self, at: Timestamp, id: &ContainerId) {
        let seen: Vec<&Attachment> = self.attachments.of(id).filter(|it| it.was_seen()).collect();
        let has_no_loopback = !seen.is_empty() && !seen.iter().any(|it| it.is_loopback());
        if has_no_loopback {
            self.records.no_loopback_since.get_or_insert(at);
        }
    }

    /// libcni's cache was read. It has the result of a network's ADDs when the last of them has succeeded, so a sandbox of
    /// which nothing but this and its pause process was found has its network. Where hooks are attached, records may still
    /// come of what the listing overtook, so it counts only at a later reading.
    pub(in crate::engine::world) fn found_ready(&mut self, ctx: EventContext) {
        let is_hooked = !self.coverage.attached.is_empty();
        let is_made = |row: &&Sandbox| {
            let is_cached = |it: &Attachment| !it.is_loopback() && it.cached_at.is_some();
            let is_found = row.state == State::Created && row.origin == Origin::Listed;
            is_found
                && self.attachments.of(&row.id).any(is_cached)
                && !self.was_seen_made(&row.id)
                && !self.has_found_add(&row.id)
        };
        let made = self.sandboxes.values().filter(is_made);
        let made: Vec<_> = made.filter_map(|row| Some((row.id.clone(), row.up_since?))).collect();
        for (id, up) in made {
            if is_hooked && ctx.at < up + OVERTAKEN {
                self.records_changed(ctx.at);
            } else if let Some(row) = self.sandboxes.get_mut(&id)
                && let Some(ready) = row.state.step(Step::Ready, up)
            {
                row.state = ready;
                self.await_pulls(ctx.at);
            }
        }
    }

    /// Whether hooks saw how the sandbox's network was made, or how its pause process began. Runtimes note a sandbox before
    /// they make it, so a listing can find one that is not ready.
    fn was_seen_made(&self, id: &ContainerId) -> bool {
        let began = self.containers.get(id).and_then(|row| row.run.began);
        began.is_some_and(|began| !began.listed) || self.attachments.of(id).any(Attachment::was_seen)
    }

    /// Stops the sandbox. It stops only once, so the first sign of its end gives the reason.
    pub(in crate::engine::world) fn stop(&mut self, ctx: EventContext, id: &ContainerId, why: StopReason) {
        let Some(row) = self.sandboxes.get_mut(id) else { return };
        let Some(stopped) = row.state.step(Step::Stop(why), ctx.at) else { return };
        let was_ready = matches!(std::mem::replace(&mut row.state, stopped), State::Ready { .. });
        let pod = row.pod;
        row.pod_made_at = pod.and_then(|pod| self.pods.get(&pod)?.made_at());
        if let Some(pod) = pod.filter(|_| was_ready) {
            self.pods.left(pod, ctx.at);
        }
        self.records_changed(ctx.at);
        self.start_over(ctx, id);
        self.schedule_reap(ctx.at);
        self.tell(ctx, self.sandbox_subject(id), Wait::Name, ChangeKind::SandboxStopped { why });
        if let Some(pod) = pod {
            self.pod_may_be_gone(ctx, pod);
        }
    }

    /// The sandbox's runtime ended while it was making the sandbox, and no runtime knows the sandbox.
    pub(in crate::engine::world) fn sandbox_abandoned(&mut self, ctx: EventContext, id: &ContainerId) {
        if let Some(row) = self.sandboxes.get_mut(id) {
            row.ending.is_abandoned = true;
        }
        self.stop(ctx, id, StopReason::RuntimeEnded);
    }

    /// A listing found only the cgroup that the sandbox left behind. The sandbox was ready once, since a runtime makes the
    /// cgroup after the network.
    pub(in crate::engine::world) fn sandbox_left_over(&mut self, ctx: EventContext, id: &ContainerId) {
        if let Some(pod) = self.sandboxes.get(id).and_then(|row| row.pod) {
            self.pods.left(pod, ctx.at);
        }
        self.stop(ctx, id, StopReason::NotListed);
    }

    /// The sandbox's namespace ended. `by`: the process that dropped its last reference.
    pub(in crate::engine::world) fn sandbox_lost_netns(
        &mut self,
        ctx: EventContext,
        id: &ContainerId,
        by: Option<Process>,
    ) {
        if let Some(row) = self.sandboxes.recall_mut(id) {
            row.ending.netns_goes(ctx.at, by);
        }
        let is_listed = ctx.origin == Origin::Listed;
        self.stop(ctx, id, if is_listed { StopReason::NotListed } else { StopReason::NetnsGone });
        self.sandboxes.withdraw(id, Voucher::Mount);
        self.sandboxes.withdraw(id, Voucher::Kernel);
        if let Some(pod) = self.sandboxes.get(id).and_then(|row| row.pod) {
            self.pod_may_be_gone(ctx, pod);
        }
    }

    /// The pod's own cgroup is gone. A sandbox of the pod that only records show cannot live any more.
    pub(in crate::engine::world) fn stop_unvouched(&mut self, ctx: EventContext, pod: u64) {
        let is_over = |row: &&Sandbox| !row.is_stopped() && !row.presence.is_alive();
        let of_pod = self.sandboxes.group(Group::Pod(pod));
        let over: Vec<ContainerId> = of_pod.filter(is_over).map(|row| row.id.clone()).collect();
        for id in over {
            self.stop(ctx, &id, StopReason::Emptied);
        }
    }

    pub(in crate::engine::world) fn sandbox_subject(&self, id: &ContainerId) -> Subject {
        let row = self.sandboxes.get(id);
        let cgroup = self.containers.get(id).and_then(|row| row.cgroup);
        Subject {
            sandbox: Some(id.clone()),
            pod: row.and_then(|row| row.pod),
            netns: row.and_then(|row| row.network.netns),
            cgroup,
            ..Subject::default()
        }
    }
}
