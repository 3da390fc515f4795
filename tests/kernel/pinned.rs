//! Hooks outlive the agent. Agents are killed, stopped and replaced while a runtime calls its plugin all the
//! time. The streams of all agents together report each call once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, BufRead as _, BufReader},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use nix::sched::{CloneFlags, unshare};
use probe_common::{event::kind, tally::Ring};
use probe_user::{
    model::fact::{Fact, Loss, Observation},
    source::live::{
        attach::Pinning,
        pin::Pins,
        ring::{RingReader, SLACK},
        selftest::SelfTest,
    },
};
use serde_json::Value;
use tests::{
    clock,
    guard::{
        address::{AddressGuard, Prefix},
        netns::MountedNetns,
    },
    live::{Live, Setup, load},
    loaded::{programs, until_gone},
    machine, skipped,
    stream::is_unheard,
    succession::{End, OTHERS, Place, check_numbers, scattered},
};
use tokio::runtime;

use crate::{
    cni::call::{Environment, Runtime},
    container::new_id,
};

/// A runtime that calls its plugin for one sandbox after the other.
struct Churn {
    stop: Arc<AtomicBool>,
    worker: JoinHandle<Result<Vec<String>>>,
}

impl Churn {
    fn start() -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut runtime, stopped) = (Runtime::start()?, Arc::clone(&stop));
        let worker = thread::Builder::new().name("churn".to_owned()).spawn(move || {
            let mut ids = Vec::new();
            // On a slow machine too, some calls are left for the last agent.
            while !stopped.load(Ordering::Relaxed) || ids.len() < 2 * rounds() {
                let (id, n) = (new_id()?, ids.len());
                let pod = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-{n}");
                let add = Environment::of_add(&id).with("CNI_ARGS", &pod);
                let add = add.with("CNI_NETNS", &format!("/run/netns/cni-{n}"));
                runtime.call(&add, &[])?;
                runtime.call(&add.with("CNI_COMMAND", "DEL"), &[])?;
                ids.push(id);
                thread::sleep(pause());
            }
            Ok(ids)
        })?;
        Ok(Self { stop, worker })
    }

    /// Returns the ids of the sandboxes.
    fn end(self) -> Result<Vec<String>> {
        self.stop.store(true, Ordering::Relaxed);
        self.worker.join().map_err(|_panic| anyhow!("the churn panicked"))?
    }
}

/// Returns the calls of each sandbox in the streams.
fn calls(events: &[Value]) -> BTreeMap<&str, Vec<String>> {
    let mut calls: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for event in events {
        let of_call = ["cni.started", "cni.finished"].contains(&event["event"].as_str().unwrap_or_default());
        if let Some(id) = event["sandbox"]["id"].as_str().filter(|_| of_call) {
            let words = [&event["event"], &event["cni"]["command"]].map(|word| word.as_str().unwrap_or("?"));
            calls.entry(id).or_default().push(words.join(" "));
        }
    }
    calls
}

/// Checks that the agents together reported each call of each sandbox, and that nothing was lost. False if
/// the kernel skipped runs of hooks, as it may where they can be preempted. Then some records never existed.
fn check(place: &Place, ids: &[String]) -> Result<bool> {
    let all = place.events()?;
    if skipped::is_told(&all) {
        return Ok(false);
    }
    let is_gap = |event: &&Value| event["event"] == "gap" && !is_unheard(event);
    let gaps: Vec<_> = all.iter().filter(is_gap).map(ToString::to_string).collect();
    ensure!(gaps.is_empty(), "{gaps:#?}\n{}", place.errors());
    let (events, repeated) = check_numbers(all).with_context(|| place.errors())?;
    ensure!(repeated <= place.runs * EVENTS_OF_A_WRITE, "{repeated} events were written twice");
    check_calls(place, &events, ids)?;
    Ok(true)
}

/// Checks that each call of each sandbox is reported once, in order.
fn check_calls(place: &Place, events: &[Value], ids: &[String]) -> Result<()> {
    let told = calls(events);
    let expected = ["cni.started ADD", "cni.finished ADD", "cni.started DEL", "cni.finished DEL"];
    for (number, id) in ids.iter().enumerate() {
        let calls = told.get(id.as_str()).map_or(&[][..], Vec::as_slice);
        let count = ids.len();
        ensure!(calls == expected, "of {id}, {number} of {count}: {calls:?}\n{}", place.errors());
    }
    Ok(())
}

/// Repeats `attempt` while it returns false, because the kernel skipped runs of hooks.
pub(crate) fn without_skipped_runs(attempt: impl Fn() -> Result<bool>) -> Result<()> {
    const TRIES: usize = 3;
    for _ in 0..TRIES {
        if attempt()? {
            return Ok(());
        }
    }
    bail!("the kernel skipped runs of hooks each time")
}

/// The maximum number of events in one write of an agent at this runtime's speed. An agent that is killed
/// during the write cannot save that it wrote them.
const EVENTS_OF_A_WRITE: usize = 50;

/// Returns how long the runtime waits before the next sandbox. A long run may not have more sandboxes than a
/// state can hold.
fn pause() -> Duration {
    if machine::is_soak() { Duration::from_millis(10) } else { Duration::ZERO }
}

fn rounds() -> usize {
    if machine::is_soak() { 100 } else { machine::share_of(10) }
}

/// Runs agents one after the other while the runtime works. `end` returns how each one ends, and `arguments`
/// how each one is started.
fn follow(end: impl Fn(usize) -> End, arguments: impl Fn(usize) -> &'static [&'static str]) -> Result<()> {
    without_skipped_runs(|| follow_once(&end, &arguments))
}

fn follow_once(
    end: impl Fn(usize) -> End,
    arguments: impl Fn(usize) -> &'static [&'static str],
) -> Result<bool> {
    let mut place = Place::new()?;
    // The first agent sees the beginning.
    let mut first = place.run(arguments(0))?;
    first.attached()?;
    let churn = Churn::start()?;
    first.end(end(0))?;
    for round in 1..rounds() {
        let mut run = place.run(arguments(round))?;
        if round % 3 == 0 {
            run.attached()?;
        }
        let longest = if machine::is_emulated() { 8_000 } else { 1_200 };
        thread::sleep(Duration::from_millis(scattered(round, longest)));
        run.end(end(round))?;
        thread::sleep(Duration::from_millis(scattered(round + 1000, 200)));
    }
    let mut last = place.run(arguments(0))?;
    last.attached()?;
    let ids = churn.end()?;
    let status = last.end(End::Stopped)?;
    ensure!(status.success(), "{status}\n{}", place.errors());
    check(&place, &ids)
}

#[test]
fn agents_that_are_killed_or_stopped_at_any_moment_leave_nothing_out() -> Result<()> {
    follow(|round| if round % 3 == 1 { End::Stopped } else { End::Killed }, |_| &[])
}

/// The test does what an upgrade to a version with other hooks does, and back.
#[test]
fn hooks_that_are_replaced_leave_nothing_out() -> Result<()> {
    follow(|_| End::Killed, |round| if round % 2 == 0 { &[] } else { OTHERS })
}

/// Only the hooks that saw the beginning of a delegate's call know that the process is a delegate.
#[test]
fn a_delegates_call_is_told_to_its_end_if_hooks_are_replaced_meanwhile() -> Result<()> {
    without_skipped_runs(|| {
        let mut place = Place::new()?;
        let mut first = place.run(OTHERS)?;
        first.attached()?;
        let (runtime, id) = (Runtime::start()?, new_id()?);
        let add = Environment::of_add(&id).with("CNI_PATH", &runtime.folder()?);
        let mut delegate = vec!["run".to_owned()];
        delegate.extend(runtime.plugin("host-local", &add)?);
        delegate.push("wait".to_owned());
        let mut command = runtime.command(&add, &[], &delegate)?;
        let mut call = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut ready = String::new();
        BufReader::new(call.stdout.as_mut().context("piped")?).read_line(&mut ready)?;
        ensure!(ready == "ready\n", "{ready:?}");
        first.end(End::Killed)?;

        let mut second = place.run(&[])?;
        second.attached()?;
        drop(call.stdin.take());
        call.wait()?;
        let status = second.end(End::Stopped)?;
        ensure!(status.success(), "{status}\n{}", place.errors());
        let events = place.events()?;
        let told = calls(&events).remove(&*id).unwrap_or_default();
        let expected = ["cni.started ADD", "cni.started ADD", "cni.finished ADD", "cni.finished ADD"];
        ensure!(skipped::is_told(&events) || told == expected, "{told:?}\n{}", place.errors());
        Ok(!skipped::is_told(&events))
    })
}

/// Where only rtnetlink reports addresses, each agent's watches end with it.
#[test]
fn an_address_of_a_namespace_that_the_last_agent_knew_is_told_by_the_next() -> Result<()> {
    let mut place = Place::new()?;
    let mut first = place.run(&[])?;
    first.attached()?;
    let netns = MountedNetns::create()?;
    let tells = |place: &Place, event: &str, is_it: &dyn Fn(&Value) -> bool| {
        clock::poll(event, machine::patience(), || {
            let told = place.events()?.iter().any(|it| it["event"] == event && is_it(it));
            Ok(told.then_some(()))
        })
    };
    let inode = netns.inode();
    let is_its = |event: &Value| event["netns"]["inode"] == inode;
    tells(&place, "netns.created", &is_its)?;
    first.end(End::Killed)?;
    let mut second = place.run(&[])?;
    second.attached()?;
    let address = Prefix { address: "192.0.2.9".parse()?, length: 32 };
    let guard = AddressGuard::add(&netns, "lo", &[address])?;
    let is_added = |event: &Value| is_its(event) && event["address"]["address"] == "192.0.2.9";
    let told = tells(&place, "address.added", &is_added);
    guard.end()?;
    netns.end()?;
    let gone = tells(&place, "netns.destroyed", &is_its);
    second.end(End::Stopped)?;
    told.and(gone).with_context(|| place.errors())
}

#[test]
fn a_second_agent_says_who_is_there_or_takes_over() -> Result<()> {
    let mut place = Place::new()?;
    let mut first = place.run(&[])?;
    first.attached()?;
    let pid = first.child.id().to_string();
    let mut refused = place.run(&[])?;
    let status = refused.child.wait()?;
    let said = fs::read_to_string(&refused.errors)?;
    ensure!(status.code() == Some(2) && said.lines().count() == 1, "{status}: {said}");
    ensure!(said.contains(&format!("(process {pid})")) && said.contains("--take-over"), "{said}");
    let detach = place.command("detach")?.output()?;
    ensure!(detach.status.code() == Some(2), "an agent has the hooks: {detach:?}");
    let said = String::from_utf8(detach.stderr)?;
    let names = said.contains(&format!("(process {pid})")) && said.contains("give --wait");
    ensure!(names && !said.contains("--take-over"), "{said}");
    let mut second = place.run(&["--take-over"])?;
    let banner = second.attached()?;
    ensure!(banner.contains("hooks taken over"), "{banner}");
    ensure!(first.child.wait()?.success(), "it was not ended in order");
    second.end(End::Stopped)?;
    Ok(())
}

/// A supervisor starts the next agent at once. The killed one may still hold the folder, and nobody has
/// waited for its end.
#[test]
fn an_agent_right_behind_a_kill_is_not_refused() -> Result<()> {
    let mut place = Place::new()?;
    let mut first = place.run(&[])?;
    first.attached()?;
    first.child.kill()?;
    let mut second = place.run(&[])?;
    let banner = second.attached()?;
    ensure!(banner.contains("hooks taken over"), "{banner}");
    first.child.wait()?;
    second.end(End::Stopped)?;
    Ok(())
}

#[test]
fn detach_leaves_nothing_behind() -> Result<()> {
    let before = programs()?;
    let mut place = Place::new()?;
    place.run(&[])?.attached()?;
    let own: BTreeSet<u32> = programs()?.difference(&before).copied().collect();
    ensure!(!own.is_empty(), "the hooks ended with the agent");
    let said = place.detach()?;
    ensure!(said.contains("hooks are detached") && !place.pins.exists(), "{said}");
    until_gone(&own)?;
    ensure!(place.detach()?.contains("nothing is pinned"), "it can be run again");
    Ok(())
}

/// A running agent holds its hooks also without their pins.
#[test]
fn removed_pins_do_not_end_the_hooks_of_a_running_agent() -> Result<()> {
    without_skipped_runs(|| {
        let mut place = Place::new()?;
        let mut run = place.run(&[])?;
        run.attached()?;
        let sets = fs::read_dir(&place.pins)?.collect::<io::Result<Vec<_>>>()?;
        ensure!(!sets.is_empty(), "nothing was pinned");
        for set in &sets {
            for pin in fs::read_dir(set.path())? {
                fs::remove_file(pin?.path())?;
            }
            fs::remove_dir(set.path())?;
        }
        let ids = Churn::start()?.end()?;
        let status = run.end(End::Stopped)?;
        ensure!(status.success(), "{status}");
        check(&place, &ids)
    })
}

/// An agent without pins runs beside the rings of an earlier agent, and then another one takes these over.
/// What the first one reported, the second does not report again.
#[test]
fn what_an_agent_without_pins_has_told_is_not_told_again() -> Result<()> {
    without_skipped_runs(|| {
        let mut place = Place::new()?;
        let mut first = place.run(&[])?;
        first.attached()?;
        first.end(End::Killed)?;
        let mut unpinned = place.run(&["--no-pin"])?;
        unpinned.attached()?;
        let ids = Churn::start()?.end()?;
        unpinned.end(End::Stopped)?;
        let mut last = place.run(&[])?;
        last.attached()?;
        last.end(End::Stopped)?;
        let all = place.events()?;
        if skipped::is_told(&all) {
            return Ok(false);
        }
        let (events, _) = check_numbers(all).with_context(|| place.errors())?;
        check_calls(&place, &events, &ids)?;
        // The time between the last two is reported as a gap, without its events. The first may have ended
        // before it saved a state.
        ensure!(events.iter().any(|event| event["gap"]["what"] == "no_agent"), "no gap");
        Ok(true)
    })
}

/// Left records fill the ring until the agent has saved what they led to. The hooks work all the same, and
/// the agent says so.
#[test]
fn a_full_ring_does_not_make_hooks_look_dead() -> Result<()> {
    let place = Place::new()?;
    let pins = Pins::open(&place.pins)?;
    let setup = Setup { lifecycle: Some(16 << 10), pins: Some(&pins), ..Setup::default() };
    drop(Live::start(setup)?);
    make_namespaces(200)?;
    let (probe, hierarchy) = load(setup)?;
    ensure!(matches!(probe.pinning(), Pinning::Pinned { is_taken_over: true, .. }), "{:?}", probe.pinning());
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let test = runtime.block_on(async {
        let mut reader = RingReader::new(probe, SLACK)?;
        anyhow::Ok(SelfTest::run(&mut reader, &hierarchy.mount, machine::patience()).await)
    })?;
    ensure!(test.outcomes.len() > 1 && test.silent().next().is_none(), "{:?}", test.outcomes);
    drop(pins);
    Ok(())
}

/// Makes network namespaces. The hooks report each as made, dropped and freed.
pub(crate) fn make_namespaces(count: usize) -> Result<()> {
    for _ in 0..count {
        let made = thread::Builder::new()
            .name("namespace".to_owned())
            .spawn(|| unshare(CloneFlags::CLONE_NEWNET))?;
        made.join().map_err(|_panic| anyhow!("the thread panicked"))??;
    }
    Ok(())
}

fn own_namespaces(seen: &[Observation]) -> usize {
    let is_own = |one: &&Observation| matches!(&one.fact, Fact::NetnsCreated { by, .. } if by.key.pid == std::process::id());
    seen.iter().filter(is_own).count()
}

/// Records that did not fit into the ring while no agent read it are reported with their exact number and
/// their beginning.
#[test]
fn a_ring_that_was_too_small_is_a_gap_of_known_size() -> Result<()> {
    const NAMESPACES: usize = 200;
    let place = Place::new()?;
    let pins = Pins::open(&place.pins)?;
    let setup = Setup { lifecycle: Some(16 << 10), pins: Some(&pins), ..Setup::default() };
    drop(Live::start(setup)?);
    make_namespaces(NAMESPACES)?;
    let finished = Live::start(setup)?.finish()?;
    let lost = finished.totals.lost(Ring::Lifecycle);
    let of_namespaces = usize::try_from(lost[usize::from(kind::NETNS_CREATED)])?;
    let seen = own_namespaces(&finished.seen);
    ensure!(seen > 0 && seen + of_namespaces >= NAMESPACES, "{seen} seen, {of_namespaces} lost");
    let told: u64 = finished
        .seen
        .iter()
        .map(|one| match one.fact {
            Fact::Lost { what: Loss::LifecycleRing, count, .. } => count,
            _ => 0,
        })
        .sum();
    ensure!(told == lost.iter().sum::<u64>() && told > 0, "{told} told, {lost:?} lost");
    let last = finished
        .seen
        .iter()
        .filter(|one| matches!(one.fact, Fact::NetnsCreated { .. }))
        .map(|one| one.at)
        .max();
    let away = finished.seen.iter().find_map(|one| match one.fact {
        Fact::AgentAway { since } => Some(since),
        _ => None,
    });
    ensure!(
        away.is_some_and(|since| Some(since) >= last),
        "nothing is known since {away:?}, the last is of {last:?}"
    );
    drop(pins);
    Ok(())
}

/// An agent that does not read for long gets a report of what it missed.
#[test]
fn hooks_that_nobody_reads_for_long_do_nothing() -> Result<()> {
    const NAMESPACES: usize = 10;
    let patience = Duration::from_secs(if machine::is_emulated() { 20 } else { 2 });
    // The reader signals to the hooks once that it reads, and again only much later.
    let live = Live::start(Setup { patience: Some(patience), ..Setup::default() })?;
    make_namespaces(NAMESPACES)?;
    thread::sleep(patience);
    make_namespaces(NAMESPACES)?;
    let finished = live.finish()?;
    let seen = own_namespaces(&finished.seen);
    ensure!(seen == NAMESPACES, "{seen} seen");
    ensure!(finished.totals.unread() >= NAMESPACES as u64, "{} runs", finished.totals.unread());
    let away = finished.seen.iter().any(|one| matches!(one.fact, Fact::AgentAway { .. }));
    ensure!(away, "nothing is told of it");
    Ok(())
}
