//! The engine: it keeps the state of the node from facts and judges it. The same calls give the same outputs.
//! [`Engine`] says in which order they are made.
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
pub mod incident;
pub(crate) mod outbox;
pub(crate) mod queued_change;
pub mod share;
pub(crate) mod timeline;
pub(crate) mod timer;
pub(crate) mod tracked;
pub mod view;
pub mod world;

pub use call::Call;
pub use detect::{Daemons, Limits};
pub use world::table::belief::{Lag, LagBy, LagOf};

use std::{collections::BTreeMap, time::Duration};

use count::Counts;
use detect::{About, FindingTracker};
use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use share::Share;
use timeline::{Placed, Timeline};
use view::{BalanceView, ManyView, PodView, PoolView, ToldView};
use world::{CheckpointEntry, EngineState, World, apply, lookup, outgoing, react};

use crate::model::{
    change::{ChangeKind, Finding, Output},
    fact::{Fact, Observation, Reservation, RingsRead, Store},
    finding::{Key, Revision},
    id::ContainerId,
    phase::Start,
    recovery::{self, Recovery},
    time::{Nanoseconds, Timestamp},
};

/// How long the outbox may hold a change whose pod is not yet named.
pub(crate) const DEFAULT_HOLD: Duration = Duration::from_secs(1);

/// The engine's settings. They are part of a recording's header, since replay needs the same.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// How long a change of a pod without a name is held back, so that its event can name the pod.
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

/// The state of the node, and its judgement. Callers repeat four calls in this order:
///
/// 1. [`observe`](Self::observe) with each fact that a source reports. A watermark says that nothing earlier
///    can come, so the facts before it take effect.
/// 2. [`advance`](Self::advance) with the time, when the deadline has come.
/// 3. [`poll`](Self::poll) until it returns `None`: events, and questions for the sources.
/// 4. [`deadline`](Self::deadline), which is how long the caller may wait for further facts.
///
/// A new agent first calls [`restore`](Self::restore) with each entry of the last one's [`dump`](Self::dump),
/// and [`number_from`](Self::number_from). All methods of `&self` read what is known and change nothing.
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

    /// Makes a call that a recording has, or that another thread sent.
    pub fn call(&mut self, call: Call) {
        match call {
            Call::Observe(seen) => self.observe(seen),
            Call::Advance(now) => self.advance(now),
            Call::Restore(entry) => self.restore(*entry),
        }
    }

    /// Takes in a fact that a source reports. Records may come in any order within the watermark.
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

    /// Notes that time has passed: deadlines up to `now` fall due.
    pub fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        self.catch_up();
        // Nothing is forgotten before everything that needs it was judged and reported.
        self.judge(self.timeline.settled(self.now));
        self.flush();
        apply::timers(&mut self.world, self.now);
        self.flush();
    }

    /// Returns the time of the last call of `advance`.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns when `advance` has something to do, if nothing else happens.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        let held = self.world.outbox.deadline(self.settings.hold);
        let verdict = self.finding_tracker.looks().due.map(|due| self.timeline.settles(due));
        held.into_iter().chain(self.world.timers.next()).chain(self.timeline.deadline()).chain(verdict).min()
    }

    /// Returns the time up to which it judges if it advances to `now`: facts of later times may still come.
    #[must_use]
    pub fn settled(&self, now: Timestamp) -> Timestamp {
        self.timeline.settled(self.now.max(now))
    }

    /// Returns the next event or question, if there is one.
    pub fn poll(&mut self) -> Option<Output> {
        self.world.outbox.take()
    }

    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the pods that are here now, with what belongs to them.
    #[must_use]
    pub fn pods(&self) -> Vec<PodView> {
        view::pods(&self.world, self.now)
    }

    /// Returns the starts of pods: the complete ones, also of pods that are gone, and what has begun of the
    /// others.
    #[must_use]
    pub fn starts(&self) -> Vec<Start> {
        view::all_starts(&self.world, self.now)
    }

    /// Returns the starts of pods whose sandbox lives, and the latest `others` of the other starts.
    #[must_use]
    pub fn late_starts(&self, others: usize) -> Vec<Start> {
        view::late_starts(&self.world, others, self.now)
    }

    /// Returns how long each phase of a start takes on this node, by the latest starts that were seen whole.
    #[must_use]
    pub fn shares(&self) -> Vec<Share> {
        share::shares(self.world.starts.rows.iter())
    }

    /// Returns a number that changes whenever a start completes.
    #[must_use]
    pub fn starts_revision(&self) -> u64 {
        self.world.starts.revision
    }

    /// Returns the number of network namespaces that netlink should watch and was not asked to watch yet,
    /// because there were too many at once.
    #[must_use]
    pub fn unwatched(&self) -> usize {
        lookup::netns::unwatched(&self.world).count()
    }

    /// Returns when each running runtime and kubelet started, by the name of its program.
    #[must_use]
    pub fn daemons_since(&self) -> BTreeMap<&str, Timestamp> {
        lookup::daemons::since(&self.world)
    }

    /// Returns the pools of the node's networks, as far as their stores and the kernel show them.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolView> {
        self.finding_tracker.pools(&self.world, &self.settings.limits)
    }

    /// Returns what became of the attachments of each plugin and network.
    #[must_use]
    pub fn balance(&self) -> Vec<BalanceView> {
        lookup::balance::views(&self.world, self.now, self.settings.limits.leak_grace)
    }

    /// Returns how many network namespaces the kernel has besides the node's own, as far as is known.
    #[must_use]
    pub fn netns_in_kernel(&self) -> usize {
        let host = self.world.node.host_netns;
        self.world.netns.values().filter(|row| row.is_in_kernel() && row.key.inode != host).count()
    }

    /// Returns the leaks that are reported as one finding of many.
    #[must_use]
    pub fn many(&self) -> Vec<ManyView> {
        self.finding_tracker.many(&self.world, &self.settings.limits)
    }

    /// Returns the open findings, and those that closed a while ago, by key.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.finding_tracker.iter()
    }

    #[must_use]
    pub fn finding(&self, key: &Key) -> Option<&Finding> {
        self.finding_tracker.get(key)
    }

    /// Returns the events that were reported about this sandbox, as far as they are kept.
    #[must_use]
    pub fn told_of(&self, sandbox: &ContainerId) -> Option<ToldView<'_>> {
        view::told_of(&self.world, sandbox)
    }

    /// Returns the sockets of the runtimes that are followed over CRI.
    pub fn followed(&self) -> impl Iterator<Item = &str> {
        self.world.beliefs.runtimes().map(|row| row.socket.as_str())
    }

    /// Returns the IPAM stores that were read last.
    pub fn stores(&self) -> impl Iterator<Item = &Store> {
        self.world.records.stores.values().map(|(_, read)| &read.store)
    }

    /// Returns the stores that are asked about single addresses.
    pub fn asked(&self) -> impl Iterator<Item = &Store> {
        let records = &self.world.records;
        records.links.keys().filter_map(|path| Some(&records.stores.get(path)?.1.store))
    }

    /// Returns how long runtimes recently took to report what the kernel had seen.
    pub fn lags(&self) -> impl Iterator<Item = &Lag> {
        self.world.beliefs.lags()
    }

    /// Returns the files of the node at which reading hangs, and since when.
    #[must_use]
    pub fn hanging(&self) -> Vec<(String, Timestamp)> {
        self.world.coverage.hanging.iter().map(|(path, since)| (path.clone(), *since)).collect()
    }

    /// Returns what is known of the node's recovery in this boot.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        &self.world.boot.recovery
    }

    /// Returns the pods of which something runs now. They are to be back after a restart.
    #[must_use]
    pub fn running_pods(&self) -> recovery::RunningPods {
        lookup::recovery::running_pods(&self.world, self.now)
    }

    /// Returns what is wrong now, whether it was reported or not. Changes nothing.
    #[must_use]
    pub fn survey(&self, now: Timestamp, cleaners: Daemons) -> Vec<Finding> {
        detect::survey(&self.world, &self.settings.limits, now, cleaners)
    }

    /// Returns the same as [`survey`](Self::survey), without the grace in which the runtime and the kubelet
    /// may clean up.
    #[must_use]
    pub fn survey_at_once(&self, now: Timestamp, cleaners: Daemons) -> Vec<Finding> {
        let limits = Limits { leak_grace: Duration::ZERO, ..self.settings.limits };
        detect::survey(&self.world, &limits, now, cleaners)
    }

    /// Returns the reservations that no rule judges, with their stores: they name no sandbox of a pod.
    pub fn unjudged(&self) -> impl Iterator<Item = (&Store, &Reservation)> {
        detect::unjudged(&self.world)
    }

    /// Returns numbers that change whenever a finding changes.
    #[must_use]
    pub fn findings_revision(&self) -> Revision {
        self.finding_tracker.revision()
    }

    /// Judges what changed, and then everything, and returns the differences. Tests expect none.
    pub fn differences(&mut self) -> Vec<String> {
        let world = &mut self.world;
        let limits = &self.settings.limits;
        let now = self.now;
        let (told, _) = self.finding_tracker.detect(world, limits, now);
        told.into_iter().for_each(|held| self.world.outbox.push(held));
        self.finding_tracker.differences(&self.world, limits, now)
    }

    /// Returns how far the hooks' rings were read, if a source has reported it.
    #[must_use]
    pub fn rings_read(&self) -> Option<RingsRead> {
        self.rings_read
    }

    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.world.counts
    }

    /// Returns about how many entries [`Self::dump`] has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.world.size() + self.finding_tracker.iter().count()
    }

    /// Returns the number of the last event, of this engine or of the one that it continues.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.world.outbox.next_seq.saturating_sub(1)
    }

    /// Gives the next event at least this number.
    pub fn number_from(&mut self, seq: u64) {
        self.world.outbox.next_seq = self.world.outbox.next_seq.max(seq);
    }

    /// Continues with other settings.
    pub fn adopt(&mut self, settings: Settings) {
        self.world.boot.adopt(settings.boot.clone());
        self.settings = settings;
    }

    /// Returns everything that is believed and everything that waits. A fresh engine with the same settings
    /// that takes it back by `restore`, in this order, continues as this one would. What `poll` can give must
    /// be taken before.
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
            unheard_until: world.netns.unheard_until,
            messages_asked: world.attachments.messages_asked(),
        };
        // Reserves enough room at once: a vector that grows holds its old rows beside the new ones.
        let mut rows = Vec::with_capacity(self.size() * 9 / 8 + 64);
        rows.push(CheckpointEntry::Engine(Box::new(state)));
        world.dump(&mut rows);
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
                apply::fact(&mut self.world, seen, late);
                self.flush();
            }
        }
    }

    /// Applies the records that are due.
    fn catch_up(&mut self) {
        while let Some(seen) = self.timeline.pop(self.now) {
            // A verdict counts only what had happened by its time.
            let before = seen.at.saturating_sub(Duration::from_nanos(1));
            self.judge(before.min(self.timeline.settled(self.now)));
            apply::fact(&mut self.world, seen, false);
            self.collect();
        }
    }

    /// Schedules a judgement if the world changed, since that may change a verdict.
    fn collect(&mut self) {
        if let Some(at) = self.world.changed_at.take() {
            self.finding_tracker.arm_earlier(at);
        }
    }

    /// Judges the world at each time up to this one at which a verdict may have changed.
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
                react::reading::soon(&mut self.world, due);
            }
            if wanted.listing {
                react::gap::check(&mut self.world, due);
            }
            // After a jump of the time the logs are searched once.
            for need in wanted.words {
                let now = self.now.max(due);
                match need.about {
                    About::Pod(pod, container) => {
                        react::words::ask(&mut self.world, pod, container, need.since, now);
                    }
                    About::Daemon(comm) => {
                        react::words::ask_daemon(&mut self.world, &comm, need.since, now);
                    }
                    About::Call(key) => react::cni::look(&mut self.world, key, now),
                }
            }
            react::reading::poll(&mut self.world, due, self.finding_tracker.waiting());
            for held in told {
                react::program::ask_programs(&mut self.world, &held.what);
                self.world.outbox.push(held);
            }
            apply::timers(&mut self.world, due);
            // Changes by a timer are judged in their turn, however much later this is called.
            self.collect();
        }
    }

    fn flush(&mut self) {
        self.collect();
        while let Some(mut change) = outgoing::next_change(&mut self.world, self.now, self.settings.hold) {
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
        self.finding_tracker.renew_evidence(&self.world);
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
            unheard_until,
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
        world.netns.unheard_until = unheard_until;
        world.pods.next = next_pod;
        world.node = world::Node { host_netns, woke_at, began_at };
        world.lists.relisted_at = relisted_at;
        world.attachments.restore_messages_asked(messages_asked);
    }

    /// Restores an entry that an engine has dumped.
    pub fn restore(&mut self, row: CheckpointEntry) {
        match self.world.restore(row) {
            None => {}
            Some(CheckpointEntry::Engine(state)) => self.restore_state(*state),
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
                | CheckpointEntry::Failing(_)
                | CheckpointEntry::Starts(_),
            ) => {}
        }
    }
}

#[cfg(test)]
mod tests;
