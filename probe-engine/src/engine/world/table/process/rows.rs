//! The table of processes, also by pid.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use crate::{
    engine::{
        tracked::Tracked,
        world::{
            EventContext, daemon,
            table::process::{Process, Signal, State},
        },
    },
    model::{
        change::End,
        fact::{SIGKILL, Signaled},
        id::{CgroupKey, ContainerId, TaskKey},
        recovery::Told,
        time::Timestamp,
    },
};

/// At most this many ended processes are remembered for late records.
const OVER: usize = 4096;

/// At most this many ended processes with the name of a runtime or a kubelet are kept apart: those that
/// ended last. A daemon starts again seldom; a script that asks for its version, often.
const ENDED_DAEMONS: usize = 64;

/// All processes, also by pid.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The rows are boxed because a map whose keys only rise leaves its nodes half empty.
    pub(crate) rows: Tracked<TaskKey, Box<Process>>,
    /// The pids and starts of all rows.
    pub(crate) by_pid: BTreeSet<(u32, u64)>,
    /// Root's processes that have the name of a runtime or a kubelet and have not ended. There are few, and
    /// every look of the detectors asks for them.
    pub(crate) daemons: BTreeSet<TaskKey>,
    /// The daemons that have ended, sorted by the time of their end.
    pub(crate) ended_daemons: BTreeSet<(Timestamp, TaskKey)>,
    /// The fatal signals that were sent, by target. The target may not be known as a process.
    pub(crate) signals: BTreeMap<TaskKey, Vec<Signal>>,
    /// The processes that ended, sorted by the time of their end.
    pub(crate) over: BTreeSet<(Timestamp, TaskKey)>,
}

impl Table {
    /// The keys of rows that may have changed since the last call.
    pub(in crate::engine::world) fn take_changed(&mut self) -> BTreeSet<TaskKey> {
        self.rows.take_changed()
    }

    pub(crate) fn get(&self, key: TaskKey) -> Option<&Process> {
        self.rows.get(&key).map(Box::as_ref)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Process> {
        self.rows.values().map(Box::as_ref)
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The process moved into a cgroup.
    pub(in crate::engine::world) fn enters(&mut self, key: TaskKey, cgroup: CgroupKey) {
        if let Some(row) = self.rows.get_mut(&key) {
            row.cgroup = cgroup;
        }
    }

    /// A CNI plugin runs the process as a helper.
    pub(in crate::engine::world) fn set_quiet(&mut self, key: TaskKey) {
        if let Some(row) = self.rows.get_mut(&key) {
            row.quiet = true;
        }
    }

    /// The process that last had this pid, of those that are still known.
    pub(crate) fn by_pid(&self, pid: u32) -> Option<&Process> {
        let (pid, start) = self.by_pid.range((pid, u64::MIN)..=(pid, u64::MAX)).next_back()?;
        self.get(TaskKey::new(*pid, *start))
    }

    pub(in crate::engine::world) fn insert(&mut self, process: Process) {
        self.by_pid.insert((process.key.pid, process.key.start));
        let key = process.key;
        let state = process.state;
        if self.rows.contains_key(&key) {
            self.forget_daemon(key);
        }
        if daemon::is_named(&process.comm, process.program.class) {
            self.daemons.insert(key);
        }
        let before = match self.rows.get_mut(&key) {
            Some(row) => Some(mem::replace(&mut **row, process).state),
            None => self.rows.insert(key, Box::new(process)).map(|row| row.state),
        };
        self.note_end(key, before, state);
    }

    /// The process has another state now. Nothing happens if it is not known.
    pub(in crate::engine::world) fn set_state(&mut self, key: TaskKey, state: State) {
        if let Some(row) = self.rows.get_mut(&key) {
            let before = mem::replace(&mut row.state, state);
            self.note_end(key, Some(before), state);
        }
    }

    /// Keeps the order of the ends, and forgets the first process to end if there are too many.
    fn note_end(&mut self, key: TaskKey, before: Option<State>, now: State) {
        if let Some(State::Exited { at }) = before {
            self.over.remove(&(at, key));
            if self.ended_daemons.remove(&(at, key)) {
                self.daemons.insert(key);
            }
        }
        if let State::Exited { at } = now {
            self.over.insert((at, key));
            if self.daemons.remove(&key) {
                self.ended_daemons.insert((at, key));
            }
            if self.ended_daemons.len() > ENDED_DAEMONS {
                self.ended_daemons.pop_first();
            }
        }
        if self.over.len() > OVER
            && let Some((_, first)) = self.over.first().copied()
        {
            self.remove(first);
        }
    }

    fn forget_daemon(&mut self, key: TaskKey) {
        self.daemons.remove(&key);
        if let Some(State::Exited { at }) = self.get(key).map(|row| row.state) {
            self.ended_daemons.remove(&(at, key));
        }
    }

    pub(in crate::engine::world) fn remove(&mut self, key: TaskKey) {
        self.forget_daemon(key);
        let Some(row) = self.rows.remove(&key) else { return };
        if let State::Exited { at } = row.state {
            self.over.remove(&(at, key));
        }
        self.by_pid.remove(&(key.pid, key.start));
    }

    /// The processes that ended by this time.
    pub(crate) fn over_by(&self, at: Timestamp) -> impl Iterator<Item = TaskKey> {
        self.over.iter().take_while(move |(ended, _)| *ended <= at).map(|(_, key)| *key)
    }

    pub(crate) fn has_over(&self) -> bool {
        !self.over.is_empty()
    }

    /// Root's processes that have the name of a runtime or a kubelet and have not ended, also ones in
    /// containers.
    pub(crate) fn daemons(&self) -> impl Iterator<Item = &Process> {
        self.daemons.iter().filter_map(|key| self.get(*key))
    }

    /// The daemons that ended last, and when.
    pub(crate) fn ended_daemons(&self) -> impl Iterator<Item = (Timestamp, &Process)> {
        self.ended_daemons.iter().filter_map(|(at, key)| Some((*at, self.get(*key)?)))
    }

    /// Another process that had the same pid and whose end was not seen.
    pub(crate) fn stale(&self, key: TaskKey) -> Option<TaskKey> {
        let last = self.by_pid(key.pid)?;
        (last.key < key && last.state == State::Running).then_some(last.key)
    }

    /// The containers and sandboxes for which a shim, a conmon or another program of a runtime runs now.
    pub(crate) fn monitored(&self) -> BTreeSet<&ContainerId> {
        let running = self.values().filter(|row| row.state == State::Running);
        running.filter_map(|row| row.program.about.as_ref()).collect()
    }

    /// How a process ended, with the signals that were seen before.
    pub(in crate::engine::world) fn take_end(&mut self, key: TaskKey, status: u32) -> End {
        let signal = (status & 0x7f != 0).then_some(status & 0x7f);
        let code = signal.map_or(status >> 8 & 0xff, |signal| 128 + signal);
        let mut heard = self.signals.remove(&key).unwrap_or_default();
        // A signal that names only the pid was for the process that had the pid at that time.
        let unnamed = self.signals.remove(&TaskKey::new(key.pid, 0)).unwrap_or_default();
        heard.extend(unnamed.into_iter().filter(|signal| signal.at.0 >= key.start));
        let oom = signal == Some(SIGKILL) && heard.iter().any(|heard| heard.oom);
        let killer = if oom {
            None
        } else {
            heard.into_iter().find(|heard| !heard.oom && Some(heard.signal) == signal)
        };
        End { code, signal, killer: killer.map(|killer| killer.sender), oom }
    }

    /// The process that a signal is for. Older kernels name the OOM killer's victim by its pid alone (start
    /// 0). Then it is the task that asked for memory, or the known running process with that pid, or a
    /// process with that pid to which the kernel has just sent a signal. Otherwise the pid stands for the
    /// process until it ends.
    pub(in crate::engine::world) fn target_of(&self, ctx: EventContext, it: &Signaled) -> TaskKey {
        let target = it.target.key;
        if target.start != 0 {
            return target;
        }
        if it.target.tid == it.sender.tid {
            return it.sender.key;
        }
        let running = self.by_pid(target.pid).filter(|row| row.state == State::Running);
        let known = running.map(|row| row.key).filter(|key| fits(*key, target.pid, ctx.at));
        known
            .or_else(|| self.signals.keys().rev().copied().find(|key| fits(*key, target.pid, ctx.at)))
            .unwrap_or(target)
    }

    /// The last fatal signal that a process was sent.
    pub(crate) fn last_fatal_signal(&self, key: TaskKey) -> Option<Told> {
        let heard = self.signals.get(&key)?.iter().filter(|heard| !heard.oom);
        heard.max_by_key(|heard| heard.at).map(|it| Told { signal: it.signal, by: it.sender.clone() })
    }

    pub(crate) fn is_running(&self, key: TaskKey) -> bool {
        self.get(key).is_some_and(|row| row.state == State::Running)
    }
}

/// Returns whether the process had this pid at this time and its start is known.
fn fits(key: TaskKey, pid: u32, at: Timestamp) -> bool {
    key.pid == pid && key.start != 0 && key.start <= at.0
}

#[cfg(test)]
mod tests {
    use probe_common::{event::class, id::TaskKey};

    use super::{ENDED_DAEMONS, Process, State, Table, Timestamp};

    fn started(pid: u32, comm: &str, class: u32) -> Process {
        let mut process =
            Process { key: TaskKey::new(pid, pid.into()), comm: comm.to_owned(), ..Process::default() };
        process.program.class = class;
        process
    }

    #[test]
    fn the_process_of_a_pid_is_the_last_one_that_is_known() {
        let (early, late) = (started(7, "keyed", 0), started(7, "runc", 0));
        let early = Process { key: TaskKey::new(7, 1), ..early };
        let mut table = Table::default();
        // The record of the early one may come last.
        table.insert(late.clone());
        table.insert(early.clone());
        assert_eq!(table.by_pid(7), Some(&late));
        table.remove(late.key);
        assert_eq!(table.by_pid(7), Some(&early));
        table.remove(early.key);
        assert_eq!(table.by_pid(7), None);
    }

    #[test]
    fn programs_with_the_name_of_a_daemon_that_end_do_not_add_up() {
        let (daemon, first) = (TaskKey::new(1, 1), 2);
        let mut table = Table::default();
        table.insert(started(daemon.pid, "containerd", class::CALLER));
        let count = u32::try_from(ENDED_DAEMONS).unwrap();
        for pid in first..first + 2 * count {
            let process = started(pid, "kubelet", class::CALLER);
            let key = process.key;
            table.insert(process);
            table.set_state(key, State::Exited { at: Timestamp(key.start + 1) });
        }
        // Any user may give a program that name.
        table.insert(started(first + 2 * count, "containerd", 0));
        let running: Vec<TaskKey> = table.daemons().map(|row| row.key).collect();
        assert_eq!(running, [daemon]);
        let ended: Vec<u32> = table.ended_daemons().map(|(_, row)| row.key.pid).collect();
        let last: Vec<u32> = (first + count..first + 2 * count).collect();
        assert_eq!(ended, last);
        for pid in last {
            table.remove(TaskKey::new(pid, pid.into()));
        }
        assert_eq!(table.ended_daemons().count(), 0);
    }
}
