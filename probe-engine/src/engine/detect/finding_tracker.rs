//! When to look for what is wrong, and what a look leads to.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Detection, Limits, PERIOD,
    findings::{Findings, says},
    judge::{Judge, Situation, Want},
    leaked_address::many,
    pool::{PoolCount, Pools},
};
use crate::{
    engine::{
        held::Held,
        view::{ManyView, PoolView},
        world::{LookTimes, World, record::Waiting},
    },
    model::{
        change::Finding,
        finding::{Key, Revision, Stage},
        time::Timestamp,
    },
};

/// So many open findings and parts of findings are too many to be put together as often as a few.
const MANY: usize = 1000;
/// Not even the most make it rarer than so many times [`PERIOD`].
const RAREST: usize = 100;

/// In tests so many looks are compared with full ones, and then one in so many.
#[cfg(test)]
const SURE: u64 = 24;

#[derive(Debug, Default)]
pub(in crate::engine) struct FindingTracker {
    judge: Judge,
    findings: Findings,
    looks: LookTimes,
}

/// What findings wait for.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Wanted {
    pub(in crate::engine) records: bool,
    pub(in crate::engine) listing: bool,
}

impl FindingTracker {
    pub(in crate::engine) fn looks(&self) -> LookTimes {
        self.looks
    }

    /// Arms a look: something changed at `at`.
    ///
    /// A change that is told late is looked at after the last look, not at its own time: a look back would find again what
    /// was over by the last look.
    pub(in crate::engine) fn arm_earlier(&mut self, at: Timestamp) {
        let at = at.max(self.looks.last) + self.period();
        self.looks.due = Some(self.looks.due.map_or(at, |due| due.min(at)));
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

    /// As it was before a restart.
    pub(in crate::engine) fn restore(&mut self, finding: Finding) {
        self.findings.restore(finding);
    }

    pub(in crate::engine) fn restore_looks(&mut self, looks: LookTimes) {
        self.looks = looks;
    }

    /// Looks at what changed in the world, and gives what there is to be told, and what is wanted to be sure.
    pub(in crate::engine) fn detect(
        &mut self,
        world: &mut World,
        limits: &Limits,
        now: Timestamp,
    ) -> (Vec<Held>, Wanted) {
        let changed = world.take_changed();
        let world = &*world;
        let it = Situation { told: Some(&self.findings), ..Situation::of(world, limits, now) };
        let found = self.judge.look(it, &changed);
        if changed.records {
            self.findings.learn_versions(world);
        }
        let told = self.findings.take_in(world, found, now);
        told.iter()
            .filter_map(|held| held.what.finding())
            .for_each(|it| self.judge.turned((&it.kind).into()));
        let due = self.judge.again().map(|at| at.max(now + self.period()));
        self.looks = LookTimes { last: now, due };
        #[cfg(test)]
        if self.findings.looks < SURE || self.findings.looks.is_multiple_of(SURE) {
            assert_eq!(self.differences(world, limits, now), Vec::<String>::new());
        }
        let wanted =
            Wanted { records: self.judge.wants(Want::Records), listing: self.judge.wants(Want::Listing) };
        (told, wanted)
    }

    /// In what a full look, right after one at what changed, differs from what is tracked. There is no difference, unless a
    /// rule or a count depends on something whose change does not mark its subject.
    pub(in crate::engine) fn differences(
        &self,
        world: &World,
        limits: &Limits,
        now: Timestamp,
    ) -> Vec<String> {
        let it = Situation { told: Some(&self.findings), ..Situation::of(world, limits, now) };
        let (judge, found) = Judge::anew(it);
        let mut anew: BTreeMap<Key, Detection> = BTreeMap::new();
        for detection in found.into_iter().flat_map(|(_, all)| all) {
            anew.entry(detection.key.clone()).or_insert(detection);
        }
        let mut differences = Vec::new();
        for (key, it) in &anew {
            match self.findings.get(key).filter(|known| known.stage != Stage::Closed) {
                Some(known) if says(known, it) => {}
                Some(known) => differences.push(format!("tracked: {known:?}\nanew: {it:?}")),
                None if self.findings.is_untold(it) => {}
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

    /// Adds to a finding that leaves what was told of its sandboxes until then, and keeps it with that.
    pub(in crate::engine) fn complete(&mut self, finding: &mut Finding, world: &World) {
        self.findings.complete(finding, world);
    }

    /// The more there is to put together, the longer takes a look: it is made less often.
    fn period(&self) -> Duration {
        let times = (1 + (self.findings.number() + self.judge.size()) / MANY).min(RAREST);
        PERIOD * u32::try_from(times).unwrap_or(1)
    }

    /// What only the records tell of.
    pub(in crate::engine) fn waiting(&self) -> &Waiting {
        &self.judge.index.waiting
    }

    /// The pools of the node's networks, by the leaks that the last look found.
    pub(in crate::engine) fn pools(&self, world: &World) -> Vec<PoolView> {
        Pools::count(world, &self.judge.leaks).iter().map(PoolCount::view).collect()
    }

    /// The leaks that findings of many stand for.
    pub(in crate::engine) fn many(&self) -> Vec<ManyView> {
        many::members(&self.findings, &self.judge.leaks)
    }
}
