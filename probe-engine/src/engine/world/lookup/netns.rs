//! How a network namespace is found and watched, and whose it is.

use crate::{
    engine::{
        queued_change::Subject,
        world::{
            World,
            netns_path::{plain, process_of},
            table::{
                list::Doubt,
                loss::NETLINK_SIGNALS,
                netns::{Group, Netns},
            },
        },
    },
    model::fact::{List, Mechanism, Signal},
};

/// Whether a hook reports the end of the namespace, in its order. If one saw the namespace begin, one also
/// sees its end, unless the hook reported that it would not.
pub(crate) fn sees_end(world: &World, row: &Netns) -> bool {
    row.created_at.is_some() && !row.end_unseen && world.coverage.is_hooked(Signal::NetnsDropped)
}

/// The subject of a namespace's changes.
pub(crate) fn subject(world: &World, life: u64) -> Subject {
    let row = world.netns.get(life);
    let creator = row.map(|row| world.cgroups.subject_of(&row.creator)).unwrap_or_default();
    Subject { netns: Some(life), sandbox: row.and_then(|row| row.sandbox.clone()), ..creator }
}

/// The living namespace at a path: bound to it, or that of the process whose `/proc` path it is.
pub(crate) fn at_path(world: &World, path: &str) -> Option<u64> {
    let row = match process_of(path) {
        Some(pid) => {
            let inode = world.processes.by_pid(pid).map(|process| process.netns);
            inode.filter(|inode| *inode != world.node.host_netns).and_then(|inode| world.netns.live(inode))
        }
        None => {
            let path = Group::Path(plain(path).into_owned());
            world.netns.group(path).find(|row| row.is_live())
        }
    };
    row.map(|row| row.life)
}

/// The living namespaces that netlink should watch and does not, as far as is known, oldest first.
pub(crate) fn unwatched(world: &World) -> impl Iterator<Item = u64> {
    let is_wanted = is_wanted(world);
    world.netns.values().filter(move |row| is_wanted(row)).map(|row| row.life)
}

/// Whether netlink should watch a namespace: it watches all, or the hooks will not see the end of this one.
/// One whose inode may be another one's by now waits for the listing that finds it.
pub(crate) fn is_wanted(world: &World) -> impl Fn(&Netns) -> bool {
    let all = world.coverage.needs_netlink();
    let is_doubted = doubted(world);
    move |row| {
        row.is_live() && !row.watched && (all || row.end_unseen) && !(row.is_listable() && is_doubted(row))
    }
}

/// Whether anything is known by netlink alone: a signal of all namespaces, also while netlink fails, or the
/// end of a living one.
pub(crate) fn hears_netlink(world: &World) -> bool {
    for signal in NETLINK_SIGNALS {
        let fails = world.coverage.attached.get(&signal).is_some_and(|it| {
            it.mechanism.is_none() && it.missed.iter().any(|(mechanism, _)| *mechanism == Mechanism::Netlink)
        });
        if fails || world.coverage.is_by_netlink(signal) {
            return true;
        }
    }
    world.netns.values().any(|row| row.is_live() && row.end_unseen)
}

/// Which network namespaces may be over, and their inodes those of others, until they are listed.
fn doubted(world: &World) -> impl Fn(&Netns) -> bool {
    let [lost, unheard, excess] = [Doubt::Lost, Doubt::Unheard, Doubt::Excess]
        .map(|doubt| world.lists.gaps.get(&(doubt, List::Netns)).copied());
    move |row| {
        let seen_at = row.seen_at();
        // The bulk ring has the ends and beginnings of the namespaces of containers. What netlink loses hides
        // neither: it reports no beginning, and the end only of what it watches.
        seen_at < lost.max(unheard)
            || seen_at < excess && row.gapped && world.cgroups.is_in_container(row.creator.cgroup)
    }
}
