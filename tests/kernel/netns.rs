//! Network namespaces are made and ended in every way. Each creation, drop and freeing is reported once.

use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use probe_user::model::{
    fact::{Fact, Mechanism, Observation, Origin, Signal, Task},
    id::NetnsKey,
};
use tests::{
    guard::{
        address::{AddressGuard, Prefix},
        netns::MountedNetns,
    },
    live::{Live, Setup, Shared, check_no_loss},
    machine, skipped,
};

use crate::life::{Alive, Life, WAYS, chain, check, has_reuse, wait_for_the_end};

/// The number of namespaces on a machine that is not emulated.
const COUNT: usize = 300;

/// The number of namespaces that each of two makers holds at a time: two of each way.
const TOGETHER: usize = 2 * WAYS;

#[test]
fn each_is_reported_once_by_the_best_mechanism() -> Result<()> {
    skipped::retry(|attempt| come_and_go(&mut *Shared::start()?, &[], share(attempt)))
}

#[test]
fn each_is_reported_once_by_kprobes() -> Result<()> {
    come_and_go_without(&[Mechanism::Fentry, Mechanism::Fexit])
}

#[test]
fn each_is_reported_once_by_tracepoints() -> Result<()> {
    come_and_go_without(&[Mechanism::Fentry, Mechanism::Fexit, Mechanism::Kprobe, Mechanism::Kretprobe])
}

/// The shipped table has room for 1,024 namespaces. Two are quicker to exceed.
#[test]
fn rtnetlink_reports_the_ends_of_namespaces_beyond_the_tracked_ones() -> Result<()> {
    const ROOM: u32 = 2;
    const COUNT: usize = 12;
    let refused = [Mechanism::Fentry, Mechanism::Fexit, Mechanism::Kprobe, Mechanism::Kretprobe];
    let mut live = Live::start(Setup { refused: &refused, nets: Some(ROOM), ..Setup::default() })?;
    let made = (0..COUNT).map(|_| MountedNetns::create()).collect::<Result<Vec<_>>>()?;
    let begun = live.until("all beginnings", |seen| {
        let begun: Vec<_> = made.iter().filter_map(|netns| created(seen, netns.inode())).collect();
        (begun.len() == COUNT).then_some(begun)
    })?;
    let unseen: Vec<_> = begun.iter().filter(|(_, _, end_unseen)| *end_unseen).collect();
    ensure!(
        unseen.len() >= COUNT - ROOM as usize,
        "only {} of {COUNT} are reported with an unseen end",
        unseen.len()
    );
    for (key, by, _) in &begun {
        live.watch(*key, by);
    }
    // One thread sends these in order. The addresses of the last namespace show that all are watched.
    let (last, _, _) = begun.last().context("none was made")?;
    let guard = AddressGuard::add(
        made.last().context("none was made")?,
        "lo",
        &[Prefix { address: "192.0.2.7".parse()?, length: 32 }],
    )?;
    live.until("the last one's address", |seen| {
        let is_last = |one: &Observation| {
            matches!(&one.fact, Fact::AddressAdded(it) | Fact::AddressFound(it) if it.netns == *last)
        };
        seen.iter().any(is_last).then_some(())
    })?;
    drop(guard);
    made.into_iter().try_for_each(MountedNetns::end)?;
    live.until("all ends", |seen| {
        let is_reported = |key: &NetnsKey, origin: Origin| {
            let of = |one: &Observation| {
                matches!(&one.fact, Fact::NetnsDropped { netns, .. } if netns == key) && one.origin == origin
            };
            seen.iter().any(of)
        };
        begun.iter().all(|(key, _, _)| is_reported(key, Origin::Netlink)).then_some(())
    })?;
    let finished = live.finish()?;
    let counted = finished.totals.netns_untracked();
    ensure!(counted >= u64::try_from(unseen.len())?, "counted {counted} of {}", unseen.len());
    Ok(())
}

fn created(seen: &[Observation], inode: u32) -> Option<(NetnsKey, Task, bool)> {
    seen.iter().rev().find_map(|one| match &one.fact {
        Fact::NetnsCreated { netns, by, end_unseen } if netns.inode == inode => {
            Some((*netns, by.clone(), *end_unseen))
        }
        _ => None,
    })
}

fn come_and_go_without(refused: &[Mechanism]) -> Result<()> {
    skipped::retry(|attempt| {
        come_and_go(&mut Live::start(Setup { refused, ..Setup::default() })?, refused, share(attempt))
    })
}

/// Returns the number of namespaces that each maker makes.
fn share(attempt: u32) -> usize {
    machine::share_of(COUNT) >> attempt
}

fn come_and_go(live: &mut Live, refused: &[Mechanism], count: usize) -> Result<()> {
    let signals = [Signal::NetnsCreated, Signal::NetnsDropped, Signal::NetnsFreed];
    let by = signals.map(|signal| live.mechanism(signal));
    let expected = expected(refused);
    ensure!(by == expected.map(Some), "{by:?}: {:?}", signals.map(|signal| live.missed(signal)));

    let mut lives: Vec<Life> = Vec::new();
    for round in 0..count.div_ceil(2 * TOGETHER) {
        // Namespaces begin while others end, on another CPU if there is one.
        lives.extend(by_two(begin_and_end)?);
        // Every other round begins while the kernel still frees the namespaces of the round before.
        if round % 2 == 1 {
            wait_for_the_end(live, &lives)?;
        }
    }
    wait_for_the_end(live, &lives)?;
    lives.extend(by_two(|| chain(count))?);
    wait_for_the_end(live, &lives)?;
    let seen = live.settled()?;
    check_no_loss(&seen)?;
    // The kernel gives the lowest free inode, and between the rounds all inodes of the test are free.
    ensure!(has_reuse(&lives), "no inode was reused: {lives:?}");
    check(&seen, &lives)
}

/// Returns the namespaces that two threads make at the same time.
fn by_two(make: impl Fn() -> Result<Vec<Life>> + Copy + Send) -> Result<Vec<Life>> {
    thread::scope(|scope| {
        let makers = [(); 2].map(|()| scope.spawn(make));
        let made = makers.map(|maker| maker.join().map_err(|_panic| anyhow!("a maker panicked"))?);
        Ok(made.into_iter().collect::<Result<Vec<_>>>()?.concat())
    })
}

fn begin_and_end() -> Result<Vec<Life>> {
    let begun = (0..TOGETHER).map(Life::begin).collect::<Result<Vec<_>>>()?;
    begun.into_iter().map(Alive::end).collect()
}

/// Returns the expected mechanisms for creation, drop and freeing.
fn expected(refused: &[Mechanism]) -> [Mechanism; 3] {
    use Mechanism::{Fentry, Fexit, Kprobe, Kretprobe, RawTracepoint, Tracepoint};
    if !machine::has_kprobes() || refused.contains(&Kprobe) {
        [Tracepoint, RawTracepoint, RawTracepoint]
    } else if refused.contains(&Fentry) {
        [Kretprobe, Kprobe, Kprobe]
    } else {
        [Fexit, Fentry, Fentry]
    }
}
