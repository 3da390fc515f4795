//! Pod sandboxes, as their evidence shows them, any part of which may be missing: CRI-O holds one without a
//! process, a pod on the node's network has no CNI call, and with user namespaces the process comes before the call.

use crate::{
    engine::{
        held::{Subject, Wait},
        world::{
            EventContext, World,
            presence::{Presence, Voucher},
        },
    },
    model::{
        change::{ChangeKind, StopReason},
        fact::{Origin, Role},
        id::ContainerId,
        time::Timestamp,
    },
};
use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    pub id: ContainerId,
    /// `world::pod::Pod::id`.
    #[serde_as(as = "Option<DisplayFromStr>")]
    pub pod: Option<u64>,
    pub first_at: Timestamp,
    pub origin: Origin,
    /// `world::netns::Netns::life`.
    #[serde_as(as = "Option<DisplayFromStr>")]
    pub netns: Option<u64>,
    /// As `CNI_NETNS` names it.
    pub netns_path: Option<String>,
    /// A process of it runs in the node's own network: no CNI call is awaited.
    pub host_network: bool,
    /// Since when its pause process or a container of it runs.
    pub up_since: Option<Timestamp>,
    /// The plugins that the runtime itself called with ADD, by interface and plugin.
    pub adds: Vec<Add>,
    pub presence: Presence,
    pub state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Add {
    pub ifname: String,
    pub plugin: String,
    pub outcome: Outcome,
    /// When the outcome became known; for an open one, when it began.
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Open,
    Succeeded,
    Failed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    #[default]
    Created,
    Ready {
        at: Timestamp,
    },
    Stopped {
        at: Timestamp,
        why: StopReason,
    },
}

/// What can happen to a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Ready,
    Stop(StopReason),
}

/// So many plugins are remembered for one sandbox.
const ADDS: usize = 64;

impl State {
    fn step(self, step: Step, at: Timestamp) -> Option<Self> {
        match (self, step) {
            (Self::Created, Step::Ready) => Some(Self::Ready { at }),
            (Self::Created | Self::Ready { .. }, Step::Stop(why)) => Some(Self::Stopped { at, why }),
            (Self::Ready { .. } | Self::Stopped { .. }, Step::Ready)
            | (Self::Stopped { .. }, Step::Stop(_)) => None,
        }
    }
}

impl Sandbox {
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, State::Stopped { .. })
    }

    /// Notes what became of a plugin's ADD; a retry replaces what it retries.
    pub(super) fn add(&mut self, ifname: &str, plugin: &str, outcome: Outcome, at: Timestamp) {
        if let Some(add) = self.adds.iter_mut().find(|add| add.ifname == ifname && add.plugin == plugin) {
            add.outcome = outcome;
            add.at = at;
        } else if self.adds.len() < ADDS {
            self.adds.push(Add { ifname: ifname.to_owned(), plugin: plugin.to_owned(), outcome, at });
        }
    }

    /// Since when its network is there: all ADDs have succeeded, or none is needed.
    fn connected_since(&self) -> Option<Timestamp> {
        if self.host_network {
            return Some(self.first_at);
        }
        let all = self.adds.iter().all(|add| add.outcome == Outcome::Succeeded);
        self.adds.iter().map(|add| add.at).max().filter(|_| all)
    }
}

impl World {
    /// Something shows that this sandbox exists.
    pub(super) fn sandbox_seen(&mut self, ctx: EventContext, id: &ContainerId, pod: Option<u64>) {
        if let Some(row) = self.sandboxes.get_mut(id) {
            row.pod = row.pod.or(pod);
            return;
        }
        let container = self.containers.get_mut(id);
        let tentative = container.as_ref().is_some_and(|row| row.tentative);
        let first = container
            .as_ref()
            .map_or(ctx, |row| EventContext { origin: row.origin, ..ctx.back_at(row.first_at.min(ctx.at)) });
        let cgroup = container.as_ref().is_some_and(|row| row.cgroup.is_some());
        if let Some(row) = container {
            row.role = Some(Role::Sandbox);
            row.pod = row.pod.or(pod);
        }
        let mut presence = Presence::default();
        if cgroup {
            presence.vouch(Voucher::Cgroupfs, first.at);
        }
        let row = Sandbox {
            id: id.clone(),
            pod,
            first_at: first.at,
            origin: first.origin,
            netns: None,
            netns_path: None,
            host_network: false,
            up_since: None,
            adds: Vec::new(),
            presence,
            state: State::Created,
        };
        self.sandboxes.insert(id.clone(), row);
        self.attempt_begun(first, id);
        if !tentative {
            self.tell(first, self.sandbox_subject(id), Wait::Name, ChangeKind::SandboxCreated);
        }
        if let Some(hint) = self.hints.remove(id) {
            self.container_seen(ctx, id, pod, None);
            self.learn(ctx, &hint);
        }
    }

    /// The program of a container, or the process that holds a sandbox, runs.
    pub(super) fn is_up(&mut self, ctx: EventContext, id: &ContainerId) {
        let Some(row) = self.containers.get(id) else { return };
        let Some(role) = row.role else { return };
        let Some(process) = row.process().and_then(|key| self.processes.get(key)) else { return };
        let inode = process.netns;
        let on_host = inode != 0 && inode == self.host_netns;
        let sandbox = match role {
            Role::Sandbox => Some(id.clone()),
            Role::Container => self.sandbox_for(id),
        };
        let Some(sandbox) = sandbox else { return };
        if let Some(row) = self.sandboxes.get_mut(&sandbox) {
            row.up_since = Some(row.up_since.map_or(ctx.at, |since| since.min(ctx.at)));
            row.host_network |= on_host && row.adds.is_empty();
            self.attempt_up(ctx.at, &sandbox);
        }
        if inode != 0
            && !on_host
            && let Some(life) = self.netns.live(inode).map(|row| row.life)
        {
            self.claim(ctx, life, &sandbox, true);
        }
        // A container at work has its network, whatever that is and whether or not its making was seen.
        let proven = role == Role::Container || self.host_netns == 0;
        self.may_be_ready(ctx, &sandbox, proven);
    }

    /// The sandbox that a container lives in: as the runtime says, or the only one that its pod has.
    pub(super) fn sandbox_for(&mut self, id: &ContainerId) -> Option<ContainerId> {
        let row = self.containers.get(id)?;
        if let Some(sandbox) = &row.sandbox {
            return Some(sandbox.clone());
        }
        let pod = row.pod?;
        let mut live =
            self.sandboxes.values().filter(|sandbox| sandbox.pod == Some(pod) && !sandbox.is_stopped());
        let only = live.next()?.id.clone();
        if live.next().is_some() {
            return None;
        }
        self.containers.get_mut(id)?.sandbox = Some(only.clone());
        Some(only)
    }

    /// `proven`: that no ADD is open shows that none is to come.
    pub(super) fn may_be_ready(&mut self, ctx: EventContext, id: &ContainerId, proven: bool) {
        let Some(row) = self.sandboxes.get(id) else { return };
        let none = (proven && row.adds.is_empty()).then_some(row.first_at);
        let Some((up, connected)) = row.up_since.zip(row.connected_since().or(none)) else { return };
        // Where the network is made for a process that runs already, another plugin may follow on any that is done.
        let is_through = connected <= up || self.chains_are_through(id);
        if !is_through && !proven {
            return;
        }
        let at = if is_through { up.max(connected) } else { ctx.at };
        let Some(row) = self.sandboxes.get_mut(id) else { return };
        let Some(ready) = row.state.step(Step::Ready, at) else { return };
        row.state = ready;
        let since_created = at.since(row.first_at);
        // What was ready before we looked became so at a time that nobody knows.
        if row.origin != Origin::Listed {
            self.tell(
                ctx.back_at(at),
                self.sandbox_subject(id),
                Wait::Name,
                ChangeKind::SandboxReady { since_created },
            );
        }
    }

    /// It stops once; the first sign of it is the reason told.
    pub(super) fn stop(&mut self, ctx: EventContext, id: &ContainerId, why: StopReason) {
        let Some(row) = self.sandboxes.get_mut(id) else { return };
        let Some(stopped) = row.state.step(Step::Stop(why), ctx.at) else { return };
        let was_ready = matches!(std::mem::replace(&mut row.state, stopped), State::Ready { .. });
        let pod = row.pod;
        if let Some(pod) = pod.and_then(|pod| self.pods.rows.get_mut(&pod)).filter(|_| was_ready) {
            pod.left_at = pod.left_at.max(Some(ctx.at));
        }
        self.attempt_over(ctx, id);
        self.schedule_reap(ctx.at);
        self.tell(ctx, self.sandbox_subject(id), Wait::Name, ChangeKind::SandboxStopped { why });
        if let Some(pod) = pod {
            self.pod_may_be_gone(ctx, pod);
        }
    }

    pub(super) fn sandbox_lost_netns(&mut self, ctx: EventContext, id: &ContainerId) {
        self.stop(
            ctx,
            id,
            if ctx.origin == Origin::Listed { StopReason::NotListed } else { StopReason::NetnsGone },
        );
        if let Some(row) = self.sandboxes.get_mut(id) {
            row.presence.withdraw(Voucher::Mount);
            row.presence.withdraw(Voucher::Kernel);
        }
        if let Some(pod) = self.sandboxes.get(id).and_then(|row| row.pod) {
            self.pod_may_be_gone(ctx, pod);
        }
    }

    /// The pod's own directory is gone: a sandbox of it that only records vouch for has nothing to live in.
    pub(super) fn stop_unvouched(&mut self, ctx: EventContext, pod: u64) {
        let is_over = |row: &&Sandbox| row.pod == Some(pod) && !row.is_stopped() && !row.presence.is_alive();
        let over: Vec<ContainerId> =
            self.sandboxes.values().filter(is_over).map(|row| row.id.clone()).collect();
        for id in over {
            self.stop(ctx, &id, StopReason::Emptied);
        }
    }

    pub(super) fn sandbox_subject(&self, id: &ContainerId) -> Subject {
        let row = self.sandboxes.get(id);
        let cgroup = self.containers.get(id).and_then(|row| row.cgroup);
        Subject {
            sandbox: Some(id.clone()),
            pod: row.and_then(|row| row.pod),
            netns: row.and_then(|row| row.netns),
            cgroup,
            ..Subject::default()
        }
    }
}
