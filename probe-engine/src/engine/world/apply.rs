//! Applies facts and timers to the world: which reaction each of them calls.

use crate::{
    engine::{
        timer,
        world::{EventContext, World, react},
    },
    model::{
        fact::{Fact, Loss, Observation},
        time::Timestamp,
    },
};

/// Applies one fact. Facts come in the order in which they take effect.
pub(crate) fn fact(world: &mut World, seen: Observation, late: bool) {
    let ctx = EventContext { at: seen.at, origin: seen.origin, late };
    world.changed_at.get_or_insert(ctx.at);
    let before = world.doubtful_rows();
    apply(world, ctx, seen.fact);
    if ctx.at <= world.lists.lost_until() && world.doubtful_rows() > before {
        react::gap::rows_gapped(world, ctx.at);
    }
}

fn apply(world: &mut World, ctx: EventContext, fact: Fact) {
    match fact {
        Fact::Executed(it) => react::exec::executed(world, ctx, it),
        Fact::CniCalled(it) => react::exec::cni_called(world, ctx, it),
        Fact::Exited(it) => react::exit::exited(world, ctx, &it),
        Fact::Signaled(it) => react::exit::signaled(world, ctx, it, false),
        Fact::OomKilled(it) => react::exit::signaled(world, ctx, it, true),
        Fact::NetnsCreated { netns, by, end_unseen } => {
            react::netns::created(world, ctx, netns, by, end_unseen)
        }
        Fact::NetnsDropped { netns, by } => react::netns::dropped(world, ctx, netns, &by),
        Fact::NetnsFreed { netns } => react::netns::freed(world, ctx, netns),
        Fact::AddressAdded(it) => react::address::added(world, ctx, it),
        Fact::AddressRemoved(it) => react::address::removed(world, ctx, &it),
        Fact::CgroupCreated { cgroup, by } => react::cgroup::created(world, ctx, cgroup, &by),
        Fact::CgroupRemoved { cgroup, by } => react::cgroup::removed(world, ctx, cgroup, &by),
        Fact::CgroupReleased { cgroup } => react::cgroup::released(world, ctx, cgroup),
        Fact::CgroupEntered { cgroup, member, by: _ } => react::cgroup::entered(world, ctx, cgroup, member),
        Fact::CgroupEmptied { cgroup } => react::cgroup::emptied(world, ctx, cgroup),
        Fact::Listened(it) => react::container::listened(world, ctx, &it),
        Fact::ListBegun(list) => world.lists.begin(ctx, list),
        Fact::ListEnded { list, complete } => react::listing::ended(world, ctx, list, complete),
        Fact::ProcessFound(it) => react::exec::found(world, ctx, it),
        Fact::NetnsFound { netns, mounts, vacant } => react::netns::found(world, ctx, netns, mounts, vacant),
        Fact::ProcessNetns { process, netns } => {
            react::wrong_del::process_netns_found(world, ctx, process, netns)
        }
        Fact::AddressFound(it) => react::address::found(world, ctx, it),
        Fact::AddressesListed { netns, present } => react::address::listed(world, ctx, netns, &present),
        Fact::CgroupFound { cgroup, populated } => react::cgroup::found(world, ctx, cgroup, populated),
        Fact::ContainerFound(it) => react::identity::container_found(world, ctx, it),
        Fact::ContainerUnknown(id) => react::identity::container_unknown(world, ctx, &id),
        Fact::PodFound { uid, namespace, name, source } => {
            react::pod::found(world, ctx, uid, namespace, name, source)
        }
        Fact::PodUnknown(uid) => world.beliefs.pod_gone(ctx.at, &uid),
        Fact::ContainersExpected { uid, names } => react::start::containers_expected(world, &uid, names),
        Fact::CacheFound(it) => react::cached::found(world, ctx, it),
        Fact::CacheUnread { path } => react::cached::unread(world, ctx, path),
        Fact::CacheUnchanged => react::cached::unchanged(world, ctx),
        Fact::CacheGone { container, ifname } => react::cached::gone(world, ctx, container, ifname),
        Fact::StoreRead(it) => react::records::store_read(world, ctx, it),
        Fact::StoreChanged(it) => react::records::store_changed(world, ctx, it),
        Fact::StoreLink(it) => react::ledger::linked(world, ctx, it),
        Fact::AddressAnswered(it) => react::ledger::answered(world, ctx, it),
        Fact::RuntimeRead(it) => react::records::runtime_read(world, ctx, it),
        Fact::RuntimeChanged(it) => react::records::runtime_changed(world, ctx, it),
        Fact::NetworksRead(it) => react::records::networks_read(world, ctx, it),
        Fact::KubeletExpected(expected) => world.records.kubelet_expected = expected,
        Fact::ProgramFound(it) => react::records::program_found(world, ctx, it),
        Fact::MessageFound(it) => world.attachments.message_found(it),
        Fact::BootRead(it) => react::recovery::boot_read(world, ctx, *it),
        Fact::PressureRead(it) => react::start::pressure_read(world, ctx, it),
        Fact::ImageWork(it) => react::log_found::image_work(world, &it),
        Fact::HeldRequests(it) => react::log_found::held_requests(world, it),
        Fact::WordsFound(it) => world.pods.words_found(it),
        Fact::DaemonWordsFound(it) => world.failing.words_found(it),
        Fact::ProcessState(it) => {
            world.beliefs.process_state(&it);
            react::cni::looked_at(world, &it);
        }
        Fact::RuntimeLink(it) => react::belief::linked(world, ctx, it),
        Fact::RuntimeStatus(it) => react::belief::stated(world, ctx, it),
        Fact::RuntimeEvent(it) => world.beliefs.told(ctx, &it),
        Fact::Attached(it) => react::watch::attached(world, it),
        Fact::Lost { what, count, since } => react::loss::lost(world, ctx, what, count, since),
        Fact::NetnsUnwatched { netns, unheard_since } => {
            react::watch::unwatched(world, ctx, netns, unheard_since);
        }
        Fact::AgentAway { since } => react::loss::unknown_since(world, ctx, Loss::NoAgent, since),
        Fact::AgentArrived => world.outbox.waits_since = ctx.at,
        Fact::AgentBegan { unheard_since } => react::agent::began(world, ctx, unheard_since),
        Fact::StateLost { since } => react::loss::unknown_since(world, ctx, Loss::State, since),
        Fact::FileHangs { path, since, hangs } => {
            if hangs {
                world.coverage.hanging.insert(path, since);
            } else {
                world.coverage.hanging.remove(&path);
            }
        }
        Fact::Resumed { .. } => world.node.woke_at = world.node.woke_at.max(ctx.at),
        Fact::Clock { boot_wall_ns } => world.boot.clock_set(boot_wall_ns),
        // The engine handles these itself.
        Fact::Watermark | Fact::RingsRead(_) => {}
    }
}

/// Runs the timers that are due by `now`.
pub(crate) fn timers(world: &mut World, now: Timestamp) {
    while let Some(name) = world.timers.pop(now) {
        match name {
            timer::Name::Reap => react::reap::reap(world, now),
            timer::Name::Relist => react::gap::relist(world, now),
            timer::Name::Records => react::reading::ask(world, now),
            timer::Name::Recovery => react::recovery::assess(world, now),
            timer::Name::Restarts => react::restart::due(world, now),
            timer::Name::Starts => react::start::due(world, now),
            timer::Name::Message => react::message::ask_last(world, now),
            timer::Name::Watch => react::watch::waiting(world, now),
            timer::Name::Statuses => react::belief::ask_statuses(world, now),
            timer::Name::Pulls => react::log_search::ask_pulls(world, now),
        }
    }
}
