//! Joins many leaks of one network and one cause, because they have one reason: records that outlived a
//! reboot, or a plugin that never frees. If there are more than [`MANY`], those that are not reported yet
//! become one finding, with a count and the first few addresses.
//!
//! **Invariant:** an open finding keeps its key. A leak that has a finding of its own keeps it. A joined
//! finding stays open as long as any of its leaks exists. No finding closes because other leaks came or went.

use std::{
    cmp::Ordering,
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

/// Returns the leaks that joined findings are about.
pub(in crate::engine::detect) fn members(
    findings: &Findings,
    judged: &Judged<LeakedAddress>,
) -> Vec<ManyView> {
    let open = OpenLeaks::of(findings);
    if open.many.is_empty() {
        return Vec::new();
    }
    let mut reasons: BTreeMap<Reason<'_>, bool> = BTreeMap::new();
    let mut members = Vec::new();
    for leak in judged.parts() {
        let reason = (leak.network(), leak.cause);
        let is_joined = *reasons.entry(reason).or_insert_with(|| open.many.contains(&key(reason)));
        if is_joined && !open.has(leak) {
            members.push(ManyView {
                cause: leak.cause,
                leak: hash(&(leak.network(), leak.address(), leak.sandbox())),
                is_confirmed: leak.is_confirmed(),
            });
        }
    }
    members
}

/// Hashes a value. The hash is the same in each run, because `DefaultHasher::new` has no seed.
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
        for it in findings.open() {
            let Kind::LeakedAddress(leak) = &it.kind else { continue };
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

/// Returns the key of a joined finding. No single leak has the same key, because its key has one part more.
fn key((network, cause): Reason<'_>) -> Key {
    Key::new("leaked_address", &[network.unwrap_or(""), cause.into_str()])
}

/// Makes the joined detection. Once a leak is confirmed, only confirmed leaks are counted.
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
    if first.len() > FIRST {
        first.select_nth_unstable_by(FIRST, order);
        first.truncate(FIRST);
    }
    first.sort_unstable_by(order);
    let lowest = first.first()?;
    let stores = ctx.world.records.stores.values().map(|(_, read)| &read.store);
    let stores = stores.filter(|store| {
        counted.iter().filter_map(|leak| leak.row(ctx)).any(|(_, lease)| lease.may_be_in(&store.path))
    });
    let mut plugins = counted.iter().map(|leak| {
        let (row, lease) = leak.row(ctx)?;
        Some(row.plugin_of(lease)?.name.as_str())
    });
    let plugin = plugins.next().flatten().filter(|own| plugins.all(|other| other == Some(*own)));
    let kind = LeakedAddress {
        address: lowest.address(),
        network: network.map(str::to_owned),
        inferred: counted.iter().all(|leak| leak.inferred),
        ifname: String::new(),
        plugin: plugin.map(str::to_owned),
        cause,
        stores: stores.map(StoreRef::of).collect(),
        many: Some(Many {
            count: u32::try_from(counted.len()).unwrap_or(u32::MAX),
            first: first.iter().map(|leak| leak.address()).collect(),
        }),
    };
    let mut sandboxes: Vec<ContainerId> = Vec::new();
    for leak in &first {
        if !sandboxes.contains(leak.sandbox()) {
            sandboxes.push(leak.sandbox().clone());
        }
    }
    let since = counted.iter().map(|leak| leak.since).min().unwrap_or(Timestamp::ZERO);
    let verdict = verdict(rest.iter().chain(young));
    Some(Detection {
        sandboxes,
        gapped: counted.iter().any(|leak| leak.gapped),
        ..Detection::keyed(key, kind, Severity::Warning, since, verdict)
    })
}

/// Returns the most certain verdict of all. If several are equally certain, the one that is judged again
/// first.
fn verdict<'a>(all: impl Iterator<Item = &'a &'a Leak>) -> Verdict {
    let surest = all.map(|leak| leak.verdict).min_by_key(|it| match *it {
        Verdict::Confirmed => (0, Timestamp::ZERO),
        Verdict::Passing { until } => (0, until),
        Verdict::Candidate { until } => (1, until.unwrap_or(Timestamp(u64::MAX))),
        Verdict::Unverified | Verdict::Unlisted => (2, Timestamp::ZERO),
        Verdict::Unsure => (3, Timestamp::ZERO),
        Verdict::Watched { until } => (4, until.unwrap_or(Timestamp(u64::MAX))),
    });
    surest.unwrap_or(Verdict::Watched { until: None })
}

fn order(one: &&Leak, other: &&Leak) -> Ordering {
    (one.address(), one.sandbox()).cmp(&(other.address(), other.sandbox()))
}
