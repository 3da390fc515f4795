//! Decides when the world is judged, and tracks the findings.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Detection, Limits, PERIOD,
    findings::{Findings, matches_detection},
    judge::{Judge, Situation, Want},
    leaked_address::many,
    pool::{PoolCount, Pools},
    rule::Judged,
    words::Need,
};
use crate::{
    engine::{
        queued_change::QueuedChange,
        view::{ManyView, PoolView},
        world::{LookTimes, World, changed, table::record::Waiting},
    },
    model::{
        change::Finding,
        finding::{Key, LeakedAddress, Revision, Stage},
        time::Timestamp,
    },
};

/// From this number of open findings and parts of findings on, the world is judged less often.
const MANY: usize = 1000;

/// The world is judged at least once in this many [`PERIOD`]s, however many findings there are.
const RAREST: usize = 100;

/// In tests, the first looks up to this number are compared with a judgement of everything, and then each
/// look whose number is a multiple of it.
#[cfg(test)]
const SURE: u64 = 24;

#[derive(Debug, Default)]
pub(in crate::engine) struct FindingTracker {
    judge: Judge,
    findings: Findings,
    looks: LookTimes,
}

/// The information that verdicts need.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Wanted {
    pub(in crate::engine) records: bool,
    pub(in crate::engine) listing: bool,
    /// What is said about these pods.
    pub(in crate::engine) words: Vec<Need>,
}

impl FindingTracker {
    pub(in crate::engine) fn looks(&self) -> LookTimes {
        self.looks
    }

    /// Arms a look: the world changed at `at`.
    ///
    /// A change that is reported late is judged after the last look, not at its own time: otherwise the look
    /// would find again what was over by the last look.
    pub(in crate::engine) fn arm_earlier(&mut self, at: Timestamp) {
        let at = at.max(self.looks.last) + self.period();
        self.looks.due = Some(self.looks.due.map_or(at, |due| due.min(at)));
    }

    /// Sets the time of the next look.
    pub(in crate::engine) fn look_at(&mut self, at: Timestamp) {
        self.looks.due = Some(at);
    }

    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter()
    }

    pub(in crate::engine) fn get(&self, key: &Key) -> Option<&Finding> {
        self.findings.get(key)
    }

    pub(in crate::engine) fn revision(&self) -> Revision {
        self.findings.revision
    }

    /// Restores a finding from a checkpoint.
    pub(in crate::engine) fn restore(&mut self, finding: Finding) {
        self.findings.restore(finding);
    }

    pub(in crate::engine) fn restore_looks(&mut self, looks: LookTimes) {
        self.looks = looks;
    }

    /// Judges the changes of the world. Returns the events to send, and the information that verdicts need.
    pub(in crate::engine) fn detect(
        &mut self,
        world: &mut World,
        limits: &Limits,
        now: Timestamp,
    ) -> (Vec<QueuedChange>, Wanted) {
        let changed = changed::take(world);
        let world = &*world;
        let it = Situation { findings: Some(&self.findings), ..Situation::of(world, limits, now) };
        let found = self.judge.judge_changes(it, &changed);
        if changed.records {
            self.findings.learn_versions(world);
        }
        let held = self.findings.update(world, found, now);
        held.iter()
            .filter_map(|held| held.what.finding())
            .for_each(|it| self.judge.finding_changed((&it.kind).into()));
        // Findings that were left out are reported as soon as there is room.
        let room_at = self.findings.has_room_again().then_some(now);
        let due = self.judge.due_at().into_iter().chain(room_at).min().map(|at| at.max(now + self.period()));
        self.looks = LookTimes { last: now, due };
        #[cfg(test)]
        if self.findings.looks < SURE || self.findings.looks.is_multiple_of(SURE) {
            assert_eq!(self.differences(world, limits, now), Vec::<String>::new());
        }
        let wanted = Wanted {
            records: self.judge.wants(Want::Records),
            listing: self.judge.wants(Want::Listing),
            words: self.judge.words_wanted(now),
        };
        (held, wanted)
    }

    /// Returns the differences between the tracked findings and a judgement of everything. It must be called
    /// right after a look at the changes. There is a difference only if a rule or a count depends on
    /// something whose change does not mark its subject.
    pub(in crate::engine) fn differences(
        &self,
        world: &World,
        limits: &Limits,
        now: Timestamp,
    ) -> Vec<String> {
        let it = Situation { findings: Some(&self.findings), ..Situation::of(world, limits, now) };
        let (judge, found) = Judge::judge_everything(it);
        let mut anew: BTreeMap<Key, Detection> = BTreeMap::new();
        for detection in found.into_iter().flat_map(|(_, all)| all) {
            anew.entry(detection.key.clone()).or_insert(detection);
        }
        // The tracker itself makes this one.
        anew.extend(self.findings.of_left_out(now).map(|it| (it.key.clone(), it)));
        let mut differences = Vec::new();
        for (key, it) in &anew {
            match self.findings.get(key).filter(|known| known.stage != Stage::Closed) {
                Some(known) if matches_detection(known, it) => {}
                Some(known) => differences.push(format!("tracked: {known:?}\nanew: {it:?}")),
                None if self.findings.is_unreported(it) => {}
                None => differences.push(format!("not tracked: {it:?}")),
            }
        }
        let gone = self.findings.open().filter(|known| !anew.contains_key(&known.key));
        differences.extend(gone.map(|known| format!("not found anew: {known:?}")));
        if self.judge.pools != judge.pools {
            differences.push(format!("pools tracked: {:?}\nanew: {:?}", self.judge.pools, judge.pools));
        }
        differences
    }

    /// Adds the evidence so far to a finding that is about to be sent, and keeps it.
    pub(in crate::engine) fn complete(&mut self, finding: &mut Finding, world: &World) {
        self.findings.complete(finding, world);
    }

    /// Renews the evidence of findings that changed.
    pub(in crate::engine) fn renew_evidence(&mut self, world: &World) {
        self.findings.renew_evidence(world);
    }

    /// Returns how often the world is judged. The more findings there are, the longer a look takes, so it is
    /// made less often.
    fn period(&self) -> Duration {
        let times = (1 + (self.findings.number() + self.judge.size()) / MANY).min(RAREST);
        PERIOD * u32::try_from(times).unwrap_or(1)
    }

    /// Returns the sandboxes for which the records must be read again.
    pub(in crate::engine) fn waiting(&self) -> &Waiting {
        &self.judge.index.waiting
    }

    /// Returns the pools of the node's networks, counted with the leaks of the last look.
    pub(in crate::engine) fn pools(&self, world: &World, limits: &Limits) -> Vec<PoolView> {
        self.with_leaks(world, limits, |leaks| {
            Pools::count(world, leaks).iter().map(PoolCount::view).collect()
        })
    }

    /// Returns the leaks that are reported together as one finding.
    pub(in crate::engine) fn many(&self, world: &World, limits: &Limits) -> Vec<ManyView> {
        self.with_leaks(world, limits, |leaks| many::members(&self.findings, leaks))
    }

    /// Calls `view` with the leaks as of the last look. A restored engine has not looked yet, so it judges
    /// everything.
    fn with_leaks<T>(
        &self,
        world: &World,
        limits: &Limits,
        view: impl FnOnce(&Judged<LeakedAddress>) -> T,
    ) -> T {
        if self.judge.has_looked() {
            return view(&self.judge.leaks);
        }
        let it =
            Situation { findings: Some(&self.findings), ..Situation::of(world, limits, self.looks.last) };
        view(&Judge::judge_everything(it).0.leaks)
    }
}
