//! Many leaks of one network and one cause have one reason: records that outlived a reboot, a plugin that never frees.
//! Beyond [`MANY`] those that were not told yet are one finding, with a count and the first few of the addresses.
//!
//! **Invariant:** what was told stays told under its own key. A leak that has a finding of its own keeps it, and one
//! finding of many stays as long as any of them is leaked, however few: nothing is closed because others came or went.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher as _},
    net::IpAddr,
};

use super::Leak;
use crate::{
    engine::{
        detect::{DetectContext, Detection, Verdict, findings::Findings, rule::Judged},
        view::ManyView,
        world::attachment::{Attachment, Lease},
    },
    model::{
        change::Finding,
        finding::{Cause, Key, Kind, LeakedAddress, Many, Severity, StoreRef},
        id::ContainerId,
        time::Timestamp,
    },
};

/// So many leaks of one network and cause are told one by one.
pub(in crate::engine::detect) const MANY: usize = 64;
/// So many addresses are named of more, with their sandboxes.
pub(in crate::engine::detect) const FIRST: usize = 16;

/// What has one reason.
type Reason<'a> = (Option<&'a str>, Cause);

pub(super) fn gather(ctx: &DetectContext<'_>, leaks: &[&Leak], found: &mut Vec<Detection>) {
    // A look at a node that nobody watches tells of each: there is no stream to be flooded.
    let Some(told) = ctx.told else {
        found.extend(leaks.iter().filter_map(|leak| leak.detection(ctx)));
        return;
    };
    let mut reasons: BTreeMap<Reason<'_>, Vec<&Leak>> = BTreeMap::new();
    for &leak in leaks {
        reasons.entry((leak.network(), leak.cause)).or_default().push(leak);
    }
    if reasons.is_empty() {
        return;
    }
    let told = Told::of(told);
    for (reason, all) in reasons {
        let (own, rest): (Vec<&Leak>, Vec<&Leak>) = all.into_iter().partition(|leak| told.has(leak));
        found.extend(own.iter().filter_map(|leak| leak.detection(ctx)));
        let (young, rest): (Vec<&Leak>, Vec<&Leak>) = rest.into_iter().partition(|leak| leak.is_young());
        let key = key(reason);
        if told.many.contains(&key) || own.len() + rest.len() > MANY {
            found.extend(many(ctx, reason, key, &rest, &young));
        } else {
            found.extend(rest.iter().filter_map(|leak| leak.detection(ctx)));
            // Of what is not told yet it matters only when it is to be looked at again.
            found.extend(many(ctx, reason, key, &[], &young));
        }
    }
}

/// The leaks that findings of many stand for.
pub(in crate::engine::detect) fn members(told: &Findings, judged: &Judged<LeakedAddress>) -> Vec<ManyView> {
    let told = Told::of(told);
    if told.many.is_empty() {
        return Vec::new();
    }
    let mut reasons: BTreeMap<Reason<'_>, bool> = BTreeMap::new();
    let mut is_many = |reason| *reasons.entry(reason).or_insert_with(|| told.many.contains(&key(reason)));
    let leaks = judged.parts().filter(|leak| is_many((leak.network(), leak.cause)) && !told.has(leak));
    let member = |leak: &Leak| ManyView {
        cause: leak.cause,
        leak: hash(&(leak.network(), leak.address(), leak.sandbox())),
        is_confirmed: leak.is_confirmed(),
    };
    leaks.map(member).collect()
}

/// The same in each run: `DefaultHasher::new` has no seed.
fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Leak {
    fn is_young(&self) -> bool {
        matches!(self.standing, Verdict::Watched { .. })
    }
}

/// What was told and is not over.
struct Told<'a> {
    /// The leaks that have findings of their own.
    own: BTreeSet<(Option<&'a str>, IpAddr, &'a ContainerId)>,
    many: BTreeSet<&'a Key>,
}

impl<'a> Told<'a> {
    fn of(findings: &'a Findings) -> Self {
        let mut told = Self { own: BTreeSet::new(), many: BTreeSet::new() };
        let leak = |it: &'a Finding| {
            let Kind::LeakedAddress(leak) = &it.kind else { return None };
            Some((it, leak))
        };
        for (it, leak) in findings.open().filter_map(leak) {
            match it.sandboxes.first() {
                Some(id) if leak.many.is_none() => {
                    told.own.insert((leak.network.as_deref(), leak.address, id));
                }
                Some(_) | None => {
                    told.many.insert(&it.key);
                }
            }
        }
        told
    }

    fn has(&self, leak: &Leak) -> bool {
        self.own.contains(&(leak.network(), leak.address(), leak.sandbox()))
    }
}

/// By its form no other one has it: that of a single leak has one part more.
fn key((network, cause): Reason<'_>) -> Key {
    Key::new("leaked_address", &[network.unwrap_or(""), cause.into_str()])
}

/// One finding of them all. It counts those that are confirmed, as soon as any is.
fn many(
    ctx: &DetectContext<'_>,
    (network, cause): Reason<'_>,
    key: Key,
    rest: &[&Leak],
    young: &[&Leak],
) -> Option<Detection> {
    let confirmed: Vec<&Leak> = rest.iter().filter(|leak| leak.is_confirmed()).copied().collect();
    let counted = match (confirmed.as_slice(), rest) {
        ([], []) => young,
        ([], rest) => rest,
        (confirmed, _) => confirmed,
    };
    let mut first: Vec<&Leak> = counted.to_vec();
    first.sort_unstable_by_key(|leak| (leak.address(), leak.sandbox()));
    first.truncate(FIRST);
    let lowest = first.first()?;
    let rows: Vec<(&Attachment, &Lease)> = counted.iter().filter_map(|leak| leak.row(ctx)).collect();
    let paths: BTreeSet<&String> = rows.iter().flat_map(|(_, lease)| &lease.stores).collect();
    let stores = ctx.world.records.stores.values().map(|(_, read)| &read.store);
    let kind = Kind::from(LeakedAddress {
        address: lowest.address(),
        network: network.map(str::to_owned),
        inferred: rows.iter().all(|(row, _)| row.inferred),
        ifname: String::new(),
        plugin: None,
        cause,
        stores: stores.filter(|store| paths.contains(&store.path)).map(StoreRef::of).collect(),
        many: Some(Many {
            count: u32::try_from(counted.len()).unwrap_or(u32::MAX),
            first: first.iter().map(|leak| leak.address()).collect(),
        }),
    });
    let mut sandboxes: Vec<ContainerId> = Vec::new();
    for leak in &first {
        if !sandboxes.contains(leak.sandbox()) {
            sandboxes.push(leak.sandbox().clone());
        }
    }
    Some(Detection {
        key,
        kind,
        severity: Severity::Warning,
        since: counted.iter().map(|leak| leak.since).min().unwrap_or(Timestamp::ZERO),
        pod: None,
        sandboxes,
        gapped: rows.iter().any(|(row, _)| row.gapped),
        standing: standing(rest.iter().chain(young)),
    })
}

/// The surest of all; of what is to be looked at again the first.
fn standing<'a>(all: impl Iterator<Item = &'a &'a Leak>) -> Verdict {
    let rank = |it: Verdict| match it {
        Verdict::Confirmed | Verdict::Passing { .. } => 0,
        Verdict::Candidate { .. } => 1,
        Verdict::Unverified | Verdict::Unlisted => 2,
        Verdict::Unsure => 3,
        Verdict::Watched { .. } => 4,
    };
    let again = |it: Verdict| match it {
        Verdict::Watched { until } | Verdict::Candidate { until } => until.unwrap_or(Timestamp(u64::MAX)),
        Verdict::Passing { until } => until,
        Verdict::Confirmed | Verdict::Unverified | Verdict::Unlisted | Verdict::Unsure => Timestamp::ZERO,
    };
    let surest = all.map(|leak| leak.standing).min_by_key(|it| (rank(*it), again(*it)));
    surest.unwrap_or(Verdict::Watched { until: None })
}
