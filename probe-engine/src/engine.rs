//! The engine: it keeps the state of the node from facts and judges it. Its callers use four methods: `observe`,
//! `advance`, `deadline` and `poll`. The same calls give the same outputs.
//!
//! **Invariant:** nothing here does I/O or reads a clock; time is the number that the caller gives.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::wildcard_enum_match_arm)]

pub mod boot;
mod call;
pub mod count;
pub mod decode;
mod detect;
mod grouped;
pub(crate) mod held;
pub mod incident;
pub(crate) mod outbox;
pub mod share;
pub(crate) mod timeline;
pub(crate) mod timer;
pub(crate) mod tracked;
pub mod view;
pub mod world;

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

pub use call::Call;
use detect::FindingTracker;
pub use detect::{Daemons, Limits};
use share::Share;
use timeline::{Placed, Timeline};
pub use world::belief::{Lag, LagBy, LagOf};
use world::{CheckpointEntry, EngineState, World};

use crate::model::{
    change::{ChangeKind, Finding, Output},
    fact::{Fact, Observation, RingsRead},
    finding::{Key, Revision},
    id::ContainerId,
    phase::Start,
    recovery::{self, Recovery},
    time::{Nanoseconds, Timestamp},
};
use count::Counts;
use view::{BalanceView, ManyView, PodView, PoolView, ToldView};

/// How long the outbox may hold a change whose pod is not yet named.
pub(crate) const DEFAULT_HOLD: Duration = Duration::from_secs(1);

/// What the engine can be told to do differently; part of a recording's header, since replay needs the same.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// How long a change of a pod that has no name yet is held back so that it can be told with its name.
    #[serde(rename = "hold_ns")]
    #[serde_as(as = "Nanoseconds")]
    pub hold: Duration,
    /// The first sequence number to give.
    #[serde_as(as = "DisplayFromStr")]
    pub first_seq: u64,
    pub limits: Limits,
    #[serde(default)]
    pub boot: recovery::Rules,
}

impl Default for Settings {
    fn default() -> Self {
        Self { hold: DEFAULT_HOLD, first_seq: 1, limits: Limits::default(), boot: recovery::Rules::default() }
    }
}

#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    timeline: Timeline,
    world: World,
    finding_tracker: FindingTracker,
    now: Timestamp,
    rings_read: Option<RingsRead>,
}

impl Engine {
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            timeline: Timeline::default(),
            world: World::new(settings.boot.clone(), settings.first_seq),
            finding_tracker: FindingTracker::default(),
            now: Timestamp::ZERO,
            rings_read: None,
            settings,
        }
    }

    /// Makes a call that was written down, or comes from elsewhere as a value.
    pub fn call(&mut self, call: Call) {
        match call {
            Call::Observe(seen) => self.observe(seen),
            Call::Advance(now) => self.advance(now),
            Call::Restore(entry) => self.restore(*entry),
        }
    }

    /// Takes in what a source says. Records may come in any order within the watermark.
    pub fn observe(&mut self, seen: Observation) {
        if let Fact::Watermark = seen.fact {
            self.timeline.pass(seen.at);
            self.advance(seen.at);
        } else if let Fact::RingsRead(read) = seen.fact {
            self.rings_read = Some(read);
        } else {
            self.place(seen);
        }
    }

    /// Time has passed: deadlines up to `now` fall due.
    pub fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        self.catch_up();
        // Nothing is forgotten before what needs it was judged and told.
        self.judge(self.timeline.settled(self.now));
        self.flush();
        self.world.tick(self.now);
        self.flush();
    }

    /// The time that it was told last.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// When `advance` has something to do, if nothing else happens.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        let held = self.world.outbox.deadline(self.settings.hold);
        let verdict = self.finding_tracker.looks().due.map(|due| self.timeline.settles(due));
        held.into_iter().chain(self.world.timers.next()).chain(self.timeline.deadline()).chain(verdict).min()
    }

    /// Up to when it judges if it is told this time: what happened later may still come.
    #[must_use]
    pub fn settled(&self, now: Timestamp) -> Timestamp {
        self.timeline.settled(self.now.max(now))
    }

    /// The next thing to say, if any.
    pub fn poll(&mut self) -> Option<Output> {
        self.world.outbox.take()
    }

    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The pods that are here now, with what belongs to them.
    #[must_use]
    pub fn pods(&self) -> Vec<PodView> {
        self.world.pods(self.now)
    }

    /// The starts of pods: those that were complete, also of pods that are gone, and what has begun of the others.
    #[must_use]
    pub fn starts(&self) -> Vec<Start> {
        self.world.all_starts(self.now)
    }

    /// Those of pods whose sandbox lives, and the latest of the others.
    #[must_use]
    pub fn late_starts(&self, others: usize) -> Vec<Start> {
        self.world.late_starts(others, self.now)
    }

    /// How long each phase of a start takes here, of the latest starts that were seen whole.
    #[must_use]
    pub fn shares(&self) -> Vec<Share> {
        share::shares(self.world.starts.rows.iter())
    }

    /// A number that is another one when another start is complete.
    #[must_use]
    pub fn starts_revision(&self) -> u64 {
        self.world.starts.revision
    }

    /// Network namespaces that netlink would have to watch and was not asked to yet: there were too many at once.
    #[must_use]
    pub fn unwatched(&self) -> usize {
        self.world.unwatched().count()
    }

    /// When each runtime and kubelet that runs started, by the name of its program.
    #[must_use]
    pub fn daemons_since(&self) -> BTreeMap<&str, Timestamp> {
        self.world.daemons_since()
    }

    /// The pools of the node's networks, as far as their stores and the kernel tell.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolView> {
        self.finding_tracker.pools(&self.world, &self.settings.limits)
    }

    /// What became of the attachments of each plugin and network.
    #[must_use]
    pub fn balance(&self) -> Vec<BalanceView> {
        self.world.balance(self.now, self.settings.limits.leak_grace)
    }

    /// How many network namespaces the kernel has besides the node's own, as far as is known.
    #[must_use]
    pub fn netns_in_kernel(&self) -> usize {
        let host = self.world.node.host_netns;
        self.world.netns.values().filter(|row| row.is_in_kernel() && row.key.inode != host).count()
    }

    /// The leaks that are told as one finding of many.
    #[must_use]
    pub fn many(&self) -> Vec<ManyView> {
        self.finding_tracker.many(&self.world, &self.settings.limits)
    }

    /// What is wrong now, and what was a while ago; by key.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.finding_tracker.iter()
    }

    #[must_use]
    pub fn finding(&self, key: &Key) -> Option<&Finding> {
        self.finding_tracker.get(key)
    }

    /// What was told of this sandbox, as far as it is kept.
    #[must_use]
    pub fn told_of(&self, sandbox: &ContainerId) -> Option<ToldView<'_>> {
        self.world.told_of(sandbox)
    }

    /// The sockets of the runtimes that are followed over CRI.
    pub fn followed(&self) -> impl Iterator<Item = &str> {
        self.world.beliefs.runtimes().map(|row| row.socket.as_str())
    }

    /// How long runtimes took to tell what the kernel had seen, of late.
    pub fn lags(&self) -> impl Iterator<Item = &Lag> {
        self.world.beliefs.lags()
    }

    /// Files of the node at which reading hangs, and since when.
    #[must_use]
    pub fn hanging(&self) -> Vec<(String, Timestamp)> {
        self.world.coverage.hanging.iter().map(|(path, since)| (path.clone(), *since)).collect()
    }

    /// What is known of the node's recovery in this boot.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        self.world.recovery()
    }

    /// The pods of which something runs now: those that are to be back after a restart.
    #[must_use]
    pub fn running_pods(&self) -> recovery::RunningPods {
        self.world.running_pods(self.now)
    }

    /// What a first look finds wrong, whether it was told or not. Changes nothing.
    #[must_use]
    pub fn survey(&self, now: Timestamp, cleaners: Daemons) -> Vec<Finding> {
        detect::survey(&self.world, &self.settings.limits, now, cleaners)
    }

    /// Like `survey`, without the grace in which the runtime and the kubelet may clean up.
    #[must_use]
    pub fn survey_at_once(&self, now: Timestamp, cleaners: Daemons) -> Vec<Finding> {
        let limits = Limits { leak_grace: Duration::ZERO, ..self.settings.limits };
        detect::survey(&self.world, &limits, now, cleaners)
    }

    /// Numbers that change whenever a finding changes.
    #[must_use]
    pub fn findings_revision(&self) -> Revision {
        self.finding_tracker.revision()
    }

    /// Judges what changed, and then everything, and gives the differences. Tests expect none.
    pub fn differences(&mut self) -> Vec<String> {
        let (world, limits, now) = (&mut self.world, &self.settings.limits, self.now);
        let (told, _) = self.finding_tracker.detect(world, limits, now);
        told.into_iter().for_each(|held| self.world.outbox.push(held));
        self.finding_tracker.differences(&self.world, limits, now)
    }

    /// How far the hooks' rings were read, if a source has said so.
    #[must_use]
    pub fn rings_read(&self) -> Option<RingsRead> {
        self.rings_read
    }

    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.world.counts
    }

    /// About how many entries [`Self::dump`] has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.world.size() + self.finding_tracker.iter().count()
    }

    /// The number of the last event that it has given, or that of the engine from which it goes on.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.world.outbox.next_seq.saturating_sub(1)
    }

    /// Gives the next event this number, or a higher one if it was to get that.
    pub fn number_from(&mut self, seq: u64) {
        self.world.outbox.next_seq = self.world.outbox.next_seq.max(seq);
    }

    /// Goes on with other settings.
    pub fn adopt(&mut self, settings: Settings) {
        self.world.boot.adopt(settings.boot.clone());
        self.settings = settings;
    }

    /// Everything that is believed and everything that waits. A fresh engine with the same settings that takes it back by
    /// `restore`, in this order, goes on as this one would. What `poll` can give is to be taken before.
    #[must_use]
    pub fn dump(&self) -> Vec<CheckpointEntry> {
        // Each member by name, so that a new one cannot be forgotten.
        let Self { settings: _, timeline, world, finding_tracker, now, rings_read } = self;
        let world::Node { host_netns, woke_at, began_at } = world.node;
        let state = EngineState {
            now: *now,
            watermark: timeline.watermark(),
            next_seq: world.outbox.next_seq,
            told_at: world.outbox.told_at,
            waits_since: world.outbox.waits_since,
            aside: world.outbox.aside(),
            next_life: world.netns.next,
            next_pod: world.pods.next,
            host_netns,
            relisted_at: world.lists.relisted_at,
            woke_at,
            began_at,
            rings_read: *rings_read,
            looks: finding_tracker.looks(),
            watches: world.netns.watches,
            messages_asked: world.attachments.messages_asked(),
        };
        let mut rows = vec![CheckpointEntry::Engine(state)];
        rows.extend(world.dump());
        rows.extend(timeline.iter().cloned().map(|seen| CheckpointEntry::Pending(Box::new(seen))));
        rows.extend(
            finding_tracker.iter().cloned().map(|finding| CheckpointEntry::Finding(Box::new(finding))),
        );
        rows.extend(world.outbox.held().cloned().map(|held| CheckpointEntry::Held(Box::new(held))));
        rows.extend(world.outbox.asked().cloned().map(CheckpointEntry::Asked));
        rows
    }

    fn place(&mut self, seen: Observation) {
        match self.timeline.place(seen) {
            Placed::Kept => {}
            Placed::Full => {
                self.catch_up();
                self.flush();
            }
            Placed::Duplicate => self.world.counts.duplicates += 1,
            Placed::Now { seen, late } => {
                self.world.apply(seen, late);
                self.flush();
            }
        }
    }

    /// Applies the records that are due.
    fn catch_up(&mut self) {
        while let Some(seen) = self.timeline.pop(self.now) {
            // A verdict is of what had happened by its time.
            let before = seen.at.saturating_sub(Duration::from_nanos(1));
            self.judge(before.min(self.timeline.settled(self.now)));
            self.world.apply(seen, false);
            self.collect();
        }
    }

    /// A change of the world may change a verdict.
    fn collect(&mut self) {
        if let Some(at) = self.world.changed_at.take() {
            self.finding_tracker.arm_earlier(at);
        }
    }

    /// Looks for what is wrong, at the times up to this one at which there is something to look at.
    fn judge(&mut self, until: Timestamp) {
        self.collect();
        while let Some(due) = self.finding_tracker.looks().due.filter(|due| *due <= until) {
            // Nothing is known as of a time that nobody saw.
            let seen_at = self.world.coverage.seen_at(due);
            if seen_at > due {
                self.finding_tracker.look_at(seen_at);
                continue;
            }
            let (told, wanted) = self.finding_tracker.detect(&mut self.world, &self.settings.limits, due);
            if wanted.records {
                self.world.records_changed(due);
            }
            if wanted.listing {
                self.world.check(due);
            }
            self.world.poll_records(due, self.finding_tracker.waiting());
            for held in told {
                self.world.ask_programs(&held.what);
                self.world.outbox.push(held);
            }
            self.world.tick(due);
            // What a timer changed is looked at in its turn, however much later this is called.
            self.collect();
        }
    }

    fn flush(&mut self) {
        self.collect();
        while let Some(mut change) = self.world.next_change(self.now, self.settings.hold) {
            self.world.sandboxes.keep_evidence(&change);
            if let ChangeKind::FindingOpened(it)
            | ChangeKind::FindingConfirmed(it)
            | ChangeKind::FindingClosed(it) = &mut change.what
            {
                self.finding_tracker.complete(it, &self.world);
            }
            *self.world.counts.told.entry((&change.what).into()).or_default() += 1;
            self.world.counts.late += u64::from(change.late);
            self.world.outbox.tell(change);
        }
    }

    fn restore_state(&mut self, state: EngineState) {
        let EngineState {
            now,
            watermark,
            next_seq,
            told_at,
            waits_since,
            aside,
            next_life,
            next_pod,
            host_netns,
            relisted_at,
            woke_at,
            began_at,
            rings_read,
            looks,
            watches,
            messages_asked,
        } = state;
        (self.now, self.rings_read) = (now, rings_read);
        self.timeline.pass(watermark);
        self.finding_tracker.restore_looks(looks);
        let world = &mut self.world;
        world.outbox.next_seq = next_seq;
        world.outbox.told_at = told_at;
        world.outbox.waits_since = waits_since;
        world.outbox.expect_aside(aside);
        world.netns.next = next_life;
        world.netns.watches = watches;
        world.pods.next = next_pod;
        world.node = world::Node { host_netns, woke_at, began_at };
        world.lists.relisted_at = relisted_at;
        world.attachments.restore_messages_asked(messages_asked);
    }

    /// Takes back what an engine has dumped.
    pub fn restore(&mut self, row: CheckpointEntry) {
        match self.world.restore(row) {
            None => {}
            Some(CheckpointEntry::Engine(state)) => self.restore_state(state),
            Some(CheckpointEntry::Pending(seen)) => self.timeline.keep(*seen),
            Some(CheckpointEntry::Held(held)) => self.world.outbox.restore(*held),
            Some(CheckpointEntry::Finding(finding)) => self.finding_tracker.restore(*finding),
            Some(CheckpointEntry::Asked(question)) => self.world.outbox.ask(question),
            // The world has kept its own.
            Some(
                CheckpointEntry::Timer { .. }
                | CheckpointEntry::Process(_)
                | CheckpointEntry::Signal(_)
                | CheckpointEntry::Netns(_)
                | CheckpointEntry::Cgroup(_)
                | CheckpointEntry::Crowd(_)
                | CheckpointEntry::Container(_)
                | CheckpointEntry::Sandbox(_)
                | CheckpointEntry::Pod(_)
                | CheckpointEntry::Call(_)
                | CheckpointEntry::Hint(_)
                | CheckpointEntry::Name(_)
                | CheckpointEntry::Listing(_)
                | CheckpointEntry::Gap(_)
                | CheckpointEntry::Partial(_)
                | CheckpointEntry::Attachment(_)
                | CheckpointEntry::Record { .. }
                | CheckpointEntry::Attached(_)
                | CheckpointEntry::Losses(_)
                | CheckpointEntry::Hanging { .. }
                | CheckpointEntry::Release(_)
                | CheckpointEntry::Account(_)
                | CheckpointEntry::Runtime(_)
                | CheckpointEntry::Belief(_)
                | CheckpointEntry::Recovery(_)
                | CheckpointEntry::Starts(_),
            ) => {}
        }
    }
}

#[cfg(test)]
mod tests;
