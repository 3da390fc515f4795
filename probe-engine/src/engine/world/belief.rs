//! What runtimes say over CRI of their sandboxes and containers, and beside it what the kernel has shown of the same.
//!
//! A runtime says it in two ways: by its list, which is complete at the time of the question, and by its events. The
//! newest word counts. While no runtime is followed there is no row, and nothing here costs anything.
//!
//! **Invariant:** a runtime's word changes no row of another module.

mod lag;
mod table;

pub use lag::{Lag, LagBy, LagOf};
pub(in crate::engine) use table::Beliefs;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    engine::{
        timer,
        world::{
            EventContext, World, attachment::LATELY, cgroup::Cgroup, daemon::is_runtime, hint::Hint,
            restart::at_socket,
        },
    },
    model::{
        change::{self, Question},
        fact::{
            Answer, Believed, Described, EventStream, List, NameSource, ProcessState, Role, RuntimeEventKind,
            RuntimeLink, RuntimeStatus, Span, Stated,
        },
        id::{ContainerId, PodUid},
        recovery::{Source, TimedSource},
        time::Timestamp,
    },
};

/// A runtime that is followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runtime {
    pub(crate) socket: String,
    pub(crate) answer: Answer,
    /// Since when it answers, or does not.
    pub(crate) answer_since: Timestamp,
    pub(crate) events: EventStream,
    /// Since when its events are heard, or not.
    pub(crate) events_since: Timestamp,
    /// When its list was last read.
    pub(crate) read_at: Timestamp,
    /// When it was last to be asked for its list.
    pub(crate) asked_at: Timestamp,
    /// If it answers nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hang: Option<Hang>,
    /// When it answered nothing before, the latest times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hung: Vec<Span>,
}

/// A runtime answers nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hang {
    /// When it last did not answer.
    pub(crate) told_at: Timestamp,
    /// The process that serves its socket.
    pub(crate) process: Option<change::Process>,
    /// What that process did, by the last answer.
    pub(crate) state: Option<ProcessState>,
}

/// What is said of one sandbox or container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Belief {
    pub(crate) id: ContainerId,
    pub(crate) first_at: Timestamp,
    /// The socket of the runtime that has it, as far as that is known.
    pub(crate) socket: Option<String>,
    pub(crate) role: Option<Role>,
    pub(crate) sandbox: Option<ContainerId>,
    pub(crate) listed: Listed,
    #[serde(default)]
    pub(crate) described: Described,
    pub(crate) told: Told,
    /// When the kernel saw its program begin.
    pub(crate) started_at: Option<Timestamp>,
    /// Records were lost before: what began may be another program in the container, such as a probe.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_unsure: bool,
    /// The container's name when its program ended. Its own row is forgotten soon after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) ended: Option<KernelEnd>,
    /// When it was last asked whether the log folder of its pod is there, of a sandbox that is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod_asked_at: Option<Timestamp>,
    /// Since when the log folder of its pod is known to be gone. The kubelet removes it once the pod is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod_gone_at: Option<Timestamp>,
    /// The events that its runtime should have told and did not, with the times of what they are about.
    pub(crate) missed: Vec<(RuntimeEventKind, Timestamp)>,
}

/// What the lists say of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    /// None: it is on no list.
    pub(crate) state: Option<Believed>,
    /// The time of the first list that said so.
    pub(crate) since: Timestamp,
    pub(crate) exit_code: Option<i32>,
    /// When the runtime made it; zero if that was before this boot.
    pub(crate) made_at: Option<Timestamp>,
}

/// What the events say of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) last: Option<(RuntimeEventKind, Timestamp)>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
}

/// The end of a container's own program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KernelEnd {
    pub(crate) at: Timestamp,
    /// None: no hook saw the end, or it may be that of another program.
    pub(crate) code: Option<u32>,
}

/// A runtime notices a start or an end within milliseconds. This is how long it may take.
pub(in crate::engine) const GRACE: Duration = Duration::from_secs(10);

/// By then a runtime is asked about an end of which it told no event.
pub(in crate::engine) const SOON: Duration = Duration::from_secs(1);

/// What runtimes give as the exit code of a container whose program they could not start (`errorStartExitCode` of containerd,
/// the code of CRI-O for none).
const FAILED_START: [i32; 2] = [128, -1];

/// For a pod of a sandbox that is not ready, it is asked as often as this whether it is gone, and for so many at once.
const POD_AGAIN: Duration = Duration::from_secs(10 * 60);

const ASKED: usize = 16;

/// The lists are not asked for more often than this.
const BETWEEN: Duration = Duration::from_secs(2);

/// An event stream that was opened this long before an event tells it.
pub(in crate::engine) const OPENED: Duration = Duration::from_secs(1);

impl Runtime {
    pub(crate) fn answers(&self) -> bool {
        match self.answer {
            Answer::Answers => true,
            Answer::Slow | Answer::Hangs | Answer::Unreachable | Answer::Gone | Answer::GivenUp => false,
        }
    }

    /// Whether it tells every event since `at`.
    fn tells(&self, at: Timestamp) -> bool {
        self.events == EventStream::Open && self.events_since + OPENED <= at
    }

    /// When its word on something counts that the kernel has seen at `at`.
    pub(in crate::engine) fn must_know_by(&self, at: Timestamp) -> Timestamp {
        at.max(self.answer_since) + GRACE
    }
}

impl Belief {
    fn new(id: ContainerId, at: Timestamp) -> Self {
        Self {
            id,
            first_at: at,
            socket: None,
            role: None,
            sandbox: None,
            listed: Listed::default(),
            described: Described::default(),
            told: Told::default(),
            started_at: None,
            is_unsure: false,
            name: None,
            ended: None,
            pod_asked_at: None,
            pod_gone_at: None,
            missed: Vec::new(),
        }
    }

    /// What its runtime says now. None: it does not know it.
    pub(in crate::engine) fn state(&self, runtime: &Runtime) -> Option<Believed> {
        match self.told.last {
            Some((what, at)) if at > runtime.read_at => match what {
                RuntimeEventKind::Created => Some(Believed::Created),
                RuntimeEventKind::Started => Some(Believed::Running),
                RuntimeEventKind::Stopped => Some(Believed::Exited),
                RuntimeEventKind::Deleted => None,
            },
            Some(_) | None => self.listed.state,
        }
    }

    /// Since when its runtime has said so, at the latest.
    pub(in crate::engine) fn said_since(&self, runtime: &Runtime) -> Timestamp {
        match self.told.last {
            Some((_, at)) if at > runtime.read_at => at,
            Some(_) | None => self.listed.since,
        }
    }

    /// Whether its runtime says that its program runs, or has told that it began.
    pub(in crate::engine) fn has_begun(&self, runtime: &Runtime) -> bool {
        self.told.started_at.is_some() || self.state(runtime) == Some(Believed::Running)
    }

    /// Whether its runtime says that its program ran and has ended. A program that could not be started has ended too.
    pub(in crate::engine) fn has_ended(&self, runtime: &Runtime) -> bool {
        let is_failed_start = self.listed.exit_code.is_some_and(|code| FAILED_START.contains(&code));
        self.state(runtime) == Some(Believed::Exited) && !is_failed_start
    }

    fn was_listed(&self) -> bool {
        self.listed.made_at.is_some()
    }

    /// When its runtime's list must be read next.
    fn wants(&self, runtime: &Runtime, now: Timestamp) -> Option<Timestamp> {
        let is_late = |at: Timestamp| now > at + LATELY;
        let ready = |at: Timestamp| Some(runtime.must_know_by(at)).filter(|by| runtime.read_at < *by);
        if let Some(KernelEnd { at, .. }) = self.ended
            && self.told.ended_at.is_none()
            && !is_late(at)
        {
            let soon = at + SOON;
            if runtime.read_at < soon {
                return Some(soon);
            }
            if self.state(runtime) == Some(Believed::Running) || runtime.tells(at) {
                return ready(at);
            }
        }
        let started_at = self.started_at.filter(|at| self.told.started_at.is_none() && !is_late(*at));
        started_at.filter(|at| runtime.tells(*at)).and_then(ready)
    }

    /// Notes the events that are missing, now that the list was read.
    fn note_missed(&mut self, runtime: &Runtime) {
        let is_due = |at: Timestamp| runtime.tells(at) && runtime.read_at >= runtime.must_know_by(at);
        let has_started = match self.listed.state {
            Some(Believed::Running | Believed::Exited) => true,
            Some(Believed::Created | Believed::Unknown) | None => false,
        };
        let has_ended = match self.listed.state {
            Some(Believed::Exited) | None => true,
            Some(Believed::Created | Believed::Running | Believed::Unknown) => false,
        };
        let start = self.started_at.filter(|_| has_started && self.told.started_at.is_none());
        let end = self.ended.filter(|it| has_ended && it.code.is_some() && self.told.ended_at.is_none());
        let start = start.map(|at| (RuntimeEventKind::Started, at));
        let end = end.map(|it| (RuntimeEventKind::Stopped, it.at));
        for (what, at) in start.into_iter().chain(end).filter(|(_, at)| is_due(*at)) {
            if self.was_listed() && !self.missed.contains(&(what, at)) {
                self.missed.push((what, at));
            }
        }
    }
}

impl World {
    /// A runtime can be asked, or cannot.
    pub(super) fn runtime_linked(&mut self, ctx: EventContext, it: RuntimeLink) {
        if it.answer == Answer::Answers {
            self.runtime_works(TimedSource { at: ctx.at, source: Source::Cri }, at_socket(&it.socket));
        }
        let process = if it.answer == Answer::Hangs { self.server_of(&it.socket) } else { None };
        if let Some(process) = &process {
            self.ask(Question::Process { process: process.key });
        }
        self.beliefs.link(ctx.at, it, process);
        // What happened while it did not answer is to be asked for.
        self.timers.arm_earlier(timer::Name::Statuses, ctx.at + GRACE);
    }

    /// The process that serves a runtime's socket, by its name. None: it is none of those that are known, or may be one of
    /// several.
    fn server_of(&self, socket: &str) -> Option<change::Process> {
        let runtime = at_socket(socket);
        let serves = |comm: &str| match runtime {
            Some(row) => comm == row.cri_server.unwrap_or(row.daemon),
            None => is_runtime(comm),
        };
        let mut all = self.daemons_named(serves);
        let row = all.next()?;
        let is_only = all.next().is_none();
        is_only.then(|| change::Process { key: row.key, parent: row.parent, comm: row.comm.clone() })
    }

    /// A runtime's list was read.
    pub(super) fn runtime_stated(&mut self, ctx: EventContext, it: RuntimeStatus) {
        let RuntimeStatus { socket, whole, came, gone } = it;
        if self.beliefs.read(ctx.at, &socket).is_none() {
            return;
        }
        if whole {
            self.beliefs.only_listed(ctx.at, &socket, &came.iter().map(|it| &it.id).collect());
        }
        for id in gone {
            self.beliefs.gone(ctx.at, &socket, &id);
        }
        for stated in came {
            self.state_of(ctx, &socket, stated);
        }
        self.beliefs.note_read(&socket);
        self.beliefs.reap(ctx.at);
        self.ask_pods_of_records(ctx.at, &socket);
        self.arm_statuses(ctx.at);
    }

    /// Asks whether the pods of sandboxes that are not ready are gone: of a pod that has completed, the runtime keeps the
    /// sandbox, and the kubelet the log folder, as long as the pod is not deleted.
    fn ask_pods_of_records(&mut self, at: Timestamp, socket: &str) {
        let due = self.beliefs.unasked(at, socket).filter(|(_, uid)| {
            let pod = self.pods.by_uid(uid).and_then(|pod| self.pods.get(&pod));
            let mut cgroups = pod.into_iter().flat_map(|pod| &pod.cgroups);
            !cgroups.any(|key| self.cgroups.get(key).is_some_and(Cgroup::is_live))
        });
        let due: Vec<(ContainerId, PodUid)> = due.take(ASKED).collect();
        for (id, uid) in due {
            self.beliefs.pod_asked(at, &id);
            self.ask(Question::Pod { uid });
        }
    }

    fn state_of(&mut self, ctx: EventContext, socket: &str, it: Stated) {
        self.join(ctx, &it);
        let Stated { id, role, sandbox, state, made_at, exit_code, described } = it;
        let Some(row) = self.beliefs.entry(ctx.at, &id) else { return };
        row.socket = Some(socket.to_owned());
        row.role = Some(role);
        row.described = described;
        row.sandbox = sandbox.or_else(|| row.sandbox.take());
        let is_same = row.listed.state == Some(state);
        let since = if is_same { row.listed.since } else { ctx.at };
        let exit_code = exit_code.or(row.listed.exit_code);
        row.listed = Listed { state: Some(state), since, exit_code, made_at: Some(made_at) };
    }

    /// Gives a container that the kernel has shown the names that no other evidence gave.
    fn join(&mut self, ctx: EventContext, it: &Stated) {
        let Some(row) = self.containers.get(&it.id) else { return };
        let hint = Hint {
            role: Some(it.role).filter(|_| row.role.is_none()),
            sandbox: it.sandbox.clone().filter(|_| row.sandbox.is_none()),
            name: it.described.name.clone().filter(|_| row.name.is_none()),
            pod: it.described.pod.clone().filter(|_| row.pod.is_none()),
            ..Hint::new(it.id.clone(), NameSource::Cri)
        };
        if hint.says_anything() {
            self.learn(ctx, &hint);
        }
    }

    /// A container's own program begins.
    pub(super) fn kernel_started(&mut self, at: Timestamp, id: &ContainerId) {
        let is_unsure = self.lists.is_gapped(List::Processes);
        if let Some(row) = self.believed(at, id).filter(|row| row.started_at.is_none()) {
            (row.started_at, row.is_unsure) = (Some(at), is_unsure);
            self.beliefs.note_told(id, true);
            self.arm_statuses_of(at, id);
        }
    }

    /// A container's own program has ended. `code`: its exit code, if a hook saw the end.
    pub(super) fn kernel_ended(&mut self, at: Timestamp, id: &ContainerId, code: Option<u32>) {
        let name = self.containers.get(id).and_then(|row| row.name.clone());
        if let Some(row) = self.believed(at, id).filter(|row| row.ended.is_none()) {
            row.name = name;
            row.ended = Some(KernelEnd { at, code: code.filter(|_| !row.is_unsure) });
            self.beliefs.note_told(id, false);
            self.arm_statuses_of(at, id);
        }
    }

    /// The row of a container that the kernel shows, if a runtime may have it.
    fn believed(&mut self, at: Timestamp, id: &ContainerId) -> Option<&mut Belief> {
        if self.beliefs.is_idle() {
            return None;
        }
        let of_pod = self.containers.get(id).is_some_and(|row| row.pod.is_some());
        if !of_pod && self.beliefs.get(id).is_none() {
            return None;
        }
        let socket = self.socket_of(id);
        let row = self.beliefs.entry(at, id)?;
        row.socket = row.socket.take().or(socket);
        Some(row)
    }

    /// The socket of the runtime that has a container, which its list may not name yet: that of the only runtime, or of the one
    /// that has the container's sandbox on record.
    fn socket_of(&self, id: &ContainerId) -> Option<String> {
        let of_sandbox = || {
            let sandbox = self.containers.get(id).and_then(|row| row.sandbox.as_ref()).unwrap_or(id);
            self.records.sockets_with(sandbox).find(|socket| self.beliefs.knows(socket)).map(String::as_str)
        };
        self.beliefs.only().or_else(of_sandbox).map(str::to_owned)
    }

    /// The name of a container, also after its own row is forgotten.
    pub(in crate::engine) fn name_of(&self, row: &Belief) -> Option<String> {
        let known = self.containers.get(&row.id).and_then(|it| it.name.clone());
        known.or_else(|| row.name.clone())
    }

    /// As `arm_statuses`, where nothing but this row has changed.
    fn arm_statuses_of(&mut self, now: Timestamp, id: &ContainerId) {
        if let Some(due) = self.beliefs.get(id).and_then(|row| self.beliefs.wanted_of(row, now)) {
            self.timers.arm_earlier(timer::Name::Statuses, due);
        }
    }

    fn arm_statuses(&mut self, now: Timestamp) {
        if let Some(due) = self.beliefs.wanted(now) {
            self.timers.arm_earlier(timer::Name::Statuses, due);
        }
    }

    /// Asks the runtimes for their lists, if one may not have noticed something.
    pub(super) fn ask_statuses(&mut self, now: Timestamp) {
        let Some(due) = self.beliefs.wanted(now) else { return };
        if due <= now {
            self.beliefs.ask(now);
            self.ask(Question::Statuses);
            // The answer arms the timer for what it does not settle.
            self.timers.arm_earlier(timer::Name::Statuses, now + GRACE);
        } else {
            self.timers.arm_earlier(timer::Name::Statuses, due);
        }
    }
}
