//! The harness itself: its pods live as they should, and a private runtime leaves nothing behind.

use std::fs;

use anyhow::Result;
use tests::{
    cgroupfs,
    kubelet::{Container, Kubelet, Pod},
    machine,
    node::Node,
};

use crate::LIMIT;

#[test]
fn a_pod_lives_from_its_cgroup_to_its_removal() -> Result<()> {
    let node = Node::start()?;
    let mut kubelet = node.kubelet()?;
    let pod = Pod::new("web-0", "5d1cb95b-0000-4000-8000-000000000001")
        .with(Container::shell("main", "exit 3"))
        .with(Container::shell("side", "true"));
    let life = kubelet.live(&pod, LIMIT)?;
    assert_eq!(life.containers.iter().map(|container| container.exit.code).collect::<Vec<_>>(), [3, 0]);
    assert_ne!(life.sandbox.sandbox.netns, Kubelet::host_netns()?);
    assert_eq!(life.sandbox.sandbox.addresses.len(), 1);
    assert!(!life.cgroups.is_empty());
    // The steps follow each other in time.
    let sandbox = &life.sandbox;
    for pair in [life.prepared, sandbox.run, sandbox.stopped, life.cgroup_removed, sandbox.removed].windows(2)
    {
        assert!(pair[0].asked <= pair[0].done && pair[0].done <= pair[1].asked, "{life:?}");
    }
    assert!(kubelet.cri().list_pod_sandbox()?.is_empty());
    node.stop()
}

#[test]
fn a_host_network_pod_shares_the_nodes_network() -> Result<()> {
    let node = Node::start()?;
    let pod = Pod { host_network: true, ..Pod::new("agent-0", "5d1cb95b-0000-4000-8000-000000000002") };
    let life = node.kubelet()?.live(&pod.with(Container::shell("main", "true")), LIMIT)?;
    assert_eq!(life.sandbox.sandbox.netns, Kubelet::host_netns()?);
    assert!(life.sandbox.sandbox.addresses.is_empty());
    node.stop()
}

#[test]
fn a_container_above_its_memory_limit_is_killed() -> Result<()> {
    let node = Node::start()?;
    let pod = Pod::new("hungry-0", "5d1cb95b-0000-4000-8000-000000000003").with(Container::eater("eater"));
    let before = machine::oom_kills()?;
    let life = node.kubelet()?.live(&pod, LIMIT)?;
    assert_eq!(life.containers[0].exit.code, 137);
    // The kernel's counter is checked, because containerd may learn of the exit before its reason, and then
    // never reports the reason.
    assert!(machine::oom_kills()? > before);
    node.stop()
}

/// Only for a private runtime. A VM's runtime keeps what it makes.
#[test]
fn nothing_is_left_of_a_dropped_node() -> Result<()> {
    let before = shared_things()?;
    let node = Node::start()?;
    let mut kubelet = node.kubelet()?;
    // This pod keeps running, and nobody stops it.
    let pod = Pod::new("orphan-0", "5d1cb95b-0000-4000-8000-000000000004")
        .with(Container::shell("main", "sleep 600"));
    kubelet.prepare(&pod)?;
    let sandbox = kubelet.run_sandbox(&pod, 0)?;
    kubelet.run_container(&pod, &sandbox, &pod.containers[0], 0)?;
    if node.is_private() {
        // The runtime never heard of this one.
        kubelet.prepare(&Pod::new("orphan-1", "5d1cb95b-0000-4000-8000-000000000005"))?;
        assert_ne!(shared_things()?, before);
        drop(node);
        assert_eq!(shared_things()?, before);
    } else {
        kubelet.stop_sandbox(&sandbox.id)?;
        kubelet.remove_cgroup(&pod)?;
        kubelet.remove_sandbox(&sandbox.id)?;
        kubelet.remove_logs(&pod)?;
    }
    Ok(())
}

/// Returns the things that pods leave in places that a private runtime shares with the host.
fn shared_things() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for directory in
        ["/run/netns", "/run/containerd/s", "/var/lib/cni/results", "/var/log/pods", "/sys/class/net"]
    {
        let entries = fs::read_dir(directory).into_iter().flatten();
        found.extend(entries.flatten().map(|entry| entry.path().display().to_string()));
    }
    for hierarchy in cgroupfs::hierarchies()? {
        let kubepods = hierarchy.directory("/kubepods");
        found.extend(kubepods.exists().then(|| kubepods.display().to_string()));
    }
    found.sort();
    Ok(found)
}
