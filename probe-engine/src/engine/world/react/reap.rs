//! Forgets the rows of ended things after a while, and limits the attachments of failed tries. While a pod's
//! ADD fails, the runtime makes another sandbox every few seconds, and each has attachments of its own. The
//! latest few of one pod and interface are kept.
//!
//! **Invariant:** the number of attachments is bounded by the number of live sandboxes and of held addresses.
//! The counts of a dropped attachment are first added to the oldest attachment that stays: the number of
//! failed ADDs, the time of the first, and how long they took.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{ledger, release};
use crate::{
    engine::{
        timer,
        world::{
            World,
            lookup::{self, rebuild},
            table::{
                self,
                attachment::{Lease, tries::TRIES},
                record::HasRecord,
                sandbox::Sandbox,
            },
        },
    },
    model::{
        fact::{PodName, Signal},
        id::{ContainerId, TaskKey},
        time::Timestamp,
    },
};

/// At most this many attachments without any lease are kept of all pods together.
const ALL_TRIES: usize = 8192;

/// How long a daemon may take to end after a signal. systemd kills it after 90 s, unless its unit says
/// otherwise. One that runs on after this time did not obey.
pub(crate) const STOPPING: Duration = Duration::from_secs(5 * 60);

/// The tables are searched for old rows at most this often.
const EVERY: Duration = Duration::from_secs(10);

/// At most this many processes are remembered. There can be as many only if every exec is seen and the ends
/// are lost.
const PROCESSES: usize = 65_536;

/// How long a stopped sandbox without containers is remembered. If three such sandboxes were made within the
/// window, the first is needed as long as the last.
pub(crate) const UNUSED: Duration = Duration::from_secs(15 * 60).saturating_add(rebuild::WINDOW);

/// How long the evidence of a stopped sandbox is kept if no record holds an address for it.
const SETTLED: Duration = Duration::from_secs(3 * 60);

/// Forgets what ended long enough ago.
pub(crate) fn reap(world: &mut World, now: Timestamp) {
    // Changes that wait to be reported need the rows of their time. A new agent takes in minutes at once, and
    // reports at their end.
    let past = world.outbox.held().map(|held| held.at).fold(now, Timestamp::min);
    let old = past.saturating_sub(table::GRACE);
    reap_processes(world, old);
    reap_signals(world, past, old);
    let end_reported =
        world.coverage.attached.get(&Signal::NetnsFreed).is_none_or(|it| it.mechanism.is_some());
    world.netns.reap(old, end_reported);
    reap_containers(world, past, old);
    world.cgroups.reap(old);
    release::judge(world, now);
    ledger::ask(world, now);
    reap_remembered(world, past);
    world.hints.retain(|_, hint| hint.at > old);
    world.pods.names.retain(|_, name| name.at > old);
    if has_dead(world) {
        world.timers.arm_earlier(timer::Name::Reap, now + EVERY);
    }
}

fn reap_processes(world: &mut World, old: Timestamp) {
    let mut gone: Vec<_> = world.processes.over_by(old).collect();
    let excess = (world.processes.len() - gone.len()).saturating_sub(PROCESSES);
    if excess > 0 {
        // The processes with the lowest keys are the ones that began first.
        gone.extend(
            world
                .processes
                .values()
                .filter(|row| {
                    !matches!(row.state, table::process::State::Exited { at } if at <= old)
                        && !world.calls.contains_key(&row.key)
                })
                .map(|row| row.key)
                .take(excess),
        );
    }
    for key in gone {
        world.processes.remove(key);
    }
}

/// Forgets old signals.
fn reap_signals(world: &mut World, now: Timestamp, old: Timestamp) {
    let running = world.processes.daemons().map(|row| row.key);
    let may_wait: BTreeSet<TaskKey> = running.chain(lookup::call::callers(world)).collect();
    let stopping = now.saturating_sub(STOPPING);
    world.processes.signals.retain(|_, heard| {
        heard.retain(|it| {
            it.at > old || it.at > stopping && it.tells_to_end() && may_wait.contains(&it.target)
        });
        !heard.is_empty()
    });
}

fn has_cgroup(cgroups: &table::cgroup::Table, row: &table::container::Container) -> bool {
    row.cgroup.and_then(|key| cgroups.get(&key)).is_some_and(table::cgroup::Cgroup::is_live)
}

fn reap_containers(world: &mut World, now: Timestamp, old: Timestamp) {
    for row in world.containers.values() {
        let table::container::State::Exited { at } = row.state else { continue };
        if at <= old && row.is_unplaced() && !has_cgroup(&world.cgroups, row) {
            world.sandboxes.note_unplaced(row);
        }
    }
    let cgroups = &world.cgroups;
    let sandboxes = &world.sandboxes;
    world.containers.reap(
        old,
        |row| has_cgroup(cgroups, row),
        |id| sandboxes.get(id).is_some_and(|row| !row.is_stopped()),
    );
    // A namespace that outlives its sandbox still belongs to it, unless no listing has it.
    let containers = &world.containers;
    let netns = &world.netns;
    world.sandboxes.remember(now, |row| {
        row.over_at().is_some_and(|at| at <= old)
            && !containers.contains_key(&row.id)
            && row
                .network
                .netns
                .is_none_or(|life| netns.get(life).is_none_or(|row| row.is_live() && !row.may_be_used()))
    });
    let mut unnamed = Vec::new();
    for row in world.pods.values() {
        if matches!(row.state, table::pod::State::Gone { at } if at <= old)
            && world.containers.group(table::container::Group::Pod(row.id)).next().is_none()
            && world.sandboxes.group(table::sandbox::Group::Pod(row.id)).next().is_none()
        {
            unnamed.push(row.id);
        }
    }
    for id in unnamed {
        world.pods.remove(id);
    }
}

/// Forgets old sandboxes and attachments that no verdict can need any more.
fn reap_remembered(world: &mut World, now: Timestamp) {
    let old = now.saturating_sub(table::MEMORY);
    let sandboxes = &world.sandboxes;
    let records = &world.records;
    let precedents = rebuild::precedents(world);
    let unused_old = now.saturating_sub(UNUSED);
    let forgotten = world.attachments.reap(
        |id| {
            let is_unused = sandboxes.recall(id).is_some_and(|row| row.containers().is_empty());
            if is_unused { unused_old } else { old }
        },
        |id| {
            sandboxes.get(id).is_some_and(|row| !row.is_stopped())
                || precedents.contains(id)
                || records.has_record(id) == HasRecord::Yes
        },
    );
    release::close_entries(world, now, forgotten);
    reap_tries(world, now, &precedents);
    let records = &world.records;
    let attachments = &world.attachments;
    // No verdict on a sandbox is expected once it ended a while ago and no record holds an address for it.
    // Only the row stays.
    let settled = now.saturating_sub(SETTLED);
    world.sandboxes.drop_evidence(|row| {
        row.over_at().is_some_and(|at| at <= settled)
            && !attachments.of(&row.id).any(|row| row.leases.iter().any(Lease::may_be_on_record))
    });
    // What outlives its sandbox is reported with the name of its pod.
    let kept: BTreeSet<&ContainerId> = world
        .netns
        .values()
        .filter(|row| row.unlisted_since.is_some() && row.is_live())
        .filter_map(|row| row.sandbox.as_ref())
        .collect();
    let mut done: BTreeSet<ContainerId> = world
        .sandboxes
        .all()
        .filter(|row| {
            let old = if row.containers().is_empty() { unused_old } else { old };
            row.is_remembered()
                && row.over_at().is_some_and(|at| at <= old)
                && !precedents.contains(&row.id)
                && records.has_record(&row.id) != HasRecord::Yes
                && attachments.of(&row.id).all(|row| row.leases.is_empty())
                && !kept.contains(&row.id)
        })
        .map(|row| row.id.clone())
        .collect();
    // This set is made only if it is needed, because there are many processes.
    if !done.is_empty() {
        for id in world.processes.monitored() {
            done.remove(id);
        }
    }
    world.sandboxes.forget(|row| !done.contains(&row.id));
}

/// Whether a row is waiting to be forgotten, or a store may be asked about one.
fn has_dead(world: &World) -> bool {
    !world.hints.is_empty()
        || !world.records.links.is_empty()
        || !world.pods.names.is_empty()
        || !world.processes.signals.is_empty()
        || world.sandboxes.all().any(Sandbox::is_stopped)
        || world.attachments.values().any(|row| !row.leases.iter().any(Lease::is_vouched))
        || world.processes.has_over()
        || world.netns.values().any(|row| !row.is_live())
        || world.cgroups.values().any(|row| !row.is_live())
        || world.containers.values().any(|row| !row.is_running())
        || world.pods.values().any(|row| !row.is_present())
}

/// Drops the oldest attachments that hold nothing: first of each pod that has too many, then of all pods.
///
/// `precedents`: stopped sandboxes that are needed to judge later sandboxes of the same pod.
fn reap_tries(world: &mut World, now: Timestamp, precedents: &BTreeSet<ContainerId>) {
    type OfPod<'a, T> = BTreeMap<(&'a PodName, &'a str), Vec<T>>;
    let mut tries: OfPod<'_, (Timestamp, &ContainerId)> = BTreeMap::new();
    for row in world.attachments.values() {
        let lives = world.sandboxes.get(&row.container).is_some_and(|row| !row.is_stopped());
        if row.leases.is_empty() && !row.is_busy() && !lives && !precedents.contains(&row.container) {
            tries.entry((&row.pod, &row.ifname)).or_default().push((row.last_at, &row.container));
        }
    }
    let mut connected: OfPod<'_, Timestamp> = BTreeMap::new();
    for row in world.attachments.values().filter(|row| !tries.is_empty() && row.is_added()) {
        let key = (&row.pod, row.ifname.as_str());
        if tries.contains_key(&key) {
            connected.entry(key).or_default().push(row.last_at);
        }
    }
    // Each dropped attachment, with the next attachment of its pod that stays.
    let mut dropped: Vec<(ContainerId, String, Option<ContainerId>)> = Vec::new();
    let mut rest: Vec<(Timestamp, ContainerId, String)> = Vec::new();
    for ((pod, ifname), mut all) in tries {
        all.sort_unstable();
        // Attachments without a pod's name are not tries for one pod.
        let excess = if *pod == PodName::default() { 0 } else { all.len().saturating_sub(TRIES) };
        let (over, kept) = all.split_at(excess);
        // A failure before the pod last had its network does not belong to the present failures.
        let successes = connected.get(&(pod, ifname)).map_or(&[][..], Vec::as_slice);
        for (before, id) in over {
            let heir = kept.first().filter(|(at, _)| successes.iter().all(|it| it <= before || it > at));
            let heir = heir.map(|(_, id)| (*id).clone());
            dropped.push(((*id).clone(), ifname.to_owned(), heir));
        }
        rest.extend(kept.iter().map(|(at, id)| (*at, (*id).clone(), ifname.to_owned())));
    }
    let excess = rest.len().saturating_sub(ALL_TRIES);
    rest.sort_unstable();
    dropped.extend(rest.into_iter().take(excess).map(|(_, id, ifname)| (id, ifname, None)));
    let mut open = Vec::new();
    for (id, ifname, heir) in dropped {
        let Some(row) = world.attachments.rows.remove(&(id, ifname.clone())) else { continue };
        if let Some(heir) = heir.and_then(|heir| world.attachments.rows.get_mut(&(heir, ifname))) {
            heir.count_earlier(&row);
        }
        if row.has_entry() {
            open.push(*row);
        }
    }
    release::close_entries(world, now, open);
}
