//! Pods come and go while programs begin and end as fast as the machine can start them: what is not told of those is
//! counted, and nothing of the pods is lost.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use tests::{
    clock, machine,
    node::Node,
    storm::{self, Storm},
    stream::{SKIPPED, Stream, Told},
};

use crate::{
    life::{ONE_CONTAINER, check_life_in_haste},
    many::{check_many, live_many, until_gone},
};

/// What is enough for a machine; it may take more until the last pod is gone.
struct Enough {
    execs: usize,
    pods: usize,
    at_once: usize,
}

impl Enough {
    fn of_this_machine() -> Self {
        // To start a program takes a hundred times as long where the machine is emulated.
        if machine::is_emulated() {
            Self { execs: 200, pods: 1, at_once: 1 }
        } else {
            Self { execs: 20_000, pods: 12, at_once: 4 }
        }
    }
}

#[test]
fn pods_are_told_whole_in_a_storm_of_programs() -> Result<()> {
    let enough = Enough::of_this_machine();
    let node = Node::start()?;
    let storm = Storm::new()?;
    let mut stream = Stream::start(&["watch", "--all-execs"])?;
    let pods_are_gone = AtomicBool::new(false);
    let (lives, made, calm) = thread::scope(|scope| -> Result<_> {
        let raging = scope.spawn(|| rage(&storm, enough.execs, &pods_are_gone));
        let lives = node.kubelet().and_then(|kubelet| live_many(&kubelet, enough.pods, enough.at_once));
        pods_are_gone.store(true, Ordering::Relaxed);
        let (made, calm) = raging.join().map_err(|_panic| anyhow!("the storm panicked"))??;
        Ok((lives?, made, calm))
    })?;
    for life in &lives {
        ensure!(life.sandbox.removed.done <= calm, "{} outlived a storm of {made} programs", life.name);
    }
    until_gone(&mut stream, &lives)?;
    let (told, said) = stream.end()?;
    let skipped = all_are_told_or_counted(&told, storm.path()?, made).context(said)?;
    check_many(&lives, skipped, |life| check_life_in_haste(&told, life, ONE_CONTAINER))?;
    node.stop()
}

/// Starts at least `enough` programs and goes on while there are pods, though not for ever. Gives how many it were,
/// and when the last had ended.
fn rage(storm: &Storm, enough: usize, pods_are_gone: &AtomicBool) -> Result<(usize, u64)> {
    /// Parts of what is enough, with hardly a moment between them.
    const PARTS: usize = 8;
    const MOST: usize = 8 * PARTS;
    let mut made = 0;
    for part in 0..MOST {
        if part >= PARTS && pods_are_gone.load(Ordering::Relaxed) {
            break;
        }
        storm.rage(enough / PARTS)?.end()?;
        made += enough / PARTS;
    }
    Ok((made, clock::boot_ns()?))
}

/// Checks that of the storm nothing is missing but what is counted, and that nothing else is lost. Gives how many runs
/// of hooks the kernel itself skipped.
fn all_are_told_or_counted(told: &Told, path: &str, made: usize) -> Result<u64> {
    let execs = told.named("process.exec").filter(|event| event["process"]["filename"] == path).count();
    let exits = told.named("process.exit").filter(|event| event["process"]["comm"] == storm::NAME).count();
    let mut losses = told.losses()?;
    let bulk = losses.remove("bulk_ring").unwrap_or(0);
    let skipped = losses.remove(SKIPPED).unwrap_or(0);
    ensure!(losses.is_empty(), "lost of what matters: {losses:?}");
    // Each for itself: a program that was not seen to begin is not told to end either.
    for told in [execs, exits] {
        let missing = made.checked_sub(told).map(u64::try_from).transpose()?;
        ensure!(
            missing.is_some_and(|missing| missing <= bulk + skipped),
            "made {made}, told of {execs} and of the end of {exits}, counted {bulk} as lost and {skipped} as skipped"
        );
    }
    Ok(skipped)
}
