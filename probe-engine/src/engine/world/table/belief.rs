//! What runtimes report over CRI of their sandboxes and containers, and beside it what the kernel has shown
//! of the same.
//!
//! A runtime reports it in two ways: by its list, which is complete at the time of the question, and by its
//! events. The newest report counts. While no runtime is followed there is no row, and nothing here costs
//! anything.

pub(crate) mod lag;
pub(crate) mod rows;

pub use lag::{Lag, LagBy, LagOf};
pub(crate) use rows::Beliefs;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    engine::world::table::attachment::LATELY,
    model::{
        change,
        fact::{Answer, Believed, Described, EventStream, ProcessState, Role, RuntimeEventKind, Span},
        id::ContainerId,
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
    pub(crate) told: EventTimes,
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
    /// Since when the log folder of its pod is known to be gone. The kubelet removes it once the pod is
    /// deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod_gone_at: Option<Timestamp>,
    /// The events that its runtime should have reported and did not, with the times of what they are about.
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
pub(crate) struct EventTimes {
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
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// By then a runtime is asked about an end of which it reported no event.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// What runtimes give as the exit code of a container whose program they could not start
/// (`errorStartExitCode` of containerd, the code of CRI-O for none).
pub(crate) const FAILED_START: [i32; 2] = [128, -1];

/// For a pod of a sandbox that is not ready, it is asked as often as this whether it is gone, and for so many
/// at once.
pub(crate) const POD_AGAIN: Duration = Duration::from_secs(10 * 60);

/// The lists are not asked for more often than this.
pub(crate) const BETWEEN: Duration = Duration::from_secs(2);

/// An event stream that was opened this long before an event reports it.
pub(crate) const OPENED: Duration = Duration::from_secs(1);

impl Runtime {
    pub(crate) fn answers(&self) -> bool {
        match self.answer {
            Answer::Answers => true,
            Answer::Slow | Answer::Hangs | Answer::Unreachable | Answer::Gone | Answer::GivenUp => false,
        }
    }

    /// Whether it reports every event since `at`.
    fn tells(&self, at: Timestamp) -> bool {
        self.events == EventStream::Open && self.events_since + OPENED <= at
    }

    /// When its list must be read for something that the kernel has seen at `at`. None: it was read since.
    fn reads_by(&self, at: Timestamp) -> Option<Timestamp> {
        Some(self.must_know_by(at)).filter(|by| self.read_at < *by)
    }

    /// When its word on something counts that the kernel has seen at `at`.
    pub(crate) fn must_know_by(&self, at: Timestamp) -> Timestamp {
        at.max(self.answer_since) + GRACE
    }
}

impl Belief {
    pub(crate) fn new(id: ContainerId, at: Timestamp) -> Self {
        Self {
            id,
            first_at: at,
            socket: None,
            role: None,
            sandbox: None,
            listed: Listed::default(),
            described: Described::default(),
            told: EventTimes::default(),
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
    pub(crate) fn state(&self, runtime: &Runtime) -> Option<Believed> {
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
    pub(crate) fn said_since(&self, runtime: &Runtime) -> Timestamp {
        match self.told.last {
            Some((_, at)) if at > runtime.read_at => at,
            Some(_) | None => self.listed.since,
        }
    }

    /// Whether its runtime says that its program runs, or has reported that it began.
    pub(crate) fn has_begun(&self, runtime: &Runtime) -> bool {
        self.told.started_at.is_some() || self.state(runtime) == Some(Believed::Running)
    }

    /// Whether its runtime says that its program ran and has ended. A program that could not be started has
    /// ended too.
    pub(crate) fn has_ended(&self, runtime: &Runtime) -> bool {
        let is_failed_start = self.listed.exit_code.is_some_and(|code| FAILED_START.contains(&code));
        self.state(runtime) == Some(Believed::Exited) && !is_failed_start
    }

    fn was_listed(&self) -> bool {
        self.listed.made_at.is_some()
    }

    /// When its runtime's list must be read next.
    fn wants(&self, runtime: &Runtime, now: Timestamp) -> Option<Timestamp> {
        if let Some(KernelEnd { at, .. }) = self.ended
            && self.told.ended_at.is_none()
            && now <= at + LATELY
        {
            let soon = at + SOON;
            if runtime.read_at < soon {
                return Some(soon);
            }
            if self.state(runtime) == Some(Believed::Running) || runtime.tells(at) {
                return runtime.reads_by(at);
            }
        }
        let at = self.started_at?;
        if self.told.started_at.is_some() || now > at + LATELY || !runtime.tells(at) {
            return None;
        }
        runtime.reads_by(at)
    }

    /// Notes the events that are missing, now that the list was read.
    fn note_missed(&mut self, runtime: &Runtime) {
        let has_started = match self.listed.state {
            Some(Believed::Running | Believed::Exited) => true,
            Some(Believed::Created | Believed::Unknown) | None => false,
        };
        let has_ended = match self.listed.state {
            Some(Believed::Exited) | None => true,
            Some(Believed::Created | Believed::Running | Believed::Unknown) => false,
        };
        let start = if has_started && self.told.started_at.is_none() { self.started_at } else { None };
        let end = self.ended.filter(|it| has_ended && it.code.is_some() && self.told.ended_at.is_none());
        let start = start.map(|at| (RuntimeEventKind::Started, at));
        let end = end.map(|it| (RuntimeEventKind::Stopped, it.at));
        for (what, at) in start
            .into_iter()
            .chain(end)
            .filter(|(_, at)| runtime.tells(*at) && runtime.read_at >= runtime.must_know_by(*at))
        {
            if self.was_listed() && !self.missed.contains(&(what, at)) {
                self.missed.push((what, at));
            }
        }
    }
}
