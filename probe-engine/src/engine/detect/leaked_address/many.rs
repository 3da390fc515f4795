//! Joins many leaks of one network and one cause, because they have one reason: records that outlived a reboot, or a
//! plugin that never frees. If there are more than [`MANY`], those that are not reported yet become one finding, with a
//! count and the first few of the addresses.
//!
//! **Invariant:** an open finding keeps its key. A leak that has a finding of its own keeps it. A joined finding stays
//! open as long as any of its leaks exists. No finding closes because other leaks came or went.

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
    },
    model::{
        change::Finding,
        finding::{Cause, Key, Kind, LeakedAddress, Many, Severity, StoreRef},
        id::ContainerId,
        time::Timestamp,
    },
};

/// At most this many leaks of one network and cause are reported one by one.
pub(in crate::engine::detect) const MANY: usize = 64;
/// A joined finding names this many addresses, with their sandboxes.
pub(in crate::engine::detect) const FIRST: usize = 16;

/// The network and the cause that joined leaks share.
type Reason<'a> = (Option<&'a str>, Cause);

pub(super) fn gather(ctx: &DetectContext<'_>, leaks: &[&Leak], found: &mut Vec<Detection>) {
    // Without a tracker there is no event stream to flood, so each leak is reported.
    let Some(findings) = ctx.findings else {
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
    let open = OpenLeaks::of(findings);
    for (reason, all) in reasons {
        let (own, rest): (Vec<&Leak>, Vec<&Leak>) = all.into_iter().partition(|leak| open.has(leak));
        found.extend(own.iter().filter_map(|leak| leak.detection(ctx)));
        let (young, rest): (Vec<&Leak>, Vec<&Leak>) = rest.into_iter().partition(|leak| leak.is_young());
        let key = key(reason);
        if open.many.contains(&key) || own.len() + rest.len() > MANY {
            found.extend(many(ctx, reason, key, &rest, &young));
        } else {
            found.extend(rest.iter().filter_map(|leak| leak.detection(ctx)));
            // Leaks that are not reported yet only determine when to judge again.
            found.extend(many(ctx, reason, key, &[], &young));
        }
    }
}

/// The leaks that joined findings stand for.
pub(in crate::engine::detect) fn members(
    findings: &Findings,
    judged: &Judged<LeakedAddress>,
) -> Vec<ManyView> {
    let open = OpenLeaks::of(findings);
    if open.many.is_empty() {
        return Vec::new();
    }
    let mut reasons: BTreeMap<Reason<'_>, bool> = BTreeMap::new();
    let mut is_many = |reason| *reasons.entry(reason).or_insert_with(|| open.many.contains(&key(reason)));
    let leaks = judged.parts().filter(|leak| is_many((leak.network(), leak.cause)) && !open.has(leak));
    let member = |leak: &Leak| ManyView {
        cause: leak.cause,
        leak: hash(&(leak.network(), leak.address(), leak.sandbox())),
        is_confirmed: leak.is_confirmed(),
    };
    leaks.map(member).collect()
}

/// The hash is the same in each run, because `DefaultHasher::new` has no seed.
fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Leak {
    fn is_young(&self) -> bool {
        matches!(self.verdict, Verdict::Watched { .. })
    }
}

/// The open findings of leaks.
struct OpenLeaks<'a> {
    /// The leaks that have findings of their own.
    own: BTreeSet<(Option<&'a str>, IpAddr, &'a ContainerId)>,
    many: BTreeSet<&'a Key>,
}

impl<'a> OpenLeaks<'a> {
    fn of(findings: &'a Findings) -> Self {
        let mut open = Self { own: BTreeSet::new(), many: BTreeSet::new() };
        let leak = |it: &'a Finding| {
            let Kind::LeakedAddress(leak) = &it.kind else { return None };
            Some((it, leak))
        };
        for (it, leak) in findings.open().filter_map(leak) {
            match it.sandboxes.first() {
                Some(id) if leak.many.is_none() => {
                    open.own.insert((leak.network.as_deref(), leak.address, id));
                }
                Some(_) | None => {
                    open.many.insert(&it.key);
                }
            }
        }
        open
    }

    fn has(&self, leak: &Leak) -> bool {
        self.own.contains(&(leak.network(), leak.address(), leak.sandbox()))
    }
}

/// The key of a joined finding. No single leak has the same key, because its key has one part more.
fn key((network, cause): Reason<'_>) -> Key {
    Key::new("leaked_address", &[network.unwrap_or(""), cause.into_str()])
}

/// The joined detection. Once a leak is confirmed, only confirmed leaks are counted.
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
    let order =
        |one: &&Leak, other: &&Leak| (one.address(), one.sandbox()).cmp(&(other.address(), other.sandbox()));
    if first.len() > FIRST {
        first.select_nth_unstable_by(FIRST, order);
        first.truncate(FIRST);
    }
    first.sort_unstable_by(order);
    let lowest = first.first()?;
    let names = |path: &String| {
        counted.iter().filter_map(|leak| leak.row(ctx)).any(|(_, lease)| lease.may_be_in(path))
    };
    let stores = ctx.world.records.stores.values().map(|(_, read)| &read.store);
    let plugin_of = |leak: &&Leak| leak.row(ctx).and_then(|(row, lease)| row.plugin_of(lease));
    let mut plugins = counted.iter().map(|leak| plugin_of(leak).map(|plugin| plugin.name.as_str()));
    let plugin = plugins.next().flatten().filter(|own| plugins.all(|other| other == Some(*own)));
    let kind = Kind::from(LeakedAddress {
        address: lowest.address(),
        network: network.map(str::to_owned),
        inferred: counted.iter().all(|leak| leak.inferred),
        ifname: String::new(),
        plugin: plugin.map(str::to_owned),
        cause,
        stores: stores.filter(|store| names(&store.path)).map(StoreRef::of).collect(),
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
        gapped: counted.iter().any(|leak| leak.gapped),
        verdict: verdict(rest.iter().chain(young)),
    })
}

/// The most certain verdict of all. If several are equally certain, the one that is judged again first.
fn verdict<'a>(all: impl Iterator<Item = &'a &'a Leak>) -> Verdict {
    let rank = |it: Verdict| match it {
        Verdict::Confirmed | Verdict::Passing { .. } => 0,
        Verdict::Candidate { .. } => 1,
        Verdict::Unverified | Verdict::Unlisted => 2,
        Verdict::Unsure => 3,
        Verdict::Watched { .. } => 4,
    };
    let due_at = |it: Verdict| match it {
        Verdict::Watched { until } | Verdict::Candidate { until } => until.unwrap_or(Timestamp(u64::MAX)),
        Verdict::Passing { until } => until,
        Verdict::Confirmed | Verdict::Unverified | Verdict::Unlisted | Verdict::Unsure => Timestamp::ZERO,
    };
    let surest = all.map(|leak| leak.verdict).min_by_key(|it| (rank(*it), due_at(*it)));
    surest.unwrap_or(Verdict::Watched { until: None })
}
