//! What may be out of date after a loss, what nobody heard, and when the node is listed again.

use std::{mem, time::Duration};

use crate::{
    engine::{
        queued_change::{Subject, Wait},
        timer,
        world::{
            EventContext, World,
            table::list::{Doubt, HEALING, QUIET},
        },
    },
    model::{
        change::{ChangeKind, Question},
        fact::{List, Loss},
        time::Timestamp,
    },
};

/// A verdict can wait. Listings for verdicts are at least this far apart.
pub(crate) const BETWEEN_CHECKS: Duration = Duration::from_secs(60);

pub(crate) const OF_NETLINK: [List; 2] = [List::Netns, List::Addresses];

/// Verdicts that ask for a listing within this time share one.
const GATHER: Duration = Duration::from_secs(1);

/// Asks for a listing, because netlink's reports of a namespace may have been missed.
pub(crate) fn netlink_missed(world: &mut World, at: Timestamp) {
    world.lists.out_of_date(at, &OF_NETLINK);
    check(world, at);
}

/// Reports that nobody heard netlink from `since` until now.
pub(crate) fn unheard(world: &mut World, ctx: EventContext, since: Timestamp) {
    let lasted = Some(ctx.at.since(since));
    let gap = ChangeKind::Gap { what: Loss::NetlinkSocket, count: 0, lasted };
    world.report(ctx, Subject::default(), Wait::Nothing, gap);
    world.netns.unheard_until = ctx.at;
}

/// Puts everything in doubt, because any record of this time may be missing.
pub(crate) fn anything_lost(world: &mut World, since: Timestamp, at: Timestamp) {
    rows_gapped(world, since);
    for list in List::ALL {
        world.lists.gaps.insert((Doubt::Lost, list), at);
    }
    for list in HEALING {
        world.lists.gaps.insert((Doubt::Marked, list), at + QUIET);
    }
}

/// Asks for a listing on which a verdict depends.
pub(crate) fn check(world: &mut World, at: Timestamp) {
    let soonest = world.lists.relisted_at.map_or(at, |last| last + BETWEEN_CHECKS);
    world.timers.arm_earlier(timer::Name::Relist, (at + GATHER).max(soonest));
}

/// Asks for a listing of the node.
pub(crate) fn relist(world: &mut World, now: Timestamp) {
    world.ask(Question::Relist);
    relist_begun(world, now);
}

/// Notes that the node is being listed. It is listed again when that can remove marks.
pub(crate) fn relist_begun(world: &mut World, now: Timestamp) {
    world.lists.relisted_at = Some(now);
    let marked = HEALING.iter().filter_map(|list| world.lists.gaps.get(&(Doubt::Marked, *list)));
    if let Some(at) = marked.max().copied().filter(|at| *at > now) {
        world.timers.arm_earlier(timer::Name::Relist, at);
    }
}

/// Marks everything that exists now: it may have changed unseen.
pub(crate) fn rows_gapped(world: &mut World, since: Timestamp) {
    world.attachments.rows.update(|_, row| !mem::replace(&mut row.gapped, true));
    world.sandboxes.mark_gapped(since);
    world.netns.mark_gapped();
}
