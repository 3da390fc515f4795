//! The runtime over CRI after the agent follows it: its list, and its events.

use std::time::Duration;

use probe_user::model::{
    fact::{
        Answer, Believed, Described, EventStream, Fact, Observation, Origin, ProcessState, Role, RunState,
        RuntimeEvent, RuntimeEventKind, RuntimeLink, RuntimeStatus, Stated, ThreadState,
    },
    id::{ContainerId, TaskKey},
    time::Timestamp,
};

use super::{Container, Sandbox, Sim};

const SOCKET: &str = "/run/containerd/containerd.sock";
/// The time between two questions to a runtime that does not answer.
const AGAIN: Duration = Duration::from_secs(15);
/// The creation time of all its objects, after the boot.
const MADE: Timestamp = Timestamp(1);

impl Sim {
    /// Makes the agent follow the runtime from now on.
    pub(crate) fn follow(&mut self) {
        self.followed = true;
        self.link();
    }

    /// Sets whether the runtime can be asked from now on. A runtime that can is asked at once.
    pub(super) fn link(&mut self) {
        if !self.followed {
            return;
        }
        let (answer, events) = match self.runtime {
            Some(_) => (self.answer, EventStream::Open),
            None => (Answer::Gone, EventStream::Closed),
        };
        let since = self.unanswered.filter(|_| answer == Answer::Hangs).map(|(_, since)| since);
        let link = RuntimeLink { socket: SOCKET.to_owned(), answer, events, since };
        self.emit(Origin::Cri, Fact::RuntimeLink(link));
        self.list_statuses();
    }

    /// Sets how the runtime answers from now on.
    pub(crate) fn runtime_answers(&mut self, answer: Answer) {
        self.answer = answer;
        self.unanswered = (answer == Answer::Hangs).then_some((self.now, self.now));
        self.link();
    }

    /// Asks a runtime that does not answer again until `at`, and reports each time that it does not.
    pub(super) fn ask_again(&mut self, at: Timestamp) {
        while let Some((asked, since)) = self.unanswered.filter(|(asked, _)| *asked + AGAIN <= at) {
            self.now = self.now.max(asked + AGAIN);
            self.unanswered = Some((asked + AGAIN, since));
            self.link();
        }
    }

    /// Returns the state of the runtime's process.
    pub(super) fn process_state(&self, process: TaskKey) -> Option<Fact> {
        self.runtime.as_ref().filter(|task| task.key == process)?;
        let (state, function) = match self.answer {
            Answer::Hangs => (RunState::Stopped, "do_signal_stop"),
            _ => (RunState::Sleeping, "futex_wait_queue"),
        };
        let threads = vec![ThreadState { state, function: Some(function.to_owned()), count: 12 }];
        Some(Fact::ProcessState(ProcessState { process, state, threads }))
    }

    /// Reads the list, which happens each minute.
    pub(crate) fn list_statuses(&mut self) {
        if let Some(list) = self.statuses() {
            self.emit(Origin::Cri, list.fact);
        }
    }

    /// Returns the runtime's list, if it is followed and answers.
    pub(super) fn statuses(&self) -> Option<Observation> {
        if !self.followed || self.runtime.is_none() || self.answer != Answer::Answers {
            return None;
        }
        let is_recorded = |row: &&Sandbox| self.recorded.contains(&row.id);
        let sandboxes = self.sandboxes.values().filter(is_recorded).map(|row| self.of_sandbox(row));
        let containers = self.containers.values().filter_map(|row| {
            let sandbox = self.sandboxes.get(&row.sandbox).filter(is_recorded)?;
            Some(self.of_container(row, sandbox))
        });
        let came = sandboxes.chain(containers).collect();
        let list = RuntimeStatus { socket: SOCKET.to_owned(), whole: true, came, gone: Vec::new() };
        Some(Observation { at: self.now, origin: Origin::Cri, fact: Fact::RuntimeStatus(list) })
    }

    /// The runtime sends an event.
    pub(super) fn tells(&mut self, id: &ContainerId, what: RuntimeEventKind) {
        if self.followed && self.runtime.is_some() && self.answer != Answer::Hangs {
            let event = RuntimeEvent { socket: SOCKET.to_owned(), id: id.clone(), what };
            self.emit(Origin::Cri, Fact::RuntimeEvent(event));
        }
    }

    fn of_sandbox(&self, row: &Sandbox) -> Stated {
        let state = if row.pause.is_some() { Believed::Running } else { Believed::Exited };
        let (id, pod) = (row.id.clone(), Some(self.pod_name(&row.pod)));
        let described = Described { attempt: Some(0), pod, ..Described::default() };
        Stated { id, role: Role::Sandbox, sandbox: None, state, made_at: MADE, exit_code: None, described }
    }

    fn of_container(&self, row: &Container, sandbox: &Sandbox) -> Stated {
        let state = if row.pid.is_some() { Believed::Running } else { Believed::Exited };
        let code = if row.status > 0xff {
            row.status >> 8
        } else if row.status > 0 {
            128 + row.status
        } else {
            0
        };
        let exit_code = row.pid.is_none().then(|| i32::try_from(code).expect("a code of 8 bits"));
        let described = Described {
            name: Some(row.name.clone()),
            attempt: Some(0),
            image: Some("registry.example/main:1".to_owned()),
            pod: Some(self.pod_name(&sandbox.pod)),
        };
        let (id, sandbox) = (row.id.clone(), Some(sandbox.id.clone()));
        Stated { id, role: Role::Container, sandbox, state, made_at: MADE, exit_code, described }
    }
}
