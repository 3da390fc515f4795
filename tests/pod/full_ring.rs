//! The ring is full while no agent reads it. The next agent reports how much is lost, and soon knows the
//! node's state again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    cgroupfs, clock,
    cri::message::sandbox::SandboxState,
    guard::{cgroup::CgroupGuard, unique_name},
    kubelet::{Container, Kubelet, Pod, Sandbox},
    machine,
    node::Node,
    program, skipped,
    stream::Received,
    succession::{End, Place, check_numbers},
};

use crate::LIMIT;

/// Each makes two records with its path, which has the maximum length of a name. The ring of 4 MiB has room
/// for about 7,300.
const CGROUPS: usize = 5000;

/// The UIDs of the pods begin with this.
const UIDS: &str = "7a1cb95b-0000-4000-a000-";

fn service(number: usize) -> Pod {
    let pod = Pod::new(&format!("service-{number}"), &format!("{UIDS}{number:012}"));
    pod.with(Container::shell("main", "sleep 600"))
}

#[test]
fn after_a_gap_the_world_is_known_again_as_it_is() -> Result<()> {
    skipped::retry(|_| {
        let node = Node::start()?;
        let mut kubelet = node.kubelet()?;
        let mut place = Place::new()?;
        let mut first = place.run(&[])?;
        first.attached()?;
        let [lasting, ended, fresh, unseen] = [1, 2, 3, 4].map(service);
        let mut living = vec![kubelet.start(&lasting, LIMIT)?.sandbox];
        kubelet.start(&ended, LIMIT)?;
        until_known(&place, &kubelet_pods(&mut kubelet)?)?;
        first.end(End::Killed)?;

        let own = fill()?;
        kubelet.end(&ended)?;
        living.push(kubelet.start(&fresh, LIMIT)?.sandbox);
        kubelet.start(&unseen, LIMIT)?;
        kubelet.end(&unseen)?;
        let mut second = place.run(&[])?;
        second.attached()?;
        let truth = kubelet_pods(&mut kubelet)?;
        let known = until_known(&place, &truth).and_then(|()| until_told(&place, &own));
        let status = second.end(End::Stopped)?;
        let world = pods(&place.state())?;
        for sandbox in &living {
            check_kernel(sandbox)?;
        }
        for pod in [&lasting, &fresh] {
            kubelet.end(pod)?;
        }
        node.stop()?;

        ensure!(status.success(), "{status}\n{}", place.errors());
        known.with_context(|| place.errors())?;
        ensure!(world == truth, "{world:#?} is known, and true is {truth:#?}");
        check(place.events()?, &own)
    })
}

/// Fills the ring. Returns the paths of the cgroups.
fn fill() -> Result<BTreeSet<String>> {
    let hierarchies = cgroupfs::hierarchies()?;
    let unified = hierarchies.iter().find(|one| one.id == 0).context("no cgroup v2")?;
    (0..CGROUPS)
        .map(|_| {
            let cgroup = CgroupGuard::create_at(unified, &format!("/{:x<255}", unique_name("test")))?;
            let path = cgroup.path().to_owned();
            cgroup.end()?;
            Ok(path)
        })
        .collect()
}

/// The facts about a sandbox: its pod, process, namespace and addresses.
type Known = BTreeMap<String, (String, u64, u64, BTreeSet<String>)>;

/// Returns the runtime's ready sandboxes, by the runtime and `/proc`.
fn kubelet_pods(kubelet: &mut Kubelet) -> Result<Known> {
    let mut known = Known::new();
    for listed in kubelet.cri().list_pod_sandbox()? {
        let metadata = listed.metadata.context("a sandbox without a pod")?;
        if SandboxState::try_from(listed.state) == Ok(SandboxState::Ready) {
            let sandbox = kubelet.sandbox(listed.id, metadata.attempt)?;
            let addresses = sandbox.addresses.into_iter().collect();
            known.insert(sandbox.id, (metadata.uid, u64::try_from(sandbox.pid)?, sandbox.netns, addresses));
        }
    }
    Ok(known)
}

/// Checks that the process and the namespace exist, and the runtime's file of the namespace.
fn check_kernel(sandbox: &Sandbox) -> Result<()> {
    let link = fs::read_link(format!("/proc/{}/ns/net", sandbox.pid))?;
    ensure!(link == Path::new(&format!("net:[{}]", sandbox.netns)), "{} of {sandbox:?}", link.display());
    Ok(())
}

/// Returns the live sandboxes that `sandprobe pods` lists from the agent's state.
fn pods(state: &Path) -> Result<Known> {
    let mut command = Command::new(program::agent()?);
    let output =
        command.args(["pods", "-o", "json", "--recording"]).arg(state.join("engine.jsonl")).output()?;
    let text = String::from_utf8(output.stdout)?;
    let mut known = Known::new();
    for line in text.lines() {
        let pod: Value = serde_json::from_str(line)?;
        for sandbox in pod["sandboxes"].as_array().context("no sandboxes")? {
            if sandbox["state"] != "ready" {
                continue;
            }
            let id = sandbox["id"].as_str().context("no id")?.to_owned();
            let uid = pod["uid"].as_str().context("no uid")?.to_owned();
            if !uid.starts_with(UIDS) {
                continue;
            }
            let number = |value: &Value| value.as_u64().unwrap_or(0);
            let addresses = sandbox["addresses"].as_array().into_iter().flatten();
            let addresses = addresses.filter_map(|one| one["address"].as_str());
            // The kernel adds link-local addresses by itself.
            let addresses = addresses.filter(|one| !one.starts_with("fe80:")).map(str::to_owned).collect();
            known.insert(id, (uid, number(&sandbox["pid"]), number(&sandbox["netns"]["inode"]), addresses));
        }
    }
    Ok(known)
}

/// Waits until an agent knows these sandboxes and no others.
fn until_known(place: &Place, truth: &Known) -> Result<()> {
    clock::poll("the true world", machine::patience(), || {
        Ok((pods(&place.state()).ok().as_ref() == Some(truth)).then_some(()))
    })
    .with_context(|| format!("{:#?} is known, and true is {truth:#?}", pods(&place.state())))
}

/// Returns the number of events about these cgroups.
fn count(events: &[Value], own: &BTreeSet<String>) -> usize {
    let is_own = |event: &&Value| {
        ["cgroup.created", "cgroup.removed"].contains(&event["event"].as_str().unwrap_or_default())
            && event["cgroup"]["path"].as_str().is_some_and(|path| own.contains(path))
    };
    events.iter().filter(is_own).count()
}

/// Waits until each event of these cgroups is reported or counted as lost. An agent that ends leaves
/// unreported events to the next one.
fn until_told(place: &Place, own: &BTreeSet<String>) -> Result<()> {
    clock::poll("each event, or that it is lost", machine::patience(), || {
        let mut received = Received::default();
        received.events = place.events()?;
        let lost: u64 = received.losses()?.values().sum();
        Ok((count(&received.events, own) + usize::try_from(lost)? >= 2 * own.len()).then_some(()))
    })
    .with_context(|| {
        let events = place.events().unwrap_or_default();
        let gaps: Vec<_> =
            events.iter().filter(|event| event["event"] == "gap").map(|event| &event["text"]).collect();
        format!("{} events, {} of them of {} cgroups; {gaps:?}", events.len(), count(&events, own), own.len())
    })
}

fn check(events: Vec<Value>, own: &BTreeSet<String>) -> Result<()> {
    let (events, _) = check_numbers(events)?;
    let mut received = Received::default();
    received.events = events;
    let lost = received.losses()?;
    let events = &received.events;
    let told = count(events, own);
    let made = 2 * own.len();
    ensure!(told > 0 && told < made, "{told} of {made} events were told: the ring was not filled");
    let gone: u64 = lost.values().sum();
    ensure!(lost.contains_key("lifecycle_ring"), "{lost:?} lost");
    ensure!(u64::try_from(told)? + gone >= u64::try_from(made)?, "{told} of {made} told, {lost:?} lost");
    let wrong = events.iter().find(|event| {
        let kind = &event["finding"]["kind"];
        !kind.is_null() && kind != "blind_spot"
    });
    ensure!(wrong.is_none(), "nothing is wrong on this node: {wrong:#?}");
    Ok(())
}
