//! Looks at what changed: takes it into the index, judges the subjects that it is about and those whose time is up, and
//! gives what is wrong by kind. A kind of which nothing can have changed is left out.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    mem,
};

use super::{
    DetectContext, Detection, Findings, Found, Limits, Verdict,
    abandoned_store::{self, Abandoned},
    detectors,
    index::Index,
    leaked_address,
    pool::Pools,
    pool_exhaustion,
    rule::{Detector, Judged, Scope},
};
use crate::{
    engine::world::{World, changed::Changed, record::Kept},
    model::{
        fact::{List, StoreKind},
        finding::{FindingKind, LeakedAddress},
        time::Timestamp,
    },
};

#[derive(Debug)]
pub(super) struct Judge {
    pub(super) index: Index,
    node: Option<(Node, Mends)>,
    /// Also the pools are counted by them.
    pub(super) leaks: Judged<LeakedAddress>,
    pub(super) pools: Pools,
    detectors: Vec<Box<dyn Detector>>,
    /// When what was put together of each kind is to be looked at again, though nothing changes.
    again: BTreeMap<FindingKind, Timestamp>,
    /// Kinds whose findings turned at the last look: how they are put together may be another one now.
    turned: BTreeSet<FindingKind>,
    wanted: BTreeSet<(FindingKind, Want)>,
}

/// What a verdict waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Want {
    Records,
    Listing,
}

/// What is the same for all subjects. If it changes, any verdict may.
#[derive(Debug, PartialEq)]
struct Node {
    unread: bool,
    records_whole: bool,
    gapped: [bool; 2],
    kubelet: bool,
    crio: bool,
    host_netns: u32,
    runtimes_since: Option<Timestamp>,
    stores: Vec<(String, Option<String>, StoreKind, bool)>,
    abandoned: Abandoned,
}

/// The same of what can turn only what was found already.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mends {
    up: Option<Timestamp>,
    relisted_at: Option<Timestamp>,
    woke_at: Timestamp,
}

/// What a look is made by.
#[derive(Clone, Copy)]
pub(super) struct Situation<'a> {
    pub(super) world: &'a World,
    pub(super) limits: &'a Limits,
    pub(super) now: Timestamp,
    /// Since when those run who clean up.
    pub(super) up: Option<Timestamp>,
    /// What was told before; nothing where nobody watches.
    pub(super) told: Option<&'a Findings>,
}

impl<'a> Situation<'a> {
    pub(super) fn of(world: &'a World, limits: &'a Limits, now: Timestamp) -> Self {
        let up = world.cleaners_since().map(|at| at.max(world.node.woke_at));
        Self { world, limits, now, up, told: None }
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
            again: BTreeMap::new(),
            turned: BTreeSet::new(),
            wanted: BTreeSet::new(),
        }
    }
}

impl Judge {
    /// Everything, as if nothing had been looked at before.
    pub(super) fn anew(it: Situation<'_>) -> (Self, Vec<Found>) {
        let mut judge = Self::default();
        let found = judge.look(it, &it.world.all_rows());
        (judge, found)
    }

    pub(super) fn look(&mut self, it: Situation<'_>, changed: &Changed) -> Vec<Found> {
        let marks = self.index.update(it.world, changed);
        let pods = OnceCell::new();
        let none = Abandoned::new();
        let abandoned = abandoned_store::abandoned(&DetectContext::of(it, &self.index, &none, &pods));
        let ctx = DetectContext::of(it, &self.index, &abandoned, &pods);
        let node = Node::of(&ctx, &abandoned);
        let mends =
            Mends { up: ctx.up, relisted_at: it.world.lists.relisted_at, woke_at: it.world.node.woke_at };
        let before = self.node.as_ref();
        let scope = Scope {
            everything: before.is_none_or(|(before, _)| *before != node),
            found: changed.records || before.is_none_or(|(_, before)| *before != mends),
            marks,
        };
        self.node = Some((node, mends));
        // How things are put together depends on what was told, and on the time.
        let mut due = mem::take(&mut self.turned);
        due.extend(self.again.iter().filter(|(_, at)| **at <= it.now).map(|(kind, _)| *kind));
        let mut found: Vec<Found> = Vec::new();
        let mut tell = |kind, is_changed: bool, gather: &dyn Fn(&mut Vec<Detection>)| {
            if is_changed || scope.everything || due.contains(&kind) {
                let mut all = Vec::new();
                gather(&mut all);
                found.push((kind, all));
            }
        };
        let is_leak_changed = self.leaks.look(&ctx, &scope);
        tell(FindingKind::LeakedAddress, is_leak_changed, &|all| {
            leaked_address::gather(&ctx, &self.leaks, all);
        });
        for detector in &mut self.detectors {
            let is_changed = detector.look(&ctx, &scope);
            tell(detector.kind(), is_changed, &|all| detector.gather(&ctx, all));
        }
        self.pools.update(&ctx, &scope, &self.leaks, is_leak_changed);
        // A pool is judged only when an address may have changed hands.
        let is_counted = is_leak_changed || scope.found || !scope.marks.addresses.is_empty();
        tell(FindingKind::PoolExhaustion, is_counted, &|all| {
            pool_exhaustion::detect(&ctx, &self.pools, all);
        });
        self.note(&found);
        found
    }

    /// Remembers what the verdicts wait for.
    fn note(&mut self, found: &[Found]) {
        for (kind, all) in found {
            for want in [Want::Records, Want::Listing] {
                self.wanted.remove(&(*kind, want));
            }
            self.wanted.extend(all.iter().filter_map(|it| Some((*kind, it.standing.wants()?))));
            self.again.remove(kind);
            let again = all.iter().filter_map(|it| it.standing.again()).min();
            self.again.extend(again.map(|at| (*kind, at)));
        }
    }

    /// When to look again though nothing changes.
    pub(super) fn again(&self) -> Option<Timestamp> {
        let rules = self.detectors.iter().filter_map(|it| it.again()).chain(self.leaks.again());
        rules.chain(self.again.values().copied()).min()
    }

    pub(super) fn wants(&self, want: Want) -> bool {
        self.wanted.iter().any(|(_, it)| *it == want)
    }

    /// A finding of this kind opened, was confirmed or closed.
    pub(super) fn turned(&mut self, kind: FindingKind) {
        self.turned.insert(kind);
    }

    /// How much there is that a look has to put together.
    pub(super) fn size(&self) -> usize {
        self.leaks.len() + self.detectors.iter().map(|it| it.size()).sum::<usize>()
    }
}

impl Node {
    fn of(ctx: &DetectContext<'_>, abandoned: &Abandoned) -> Self {
        let world = ctx.world;
        let stores = world.records.stores.values().map(|(_, read)| {
            let store = &read.store;
            (store.path.clone(), store.network.clone(), store.kind, read.complete)
        });
        Self {
            unread: ctx.unread,
            records_whole: world.records.absent() != Kept::Unknown,
            gapped: [world.is_gapped(List::Processes), world.is_gapped(List::Netns)],
            kubelet: world.has_kubelet(),
            crio: world.has_crio(),
            host_netns: world.node.host_netns,
            runtimes_since: world.runtimes_since(),
            stores: stores.collect(),
            abandoned: abandoned.clone(),
        }
    }
}

impl Verdict {
    /// When it is to be looked at again though nothing changes.
    pub(super) fn again(self) -> Option<Timestamp> {
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
