//! **Rule:** the last reference to a network namespace is gone, and for a while the kernel has taken apart neither it
//! nor any other.
//!
//! The kernel takes namespaces apart one batch after the other, in one queue: only the one that has waited longest is
//! told of, with the number of those behind it. Not flagged: a queue that is long, but moves; anything where the end of
//! the teardown is not seen; a namespace that was there while records were lost, since its end may have been among them;
//! one of whose end no hook told (netlink did, or a listing without it); one whose successors in the queue have been
//! taken apart, so that it was, too.

use super::{Sight, Sighting, Standing};
use crate::{
    engine::world::netns::{Netns, SAME_BATCH, State, passed_at},
    model::{
        fact::Signal,
        finding::{Key, Kind, Severity},
        time::Timestamp,
    },
};

pub(super) fn look(sight: &Sight<'_>, found: &mut Vec<Sighting>) {
    let attached = sight.world.attached.get(&Signal::NetnsFreed);
    if attached.is_none_or(|attached| attached.mechanism.is_none()) {
        return;
    }
    let rows = || sight.world.netns.rows.values();
    let passed = passed_at(rows());
    let mut dying: Vec<(Timestamp, &Netns)> = rows()
        .filter_map(|row| Some((row.ending_since()?, row)))
        .filter(|(at, _)| passed.is_none_or(|passed| *at + SAME_BATCH >= passed))
        .collect();
    dying.sort_by_key(|(at, row)| (*at, row.life));
    let Some(((since, row), behind)) = dying.split_first() else { return };
    let freed = rows().filter_map(freed_at).max();
    let until = sight.awake(freed.unwrap_or(*since).max(*since)) + sight.limits.stuck_after;
    let kind = Kind::StuckNetnsTeardown {
        netns: row.key,
        held: sight.world.awake_for(*since, sight.now),
        waiting: u32::try_from(behind.len()).unwrap_or(u32::MAX),
    };
    let cookie = row.key.cookie.to_string();
    found.push(Sighting {
        key: Key::new(kind.into_str(), &[&row.key.inode.to_string(), &cookie]),
        kind,
        severity: Severity::Warning,
        since: *since,
        pod: row.sandbox.as_ref().and_then(|id| sight.world.attempts.get(id)).map(|row| row.pod.clone()),
        sandboxes: row.sandbox.iter().cloned().collect(),
        gapped: false,
        standing: if sight.now < until {
            Standing::Watched { until: Some(until) }
        } else {
            Standing::Confirmed
        },
    });
}

fn freed_at(row: &Netns) -> Option<Timestamp> {
    match row.state {
        State::Freed { at } => Some(at),
        State::Live | State::Dropped { .. } => None,
    }
}
