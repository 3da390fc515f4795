//! Pods live on a real runtime while agents are killed, stopped and replaced. The streams of all agents
//! together report each life once, in agreement with the driver and the kernel's own trace.

use std::{
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::Value;
use tests::{
    clock,
    ftrace::{self, Record, Trace},
    kubelet::{Container, Pod, PodLife, Step},
    machine,
    node::Node,
    skipped,
    stream::Received,
    succession::{End, OTHERS, Place, check_numbers, scattered},
};

use crate::{
    LIMIT,
    events::{check_lines, name_containers, names_in, within},
    life::{ONE_CONTAINER, check_life_with_unnamed_netns},
    many::{check_many, live_many},
    phase::traced::Traced,
};

/// The plugins that the runtime calls for each pod.
const PLUGINS: &[&str] = &["loopback", "bridge", "host-local", "portmap"];

/// Returns the load for this machine: the number of pods, and how many run at a time.
fn load() -> (usize, usize) {
    match (machine::is_soak(), machine::is_emulated()) {
        (true, false) => (400, 4),
        (false, false) => (24, 4),
        (true, true) => (20, 2),
        (false, true) => (3, 1),
    }
}

#[test]
fn each_life_is_told_once_whatever_becomes_of_the_agents() -> Result<()> {
    skipped::retry(|_| {
        let node = Node::start()?;
        let (count, concurrency) = load();
        let mut place = Place::new()?;
        place.run(&[])?.attached()?;
        let trace = Trace::start(ftrace::LIVES)?;
        let kubelet = node.kubelet()?;
        let lives = thread::scope(|scope| -> Result<_> {
            let living = scope.spawn(|| live_many(&kubelet, count, concurrency));
            let mut round = 0;
            while !living.is_finished() {
                round += 1;
                one_agent(&mut place, round, &living)?;
            }
            living.join().map_err(|_panic| anyhow!("a worker panicked"))?
        })?;
        let mut last = place.run(&[])?;
        last.attached()?;
        let told = clock::poll("the end of each pod", machine::patience(), || {
            let events = place.events()?;
            Ok((untold(&events, &lives).is_empty() || skipped::is_told(&events)).then_some(()))
        });
        let status = last.end(End::Stopped)?;
        let records = trace.end()?;
        node.stop()?;
        ensure!(status.success(), "{status}\n{}", place.errors());
        let events = place.events()?;
        told.with_context(|| format!("{}\nthe ends of {:?}", place.errors(), untold(&events, &lives)))?;
        let (agents, said) = (place.runs, place.errors());
        check(&place, &lives, records).map_err(|error| {
            anyhow!("{error:#}\nof {agents} agents, which said\n{said}\nand told\n{}", place.shown())
        })
    })
}

/// Hooks record what the OOM killer does while nobody reads them.
#[test]
fn an_oom_that_no_agent_saw_is_told() -> Result<()> {
    skipped::retry(|_| {
        let node = Node::start()?;
        let mut place = Place::new()?;
        let mut first = place.run(&[])?;
        first.attached()?;
        first.end(End::Killed)?;
        let pod =
            Pod::new("hungry-0", "7a1cb95b-0000-4000-8000-000000000013").with(Container::eater("eater"));
        let life = node.kubelet()?.live(&pod, LIMIT)?;
        let eater = &life.containers[0];
        let mut second = place.run(&[])?;
        second.attached()?;
        let told = clock::poll("the container's end", machine::patience(), || {
            let events = place.events()?;
            let is_its = |event: &&Value| {
                event["event"] == "container.exited" && event["container"]["id"] == eater.started.id
            };
            Ok(events.iter().find(is_its).cloned())
        });
        second.end(End::Stopped)?;
        node.stop()?;
        let exited = told?;
        ensure!(exited["process"]["oom"] == true && exited["process"]["exit_code"] == 137, "{exited}");
        within(&exited, Step { asked: eater.run.asked, done: eater.exit_known })
    })
}

/// Runs an agent for a time that differs in each round. Every third agent ends normally, every fifth has
/// other hooks, and there is a pause without an agent between two.
fn one_agent<T>(place: &mut Place, round: usize, living: &ScopedJoinHandle<'_, T>) -> Result<()> {
    let longest = if machine::is_emulated() { 12_000 } else { 1_500 };
    let mut run = place.run(if round % 5 == 4 { OTHERS } else { &[] })?;
    if round.is_multiple_of(3) {
        run.attached()?;
    }
    thread::sleep(Duration::from_millis(scattered(round, longest)));
    run.end(if round.is_multiple_of(3) { End::Stopped } else { End::Killed })?;
    if !living.is_finished() {
        thread::sleep(Duration::from_millis(scattered(round + 1000, longest / 2)));
    }
    Ok(())
}

/// Returns the names of the pods whose end is not reported.
fn untold<'a>(events: &[Value], lives: &'a [PodLife]) -> Vec<&'a str> {
    let is_freed = |life: &&PodLife| {
        events.iter().any(|event| event["event"] == "netns.freed" && event["pod"]["uid"] == life.uid)
    };
    lives.iter().filter(|life| !is_freed(life)).map(|life| life.name.as_str()).collect()
}

fn check(place: &Place, lives: &[PodLife], records: Vec<Record>) -> Result<()> {
    let (mut events, _) = check_numbers(place.events()?)?;
    name_containers(&mut events, &names_in(lives));
    let mut received = Received::default();
    received.events = events;
    let skipped = received.lost()?;
    let is_wrong = |event: &&Value| {
        let finding = &event["finding"];
        // A runtime under load may not answer in time, which is reported.
        let is_known = finding["kind"] == "blind_spot" && (skipped > 0 || finding["detail"]["what"] == "cri");
        !finding.is_null() && !is_known
    };
    let findings: Vec<_> = received.events.iter().filter(is_wrong).collect();
    ensure!(findings.is_empty(), "nothing is wrong on this node: {findings:#?}");
    // If several namespaces are made at once while no agent looks at their paths, only the processes in them
    // show the owner. That may be after the maximum time that a change waits for a name.
    check_many(lives, skipped, |life| check_life_with_unnamed_netns(&received, life, ONE_CONTAINER))?;
    if skipped > 0 {
        // The trace shows what the hooks could not see.
        return Ok(());
    }
    let traced = Traced::new(records);
    traced.check_calls(&received, PLUGINS)?;
    let made = |paths: Vec<&str>| {
        let of_pod = |path: &&str| lives.iter().any(|life| is_of(path, life));
        let mut paths: Vec<_> = paths.into_iter().filter(of_pod).map(str::to_owned).collect();
        paths.sort_unstable();
        paths.join("\n")
    };
    let told = received.named("cgroup.created").filter_map(|event| event["cgroup"]["path"].as_str());
    check_lines(
        &made(told.collect()).lines().map(str::to_owned).collect::<Vec<_>>(),
        &made(traced.cgroups().collect()),
    )
}

/// Whether a cgroup belongs to this pod, with or without the systemd driver.
fn is_of(path: &str, life: &PodLife) -> bool {
    path.contains(&life.uid) || path.contains(&life.uid.replace('-', "_"))
}
