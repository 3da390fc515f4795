//! Forgets the rows of ended things after a while.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    engine::{
        timer,
        world::{
            World,
            attachment::Lease,
            cgroup, container, pod, process, rebuild,
            record::HasRecord,
            sandbox::{self, Sandbox},
        },
    },
    model::{
        fact::Signal,
        id::{ContainerId, TaskKey},
        time::Timestamp,
    },
};

/// How long the row of an ended thing is kept, so that late records still find its name.
pub(in crate::engine) const GRACE: Duration = Duration::from_secs(60);

/// How long a daemon may take to end when it was told to. systemd kills it after 90 s, unless its unit says otherwise. One that
/// runs on after this time did not obey.
pub(in crate::engine) const STOPPING: Duration = Duration::from_secs(5 * 60);

/// The tables are searched for old rows at most this often.
const EVERY: Duration = Duration::from_secs(10);

/// At most this many processes are remembered. There can be as many only if every exec is seen and the ends are lost.
const PROCESSES: usize = 65_536;

/// How long a stopped sandbox is remembered for verdicts.
pub(in crate::engine) const MEMORY: Duration = Duration::from_secs(15 * 60);

/// How long a stopped sandbox without containers is remembered. If three such sandboxes were made within the window,
/// the first is needed as long as the last.
const UNUSED: Duration = Duration::from_secs(15 * 60).saturating_add(rebuild::WINDOW);

/// How long the evidence of a stopped sandbox is kept if no record holds an address for it.
const SETTLED: Duration = Duration::from_secs(3 * 60);

impl World {
    pub(super) fn reap(&mut self, now: Timestamp) {
        // What waits to be told needs the rows of its time. A new agent takes minutes at once, and tells them at their end.
        let past = self.outbox.held().map(|held| held.at).fold(now, Timestamp::min);
        let old = past.saturating_sub(GRACE);
        self.reap_processes(old);
        self.reap_signals(past, old);
        let end_told =
            self.coverage.attached.get(&Signal::NetnsFreed).is_none_or(|it| it.mechanism.is_some());
        self.netns.reap(old, end_told);
        self.reap_containers(past, old);
        self.cgroups.reap(old);
        self.judge_releases(now);
        self.reap_remembered(past);
        self.hints.retain(|_, hint| hint.at > old);
        self.pods.names.retain(|_, name| name.at > old);
        if self.has_dead() {
            self.timers.arm_earlier(timer::Name::Reap, now + EVERY);
        }
    }

    fn reap_processes(&mut self, old: Timestamp) {
        let mut gone: Vec<_> = self.processes.over_by(old).collect();
        let excess = (self.processes.len() - gone.len()).saturating_sub(PROCESSES);
        if excess > 0 {
            // The processes with the lowest keys are the ones that began first.
            let over =
                |row: &process::Process| matches!(row.state, process::State::Exited { at } if at <= old);
            let is_kept = |row: &&process::Process| !over(row) && !self.calls.contains_key(&row.key);
            gone.extend(self.processes.values().filter(is_kept).map(|row| row.key).take(excess));
        }
        for key in gone {
            self.processes.remove(key);
        }
    }

    /// A runtime that was told to end may wait for its calls first: what it gave up then is no failure of theirs.
    fn reap_signals(&mut self, now: Timestamp, old: Timestamp) {
        let running = self.processes.daemons().map(|row| row.key);
        let may_wait: BTreeSet<TaskKey> = running.chain(self.callers()).collect();
        let stopping = now.saturating_sub(STOPPING);
        let is_kept = |it: &process::Signal| {
            it.at > old || it.at > stopping && it.tells_to_end() && may_wait.contains(&it.target)
        };
        self.processes.signals.retain(|_, heard| {
            heard.retain(is_kept);
            !heard.is_empty()
        });
    }

    fn reap_containers(&mut self, now: Timestamp, old: Timestamp) {
        let cgroups = &self.cgroups;
        let has_cgroup = |row: &container::Container| {
            row.cgroup.and_then(|key| cgroups.get(&key)).is_some_and(cgroup::Cgroup::is_live)
        };
        let sandboxes = &self.sandboxes;
        self.containers.reap(old, has_cgroup, |id| sandboxes.get(id).is_some_and(|row| !row.is_stopped()));
        // A namespace that outlives its sandbox still belongs to it, unless no listing has it.
        let (containers, netns) = (&self.containers, &self.netns);
        let is_unlisted = |life: u64| netns.get(life).is_none_or(|row| row.is_live() && !row.may_be_used());
        self.sandboxes.remember(now, |row| {
            row.over_at().is_some_and(|at| at <= old)
                && !containers.contains_key(&row.id)
                && row.network.netns.is_none_or(is_unlisted)
        });
        let is_named = |id: u64| {
            self.containers.group(container::Group::Pod(id)).next().is_some()
                || self.sandboxes.group(sandbox::Group::Pod(id)).next().is_some()
        };
        let over = |row: &&pod::Pod| matches!(row.state, pod::State::Gone { at } if at <= old);
        let gone: Vec<_> = self.pods.values().filter(over).map(|row| row.id).collect();
        let unnamed: Vec<u64> = gone.into_iter().filter(|id| !is_named(*id)).collect();
        for id in unnamed {
            self.pods.remove(id);
        }
    }

    /// Forgets old sandboxes and attachments that no verdict can need any more.
    fn reap_remembered(&mut self, now: Timestamp) {
        let old = now.saturating_sub(MEMORY);
        let (sandboxes, records) = (&self.sandboxes, &self.records);
        let precedents = self.precedents();
        let lives = |id: &ContainerId| {
            sandboxes.get(id).is_some_and(|row| !row.is_stopped()) || precedents.contains(id)
        };
        let is_unused =
            |id: &ContainerId| sandboxes.recall(id).is_some_and(|row| row.containers().is_empty());
        let old_of = |id: &ContainerId| if is_unused(id) { now.saturating_sub(UNUSED) } else { old };
        let forgotten =
            self.attachments.reap(old_of, |id| lives(id) || records.has_record(id) == HasRecord::Yes);
        self.close_entries(now, forgotten);
        self.reap_tries(now, &precedents);
        let records = &self.records;
        let lives = |id: &ContainerId| precedents.contains(id) || records.has_record(id) == HasRecord::Yes;
        let attachments = &self.attachments;
        let leased = |id: &ContainerId| {
            let mut all =
                attachments.range((id.clone(), String::new())..).take_while(|((key, _), _)| key == id);
            all.any(|(_, row)| !row.leases.is_empty())
        };
        let on_record = |id: &ContainerId| {
            let mut all =
                attachments.range((id.clone(), String::new())..).take_while(|((key, _), _)| key == id);
            all.any(|(_, row)| row.leases.iter().any(Lease::may_be_on_record))
        };
        // No verdict on a sandbox is expected once it ended a while ago and no record holds an address for it. Only the
        // row stays.
        let settled = now.saturating_sub(SETTLED);
        self.sandboxes
            .drop_evidence(|row| row.over_at().is_some_and(|at| at <= settled) && !on_record(&row.id));
        let is_old = |row: &Sandbox| {
            let old = if row.containers().is_empty() { now.saturating_sub(UNUSED) } else { old };
            row.over_at().is_some_and(|at| at <= old)
        };
        // What outlives its sandbox is told with the name of its pod.
        let kept: BTreeSet<&ContainerId> = self
            .netns
            .values()
            .filter(|row| row.unlisted_since.is_some() && row.is_live())
            .filter_map(|row| row.sandbox.as_ref())
            .collect();
        let is_done = |row: &&Sandbox| {
            let is_needed = lives(&row.id) || leased(&row.id) || kept.contains(&row.id);
            row.is_remembered() && is_old(row) && !is_needed
        };
        let mut done: BTreeSet<ContainerId> =
            self.sandboxes.all().filter(is_done).map(|row| row.id.clone()).collect();
        // This set is made only if it is needed, because there are many processes.
        if !done.is_empty() {
            let served: Vec<ContainerId> = self.processes.monitored().into_iter().cloned().collect();
            served.iter().for_each(|id| {
                done.remove(id);
            });
        }
        self.sandboxes.forget(|row| !done.contains(&row.id));
    }

    /// Whether a row is waiting to be forgotten.
    fn has_dead(&self) -> bool {
        !self.hints.is_empty()
            || !self.pods.names.is_empty()
            || !self.processes.signals.is_empty()
            || self.sandboxes.all().any(Sandbox::is_stopped)
            || self.attachments.values().any(|row| !row.leases.iter().any(Lease::is_vouched))
            || self.processes.has_over()
            || self.netns.values().any(|row| !row.is_live())
            || self.cgroups.values().any(|row| !row.is_live())
            || self.containers.values().any(|row| !row.is_running())
            || self.pods.values().any(|row| !row.is_present())
    }
}
