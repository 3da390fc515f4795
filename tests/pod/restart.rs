//! A private containerd is killed while pods start, and ended normally later. The test compares the table of
//! restarts with the times of the driver, which kills the runtime, starts it again, and starts the pods as a
//! kubelet does.

use std::{
    fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    clock,
    kubelet::{Container, Kubelet, Pod, Sandbox, Step, wait_runs},
    machine,
    node::Node,
    program,
    succession::{End, Place},
};

/// A process that runs for this time counts as a daemon. An end later than this after a start is another
/// restart.
const RESIDENT: Duration = Duration::from_secs(10);
const LOOP: Duration = Duration::from_secs(60);
/// How long the runtime is down.
const DOWN: Duration = Duration::from_secs(2);
const SIGKILL: u64 = 9;
const SIGTERM: u64 = 15;

fn timed(step: impl FnOnce() -> Result<()>) -> Result<Step> {
    let asked = clock::boot_ns()?;
    step()?;
    Ok(Step { asked, done: clock::boot_ns()? })
}

/// Starts the pod's container. Its program may begin only after the runtime has answered.
fn runs(kubelet: &mut Kubelet, pod: &Pod, sandbox: &Sandbox) -> Result<()> {
    let started = kubelet.run_container(pod, sandbox, &pod.containers[0], 0)?;
    wait_runs(started.pid)
}

/// Runs `sandprobe boot --restarts` on the history of these agents.
fn boot(place: &Place, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program::agent()?);
    command.args(["boot", "--restarts", "--state-dir"]).arg(place.state()).args(arguments);
    let output = command.output().context("run sandprobe boot")?;
    let (text, why) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{}: {why}\n{text}", output.status);
    Ok(text)
}

fn lines(place: &Place, name: &str) -> Result<Vec<Value>> {
    let text = boot(place, &["-o", "json"])?;
    let lines = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    Ok(lines.into_iter().filter_map(|mut line| line.get_mut(name).map(Value::take)).collect())
}

/// Waits until the last restart of containerd is as wanted, and returns all.
fn restarts(place: &Place, what: &str, wanted: impl Fn(&[Value]) -> bool) -> Result<Vec<Value>> {
    clock::poll(what, machine::patience(), || {
        // The agent writes a line a second after a change.
        let all = lines(place, "restart").unwrap_or_default();
        let all: Vec<Value> = all.into_iter().filter(|it| it["program"] == "containerd").collect();
        Ok(wanted(&all).then_some(all))
    })
    .map_err(|error| error.context(boot(place, &[]).unwrap_or_default()))
}

fn number(value: &Value) -> Result<u64> {
    value.as_str().and_then(|text| text.parse().ok()).with_context(|| format!("not a number: {value}"))
}

/// Returns the time of a column since boot.
fn column(restart: &Value, name: &str) -> Result<u64> {
    let at = number(&restart["columns"][name]).with_context(|| format!("{name} of {restart:#}"))?;
    Ok(number(&restart["boot_ns"])? + at)
}

fn ensure_within(what: &str, at: u64, step: Step) -> Result<()> {
    ensure!((step.asked..=step.done).contains(&at), "{what} at {at} is not in {step:?}");
    Ok(())
}

#[test]
#[expect(clippy::print_stdout, reason = "the test prints what it measured")]
fn restarts_of_the_runtime_are_told_at_the_drivers_times() -> Result<()> {
    let mut node = Node::start()?;
    ensure!(node.is_private(), "the runtime of a VM is not this test's to kill");
    let began = Instant::now();
    let mut place = Place::new()?;
    let mut agent = place.run(&[])?;
    agent.attached()?;
    let pod = |name: &str, n: u32| {
        let uid = format!("7a1cb95b-0000-4000-8000-00000000020{n}");
        Pod::new(name, &uid).with(Container::shell("main", "sleep 600"))
    };
    let (up, cut, new) = (pod("up-0", 0), pod("cut-0", 1), pod("new-0", 2));
    let mut kubelet = node.kubelet()?;
    kubelet.start(&up, machine::patience())?;
    kubelet.prepare(&cut)?;
    let sandbox = kubelet.run_sandbox(&cut, 0)?;
    thread::sleep(RESIDENT.saturating_sub(began.elapsed()) + Duration::from_secs(1));

    let killed = timed(|| node.kill_runtime())?;
    let prepared = timed(|| kubelet.prepare(&new).map(drop))?;
    thread::sleep(DOWN);
    let started = timed(|| node.start_runtime())?;
    let up_again = Instant::now();
    let mut kubelet = node.kubelet()?;
    let cut_ran = timed(|| runs(&mut kubelet, &cut, &sandbox))?;
    let sandbox = kubelet.run_sandbox(&new, 0)?;
    let new_ran = timed(|| runs(&mut kubelet, &new, &sandbox))?;

    let is_told = |all: &[Value]| all.last().is_some_and(|it| !it["whole_ns"].is_null());
    let all = restarts(&place, "the runtime's restart", is_told)?;
    let [first] = all.as_slice() else { anyhow::bail!("{all:#?}") };
    let end = &first["end"];
    ensure_within("the end", number(&end["boot_ns"])?, killed)?;
    ensure!(end["signal"] == SIGKILL && end["code"] == 128 + SIGKILL, "{end:#}");
    ensure!(end["killer"]["pid"] == std::process::id(), "{end:#}");
    ensure_within("the start", column(first, "started_ns")?, started)?;
    let ready = column(first, "ready_ns")?;
    ensure_within("the answer", ready, Step { asked: column(first, "started_ns")?, done: cut_ran.done })?;
    ensure_within("the first pod", column(first, "first_pod_ns")?, cut_ran)?;
    ensure!(first["first_pod"] == "default/cut-0", "{first:#}");
    ensure_within("the last pod", column(first, "as_before_ns")?, new_ran)?;
    let pods = first["pods"].as_array().context("no pods")?;
    let names: Vec<&str> = pods.iter().filter_map(|it| it["pod"].as_str()).collect();
    ensure!(names == ["default/cut-0", "default/new-0"], "{names:?}");
    for (pod, since, ran) in [(&pods[0], killed, cut_ran), (&pods[1], prepared, new_ran)] {
        let (from, waited) = (number(&pod["since_boot_ns"])?, number(&pod["waited_ns"])?);
        ensure_within("the beginning of the wait", from, since)?;
        ensure_within("the end of the wait", from + waited, ran)?;
        ensure!(pod["replaced"] == false, "{pod:#}");
    }

    // The agent is killed and followed by another one. The runtime is ended normally and started again.
    agent.end(End::Killed)?;
    let mut agent = place.run(&[])?;
    agent.attached()?;
    thread::sleep(LOOP.saturating_sub(up_again.elapsed()) + Duration::from_secs(2));
    let ended = timed(|| node.end_runtime())?;
    let started = timed(|| node.start_runtime())?;
    let is_ready = |all: &[Value]| all.len() == 2 && !all[1]["columns"]["ready_ns"].is_null();
    let all = restarts(&place, "the second restart", is_ready)?;
    let second = &all[1];
    ensure!(
        all[0]["columns"] == first["columns"] && all[0]["close"] == "as_before",
        "{:#}\n{first:#}",
        all[0]
    );
    ensure_within("the second end", number(&second["end"]["boot_ns"])?, ended)?;
    ensure!(second["end"]["told_signal"] == SIGTERM, "{second:#}");
    ensure!(second["end"]["told_by"]["pid"] == std::process::id(), "{second:#}");
    ensure_within("the second start", column(second, "started_ns")?, started)?;
    ensure!(second["pods"] == Value::Array(Vec::new()), "nothing waited: {second:#}");
    let statistics = lines(&place, "restart_statistics")?;
    let of = statistics.iter().find(|it| it["program"] == "containerd").context("no statistics")?;
    ensure!(of["all"] == 2 && of["restarts"] == 1, "the second one goes on: {of:#}");
    ensure!(of["average"]["whole_ns"] == first["whole_ns"], "{of:#}");

    println!("{}", boot(&place, &[])?);
    let mut kubelet = node.kubelet()?;
    for pod in [&up, &cut, &new] {
        kubelet.end(pod)?;
    }
    ensure!(agent.end(End::Stopped)?.success(), "{}", place.errors());
    let history = fs::read_to_string(place.state().join("boots.jsonl"))?;
    ensure!(history.contains("\"restarts\":{"), "{history}");
    node.stop()
}
