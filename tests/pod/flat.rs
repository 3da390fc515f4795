//! The resources of agents do not grow while pods come and go and one agent after the other is killed.

use std::{
    io::{Write as _, stderr},
    thread,
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

/// Returns the number of agents, the portions of pods during each agent, and the time between portions. The
/// pace is constant, because it decides how much the agents keep about the pods of the last quarter of an
/// hour.
fn load() -> (usize, usize, Duration) {
    if machine::is_soak() { (10, 18, Duration::from_secs(10)) } else { (3, 1, Duration::ZERO) }
}

/// The number of pods in each portion.
const PORTION: usize = 10;

/// Data about pods that are gone, such as the latest starts, grows up to its bounds.
const MEMORY: u64 = 4 << 20;
const MAPS: u64 = 64 << 10;
/// The files of the cgroups of the latest pods stay open until the next ones are read.
const DESCRIPTORS: u64 = 128;
/// An agent is at rest if nothing changed for this time.
const RESTS: Duration = Duration::from_secs(1);

#[test]
fn what_agents_hold_does_not_grow() -> Result<()> {
    let node = Node::start()?;
    let kubelet = node.kubelet()?;
    let (agents, portions, pace) = load();
    let mut place = Place::new()?;
    let mut samples = Vec::new();
    let mut count = 0;
    for agent in 1..=agents {
        let mut run = place.run(&[])?;
        run.attached()?;
        let mut lives = Vec::new();
        for _portion in 0..portions {
            let next = Instant::now() + pace;
            lives = live_many(&kubelet, PORTION, 4)?;
            count += PORTION;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        let sample = settled(&place, &run, &lives).with_context(|| place.errors())?;
        writeln!(stderr(), "agent {agent}, {count} pods: {sample:?}")?;
        samples.push(sample);
        // The last agent is killed too, so that its remains in the kernel count.
        run.end(End::Killed)?;
    }
    node.stop()?;
    // In the middle of the long run, an agent has forgotten the first pods, and keeps the maximum number of
    // starts.
    let (first, last) = samples.get(agents / 2).zip(samples.last()).context("two agents")?;
    let (programs, held) = first;
    let grown = |what: &str, first: u64, last: u64, by: u64| {
        ensure!(last <= first + by, "{what} grew from {first} to {last}: {samples:#?}");
        Ok(())
    };
    grown("the memory", held.memory, last.1.memory, MEMORY)?;
    grown("what the maps hold", held.maps, last.1.maps, MAPS)?;
    grown("the descriptors", held.descriptors.try_into()?, last.1.descriptors.try_into()?, DESCRIPTORS)?;
    ensure!(
        (*programs, held.threads) == (last.0, last.1.threads),
        "there are other programs or threads: {samples:#?}"
    );
    Ok(())
}

/// Returns the agent's resources after it has reported the end of these pods and has stopped reading, with
/// the number of programs in the kernel.
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
    // Threads that read files end when they have nothing to do, and the agent may connect to the runtime
    // again.
    let mut before: Option<((usize, usize, usize), Instant)> = None;
    clock::poll("an agent at rest", machine::patience(), || {
        let (programs, held) = (loaded::programs()?.len(), Held::of(run.child.id())?);
        let now = (programs, held.threads, held.descriptors);
        let since = before.filter(|(then, _)| *then == now).map_or_else(Instant::now, |(_, since)| since);
        before = Some((now, since));
        Ok((since.elapsed() >= RESTS).then_some((programs, held)))
    })
}
