//! Records were lost, or no agent was there to see them.

use std::time::Duration;

use super::{
    gap::{self, BETWEEN_CHECKS, OF_NETLINK},
    netns,
};
use crate::{
    engine::{
        queued_change::{Subject, Wait},
        timer,
        world::{EventContext, World, table::list::Doubt},
    },
    model::{
        change::ChangeKind,
        fact::{List, Loss},
        time::Timestamp,
    },
};

/// The records that a loss can concern.
enum Concern {
    /// Any records, with those that verdicts depend on.
    Anything,
    /// Records of the bulk ring: the activity of containers.
    Containers,
    /// Addresses, and ends of network namespaces that no hook sees.
    Netlink,
}

/// A node that loses records is busy. Listings after losses are at least this far apart.
const BETWEEN_RELISTS: Duration = Duration::from_secs(5);

/// The lists that can be out of date when only records of the bulk ring are lost.
const OF_CONTAINERS: [List; 4] = [List::Processes, List::Netns, List::Addresses, List::Cgroups];

/// Notes that records were lost, between `since` and now.
pub(crate) fn lost(world: &mut World, ctx: EventContext, what: Loss, count: u64, since: Option<Timestamp>) {
    let since = since.map_or(ctx.at, |since| since.min(ctx.at));
    let lost = world.counts.lost.entry(what).or_default();
    *lost = lost.saturating_add(count);
    world.report(ctx, Subject::default(), Wait::Nothing, ChangeKind::Gap { what, count, lasted: None });
    let between = match concern(what) {
        Concern::Anything => {
            world.coverage.lost_within(since, ctx.at, count);
            gap::anything_lost(world, since, ctx.at);
            BETWEEN_RELISTS
        }
        Concern::Containers => {
            netns::inner_gapped(world);
            world.lists.out_of_date(ctx.at, &OF_CONTAINERS);
            BETWEEN_CHECKS
        }
        Concern::Netlink => {
            world.lists.out_of_date(ctx.at, &OF_NETLINK);
            BETWEEN_CHECKS
        }
    };
    match world.lists.relisted_at {
        Some(last) if last + between > ctx.at => {
            world.timers.arm_earlier(timer::Name::Relist, last + between)
        }
        Some(_) | None => gap::relist(world, ctx.at),
    }
}

/// Notes that nothing is known of the time from `since` until now, not even how much is missing: no agent
/// saw it, or what that one kept is lost. A new agent lists the node without being asked.
pub(crate) fn unknown_since(world: &mut World, ctx: EventContext, what: Loss, since: Timestamp) {
    let lasted = Some(ctx.at.since(since));
    let gap = ChangeKind::Gap { what, count: 0, lasted };
    world.report(ctx, Subject::default(), Wait::Nothing, gap);
    world.coverage.missed(what, since, ctx.at);
    gap::anything_lost(world, since, ctx.at);
    world.records.unwatched_until(ctx.at);
    gap::relist_begun(world, ctx.at);
}

/// Notes that no agent heard netlink from `since` until now, while hooks saw the rest. A new agent lists the
/// node without being asked.
pub(crate) fn netlink_unheard(world: &mut World, ctx: EventContext, since: Timestamp) {
    gap::unheard(world, ctx, since);
    world.lists.out_of_date(ctx.at, &OF_NETLINK);
    world.lists.gaps.insert((Doubt::Unheard, List::Netns), ctx.at);
    gap::relist_begun(world, ctx.at);
}

/// Returns the records that a loss at this place can concern. The bulk ring has the activity of containers:
/// programs, nested cgroups, calls that only look like CNI calls, and the records of a container that
/// exceeds its share of the lifecycle ring. A loss elsewhere can be of any record.
fn concern(what: Loss) -> Concern {
    match what {
        Loss::LifecycleRing
        | Loss::Record
        | Loss::Channel
        | Loss::SkippedRun
        | Loss::NoAgent
        | Loss::State => Concern::Anything,
        Loss::BulkRing => Concern::Containers,
        Loss::NetlinkSocket => Concern::Netlink,
    }
}
