//! Compares the events of `sandprobe watch` and `sandprobe record` about pods with what the test's own
//! kubelet knows.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tests::{
    containerd::Options,
    kubelet::{Container, Driver, Pod},
    node::Node,
    stream::Stream,
};

use crate::{
    LIMIT,
    events::{check_lines, check_names, find, lines},
    life::{ONE_CONTAINER, SIDE_CONTAINER, check_addresses, check_driver, check_life, freed},
};

#[test]
fn a_pods_life_is_reported_in_order_and_replays_to_the_same_bytes() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("life.jsonl");
    let file = file.to_str().context("the temporary directory's path is not UTF-8")?;
    let node = Node::start()?;
    let mut stream = Stream::start(&["record", file])?;
    let pod = Pod::new("web-0", "7a1cb95b-0000-4000-8000-000000000001")
        .with(Container::shell("main", "true"))
        .with(Container::shell("side", "exit 3"));
    let life = node.kubelet()?.live(&pod, LIMIT)?;
    stream.until("the end of the pod's netns", freed(&life))?;
    let (received, _) = stream.end()?;

    // The kernel may have skipped hook runs, and it is unknown which lines are missing then.
    if received.lost()? == 0 {
        check_life(&received, &life, &format!("{ONE_CONTAINER}{SIDE_CONTAINER}"))?;
        check_addresses(&received, &life)?;
        check_driver(&received, &life, node.driver())?;
    }

    let replayed = Command::new("sandprobe").args(["replay", file, "-o", "json"]).output()?;
    let stderr = String::from_utf8_lossy(&replayed.stderr);
    ensure!(replayed.status.success(), "the replay ended with {}: {stderr}", replayed.status);
    ensure!(replayed.stdout == received.bytes.as_bytes(), "the replay differs from the live events");
    node.stop()
}

/// The kubelet names slices and the runtime uses cgroupfs. A VM's own runtime has the driver of its kubelet.
#[test]
fn a_pod_is_reported_alike_if_its_runtime_has_another_cgroup_driver() -> Result<()> {
    let node = Node::start_with(&Options { cgroup_driver: Driver::Mixed, ..Options::default() })?;
    let mut stream = Stream::start(&["watch"])?;
    let pod =
        Pod::new("web-0", "7a1cb95b-0000-4000-8000-000000000003").with(Container::shell("main", "true"));
    let life = node.kubelet()?.live(&pod, LIMIT)?;
    stream.until("the end of the pod's netns", freed(&life))?;
    let (received, _) = stream.end()?;
    if received.lost()? == 0 {
        check_life(&received, &life, ONE_CONTAINER)?;
        check_driver(&received, &life, node.driver())?;
    }
    node.stop()
}

#[test]
fn a_host_network_pod_is_identified_by_its_bundle() -> Result<()> {
    let node = Node::start()?;
    let mut stream = Stream::start(&["watch"])?;
    let pod = Pod { host_network: true, ..Pod::new("agent-0", "7a1cb95b-0000-4000-8000-000000000002") };
    let life = node.kubelet()?.live(&pod.with(Container::shell("main", "exit 4")), LIMIT)?;
    stream.until("the pod's end", |event| event["event"] == "pod.gone" && event["pod"]["uid"] == life.uid)?;
    let (received, _) = stream.end()?;
    let events = received.of_pod(&life.uid);
    check_names(&events, &life)?;
    let lines = lines(&events, &life);
    check_lines(
        &lines,
        "pod.first_seen
         cgroup.created of the pod
         sandbox.created
         cgroup.created of the sandbox
         sandbox.ready
         cgroup.created of main
         container.started main
         container.exited main exit 4
         cgroup.removed of main
         sandbox.stopped
         cgroup.removed of the sandbox
         cgroup.removed of the pod
         pod.gone",
    )?;
    node.stop()
}

#[test]
fn the_oom_killer_and_the_killer_of_pause_are_named() -> Result<()> {
    let node = Node::start()?;
    let mut kubelet = node.kubelet()?;
    let mut stream = Stream::start(&["watch"])?;
    let pod = Pod::new("hungry-0", "7a1cb95b-0000-4000-8000-000000000003").with(Container::eater("eater"));

    kubelet.prepare(&pod)?;
    let sandbox = kubelet.run_sandbox(&pod, 0)?;
    let eater = kubelet.run_container(&pod, &sandbox, &pod.containers[0], 0)?;
    kubelet.wait_exit(&eater.id, LIMIT)?;
    kill(Pid::from_raw(sandbox.pid), Signal::SIGKILL)?;
    stream.until("the end of pause", |event| {
        event["event"] == "sandbox.stopped" && event["sandbox"]["id"] == sandbox.id
    })?;
    kubelet.stop_sandbox(&sandbox.id)?;
    kubelet.remove_cgroup(&pod)?;
    kubelet.remove_sandbox(&sandbox.id)?;
    kubelet.remove_logs(&pod)?;
    let (received, _) = stream.end()?;

    let events = received.of_pod(&pod.uid);
    let exited = find(&events, "container.exited", &eater.id)?;
    ensure!(exited["process"]["oom"] == true && exited["process"]["exit_code"] == 137, "{exited}");
    let pause = events
        .iter()
        .find(|event| event["event"] == "process.exit" && event["process"]["pid"] == sandbox.pid)
        .context("the exit of pause")?;
    ensure!(pause["process"]["killer"]["pid"] == std::process::id(), "{pause}");
    ensure!(pause["process"]["signal"] == 9, "{pause}");
    node.stop()
}

#[test]
fn restarts_stay_in_one_sandbox() -> Result<()> {
    const RESTARTS: u32 = 3;
    let node = Node::start()?;
    let mut kubelet = node.kubelet()?;
    let mut stream = Stream::start(&["watch"])?;
    let pod =
        Pod::new("crash-0", "7a1cb95b-0000-4000-8000-000000000004").with(Container::shell("main", "exit 1"));
    kubelet.prepare(&pod)?;
    let sandbox = kubelet.run_sandbox(&pod, 0)?;
    for attempt in 0..RESTARTS {
        let started = kubelet.run_container(&pod, &sandbox, &pod.containers[0], attempt)?;
        kubelet.wait_exit(&started.id, LIMIT)?;
        kubelet.cri().remove_container(&started.id)?;
    }
    kubelet.stop_sandbox(&sandbox.id)?;
    kubelet.remove_cgroup(&pod)?;
    kubelet.remove_sandbox(&sandbox.id)?;
    kubelet.remove_logs(&pod)?;
    stream.until("the pod's end", |event| event["event"] == "pod.gone" && event["pod"]["uid"] == pod.uid)?;
    let (received, _) = stream.end()?;
    let events = received.of_pod(&pod.uid);
    for (name, times) in
        [("sandbox.created", 1), ("sandbox.stopped", 1), ("container.started", 3), ("container.exited", 3)]
    {
        let count = events.iter().filter(|event| event["event"] == name).count();
        ensure!(count == times, "{name} is reported {count} times, not {times}");
    }
    node.stop()
}

#[test]
fn a_late_agent_knows_the_running_pods() -> Result<()> {
    let node = Node::start()?;
    let mut kubelet = node.kubelet()?;
    let pod = Pod::new("early-0", "7a1cb95b-0000-4000-8000-000000000005")
        .with(Container::shell("main", "sleep 600"));
    kubelet.prepare(&pod)?;
    let sandbox = kubelet.run_sandbox(&pod, 0)?;
    let main = kubelet.run_container(&pod, &sandbox, &pod.containers[0], 0)?;

    // What an agent of another version may have left on this machine is none of this test.
    let listed = Command::new("sandprobe").args(["pods", "-o", "json", "--state-dir", "none"]).output()?;
    ensure!(listed.status.success(), "pods: {}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout)?;
    ensure!(listed.contains(&pod.uid) && listed.contains("early-0"), "not listed: {listed}");
    for address in &sandbox.addresses {
        ensure!(listed.contains(address.as_str()), "{address} is not listed: {listed}");
    }

    let mut stream = Stream::start(&["watch"])?;
    stream.until("the running container", |event| {
        event["event"] == "container.started"
            && event["container"]["id"] == main.id
            && event["origin"] == "listed"
    })?;
    kubelet.stop_sandbox(&sandbox.id)?;
    kubelet.remove_cgroup(&pod)?;
    kubelet.remove_sandbox(&sandbox.id)?;
    kubelet.remove_logs(&pod)?;
    stream.until("the pod's end", |event| event["event"] == "pod.gone" && event["pod"]["uid"] == pod.uid)?;
    let (received, _) = stream.end()?;
    let events = received.of_pod(&pod.uid);
    for event in &events {
        ensure!(event["pod"]["name"] == "early-0" && event["pod"]["namespace"] == "default", "{event}");
    }
    let exited = find(&events, "container.exited", &main.id).with_context(|| received.bytes.clone())?;
    ensure!(exited["origin"] == "kernel" && exited["process"]["pid"] == main.pid, "{exited}");
    node.stop()
}
