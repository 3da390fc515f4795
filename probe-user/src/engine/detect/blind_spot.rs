//! **Rule:** something is not seen that verdicts are made of: a signal that no mechanism tells of, records that were
//! lost in the last ten minutes, a store or a runtime's records that could not be read whole, a file of libcni's cache,
//! a file at which reading hangs, network namespaces that could not be listed whole.
//!
//! Not flagged: a signal that is seen by a worse mechanism than the best (`doctor` says what that costs); a signal of
//! which nothing is said, as where there are no hooks at all (a scan); a store or a runtime that is not there; missing
//! runtime records while no sandbox is known, as on a node that only runs containers of Docker's; a file of libcni's cache
//! that could not be read once, for libcni may have been at writing it.

use std::time::Duration;

use super::{Sight, Sighting, Standing};
use crate::engine::{
    fact::{List, Signal},
    finding::{Blind, Key, Kind, Severity, Weaker},
    time::Timestamp,
    world::{attachment::LATELY, record::Unread},
};

/// By then what is read in a row with the configuration has been read.
const READ: Duration = Duration::from_secs(10);

const OF_LOSS: [Weaker; 4] =
    [Weaker::LeakedAddress, Weaker::DuplicateSandbox, Weaker::TeardownOutOfOrder, Weaker::CniFailing];

pub(super) fn look(sight: &Sight<'_>, found: &mut Vec<Sighting>) {
    signals(sight, found);
    let losses = sight.world.losses.as_ref().filter(|it| sight.now < it.last_at + LATELY);
    found.extend(losses.map(|it| {
        let standing = Standing::Passing { until: it.last_at + LATELY };
        let spot = Blind::Lost { count: it.count };
        sighting(&["lost"], spot, &OF_LOSS, Severity::Warning, it.since, standing)
    }));
    for (path, since) in &sight.world.hanging {
        let spot = Blind::File { path: path.clone() };
        let weaker = [Weaker::LeakedAddress, Weaker::OrphanSandbox];
        found.push(sighting(&["file", path], spot, &weaker, Severity::Warning, *since, Standing::Confirmed));
    }
    let records = &sight.world.records;
    for (path, (at, read)) in records.stores.iter().filter(|(_, (_, read))| !read.complete) {
        let spot = Blind::Store { path: read.store.path.clone() };
        let weaker = [Weaker::LeakedAddress, Weaker::PoolExhaustion];
        found.push(sighting(&["store", path], spot, &weaker, Severity::Info, *at, Standing::Confirmed));
    }
    let weaker = [Weaker::LeakedAddress, Weaker::OrphanSandbox];
    for (place, row) in records.runtimes.iter().filter(|(_, row)| !row.complete) {
        let spot = Blind::Runtime { place: Some(place.clone()) };
        let key = ["runtime", place];
        found.push(sighting(&key, spot, &weaker, Severity::Info, row.read_at, Standing::Confirmed));
    }
    found.extend(cache(sight));
    // Only there a rule is switched off by it: of what else cannot be listed whole, nothing is taken to be absent.
    if let Some(at) = sight.world.partial.get(&List::Netns) {
        let spot = Blind::Listing { list: List::Netns };
        let weaker = [Weaker::OrphanNetns];
        found.push(sighting(&["listing", "netns"], spot, &weaker, Severity::Info, *at, Standing::Confirmed));
    }
    if let Some(at) = unread_since(sight) {
        let spot = Blind::Runtime { place: None };
        found.push(sighting(&["runtime"], spot, &weaker, Severity::Info, at, sight.after(at, READ)));
    }
}

/// The files of libcni's cache that cannot be read, all in one: after a power cut there may be many.
fn cache(sight: &Sight<'_>) -> Option<Sighting> {
    let all = &sight.world.records.unread;
    let lasting = |it: &Unread| it.read_at >= it.since + READ;
    let told = all.iter().filter(|(_, it)| lasting(it)).collect::<Vec<_>>();
    let (path, since, count) = match told.first() {
        Some((path, _)) => (*path, told.iter().map(|(_, it)| it.since).min()?, told.len()),
        None => (all.keys().next()?, all.values().map(|it| it.since).min()?, all.len()),
    };
    let ready = sight.awake(since) + READ;
    let standing = if !told.is_empty() {
        Standing::Confirmed
    } else if sight.now < ready {
        Standing::Watched { until: Some(ready) }
    } else {
        // It is to be read once more.
        Standing::Unverified
    };
    let spot = Blind::CniCache { path: path.clone(), count: u64::try_from(count).unwrap_or(u64::MAX) };
    Some(sighting(&["cni_cache"], spot, &[Weaker::LeakedAddress], Severity::Info, since, standing))
}

/// When the node was read and no runtime's records were found, though a runtime runs and has sandboxes.
fn unread_since(sight: &Sight<'_>) -> Option<Timestamp> {
    let world = sight.world;
    let (at, _) = world.records.networks.as_ref()?;
    let missing = world.records.runtimes.is_empty() && !world.sandboxes.is_empty();
    (missing && world.is_runtime_up()).then_some(*at)
}

fn signals(sight: &Sight<'_>, found: &mut Vec<Sighting>) {
    for row in sight.world.attached.values().filter(|row| row.mechanism.is_none()) {
        let weaker = weaker(row.signal);
        if !weaker.is_empty() {
            let severity = if row.signal == Signal::Exec { Severity::Warning } else { Severity::Info };
            let spot = Blind::Signal { signal: row.signal };
            let word = row.signal.word().replace(' ', "_");
            found.push(sighting(&["signal", &word], spot, weaker, severity, sight.now, Standing::Confirmed));
        }
    }
}

/// What is judged by a signal.
fn weaker(signal: Signal) -> &'static [Weaker] {
    match signal {
        Signal::Exec => &[
            Weaker::LeakedAddress,
            Weaker::DuplicateSandbox,
            Weaker::TeardownOutOfOrder,
            Weaker::OrphanSandbox,
            Weaker::CniFailing,
        ],
        Signal::Exit => {
            &[Weaker::LeakedAddress, Weaker::DuplicateSandbox, Weaker::TeardownOutOfOrder, Weaker::CniFailing]
        }
        Signal::FatalSignal | Signal::OomKill => &[Weaker::TeardownOutOfOrder],
        Signal::NetnsCreated => &[Weaker::OrphanNetns],
        Signal::NetnsDropped => &[
            Weaker::LeakedAddress,
            Weaker::TeardownOutOfOrder,
            Weaker::OrphanNetns,
            Weaker::StuckNetnsTeardown,
        ],
        Signal::NetnsFreed => &[Weaker::StuckNetnsTeardown],
        Signal::AddressV4 | Signal::AddressV6 => &[Weaker::LeakedAddress, Weaker::PoolExhaustion],
        Signal::CgroupCreated | Signal::CgroupEntered => &[Weaker::DuplicateSandbox, Weaker::OrphanSandbox],
        Signal::CgroupEmptied => &[Weaker::DuplicateSandbox, Weaker::StuckCgroup],
        Signal::CgroupRemoved => &[Weaker::StuckCgroup],
        // A cgroup that is removed and not yet released is a number, never a finding; and when somebody listens is a time.
        Signal::CgroupReleased | Signal::Listening => &[],
    }
}

fn sighting(
    key: &[&str],
    spot: Blind,
    weaker: &[Weaker],
    severity: Severity,
    since: Timestamp,
    standing: Standing,
) -> Sighting {
    let kind = Kind::BlindSpot { spot, weaker: weaker.to_vec() };
    Sighting {
        key: Key::new(kind.name(), key),
        kind,
        severity,
        since,
        pod: None,
        sandboxes: Vec::new(),
        gapped: false,
        standing,
    }
}
