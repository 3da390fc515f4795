//! Notices when a runtime or the kubelet restarts while the node runs on, and collects what it cost.
//!
//! A restart begins with the end of a process that had run for a while, and goes on until another process of the same
//! program is ready and no pod waits any more. What ends again before that belongs to the same restart, so that a daemon
//! in a crash loop is one. Programs of a runtime other than its daemon (a shim, `ctr`, `crictl`) are none.
//!
//! **Invariant:** no verdict depends on a restart. Without an open one, an event costs a look at an empty list.

pub(in crate::engine) mod held;
mod shown;

pub(super) use shown::at_socket;

use std::time::Duration;

use probe_common::runtime::Runtime;
use shown::is_work_of;

use crate::{
    engine::{
        boot::{WINDOW, network::less, report::HUNG},
        timer,
        world::{
            World,
            call::Call,
            daemon::is_kubelet,
            process::{Process, State},
            sandbox::MOMENTS,
        },
    },
    model::{
        change::{End, Question},
        id::TaskKey,
        recovery::{Daemon, DaemonEnd, KubeletListens, Restart, RestartClose, Source, TimedSource},
        time::Timestamp,
    },
};

/// How long a process must have run to be a daemon. One that was asked for its version, or that fails at once, has not.
pub(in crate::engine) const RESIDENT: Duration = Duration::from_secs(10);

/// A daemon that ends so soon after its start has not come back.
pub(in crate::engine) const LOOP: Duration = Duration::from_secs(60);

/// How long to wait for further events before a restart is looked at.
const SETTLE: Duration = Duration::from_secs(1);

/// How often a restart is looked at in which pods wait: one that is deleted waits no more.
const AGAIN: Duration = Duration::from_secs(30);

/// At most this many restarts of a boot are kept, the last ones.
pub(in crate::engine) const KEPT: usize = 32;

impl World {
    /// A process of a runtime or a kubelet of this node runs.
    pub(super) fn daemon_runs(&mut self, key: TaskKey, comm: &str, mark: TimedSource) {
        let open = &self.boot.recovery.restarts.open;
        let Some(place) = open.iter().position(|it| it.comm == comm) else { return };
        let Some(row) = open.get(place) else { return };
        let is_up = |known: TaskKey| known == key || self.processes.is_running(known);
        if !row.process.is_some_and(is_up) && is_after(row, mark) {
            self.takes_over(place, key, mark);
        }
    }

    /// A process with the name of a daemon has ended. `ended`: none if nobody saw how.
    pub(super) fn daemon_ended(&mut self, row: &Process, at: Timestamp, ended: Option<DaemonEnd>) {
        if self.is_contained(row) && !self.is_contained_kubelet(row) {
            return;
        }
        let open = &self.boot.recovery.restarts.open;
        if let Some((place, known)) = open.iter().enumerate().find(|(_, it)| it.comm == row.comm) {
            if known.process != Some(row.key) {
                return;
            }
            let lived = known.started.map_or(Duration::ZERO, |mark| at.since(mark.at));
            let is_held = known.held.iter().any(|pod| pod.until.is_none());
            if lived < LOOP || is_held {
                self.ends_again(place, row, at, ended);
                return;
            }
            let close = if known.ready().is_some() { RestartClose::AsBefore } else { RestartClose::NotReady };
            self.close_restart(place, close, at);
        }
        let is_daemon = at.since(Timestamp(row.key.start)) >= RESIDENT && self.serves_pods(&row.comm);
        if is_daemon && !self.boot.is_going_down(at) {
            self.begin_restart(row, at, ended);
        }
    }

    fn begin_restart(&mut self, row: &Process, at: Timestamp, ended: Option<DaemonEnd>) {
        let daemon = if is_kubelet(&row.comm) { Daemon::Kubelet } else { Daemon::Runtime };
        let mut before = self.running_pods(at).pods;
        before.retain(|pod| !pod.interfaces.is_empty());
        let (was, ran_since) = (self.records.with_version(row), Timestamp(row.key.start));
        let mut restart =
            Restart { ended, before, ..Restart::begun(daemon, row.comm.clone(), was, ran_since, at) };
        if daemon == Daemon::Runtime {
            let by = |call: &Call| self.runtime_of(call.call.process.parent);
            let is_its = |call: &&Call| is_counted(call) && is_its_call(by(call), &restart);
            let cut_off = self.calls.values().filter(is_its).count();
            restart.calls.cut_off = u32::try_from(cut_off).unwrap_or(u32::MAX);
        }
        self.boot.recovery.restarts.open.push(restart);
        let place = self.boot.recovery.restarts.open.len() - 1;
        self.adopt_successor(place, row.key);
        self.refresh(place, at);
        self.restart_changed(at);
    }

    /// The process that had begun ended too, or was another program with the same name.
    fn ends_again(&mut self, place: usize, row: &Process, at: Timestamp, ended: Option<DaemonEnd>) {
        let lived = at.since(Timestamp(row.key.start));
        // Asked for its version, say: nobody told it to end, and it did what it was to do.
        let is_query =
            ended.as_ref().is_some_and(|it| it.end.code == 0 && it.told.is_none()) && lived < RESIDENT;
        if let Some(restart) = self.boot.recovery.restarts.open.get_mut(place) {
            (restart.started, restart.process, restart.is) = (None, None, None);
            (restart.answers, restart.first_pod) = (None, None);
            restart.listens.clear();
            restart.noticed_at = at;
            if !is_query {
                restart.again = restart.again.saturating_add(1);
                restart.ended_again = ended;
            }
        }
        self.adopt_successor(place, row.key);
        self.restart_changed(at);
    }

    /// Another process of the program may have begun before the end of this one was known.
    fn adopt_successor(&mut self, place: usize, ended: TaskKey) {
        let Some(restart) = self.boot.recovery.restarts.open.get(place) else { return };
        let others = self.daemons_named(|comm| comm == restart.comm).filter(|row| row.key != ended);
        let began = others.map(|row| {
            let forked = TimedSource { at: Timestamp(row.key.start), source: Source::ProcStart };
            (row.executed_at.map_or(forked, TimedSource::hooked), row.key)
        });
        let next =
            began.filter(|(mark, _)| is_after(restart, *mark)).min_by_key(|(mark, key)| (mark.at, *key));
        if let Some((mark, key)) = next {
            self.takes_over(place, key, mark);
        }
    }

    fn takes_over(&mut self, place: usize, key: TaskKey, mark: TimedSource) {
        let Some(restart) = self.boot.recovery.restarts.open.get_mut(place) else { return };
        (restart.started, restart.process) = (Some(mark), Some(key));
        if restart.daemon == Daemon::Runtime {
            // Where nothing else happens, its list would be asked for only a minute later.
            self.ask(Question::Statuses);
        }
        // Its file may be another one than before.
        let path = self.processes.get(key).map(|row| row.program.filename.clone());
        if let Some(path) = path.filter(|path| path.starts_with('/')) {
            self.ask(Question::Program { path });
        }
        self.restart_changed(mark.at);
    }

    /// The OOM killer chose a daemon that has ended: it tells so later.
    pub(super) fn daemon_oom_killed(&mut self, key: TaskKey) {
        let ended_at = self.processes.get(key).and_then(|row| match row.state {
            State::Running => None,
            State::Exited { at } => Some(at),
        });
        let ends = self.boot.recovery.restarts.open.iter_mut();
        let ends = ends.flat_map(|it| [&mut it.ended, &mut it.ended_again]).flatten();
        for it in ends.filter(|it| Some(it.at) == ended_at) {
            it.end = End { oom: true, killer: None, ..it.end };
        }
    }

    /// The kubelet listens at one of its ports.
    pub(super) fn restart_listens(&mut self, at: Timestamp, key: TaskKey, port: u16) {
        let open = self.boot.recovery.restarts.open.iter_mut();
        let Some(restart) = open.into_iter().find(|it| it.process == Some(key)) else { return };
        let place = restart.listens.partition_point(|it| it.port < port);
        if restart.listens.get(place).is_none_or(|it| it.port != port) {
            restart.listens.insert(place, KubeletListens { port, at });
            self.restart_changed(at);
        }
    }

    /// Something shows that a runtime does its work: it answered, or a program was run for a container. `by`: which one.
    pub(super) fn runtime_works(&mut self, mark: TimedSource, by: Option<&'static Runtime>) {
        let is_up = |it: &&mut Restart| {
            it.daemon == Daemon::Runtime
                && it.started.is_some_and(|started| started.at <= mark.at)
                && is_work_of(by, &it.comm)
        };
        let mut is_news = false;
        for it in self.boot.recovery.restarts.open.iter_mut().filter(is_up) {
            let before = it.answers;
            TimedSource::offer(&mut it.answers, mark);
            is_news |= before != it.answers;
        }
        if is_news {
            self.restart_changed(mark.at);
        }
    }

    /// A plugin has ended that the runtime called.
    pub(super) fn restart_called(&mut self, at: Timestamp, call: &Call, end: Option<&End>) {
        if !self.boot.is_restarting() || !is_counted(call) {
            return;
        }
        let (signal, code) = end.map_or((None, 0), |end| (end.signal, end.code));
        let by = self.runtime_of(call.call.process.parent);
        let open = self.boot.recovery.restarts.open.iter_mut();
        for Restart { calls, .. } in open.filter(|it| is_its_call(by, it)) {
            let count = if signal.is_some() {
                &mut calls.killed
            } else if code != 0 {
                &mut calls.failed
            } else if at.since(call.at) >= HUNG {
                &mut calls.hung
            } else {
                continue;
            };
            *count = count.saturating_add(1);
        }
    }

    /// Something happened that may be a part of an open restart: it is looked at soon.
    pub(super) fn look_at_restarts(&mut self, at: Timestamp) {
        self.timers.arm_earlier(timer::Name::Restarts, at + SETTLE);
    }

    fn restart_changed(&mut self, at: Timestamp) {
        self.boot.recovery.revision = self.boot.recovery.revision.wrapping_add(1);
        self.look_at_restarts(at);
    }

    /// Looks at the restarts that go on.
    pub(super) fn restarts_due(&mut self, now: Timestamp) {
        for place in (0..self.boot.recovery.restarts.open.len()).rev() {
            if self.refresh(place, now) {
                self.boot.recovery.revision = self.boot.recovery.revision.wrapping_add(1);
            }
            let Some(restart) = self.boot.recovery.restarts.open.get(place) else { continue };
            match closes(restart, now) {
                Ok(close) => self.close_restart(place, close, now),
                Err(due) => self.timers.arm_earlier(timer::Name::Restarts, due),
            }
        }
    }

    fn close_restart(&mut self, place: usize, close: RestartClose, now: Timestamp) {
        if place >= self.boot.recovery.restarts.open.len() {
            return;
        }
        let mut restart = self.boot.recovery.restarts.open.remove(place);
        (restart.close, restart.closed_at) = (Some(close), Some(now));
        let is_its = |call: &Call| is_its_call(self.runtime_of(call.call.process.parent), &restart);
        let hung = |call: &&Call| is_counted(call) && now.since(call.at) >= HUNG && is_its(call);
        let hung = self.calls.values().filter(hung).count();
        restart.calls.hung = restart.calls.hung.saturating_add(u32::try_from(hung).unwrap_or(u32::MAX));
        let back = self.running_pods(now).pods;
        let held = |pod: &&_| restart.held.iter().any(|held| held.until.is_some() && held.pod.is(pod));
        restart.less_network = less(&restart.before, back.iter().filter(held));
        restart.before.clear();
        let restarts = &mut self.boot.recovery.restarts;
        restarts.past.push(restart);
        if restarts.past.len() > KEPT {
            let first = restarts.past.remove(0);
            let count = restarts.left_out.entry(first.comm.clone()).or_default();
            *count = count.saturating_add(u32::from(first.has_started()));
        }
        self.boot.recovery.revision = self.boot.recovery.revision.wrapping_add(1);
    }
}

/// Whether a process that runs since then may have taken the place of the one that ended.
fn is_after(restart: &Restart, mark: TimedSource) -> bool {
    let ended = restart.ended_again.as_ref().or(restart.ended.as_ref());
    match ended {
        Some(ended) => mark.at + mark.source.precision() >= ended.at,
        None => mark.at > restart.ran_since,
    }
}

/// Why a restart is over; else when to look again.
fn closes(restart: &Restart, now: Timestamp) -> Result<RestartClose, Timestamp> {
    let Some(started) = restart.started else {
        let due = restart.noticed_at + WINDOW;
        return if now >= due { Ok(RestartClose::Stopped) } else { Err(due) };
    };
    let (early, late) = (started.at + MOMENTS, started.at + WINDOW);
    let is_held = restart.held.iter().any(|pod| pod.until.is_none());
    match restart.ready() {
        _ if now < early => Err(early),
        Some(_) if !is_held => Ok(RestartClose::AsBefore),
        Some(_) if now >= late => Ok(RestartClose::Waiting),
        None if now >= late => Ok(RestartClose::NotReady),
        Some(_) | None => Err(late.min(now + AGAIN)),
    }
}

/// Whether a plugin that this runtime called counts for this restart. While a kubelet restarts, those of all runtimes do.
fn is_its_call(by: Option<&'static Runtime>, restart: &Restart) -> bool {
    restart.daemon == Daemon::Kubelet || is_work_of(by, &restart.comm)
}

/// Whether a call of a plugin is counted: the runtime made it, for more than the loopback.
fn is_counted(call: &Call) -> bool {
    call.top
        && call.call.ifname.as_deref() != Some("lo")
        && matches!(call.call.command.as_str(), "ADD" | "DEL")
}
