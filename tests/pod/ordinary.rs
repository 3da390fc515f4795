//! Ordinary pods, and agents that are stopped, throttled and restarted. Nothing is wrong with the pods, so no
//! agent may report a finding of severity warning or above.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tests::{
    clock,
    containerd::Options,
    kubelet::{Container, Kubelet, Pod, Sandbox},
    machine,
    node::Node,
    skipped,
    succession::{End, Place, Run, check_numbers, scattered},
};

use crate::{LIMIT, verdict};

/// The number of pods, and for how long they come and go.
struct Load {
    /// Services, which run until a drain.
    services: usize,
    /// Pods of the other kinds that run at the same time.
    others: usize,
    time: Duration,
    /// The unit of the times in a pod's life.
    pace: Duration,
    /// The time between two drains.
    drain: Duration,
    /// The longest time for which an agent does not run. Each limit of `arguments` is shorter.
    stall: Duration,
    arguments: &'static [&'static str],
}

fn load() -> Load {
    if machine::is_soak() {
        Load {
            services: 44,
            others: 16,
            time: Duration::from_secs(60 * 60),
            pace: Duration::from_secs(10),
            drain: Duration::from_secs(10 * 60),
            stall: Duration::from_secs(20),
            // A call is slow after ten seconds.
            arguments: &["--leak-grace", "15s"],
        }
    } else {
        Load {
            services: 4,
            others: 4,
            time: Duration::from_secs(30),
            pace: Duration::from_millis(500),
            drain: Duration::from_secs(12),
            stall: Duration::from_secs(5),
            arguments: &["--leak-grace", "4s", "--cni-slow", "3s"],
        }
    }
}

/// How a pod lives. All of them are ordinary.
#[derive(Clone, Copy, Debug)]
enum Life {
    /// Its container ends with 0.
    Job,
    /// An init container fails twice before it succeeds. The kubelet waits between the tries.
    InitFails,
    /// A second container runs until the pod is stopped, after the first one has ended.
    Sidecar,
    HostNetwork,
    /// Its container fails, and is started again after a growing time.
    CrashLoop,
}

impl Life {
    const ALL: [Self; 5] = [Self::Job, Self::InitFails, Self::Sidecar, Self::HostNetwork, Self::CrashLoop];

    fn pod(self, number: usize) -> Pod {
        let uid = format!("8b1cb95b-0000-4000-9000-{number:012}");
        let pod = Pod::new(&format!("{self:?}-{number}").to_lowercase(), &uid);
        Pod { host_network: matches!(self, Self::HostNetwork), ..pod }
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "figures for whoever looks")]
fn ordinary_pods_make_no_finding_whatever_stops_the_agent() -> Result<()> {
    skipped::retry(|_| {
        let load = load();
        let _kubelet = verdict::Kubelet::start()?;
        let node = Node::start_with(&Options { broker: true, ..Options::default() })?;
        let mut place = Place::new()?;
        let told = disturbed(&node, &mut place, &load);
        let errors = place.errors();
        node.stop()?;
        told.context(errors)?;
        let (events, _) = check_numbers(place.events()?)?;
        println!("{} agents reported {} events", place.runs, events.len());
        let wrong = findings(&events);
        // A report of failed tests keeps only the first lines.
        let keys: Vec<_> =
            wrong.iter().map(|event| format!("{} {}", event["event"], event["finding"]["key"])).collect();
        ensure!(wrong.is_empty(), "{keys:?} by {} agents: {wrong:#?}\n{}", place.runs, place.shown());
        Ok(())
    })
}

/// Lets the pods live, and disturbs the agents until the end of each pod is reported.
fn disturbed(node: &Node, place: &mut Place, load: &Load) -> Result<()> {
    // The first agent starts on a node without pods.
    place.run(load.arguments)?.attached()?;
    let next = AtomicUsize::new(0);
    let is_over = AtomicBool::new(false);
    let uids = thread::scope(|scope| -> Result<Vec<String>> {
        let mut workers = Vec::new();
        for _ in 0..load.others {
            let mut kubelet = node.kubelet()?;
            workers.push(scope.spawn({
                let (next, is_over) = (&next, &is_over);
                move || others(&mut kubelet, next, is_over, load.pace)
            }));
        }
        let mut kubelet = node.kubelet()?;
        workers.push(scope.spawn({
            let (next, is_over) = (&next, &is_over);
            move || services(&mut kubelet, next, is_over, load)
        }));
        let begun = Instant::now();
        let mut outcome = Ok(());
        let mut round = 0;
        while outcome.is_ok() && begun.elapsed() < load.time {
            round += 1;
            outcome = one_agent(place, round, load);
        }
        is_over.store(true, Ordering::Relaxed);
        let mut uids = Vec::new();
        for worker in workers {
            uids.extend(worker.join().map_err(|_panic| anyhow!("a worker panicked"))??);
        }
        outcome.map(|()| uids)
    })?;
    let mut last = place.run(load.arguments)?;
    last.attached()?;
    let all_told = clock::poll("the end of each pod", machine::patience(), || {
        let events = place.events()?;
        let mut gone = BTreeSet::new();
        for event in &events {
            if event["event"] == "pod.gone" {
                gone.extend(event["pod"]["uid"].as_str());
            }
        }
        let is_over = uids.iter().all(|uid| gone.contains(uid.as_str())) || skipped::is_told(&events);
        Ok(is_over.then_some(()))
    });
    // After this wait every problem would be a candidate.
    verdict::wait_for_candidates();
    let status = last.end(End::Stopped)?;
    ensure!(status.success(), "the last agent ended with {status}");
    all_told
}

/// Runs an agent that is disturbed in another way each round, and ends it.
fn one_agent(place: &mut Place, round: usize, load: &Load) -> Result<()> {
    let mut run = place.run(load.arguments)?;
    run.attached()?;
    let milliseconds = u64::try_from(load.stall.as_millis())?;
    for turn in 0..3 {
        let time = Duration::from_millis(scattered(10 * round + turn, milliseconds));
        thread::sleep(time / 2);
        if turn == 1 {
            throttle(&run, time)?;
        } else {
            signal(&run, Signal::SIGSTOP)?;
            thread::sleep(time);
            signal(&run, Signal::SIGCONT)?;
        }
        thread::sleep(time / 2);
    }
    let status = run.child.try_wait()?;
    ensure!(status.is_none(), "the agent ended by itself: {status:?}");
    run.end(if round.is_multiple_of(2) { End::Stopped } else { End::Killed })?;
    Ok(())
}

/// Lets the agent run for a twentieth of the time, as a small CPU limit does.
fn throttle(run: &Run, time: Duration) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < time {
        signal(run, Signal::SIGSTOP)?;
        thread::sleep(Duration::from_millis(95));
        signal(run, Signal::SIGCONT)?;
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn signal(run: &Run, signal: Signal) -> Result<()> {
    Ok(kill(Pid::from_raw(i32::try_from(run.child.id())?), signal)?)
}

/// Lets one pod after the other live, of all kinds except services. Returns the pods' UIDs.
fn others(
    kubelet: &mut Kubelet,
    next: &AtomicUsize,
    is_over: &AtomicBool,
    pace: Duration,
) -> Result<Vec<String>> {
    let mut uids = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let life = Life::ALL[number % Life::ALL.len()];
        let pod = life.pod(number);
        live(kubelet, &pod, life, pace).with_context(|| format!("pod {}", pod.name))?;
        uids.push(pod.uid);
    }
    Ok(uids)
}

fn live(kubelet: &mut Kubelet, pod: &Pod, life: Life, pace: Duration) -> Result<()> {
    let sleeper = |name| Container::shell(name, &format!("exec sleep {}", pace.as_secs_f32()));
    kubelet.prepare(pod)?;
    let sandbox = kubelet.run_sandbox(pod, 0)?;
    match life {
        Life::Job | Life::HostNetwork => exits(kubelet, pod, &sandbox, &sleeper("main"), 0, 0)?,
        Life::InitFails => {
            let failing = Container::shell("init", "exit 1");
            exits(kubelet, pod, &sandbox, &failing, 0, 1)?;
            thread::sleep(pace);
            exits(kubelet, pod, &sandbox, &failing, 1, 1)?;
            thread::sleep(2 * pace);
            exits(kubelet, pod, &sandbox, &Container::shell("init", "exit 0"), 2, 0)?;
            exits(kubelet, pod, &sandbox, &sleeper("main"), 0, 0)?;
        }
        Life::Sidecar => {
            kubelet.run_container(pod, &sandbox, &Container::shell("side", "exec sleep 86400"), 0)?;
            exits(kubelet, pod, &sandbox, &sleeper("main"), 0, 0)?;
            thread::sleep(pace);
        }
        Life::CrashLoop => {
            for attempt in 0..3 {
                exits(kubelet, pod, &sandbox, &Container::shell("main", "exit 1"), attempt, 1)?;
                thread::sleep(pace * (1 << attempt));
            }
        }
    }
    end(kubelet, pod, &sandbox)
}

/// Runs a container to its end, and expects this exit code.
fn exits(
    kubelet: &mut Kubelet,
    pod: &Pod,
    sandbox: &Sandbox,
    container: &Container,
    attempt: u32,
    code: i32,
) -> Result<()> {
    let started = kubelet.run_container(pod, sandbox, container, attempt)?;
    let exit = kubelet.wait_exit(&started.id, LIMIT)?;
    ensure!(exit.code == code, "{} ended with {exit:?}", container.name);
    Ok(())
}

/// Starts services, and drains them from time to time: all are stopped, and others start. Returns their UIDs.
fn services(
    kubelet: &mut Kubelet,
    next: &AtomicUsize,
    is_over: &AtomicBool,
    load: &Load,
) -> Result<Vec<String>> {
    let mut uids = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let mut running = Vec::new();
        for _ in 0..load.services {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let uid = format!("8b1cb95b-0000-4000-a000-{number:012}");
            let pod = Pod::new(&format!("service-{number}"), &uid);
            kubelet.prepare(&pod)?;
            let sandbox = kubelet.run_sandbox(&pod, 0)?;
            kubelet.run_container(&pod, &sandbox, &Container::shell("main", "exec sleep 86400"), 0)?;
            uids.push(uid);
            running.push((pod, sandbox));
        }
        let drained = Instant::now() + load.drain;
        while Instant::now() < drained && !is_over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(100));
        }
        for (pod, sandbox) in running {
            end(kubelet, &pod, &sandbox)?;
        }
    }
    Ok(uids)
}

/// Ends a pod as the kubelet does.
fn end(kubelet: &mut Kubelet, pod: &Pod, sandbox: &Sandbox) -> Result<()> {
    kubelet.stop_sandbox(&sandbox.id)?;
    kubelet.remove_cgroup(pod)?;
    kubelet.remove_sandbox(&sandbox.id)?;
    kubelet.remove_logs(pod)
}

/// Returns the findings that were ever of severity warning or above, without calls that were slow: beside VMs
/// this machine makes ordinary pods slowly.
fn findings(events: &[Value]) -> Vec<&Value> {
    let mut found = Vec::new();
    for event in events {
        let is_finding = event["event"].as_str().is_some_and(|name| name.starts_with("finding."));
        if is_finding && event["finding"]["severity"] != "info" && !is_slow_call(event, events) {
            found.push(event);
        }
    }
    found
}

/// Whether this is a finding about a slow call, and a call of this plugin took as long by the kernel's times.
fn is_slow_call(finding: &Value, events: &[Value]) -> bool {
    let detail = &finding["finding"]["detail"];
    let Some(told) = nanoseconds(&detail["took_ns"]) else { return false };
    finding["finding"]["kind"] == "cni_slow"
        && events.iter().any(|event| {
            let call = &event["cni"];
            event["event"] == "cni.finished"
                && call["plugin"] == detail["plugin"]
                && call["command"] == detail["command"]
                && nanoseconds(&call["duration_ns"]).is_some_and(|took| took >= told)
        })
}

fn nanoseconds(value: &Value) -> Option<u64> {
    value.as_str()?.parse().ok()
}
