//! The events of a pod's whole life, which are the same on every node.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    kubelet::{Driver, PodLife, Step},
    stream::Received,
};

use crate::events::{check_lines, check_names, check_order, lines, within};

/// The events of a pod with its own network and one container that exits 0.
pub(crate) const ONE_CONTAINER: &str = "
    pod.first_seen
    cgroup.created of the pod
    netns.created
    sandbox.created
    cni.started ADD loopback lo
    cni.finished ADD loopback lo exit 0
    cni.started ADD bridge eth0
    cni.started ADD host-local eth0 from bridge
    cni.finished ADD host-local eth0 from bridge exit 0
    cni.finished ADD bridge eth0 exit 0
    cni.started ADD portmap eth0
    cni.finished ADD portmap eth0 exit 0
    cgroup.created of the sandbox
    sandbox.ready
    cgroup.created of main
    container.started main
    container.exited main exit 0
    cgroup.removed of main
    sandbox.stopped
    cgroup.removed of the sandbox
    cni.started DEL loopback lo
    cni.finished DEL loopback lo exit 0
    cni.started DEL portmap eth0
    cni.finished DEL portmap eth0 exit 0
    cni.started DEL bridge eth0
    cni.started DEL host-local eth0 from bridge
    cni.finished DEL host-local eth0 from bridge exit 0
    cni.finished DEL bridge eth0 exit 0
    netns.destroyed
    netns.freed
    cgroup.removed of the pod
    pod.gone
    cni.started DEL loopback lo blind
    cni.finished DEL loopback lo blind exit 0
    cni.started DEL portmap eth0 blind
    cni.finished DEL portmap eth0 blind exit 0
    cni.started DEL bridge eth0 blind
    cni.started DEL host-local eth0 blind from bridge
    cni.finished DEL host-local eth0 blind from bridge exit 0
    cni.finished DEL bridge eth0 blind exit 0
";

/// The additional events of a second container that exits 3.
pub(crate) const SIDE_CONTAINER: &str = "
    cgroup.created of side
    container.started side
    container.exited side exit 3
    cgroup.removed of side
";

/// The events that come in this order. The events of parallel work may come anywhere.
const LIFE: [&str; 17] = [
    "pod.first_seen",
    "cgroup.created of the pod",
    "netns.created",
    "cni.started ADD bridge eth0",
    "cni.started ADD host-local eth0 from bridge",
    "cni.finished ADD host-local eth0 from bridge exit 0",
    "cni.finished ADD bridge eth0 exit 0",
    "cni.started ADD portmap eth0",
    "cni.finished ADD portmap eth0 exit 0",
    "cgroup.created of the sandbox",
    "cgroup.created of main",
    "container.started main",
    "container.exited main exit 0",
    "sandbox.stopped",
    "cni.started DEL bridge eth0",
    "cni.finished DEL bridge eth0 exit 0",
    "netns.destroyed",
];
const PARALLEL: [&str; 4] = [
    "netns.created",
    "cni.started ADD loopback lo",
    "cni.finished ADD loopback lo exit 0",
    "cgroup.created of the sandbox",
];
/// The runtime goes on to the container when it has started pause, which may run later.
const READY: [&str; 3] = ["cgroup.created of the sandbox", "sandbox.ready", "sandbox.stopped"];
const END: [&str; 3] = ["netns.created", "netns.destroyed", "netns.freed"];
/// A kernel worker ends the netns, before or after the kubelet has removed the cgroup.
const NETWORK_GONE: [&str; 3] = ["container.exited main exit 0", "netns.destroyed", "pod.gone"];
const GONE: [&str; 3] = ["container.exited main exit 0", "cgroup.removed of the pod", "pod.gone"];

pub(crate) fn check_life(received: &Received, life: &PodLife, expected: &str) -> Result<()> {
    check_names(&received.of_pod(&life.uid), life)?;
    check_lines_and_times(&received.of_pod(&life.uid), life, expected)
}

/// Like `check_life`, for a stream with so many events that an event cannot wait for its pod's name. Only
/// `netns.created` comes before the owner of the namespace is known.
pub(crate) fn check_life_with_unnamed_netns(
    received: &Received,
    life: &PodLife,
    expected: &str,
) -> Result<()> {
    check_names(&received.of_pod(&life.uid), life)?;
    let is_nameless = |event: &Value| {
        event["event"] == "netns.created"
            && event["pod"].is_null()
            && event["netns"]["inode"] == life.sandbox.sandbox.netns
            // An agent that starts makes a namespace for its self-test. It may get the inode that the pod's
            // gets next.
            && event["process"]["comm"] != "sandprobe"
            && within(event, life.sandbox.run).is_ok()
    };
    let is_of_pod = |event: &&Value| event["pod"]["uid"] == life.uid || is_nameless(event);
    let events: Vec<_> = received.events.iter().filter(is_of_pod).collect();
    check_lines_and_times(&events, life, expected)
}

fn check_lines_and_times(events: &[&Value], life: &PodLife, expected: &str) -> Result<()> {
    let lines = lines(events, life);
    check_lines(&lines, expected)?;
    for chain in [&LIFE[..], &PARALLEL, &READY, &END, &NETWORK_GONE, &GONE] {
        check_order(&lines, chain)?;
    }
    for event in events {
        match event["event"].as_str() {
            Some("netns.created") => within(event, life.sandbox.run)?,
            // The runtime answers when it has started pause, perhaps before pause runs.
            Some("sandbox.ready") => {
                within(event, Step { asked: life.sandbox.run.asked, done: life.sandbox.stopped.asked })?;
            }
            Some("sandbox.stopped") => within(event, life.sandbox.stopped)?,
            Some("pod.first_seen") => within(event, life.prepared)?,
            _ => {}
        }
    }
    Ok(())
}

/// Checks that the driver made the cgroups of the pod's containers: systemd's end in `.scope`, runc's own are
/// plain directories.
pub(crate) fn check_driver(received: &Received, life: &PodLife, driver: Driver) -> Result<()> {
    for container in &life.containers {
        let path = received
            .named("cgroup.created")
            .filter_map(|event| event["cgroup"]["path"].as_str())
            .find(|path| path.contains(&container.started.id));
        let path = path.with_context(|| format!("no cgroup of {}", container.name))?;
        ensure!(path.ends_with(".scope") == (driver == Driver::Systemd), "{path} by {driver:?}");
        ensure!(path.contains(".slice:cri-containerd:") == (driver == Driver::Mixed), "{path} by {driver:?}");
    }
    Ok(())
}

/// Checks that the reported addresses of a pod's namespace are the true ones, with the interface and a
/// prefix.
pub(crate) fn check_addresses(received: &Received, life: &PodLife) -> Result<()> {
    let added: Vec<_> =
        received.of_pod(&life.uid).into_iter().filter(|event| event["event"] == "address.added").collect();
    for address in &life.sandbox.sandbox.addresses {
        let of_this = |event: &&&Value| event["address"]["address"] == *address;
        ensure!(added.iter().filter(of_this).count() == 1, "{address} was not reported once: {added:#?}");
        let event = added.iter().find(of_this).context("it was reported once")?;
        ensure!(event["address"]["ifname"] == "eth0", "{event}");
    }
    Ok(())
}

pub(crate) fn freed(life: &PodLife) -> impl Fn(&Value) -> bool {
    |event| event["event"] == "netns.freed" && event["pod"]["uid"] == life.uid
}
