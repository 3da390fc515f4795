//! The tables of followed runtimes and of what they report.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use crate::{
    engine::{
        tracked::Tracked,
        world::{
            EventContext,
            table::MEMORY,
            table::belief::{
                BETWEEN, Belief, GRACE, Hang, POD_AGAIN, Runtime,
                lag::{Lag, LagBy, LagOf, Lags},
            },
        },
    },
    model::{
        change::Process,
        fact::{Answer, Believed, ProcessState, Role, RuntimeEvent, RuntimeEventKind, RuntimeLink, Span},
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
};

/// At most this many sandboxes and containers have a row. A runtime's list that is longer is not taken.
const ROWS: usize = 1 << 16;

/// At most this many past hangs of runtimes are kept.
pub(crate) const HUNG: usize = 4;

/// What the followed runtimes say.
#[derive(Debug, Default)]
pub(crate) struct Beliefs {
    /// By socket.
    pub(crate) runtimes: BTreeMap<String, Runtime>,
    /// One of them changed since somebody last asked.
    is_changed: bool,
    pub(crate) rows: Tracked<ContainerId, Belief>,
    lags: Lags,
}

impl Beliefs {
    pub(crate) fn runtimes(&self) -> impl Iterator<Item = &Runtime> {
        self.runtimes.values()
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &Belief> {
        self.rows.values()
    }

    pub(crate) fn get(&self, id: &ContainerId) -> Option<&Belief> {
        self.rows.get(id)
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The runtime that has it.
    pub(crate) fn runtime_of(&self, row: &Belief) -> Option<&Runtime> {
        self.runtimes.get(row.socket.as_ref()?)
    }

    /// What its runtime says now of a sandbox or container. None: it does not know it, or no runtime is
    /// followed.
    pub(crate) fn state_of(&self, id: &ContainerId) -> Option<Believed> {
        let row = self.get(id)?;
        row.state(self.runtime_of(row)?)
    }

    /// The sandboxes of this runtime that are not ready, and of whose pods it is to be asked whether they are
    /// gone.
    pub(crate) fn unasked(
        &self,
        at: Timestamp,
        socket: &str,
    ) -> impl Iterator<Item = (ContainerId, PodUid)> + '_ {
        let runtime = self.runtimes.get(socket);
        let not_ready = self.rows.values().filter(move |row| {
            runtime.is_some_and(|it| row.socket.as_ref() == Some(&it.socket) && row.is_not_ready(it))
        });
        not_ready
            .filter(move |row| {
                let is_old = row.listed.since + GRACE <= at;
                is_old
                    && row.pod_gone_at.is_none()
                    && row.pod_asked_at.is_none_or(|asked| asked + POD_AGAIN <= at)
            })
            .filter_map(|row| Some((row.id.clone(), row.pod_uid()?.clone())))
    }

    pub(in crate::engine::world) fn pod_asked(&mut self, at: Timestamp, id: &ContainerId) {
        if let Some(row) = self.rows.get_mut(id) {
            row.pod_asked_at = Some(at);
        }
    }

    /// A pod is not on the node any more. This counts for the sandboxes of which it was asked.
    pub(in crate::engine::world) fn pod_gone(&mut self, at: Timestamp, uid: &PodUid) {
        let runtimes = &self.runtimes;
        self.rows.update(|_, row| {
            let runtime = row.socket.as_ref().and_then(|socket| runtimes.get(socket));
            let is_gone = row.pod_gone_at.is_none()
                && row.pod_asked_at.is_some()
                && row.pod_uid() == Some(uid)
                && runtime.is_some_and(|runtime| row.is_not_ready(runtime));
            if is_gone {
                row.pod_gone_at = Some(at);
            }
            is_gone
        });
    }

    /// A pod is on the node.
    pub(in crate::engine::world) fn pod_is_there(&mut self, uid: &PodUid) {
        self.rows.update(|_, row| {
            let is_back = row.pod_gone_at.is_some() && row.pod_uid() == Some(uid);
            if is_back {
                row.pod_gone_at = None;
            }
            is_back
        });
    }

    /// Times that were measured; the oldest are dropped.
    pub(crate) fn lags(&self) -> impl Iterator<Item = &Lag> {
        self.lags.iter()
    }

    /// The rows that may have changed since the last call.
    pub(in crate::engine::world) fn take_changed(&mut self) -> BTreeSet<ContainerId> {
        self.rows.take_changed()
    }

    /// Whether a runtime was asked, or can be asked otherwise, since the last call.
    pub(in crate::engine::world) fn take_asked(&mut self) -> bool {
        mem::take(&mut self.is_changed)
    }

    pub(in crate::engine::world) fn restore_runtime(&mut self, row: Runtime) {
        self.runtimes.insert(row.socket.clone(), row);
    }

    pub(in crate::engine::world) fn restore(&mut self, row: Belief) {
        self.rows.insert(row.id.clone(), row);
    }

    /// Whether no runtime is followed.
    pub(crate) fn is_idle(&self) -> bool {
        self.runtimes.is_empty()
    }

    pub(crate) fn knows(&self, socket: &str) -> bool {
        self.runtimes.contains_key(socket)
    }

    /// The followed runtime, if there is exactly one.
    pub(crate) fn only(&self) -> Option<&str> {
        let mut all = self.runtimes.keys();
        let only = all.next()?;
        all.next().is_none().then_some(only)
    }

    /// When the only runtime answered nothing, until now. None of several: which one a pod waits for is not
    /// known.
    pub(crate) fn hung(&self, now: Timestamp) -> Vec<Span> {
        let mut all = self.runtimes.values();
        let Some(row) = all.next() else { return Vec::new() };
        if self.runtimes.len() != 1 {
            return Vec::new();
        }
        let open = row.hang.as_ref().map(|_| Span { began: row.answer_since, ended: now });
        row.hung.iter().copied().chain(open).collect()
    }

    /// What a process does that serves a runtime's socket.
    pub(in crate::engine::world) fn process_state(&mut self, it: &ProcessState) {
        for hang in self.runtimes.values_mut().filter_map(|row| row.hang.as_mut()) {
            if hang.process.as_ref().is_some_and(|process| process.key == it.process) {
                hang.state = Some(it.clone());
                self.is_changed = true;
            }
        }
    }

    /// How a runtime can be asked from now on. `process` serves the socket of one that hangs.
    pub(in crate::engine::world) fn link(
        &mut self,
        at: Timestamp,
        it: RuntimeLink,
        process: Option<Process>,
    ) {
        self.is_changed = true;
        let RuntimeLink { socket, answer, events, since } = it;
        if answer == Answer::GivenUp {
            self.runtimes.remove(&socket);
            self.rows.retain(|_, row| row.socket.as_ref() != Some(&socket));
            return;
        }
        let row = self.runtimes.entry(socket.clone()).or_insert_with(|| Runtime {
            socket,
            answer,
            answer_since: at,
            events,
            events_since: at,
            read_at: Timestamp::ZERO,
            asked_at: Timestamp::ZERO,
            hang: None,
            hung: Vec::new(),
        });
        let before = row.hang.take();
        if before.is_some() && answer != Answer::Hangs {
            row.hung.push(Span { began: row.answer_since, ended: at });
            let too_many = row.hung.len().saturating_sub(HUNG);
            row.hung.drain(..too_many);
        }
        if row.answer != answer || answer == Answer::Hangs && before.is_none() {
            (row.answer, row.answer_since) = (answer, since.unwrap_or(at).min(at));
        }
        if answer == Answer::Hangs {
            let state = before.and_then(|before| before.state);
            let state = state.filter(|it| process.as_ref().is_some_and(|process| process.key == it.process));
            row.hang = Some(Hang { told_at: at, process, state });
        }
        if row.events != events {
            (row.events, row.events_since) = (events, at);
        }
    }

    /// A runtime's list was read at `at`. Returns when it was read before. None: the runtime is not followed.
    pub(in crate::engine::world) fn read(&mut self, at: Timestamp, socket: &str) -> Option<Timestamp> {
        let row = self.runtimes.get_mut(socket)?;
        self.is_changed = true;
        let before = row.read_at;
        row.read_at = before.max(at);
        Some(before)
    }

    /// The row of a sandbox or container. None: there are too many.
    pub(in crate::engine::world) fn entry(&mut self, at: Timestamp, id: &ContainerId) -> Option<&mut Belief> {
        if self.rows.len() >= ROWS && !self.rows.contains_key(id) {
            return None;
        }
        Some(self.rows.entry(id.clone()).or_insert_with(|| Belief::new(id.clone(), at)))
    }

    /// A runtime's list is only these.
    pub(in crate::engine::world) fn only_listed(
        &mut self,
        at: Timestamp,
        socket: &str,
        listed: &BTreeSet<&ContainerId>,
    ) {
        self.rows.update(|id, row| {
            let is_gone = row.socket.as_deref() == Some(socket) && !listed.contains(id);
            is_gone && row.leave(at)
        });
    }

    /// It is no longer on a runtime's list.
    pub(in crate::engine::world) fn gone(&mut self, at: Timestamp, socket: &str, id: &ContainerId) {
        if self.rows.get(id).is_some_and(|row| row.socket.as_deref() == Some(socket))
            && let Some(row) = self.rows.get_mut(id)
        {
            row.leave(at);
        }
    }

    /// Notes which events are missing, and how late this reading of a list is.
    pub(in crate::engine::world) fn note_read(&mut self, socket: &str) {
        let Some(runtime) = self.runtimes.get(socket) else { return };
        let lags = &mut self.lags;
        self.rows.update(|_, row| {
            if row.socket.as_deref() != Some(socket) {
                return false;
            }
            let ended = row.ended.filter(|it| it.code.is_some());
            if let Some(ended) = ended
                && row.listed.state == Some(Believed::Exited)
                && row.listed.since == runtime.read_at
            {
                lags.push(LagOf::Stopped, LagBy::List, runtime.read_at.since(ended.at));
            }
            let before = row.missed.len();
            row.note_missed(runtime);
            row.missed.len() != before
        });
    }

    /// A runtime's event, or what it is about, became known. The second of the two gives how late the event
    /// was.
    pub(in crate::engine::world) fn note_reported(&mut self, id: &ContainerId, is_start: bool) {
        let Some(row) = self.rows.get(id) else { return };
        let told = if is_start {
            row.started_at.zip(row.told.started_at).map(|times| (LagOf::Started, times))
        } else {
            let ended = row.ended.filter(|it| it.code.is_some());
            ended.zip(row.told.ended_at).map(|(ended, told)| (LagOf::Stopped, (ended.at, told)))
        };
        if let Some((what, (at, told))) = told {
            self.lags.push(what, LagBy::Event, told.since(at));
        }
    }

    /// Forgets what is on no list and long over.
    pub(in crate::engine::world) fn reap(&mut self, now: Timestamp) {
        let old = now.saturating_sub(MEMORY);
        self.rows.retain(|_, row| {
            let told = row.told.last.map(|(_, at)| at);
            let ended = row.ended.map(|it| it.at);
            let last = told.into_iter().chain(ended).chain([row.first_at, row.listed.since]).max();
            row.listed.state.is_some() || last > Some(old)
        });
    }

    /// When a list must be read, of a runtime that answers.
    pub(crate) fn wanted(&self, now: Timestamp) -> Option<Timestamp> {
        self.rows.values().filter_map(|row| self.wanted_of(row, now)).min()
    }

    /// When a list must be read because of this row.
    pub(crate) fn wanted_of(&self, row: &Belief, now: Timestamp) -> Option<Timestamp> {
        let runtime = self.runtime_of(row).filter(|it| it.answers())?;
        Some(row.wants(runtime, now)?.max(runtime.asked_at + BETWEEN))
    }

    pub(in crate::engine::world) fn ask(&mut self, now: Timestamp) {
        for row in self.runtimes.values_mut() {
            row.asked_at = now;
        }
    }

    /// A runtime reported an event.
    pub(in crate::engine::world) fn told(&mut self, ctx: EventContext, it: &RuntimeEvent) {
        if !self.knows(&it.socket) {
            return;
        }
        let Some(row) = self.entry(ctx.at, &it.id) else { return };
        row.socket = Some(it.socket.clone());
        row.told.last = Some((it.what, ctx.at));
        let first = match it.what {
            RuntimeEventKind::Created => return,
            RuntimeEventKind::Started => &mut row.told.started_at,
            RuntimeEventKind::Stopped | RuntimeEventKind::Deleted => &mut row.told.ended_at,
        };
        if first.is_none() {
            *first = Some(ctx.at);
            // It was late, and is not missing.
            row.missed.retain(|(what, _)| is_start(*what) != is_start(it.what));
            self.note_reported(&it.id, is_start(it.what));
        }
    }
}

impl Belief {
    pub(crate) fn is_not_ready(&self, runtime: &Runtime) -> bool {
        self.role == Some(Role::Sandbox) && self.state(runtime) == Some(Believed::Exited)
    }

    fn pod_uid(&self) -> Option<&PodUid> {
        self.described.pod.as_ref()?.uid.as_ref()
    }

    /// It left the list. Returns whether it was on it.
    fn leave(&mut self, at: Timestamp) -> bool {
        let was_there = self.listed.state.is_some();
        if was_there {
            (self.listed.state, self.listed.since) = (None, at);
        }
        was_there
    }
}

/// Whether the event says that something began.
pub(crate) fn is_start(what: RuntimeEventKind) -> bool {
    match what {
        RuntimeEventKind::Created | RuntimeEventKind::Started => true,
        RuntimeEventKind::Stopped | RuntimeEventKind::Deleted => false,
    }
}
