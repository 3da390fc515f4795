//! What is remembered of every sandbox for verdicts, longer than it lives: who stopped or killed it, what ran in it,
//! and what was told of it.
//!
//! **Invariant:** bounded: what is over is forgotten after a while, and so are the first of too many.

use serde::{Deserialize, Serialize};

use crate::{
    engine::{
        timeline::OOM_BEHIND,
        world::{EventContext, World, argv, container::Hook, listening::Listening, phase},
    },
    model::{
        change::{self, Change, ChangeKind, Context, End},
        fact::{Origin, PodName, SIGKILL},
        finding::EvidenceEvent,
        id::{ContainerId, TaskKey},
        time::Timestamp,
    },
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub id: ContainerId,
    pub pod: PodName,
    pub first_at: Timestamp,
    pub origin: Origin,
    /// When its network namespace was made.
    pub netns_at: Option<Timestamp>,
    /// Since when its pause process or a container of it runs.
    pub up_at: Option<Timestamp>,
    /// When its start was held to be complete, and whether it was before.
    pub started_at: Option<Timestamp>,
    pub revised: bool,
    /// When the runtime was first seen to stop it.
    pub stop_at: Option<Timestamp>,
    /// How the process that holds it ended, if that was before the runtime's stop, or by somebody else.
    pub death: Option<Death>,
    /// Its namespace went, and who dropped it last.
    pub netns_gone: Option<NetnsGone>,
    /// When it stopped, by whatever sign.
    pub over_at: Option<Timestamp>,
    /// Since when no runtime has had it on record, all of them read whole.
    pub forgotten_at: Option<Timestamp>,
    /// Its runtime ended while it made it, and no runtime knows it.
    #[serde(default)]
    pub abandoned: bool,
    pub containers: Vec<ContainerRun>,
    /// A record was lost while it was there.
    pub gapped: bool,
    /// The same, but for ever: containers may have run in it that were not seen.
    #[serde(default)]
    pub runs_unsure: bool,
    /// What was told of it, in order.
    pub evidence: Vec<EvidenceEvent>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    pub at: Timestamp,
    pub end: End,
    /// The killer is the runtime, or was run by it.
    pub by_runtime: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetnsGone {
    pub at: Timestamp,
    pub by: Option<change::Process>,
}

/// A container that started in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRun {
    pub id: ContainerId,
    pub name: Option<String>,
    /// The first sign of it: its runtime was run for it, or its cgroup made.
    pub first_at: Timestamp,
    pub cgroup_at: Option<Timestamp>,
    pub started_at: Timestamp,
    /// It was found running.
    pub listed: bool,
    pub listening: Option<Listening>,
    /// The first program that was executed into it right after its own began, as a postStart hook is.
    #[serde(default)]
    pub hook: Option<Hook>,
    pub ended: Option<Ended>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub at: Timestamp,
    /// `None`: nobody saw how.
    pub code: Option<u32>,
    /// When its runtime told it to end, if it did.
    #[serde(default)]
    pub stopped_at: Option<Timestamp>,
}

/// From here on a code is a signal's, as shells and runtimes count (`change::End`).
const SIGNALLED: u32 = 128;

impl Ended {
    /// Its program returned, and neither its runtime nor a signal ended it.
    pub(super) fn by_itself(self) -> bool {
        self.stopped_at.is_none() && self.code.is_some_and(|code| code < SIGNALLED)
    }
}

/// Of the processes that make and end sandboxes only those say something that end them, or were ended by force: there
/// are a dozen more for each pod.
fn is_evidence(what: &ChangeKind) -> bool {
    match what {
        ChangeKind::ProcessExec { argv, .. } => argv::is_ending(argv),
        ChangeKind::ProcessExit { end, .. } => end.signal.is_some(),
        ChangeKind::CniStarted { .. }
        | ChangeKind::CniFinished { .. }
        | ChangeKind::NetnsCreated { .. }
        | ChangeKind::NetnsDestroyed { .. }
        | ChangeKind::NetnsFreed { .. }
        | ChangeKind::CgroupCreated { .. }
        | ChangeKind::CgroupEmptied
        | ChangeKind::CgroupRemoved { .. }
        | ChangeKind::AddressAdded { .. }
        | ChangeKind::AddressRemoved { .. }
        | ChangeKind::SandboxCreated
        | ChangeKind::SandboxReady { .. }
        | ChangeKind::SandboxStopped { .. }
        | ChangeKind::ContainerStarted { .. }
        | ChangeKind::ContainerListening { .. }
        | ChangeKind::ContainerExited { .. }
        | ChangeKind::PodFirstSeen
        | ChangeKind::PodGone { .. } => true,
        // What is said about it is no evidence of it.
        ChangeKind::PodStarted(_)
        | ChangeKind::Gap { .. }
        | ChangeKind::FindingOpened(_)
        | ChangeKind::FindingConfirmed(_)
        | ChangeKind::FindingClosed(_) => false,
    }
}

/// Elsewhere its path would stand in each of them.
fn is_about_cgroup(what: &ChangeKind) -> bool {
    matches!(
        what,
        ChangeKind::CgroupCreated { .. } | ChangeKind::CgroupEmptied | ChangeKind::CgroupRemoved { .. }
    )
}

/// So many containers of one sandbox are remembered; of more, the first are forgotten.
const CONTAINERS: usize = 64;
/// So many things that were told of one sandbox: of a pod's usual life, twice.
const EVIDENCE: usize = 96;
/// Room is made for so many of them at a time.
const ROOM: usize = 8;
/// So far up a killer's ancestors are looked at.
const ANCESTORS: usize = 8;
/// The beginning of a sandbox is never pushed out by what came later.
const FIRST: usize = 32;

impl Attempt {
    fn new(id: ContainerId, ctx: EventContext) -> Self {
        Self {
            id,
            pod: PodName::default(),
            first_at: ctx.at,
            origin: ctx.origin,
            netns_at: None,
            up_at: None,
            started_at: None,
            revised: false,
            stop_at: None,
            death: None,
            netns_gone: None,
            over_at: None,
            forgotten_at: None,
            abandoned: false,
            containers: Vec::new(),
            gapped: false,
            runs_unsure: false,
            evidence: Vec::new(),
        }
    }

    fn ran(&mut self, id: &ContainerId) -> Option<&mut ContainerRun> {
        self.containers.iter_mut().rev().find(|ran| ran.id == *id)
    }
}

impl World {
    pub(super) fn attempt_begun(&mut self, ctx: EventContext, id: &ContainerId) {
        self.attempts.entry(id.clone()).or_insert_with(|| Attempt::new(id.clone(), ctx));
    }

    /// A runtime's program was run to end it.
    pub(super) fn attempt_stopping(&mut self, ctx: EventContext, id: &ContainerId) {
        if let Some(row) = self.attempts.get_mut(id) {
            row.stop_at = Some(row.stop_at.map_or(ctx.at, |at| at.min(ctx.at)));
        }
    }

    pub(super) fn attempt_over(&mut self, ctx: EventContext, id: &ContainerId) {
        if let Some(row) = self.attempts.get_mut(id)
            && row.over_at.is_none()
        {
            row.over_at = Some(ctx.at);
            self.records_changed(ctx.at);
            self.start_over(ctx, id);
        }
    }

    /// The process that holds it ended.
    pub(super) fn attempt_died(&mut self, ctx: EventContext, id: &ContainerId, end: &End) {
        let by_runtime = end.killer.as_ref().is_some_and(|killer| self.is_of_runtime(killer));
        if let Some(row) = self.attempts.get_mut(id)
            && row.death.is_none()
        {
            row.death = Some(Death { at: ctx.at, end: end.clone(), by_runtime });
            if by_runtime {
                row.stop_at = Some(row.stop_at.map_or(ctx.at, |at| at.min(ctx.at)));
            }
        }
    }

    /// The OOM killer chose the process that holds it, as is told only after its end.
    pub(super) fn attempt_starved(&mut self, ctx: EventContext, id: &ContainerId) {
        let death = self.attempts.get_mut(id).and_then(|row| row.death.as_mut());
        if let Some(death) = death.filter(|it| it.end.signal == Some(SIGKILL) && ctx.at <= it.at + OOM_BEHIND)
        {
            death.end = End { oom: true, killer: None, ..death.end };
            death.by_runtime = false;
        }
    }

    pub(super) fn attempt_lost_netns(
        &mut self,
        ctx: EventContext,
        id: &ContainerId,
        by: Option<change::Process>,
    ) {
        if let Some(row) = self.attempts.get_mut(id)
            && row.netns_gone.is_none()
        {
            row.netns_gone = Some(NetnsGone { at: ctx.at, by });
        }
    }

    /// A namespace is a sandbox's, and when it was made is known.
    pub(super) fn attempt_netns(&mut self, life: u64) {
        let Some(netns) = self.netns.get(life) else { return };
        let Some(row) = netns.sandbox.as_ref().and_then(|id| self.attempts.get_mut(id)) else { return };
        row.netns_at = netns.created_at;
    }

    pub(super) fn attempt_up(&mut self, at: Timestamp, id: &ContainerId) {
        if let Some(row) = self.attempts.get_mut(id) {
            row.up_at = Some(row.up_at.map_or(at, |up| up.min(at)));
        }
    }

    /// A container started; its sandbox may be known only later.
    pub(super) fn attempt_ran(&mut self, id: &ContainerId) {
        let Some(began) = self.containers.get(id).and_then(|row| row.began) else { return };
        self.pod_may_be_back(began.at);
        let Some(sandbox) = self.sandbox_for(id) else { return };
        let Some(container) = self.containers.get(id) else { return };
        let cgroup = container.cgroup.and_then(|key| self.cgroups.get(&key));
        let ran = ContainerRun {
            id: id.clone(),
            name: container.name.clone(),
            first_at: container.first_at.min(began.at),
            cgroup_at: cgroup.and_then(|row| row.created_at).filter(|at| *at <= began.at),
            started_at: began.at,
            listed: began.listed,
            listening: container.listening,
            hook: container.hook,
            ended: None,
        };
        let expected =
            self.attempts.get(&sandbox).map(|row| self.expected_in(row).to_vec()).unwrap_or_default();
        let Some(row) = self.attempts.get_mut(&sandbox) else { return };
        if let Some(known) = row.ran(id) {
            known.name = ran.name.or_else(|| known.name.take());
            self.start_turns(&sandbox);
            return;
        }
        let goes_on = row.started_at.is_some() && phase::goes_on(row, &expected, &ran);
        if row.containers.len() >= CONTAINERS {
            row.containers.remove(0);
        }
        row.containers.push(ran);
        if goes_on {
            self.start_goes_on(&sandbox);
        }
        self.ask_expected(&sandbox);
        self.start_turns(&sandbox);
    }

    pub(super) fn attempt_listened(&mut self, id: &ContainerId, listening: Listening) {
        self.pod_may_be_back(listening.at);
        let Some(sandbox) = self.sandbox_for(id) else { return };
        if let Some(row) = self.attempts.get_mut(&sandbox)
            && let Some(ran) = row.ran(id)
        {
            ran.listening = Some(listening);
            self.start_listens(&sandbox);
        }
    }

    /// A program was executed into a container right after its start, or that has ended.
    pub(super) fn attempt_hooked(&mut self, id: &ContainerId, hook: Hook) {
        let Some(sandbox) = self.sandbox_for(id) else { return };
        if let Some(ran) = self.attempts.get_mut(&sandbox).and_then(|row| row.ran(id)) {
            ran.hook = Some(hook);
        }
    }

    pub(super) fn attempt_ended(&mut self, at: Timestamp, id: &ContainerId, code: Option<u32>) {
        self.pod_may_be_back(at);
        let Some(sandbox) = self.sandbox_for(id) else { return };
        let stopped_at = self.containers.get(id).and_then(|row| row.stopped_at);
        if let Some(row) = self.attempts.get_mut(&sandbox)
            && let Some(ran) = row.ran(id)
            && ran.ended.is_none()
        {
            ran.ended = Some(Ended { at, code, stopped_at });
            self.start_turns(&sandbox);
        }
    }

    /// Keeps what was told, for whoever asks for the evidence.
    pub(in crate::engine) fn keep(&mut self, change: &Change) {
        let Some(id) = &change.context.sandbox else { return };
        let pod = change.context.pod.as_ref();
        let Some(row) = self.attempts.get_mut(id) else { return };
        if let Some(pod) = pod {
            row.pod.namespace = pod.namespace.clone().or_else(|| row.pod.namespace.take());
            row.pod.name = pod.name.clone().or_else(|| row.pod.name.take());
            row.pod.uid = pod.uid.clone().or_else(|| row.pod.uid.take());
        }
        if !is_evidence(&change.what) {
            return;
        }
        if row.evidence.len() >= EVIDENCE {
            row.evidence.remove(FIRST);
        }
        let Change { at, origin, what, context, .. } = change.clone();
        let Context { container, netns, cgroup, .. } = context;
        let cgroup = cgroup.filter(|_| is_about_cgroup(&what));
        if row.evidence.len() == row.evidence.capacity() {
            // Left to itself it doubles, and half of what all sandboxes hold would be room for more.
            row.evidence.reserve_exact(ROOM);
        }
        row.evidence.push(EvidenceEvent { at, origin, container, netns, cgroup, what });
    }

    /// Whether a process is the runtime's: it, or what it was run by, holds, makes or ends containers.
    pub(super) fn is_of_runtime(&self, it: &change::Process) -> bool {
        let start = self.processes.get(it.key).map(|row| row.key).or(Some(it.parent));
        let parent = |key: &TaskKey| self.processes.get(*key).map(|row| row.parent);
        let mut line = std::iter::successors(start, parent).take(ANCESTORS);
        let inside = self.processes.get(it.key).is_some_and(|row| self.in_container(row.cgroup));
        let named = |key| self.processes.get(key).is_some_and(|row| argv::ends_containers(&row.comm));
        !inside && (argv::ends_containers(&it.comm) || line.any(named))
    }
}
