//! What is told of a pod's whole life, on every node alike.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    kubelet::{Driver, PodLife, Step},
    stream::Told,
};

use crate::told::{check_lines, check_names, check_order, lines, within};

/// A pod with a network of its own, of one container that exits 0.
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

/// What a second container that exits 3 adds.
pub(crate) const SIDE_CONTAINER: &str = "
    cgroup.created of side
    container.started side
    container.exited side exit 3
    cgroup.removed of side
";

/// What must come in this order; what runs beside it may stand anywhere.
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
/// Pause was told to start when the runtime goes on to the container, and may run later.
const READY: [&str; 3] = ["cgroup.created of the sandbox", "sandbox.ready", "sandbox.stopped"];
const END: [&str; 3] = ["netns.created", "netns.destroyed", "netns.freed"];
/// The kernel ends the netns when its workers come to it, before or after the kubelet has removed the cgroup.
const NETWORK_GONE: [&str; 3] = ["container.exited main exit 0", "netns.destroyed", "pod.gone"];
const GONE: [&str; 3] = ["container.exited main exit 0", "cgroup.removed of the pod", "pod.gone"];

pub(crate) fn check_life(told: &Told, life: &PodLife, expected: &str) -> Result<()> {
    check_names(&told.of_pod(&life.uid), life)?;
    check_lines_and_times(&told.of_pod(&life.uid), life, expected)
}

/// The same where so much is told that an event cannot wait for its pod's name: of all that is told of a pod, its
/// network namespace alone is there before anything says whose it is.
pub(crate) fn check_life_in_haste(told: &Told, life: &PodLife, expected: &str) -> Result<()> {
    check_names(&told.of_pod(&life.uid), life)?;
    let is_nameless = |event: &Value| {
        event["event"] == "netns.created"
            && event["pod"].is_null()
            && event["netns"]["inode"] == life.sandbox.sandbox.netns
            && within(event, life.sandbox.run).is_ok()
    };
    let is_of_pod = |event: &&Value| event["pod"]["uid"] == life.uid || is_nameless(event);
    let events: Vec<_> = told.events.iter().filter(is_of_pod).collect();
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
            // The runtime answers when pause was told to start, which may be before it runs.
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

/// The cgroups of the pod's containers are of the driver's making: a scope of systemd's, or a directory of runc's own.
pub(crate) fn check_driver(told: &Told, life: &PodLife, driver: Driver) -> Result<()> {
    for container in &life.containers {
        let path = told
            .named("cgroup.created")
            .filter_map(|event| event["cgroup"]["path"].as_str())
            .find(|path| path.contains(&container.started.id));
        let path = path.with_context(|| format!("no cgroup of {}", container.name))?;
        ensure!(path.ends_with(".scope") == (driver == Driver::Systemd), "{path} by {driver:?}");
        ensure!(path.contains(".slice:cri-containerd:") == (driver == Driver::Mixed), "{path} by {driver:?}");
    }
    Ok(())
}

/// The addresses told of in a pod's namespace are the true ones, with the interface and a prefix.
pub(crate) fn check_addresses(told: &Told, life: &PodLife) -> Result<()> {
    let added: Vec<_> =
        told.of_pod(&life.uid).into_iter().filter(|event| event["event"] == "address.added").collect();
    for address in &life.sandbox.sandbox.addresses {
        let of_this = |event: &&&Value| event["address"]["address"] == *address;
        ensure!(added.iter().filter(of_this).count() == 1, "{address} was not told of once: {added:#?}");
        let event = added.iter().find(of_this).context("told of once")?;
        ensure!(event["address"]["ifname"] == "eth0", "{event}");
    }
    Ok(())
}

pub(crate) fn freed(life: &PodLife) -> impl Fn(&Value) -> bool {
    |event| event["event"] == "netns.freed" && event["pod"]["uid"] == life.uid
}
