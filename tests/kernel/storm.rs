//! Programs start as fast as the machine can while namespaces and cgroups come and go. Every program is
//! reported or counted as lost, and the lifecycle ring loses nothing.

use std::{collections::BTreeMap, thread};

use anyhow::{Context as _, Result, ensure};
use probe_common::{
    event::{KINDS, kind},
    tally::Ring,
};
use probe_user::{
    engine::decode::decode,
    model::fact::{Fact, Loss, Observation, RingsRead},
    source::live::tally::Totals,
};
use tests::{
    guard::cgroup::CgroupGuard,
    live::{Finished, Live, Setup, load},
    machine,
    storm::{self, Storm},
};

use crate::life::{Alive, Life, check, wait_for_the_end};

/// The numbers of programs, namespaces and cgroups.
struct Count {
    execs: usize,
    netns: usize,
    cgroups: usize,
}

fn count() -> Count {
    // An emulated machine needs a hundred times as long to start a program.
    if machine::is_emulated() {
        Count { execs: 100, netns: 8, cgroups: 8 }
    } else {
        Count { execs: 20_000, netns: 120, cgroups: 120 }
    }
}

#[test]
fn every_program_is_reported_or_counted_as_lost() -> Result<()> {
    let count = count();
    let storm = Storm::new()?;
    let mut live = Live::start(Setup { all_execs: true, ..Setup::default() })?;
    let hierarchy = live.hierarchy().clone();
    let raging = storm.start(count.execs)?;
    let (lives, cgroups) = thread::scope(|scope| -> Result<_> {
        let lives = scope.spawn(|| begin_and_end(count.netns));
        let mut cgroups = Vec::new();
        for _ in 0..count.cgroups {
            let cgroup = CgroupGuard::create(&hierarchy)?;
            cgroups.push(cgroup.id().id);
            cgroup.end()?;
        }
        let lives = lives.join().map_err(|_panic| anyhow::anyhow!("the maker of namespaces panicked"))??;
        Ok((lives, cgroups))
    })?;
    let makers = raging.end()?;
    wait_for_the_end(&mut live, &lives)?;
    let finished = live.finish()?;

    check(&finished.seen, &lives)?;
    for id in cgroups {
        let of_it = |is: fn(&Fact) -> Option<u64>| {
            finished.seen.iter().filter(|one| is(&one.fact) == Some(id)).count()
        };
        ensure!(of_it(created) == 1 && of_it(removed) == 1, "cgroup {id}");
    }
    ensure!(
        sum(&finished.totals.lost(Ring::Lifecycle)) == 0,
        "lost on the lifecycle ring: {:?}",
        finished.totals
    );

    let path = storm.path()?;
    let execs =
        finished.seen.iter().filter(|one| matches!(&one.fact, Fact::Executed(one) if one.filename == path));
    let is_ours = |one: &&Observation| match &one.fact {
        Fact::Exited(one) => makers.contains(&one.task.parent.pid) && one.task.comm == storm::NAME,
        _ => false,
    };
    let exits = finished.seen.iter().filter(is_ours);
    check_all(&finished.totals, kind::EXEC, execs.count(), count.execs)?;
    check_all(&finished.totals, kind::EXIT, exits.count(), count.execs)?;
    let lost = sum(&finished.totals.lost(Ring::Bulk));
    ensure!(lost == 0, "{lost} records lost on the bulk ring, which has room for all");
    check_sums(&finished)
}

#[test]
fn records_that_find_no_room_are_counted() -> Result<()> {
    const PAGE: u32 = 4096;
    const EXECS: usize = 40;
    let storm = Storm::new()?;
    let path = storm.path()?;
    let (mut probe, _) = load(Setup { all_execs: true, bulk: Some(PAGE), ..Setup::default() })?;
    let mut rings = probe.take_rings().context("the rings are taken")?;
    // Nobody reads the rings meanwhile.
    storm.start(EXECS)?.end()?;
    let totals = probe.totals()?;
    let mut seen = 0;
    while let Some(record) = rings.bulk.next() {
        let seen_now = decode(&record).context("a record is unreadable")?;
        seen += usize::from(matches!(seen_now.fact, Fact::Executed(one) if one.filename == path));
    }
    ensure!(seen < EXECS, "a ring of a page has room for {EXECS} programs");
    check_all(&totals, kind::EXEC, seen, EXECS)
}

/// Makes and ends namespaces one after the other, in each way.
fn begin_and_end(count: usize) -> Result<Vec<Life>> {
    (0..count).map(|i| Life::begin(i).and_then(Alive::end)).collect()
}

fn created(fact: &Fact) -> Option<u64> {
    match fact {
        Fact::CgroupCreated { cgroup, .. } => Some(cgroup.key.id),
        _ => None,
    }
}

fn removed(fact: &Fact) -> Option<u64> {
    match fact {
        Fact::CgroupRemoved { cgroup, .. } => Some(cgroup.key.id),
        _ => None,
    }
}

/// Checks that each of `made` is seen or counted. Other processes of the machine may have lost records too.
fn check_all(totals: &Totals, kind: u16, seen: usize, made: usize) -> Result<()> {
    let lost = totals.lost(Ring::Bulk)[usize::from(kind)];
    let missing = u64::try_from(made)?.checked_sub(u64::try_from(seen)?);
    // Where hooks can be preempted, the kernel skips some runs. It counts them, but not by kind of record.
    let skipped = totals.skipped();
    let all_found = missing.is_some_and(|missing| missing <= lost + skipped);
    ensure!(
        all_found,
        "kind {kind}: made {made}, reported {seen}, counted {lost} as lost and {skipped} as skipped"
    );
    Ok(())
}

/// Checks that the number of received records of each kind is the number sent, and that each loss is
/// reported.
fn check_sums(finished: &Finished) -> Result<()> {
    let mut seen = vec![0; KINDS];
    let mut lost: BTreeMap<Loss, u64> = BTreeMap::new();
    for one in &finished.seen {
        match &one.fact {
            Fact::Lost { what, count, .. } => *lost.entry(*what).or_default() += count,
            fact => {
                if let Some(kind) = kind_of(fact) {
                    seen[usize::from(kind)] += 1;
                }
            }
        }
    }
    let totals = &finished.totals;
    let (lifecycle, bulk) = (totals.sent(Ring::Lifecycle), totals.sent(Ring::Bulk));
    for (kind, seen) in seen.into_iter().enumerate() {
        let sent = lifecycle[kind] + bulk[kind];
        // The bound on records that others made between the last read of the rings and the read of the
        // counters.
        const LATE: u64 = 100;
        ensure!(seen <= sent && sent <= seen + LATE, "kind {kind}: sent {sent}, reported {seen}");
    }
    let counted: BTreeMap<Loss, u64> = totals.tell_losses(&mut RingsRead::default()).into_iter().collect();
    ensure!(lost == counted, "reported {lost:?}, counted {counted:?}");
    Ok(())
}

fn kind_of(fact: &Fact) -> Option<u16> {
    Some(match fact {
        Fact::Executed(_) => kind::EXEC,
        Fact::CniCalled(_) => kind::CNI_CALL,
        Fact::Exited(_) => kind::EXIT,
        Fact::Signaled(_) => kind::SIGNAL,
        Fact::OomKilled(_) => kind::OOM_KILL,
        Fact::NetnsCreated { .. } => kind::NETNS_CREATED,
        Fact::NetnsDropped { .. } => kind::NETNS_DROPPED,
        Fact::NetnsFreed { .. } => kind::NETNS_FREED,
        Fact::CgroupCreated { .. } => kind::CGROUP_CREATED,
        Fact::CgroupRemoved { .. } => kind::CGROUP_REMOVED,
        Fact::CgroupReleased { .. } => kind::CGROUP_RELEASED,
        Fact::CgroupEntered { .. } => kind::CGROUP_ATTACHED,
        Fact::CgroupEmptied { .. } => kind::CGROUP_EMPTIED,
        Fact::Listened(_) => kind::LISTEN,
        // Where rtnetlink reports addresses, no record does.
        _ => return None,
    })
}

fn sum(counts: &[u64]) -> u64 {
    counts.iter().sum()
}
