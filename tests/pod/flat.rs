//! What agents hold does not grow while pods come and go and one agent after the other is killed.

use std::{
    io::{Write as _, stderr},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tests::{
    clock,
    held::Held,
    kubelet::PodLife,
    loaded, machine,
    node::Node,
    succession::{End, Place, Run},
};

use crate::many::live_many;

/// How long each agent runs at least, how many agents there are, and how many pods live in between two looks at the time.
fn load() -> (Duration, usize, usize) {
    if machine::is_soak() { (Duration::from_secs(180), 10, 20) } else { (Duration::ZERO, 4, 8) }
}

/// What is kept of pods that are gone, as the latest starts, grows up to its bounds.
const MEMORY: u64 = 4 << 20;
const MAPS: u64 = 64 << 10;
/// An agent rests if nothing changed for so long.
const RESTS: Duration = Duration::from_secs(1);

#[test]
fn what_agents_hold_does_not_grow() -> Result<()> {
    let node = Node::start()?;
    let kubelet = node.kubelet()?;
    let (least, agents, portion) = load();
    let mut place = Place::new()?;
    let mut samples = Vec::new();
    let mut count = 0;
    for agent in 1..=agents {
        let mut run = place.run(&[])?;
        run.attached()?;
        let begun = Instant::now();
        let mut lives = Vec::new();
        while lives.is_empty() || begun.elapsed() < least {
            lives = live_many(&kubelet, portion, 4)?;
            count += portion;
        }
        let sample = settled(&place, &run, &lives).with_context(|| place.errors())?;
        writeln!(stderr(), "agent {agent}, {count} pods: {sample:?}")?;
        samples.push(sample);
        // The last one as well: what it leaves in the kernel counts too.
        run.end(End::Killed)?;
    }
    node.stop()?;
    // The first one has yet to learn what there is on this node.
    let (first, last) = samples.get(1).zip(samples.last()).context("two agents")?;
    let (programs, held) = first;
    let grown = |what: &str, first: u64, last: u64, by: u64| {
        ensure!(last <= first + by, "{what} grew from {first} to {last}: {samples:#?}");
        Ok(())
    };
    grown("the memory", held.memory, last.1.memory, MEMORY)?;
    grown("what the maps hold", held.maps, last.1.maps, MAPS)?;
    ensure!(
        (*programs, held.threads, held.descriptors) == (last.0, last.1.threads, last.1.descriptors),
        "there are other programs, threads or descriptors: {samples:#?}"
    );
    Ok(())
}

/// What the agent holds once it has told the end of these pods, and does not read any more; with the number of programs
/// in the kernel.
fn settled(place: &Place, run: &Run, lives: &[PodLife]) -> Result<(usize, Held)> {
    clock::poll("the end of each pod", machine::patience(), || {
        let events = place.events()?;
        let is_freed = |life: &PodLife| {
            events.iter().any(|event| {
                event["event"] == "netns.freed" && event["sandbox"]["id"] == life.sandbox.sandbox.id
            })
        };
        Ok(lives.iter().all(is_freed).then_some(()))
    })?;
    // Readers of files end when they have nothing to do, and a connection to the runtime may be made anew.
    let mut before: Option<((usize, usize, usize), Instant)> = None;
    clock::poll("an agent at rest", machine::patience(), || {
        let (programs, held) = (loaded::programs()?.len(), Held::of(run.child.id())?);
        let now = (programs, held.threads, held.descriptors);
        let since = before.filter(|(then, _)| *then == now).map_or_else(Instant::now, |(_, since)| since);
        before = Some((now, since));
        Ok((since.elapsed() >= RESTS).then_some((programs, held)))
    })
}
