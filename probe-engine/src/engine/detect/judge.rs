//! Judges the changes: updates the index, judges the subjects that the changes concern and those that are
//! due, and returns the detections by kind. It leaves out kinds whose detections cannot have changed.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    mem,
};

use super::{
    Abandoned, DetectContext, Findings, Found, Limits, Verdict, abandoned_store, detectors,
    index::Index,
    leaked_address,
    pool::Pools,
    pool_exhaustion,
    rule::{Detector, Judged, Scope},
    words::{self, About, Need},
};
use crate::{
    engine::world::{
        World,
        changed::{self, Changed},
        lookup,
        table::record::HasRecord,
    },
    model::{
        fact::{List, Store},
        finding::{FindingKind, LeakedAddress},
        time::Timestamp,
    },
};

#[derive(Debug)]
pub(super) struct Judge {
    pub(super) index: Index,
    node: Option<Node>,
    /// The pools are counted by these leaks as well.
    pub(super) leaks: Judged<LeakedAddress>,
    pub(super) pools: Pools,
    detectors: Vec<Box<dyn Detector>>,
    /// When the detections of each kind must be put together again, even if nothing changes.
    due_at: BTreeMap<FindingKind, Timestamp>,
    /// The kinds whose findings changed at the last look. Their detections may be put together differently
    /// now.
    changed_kinds: BTreeSet<FindingKind>,
    wanted: BTreeSet<(FindingKind, Want)>,
    /// The words that the detections of each kind need.
    words: BTreeMap<FindingKind, Vec<Need>>,
}

/// The information that a verdict needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Want {
    Records,
    Listing,
}

/// The lists on which any verdict may depend.
const LISTS: [List; 3] = [List::Processes, List::Netns, List::Cgroups];

/// The state of the whole node on which any verdict may depend.
#[derive(Debug, PartialEq)]
struct Node {
    unread: bool,
    records_whole: bool,
    gapped: [bool; 3],
    partial: [bool; 3],
    has_doubted_addresses: bool,
    kubelet: bool,
    crio: bool,
    host_netns: u32,
    has_no_loopback: bool,
    runtimes_since: Option<Timestamp>,
    stores: Vec<(Store, bool)>,
    abandoned: Abandoned,
    /// The networks whose addresses a store is asked about.
    asked: Vec<String>,
    up: Option<Timestamp>,
    relisted_at: Option<Timestamp>,
    woke_at: Timestamp,
}

/// The input of a look.
#[derive(Clone, Copy)]
pub(super) struct Situation<'a> {
    pub(super) world: &'a World,
    pub(super) limits: &'a Limits,
    pub(super) now: Timestamp,
    /// Since when the runtimes and the kubelet have been up to clean up.
    pub(super) up: Option<Timestamp>,
    /// The findings so far. None: this is a single look without a tracker.
    pub(super) findings: Option<&'a Findings>,
}

impl<'a> Situation<'a> {
    pub(super) fn of(world: &'a World, limits: &'a Limits, now: Timestamp) -> Self {
        let up = lookup::daemons::cleaners_since(world).map(|at| at.max(world.node.woke_at));
        Self { world, limits, now, up, findings: None }
    }
}

impl Default for Judge {
    fn default() -> Self {
        Self {
            index: Index::default(),
            node: None,
            leaks: Judged::default(),
            pools: Pools::default(),
            detectors: detectors(),
            due_at: BTreeMap::new(),
            changed_kinds: BTreeSet::new(),
            wanted: BTreeSet::new(),
            words: BTreeMap::new(),
        }
    }
}

impl Judge {
    /// Judges everything, as if it were the first look.
    pub(super) fn judge_everything(it: Situation<'_>) -> (Self, Vec<Found>) {
        let mut judge = Self::default();
        let found = judge.judge_changes(it, &changed::all(it.world));
        (judge, found)
    }

    pub(super) fn judge_changes(&mut self, it: Situation<'_>, changed: &Changed) -> Vec<Found> {
        let marks = self.index.update(it.world, changed);
        let pods = OnceCell::new();
        let none = Abandoned::new();
        let abandoned = abandoned_store::abandoned(&DetectContext::of(it, &self.index, &none, &pods));
        let ctx = DetectContext::of(it, &self.index, &abandoned, &pods);
        let node = Node::of(&ctx, &abandoned);
        let scope = Scope { everything: self.node.as_ref() != Some(&node), records: changed.records, marks };
        self.node = Some(node);
        let was_full = it.findings.is_some_and(|findings| findings.is_full());
        // How detections are put together depends on the open findings and on the time.
        let mut due = mem::take(&mut self.changed_kinds);
        due.extend(self.due_at.iter().filter(|(_, at)| **at <= it.now).map(|(kind, _)| *kind));
        let gathers_all = was_full || scope.everything;
        let mut found: Vec<Found> = Vec::new();
        let is_leak_changed = self.leaks.update(&ctx, &scope);
        if is_leak_changed || gathers_all || due.contains(&FindingKind::LeakedAddress) {
            let mut all = Vec::new();
            leaked_address::gather(&ctx, &self.leaks, &mut all);
            found.push((FindingKind::LeakedAddress, all));
        }
        for detector in &mut self.detectors {
            let is_changed = detector.update(&ctx, &scope);
            if is_changed || gathers_all || due.contains(&detector.kind()) {
                let mut all = Vec::new();
                detector.gather(&ctx, &mut all);
                found.push((detector.kind(), all));
            }
        }
        self.pools.update(&ctx, &scope, &self.leaks, is_leak_changed);
        // Pools are judged only if the use of an address may have changed.
        let is_counted = is_leak_changed || scope.records || !scope.marks.addresses.is_empty();
        if is_counted || gathers_all || due.contains(&FindingKind::PoolExhaustion) {
            let mut all = Vec::new();
            pool_exhaustion::detect(&ctx, &self.pools, &mut all);
            found.push((FindingKind::PoolExhaustion, all));
        }
        self.note(it.world, &found);
        found
    }

    /// Remembers the information that the verdicts need.
    fn note(&mut self, world: &World, found: &[Found]) {
        for (kind, all) in found {
            for want in [Want::Records, Want::Listing] {
                self.wanted.remove(&(*kind, want));
            }
            self.wanted.extend(all.iter().filter_map(|it| Some((*kind, it.verdict.wants()?))));
            let needs: Vec<Need> = all.iter().filter_map(|it| words::need(world, it)).collect();
            self.due_at.remove(kind);
            let due_at = all.iter().filter_map(|it| it.verdict.due_at());
            let due_at = due_at.chain(needs.iter().map(|it| it.due_at)).min();
            self.words.insert(*kind, needs);
            self.due_at.extend(due_at.map(|at| (*kind, at)));
        }
    }

    pub(super) fn has_looked(&self) -> bool {
        self.node.is_some()
    }

    /// Returns when to judge again if nothing changes.
    pub(super) fn due_at(&self) -> Option<Timestamp> {
        let rules = self.detectors.iter().filter_map(|it| it.due_at()).chain(self.leaks.due_at());
        rules.chain(self.due_at.values().copied()).min()
    }

    pub(super) fn wants(&self, want: Want) -> bool {
        self.wanted.iter().any(|(_, it)| *it == want)
    }

    /// Returns the words that are needed now.
    pub(super) fn words_wanted(&self, now: Timestamp) -> Vec<Need> {
        let mut wanted: BTreeMap<&About, &Need> = BTreeMap::new();
        for need in self.words.values().flatten().filter(|it| it.due_at <= now) {
            // Several findings can be about one pod.
            let latest = wanted.entry(&need.about).or_insert(need);
            if latest.since < need.since {
                *latest = need;
            }
        }
        wanted.into_values().cloned().collect()
    }

    /// Notes that a finding of this kind opened, was confirmed or closed.
    pub(super) fn finding_changed(&mut self, kind: FindingKind) {
        self.changed_kinds.insert(kind);
    }

    /// Returns how many subjects with detections a look puts together.
    pub(super) fn size(&self) -> usize {
        self.leaks.len() + self.detectors.iter().map(|it| it.size()).sum::<usize>()
    }
}

impl Node {
    fn of(ctx: &DetectContext<'_>, abandoned: &Abandoned) -> Self {
        let world = ctx.world;
        let stores = world.records.stores.values().map(|(_, read)| (read.store.clone(), read.complete));
        let asked = world.records.networks().iter().filter(|it| world.records.asked_store(it).is_some());
        Self {
            unread: ctx.unread,
            records_whole: world.records.absent() != HasRecord::Unknown,
            gapped: LISTS.map(|list| world.lists.is_gapped(list)),
            partial: LISTS.map(|list| world.lists.partial.contains_key(&list)),
            has_doubted_addresses: world.lists.in_doubt_until(List::Addresses).is_some(),
            kubelet: lookup::daemons::has_kubelet(world),
            crio: lookup::daemons::has_crio(world),
            host_netns: world.node.host_netns,
            has_no_loopback: world.records.no_loopback_since.is_some(),
            runtimes_since: lookup::daemons::runtimes_since(world),
            stores: stores.collect(),
            abandoned: abandoned.clone(),
            asked: asked.map(|it| it.name.clone()).collect(),
            up: ctx.up,
            relisted_at: world.lists.relisted_at,
            woke_at: world.node.woke_at,
        }
    }
}

impl Verdict {
    /// Returns when the subject is judged again if nothing changes.
    pub(super) fn due_at(self) -> Option<Timestamp> {
        match self {
            Self::Watched { until } | Self::Candidate { until } => until,
            Self::Passing { until } => Some(until),
            Self::Unsure | Self::Unverified | Self::Unlisted | Self::Confirmed => None,
        }
    }

    fn wants(self) -> Option<Want> {
        match self {
            Self::Unverified => Some(Want::Records),
            Self::Unlisted => Some(Want::Listing),
            Self::Watched { .. }
            | Self::Candidate { .. }
            | Self::Passing { .. }
            | Self::Unsure
            | Self::Confirmed => None,
        }
    }
}
