//! `sandprobe` watches a node that reboots with running pods. Each boot's test writes to the disk what the
//! next boot's test begins with. Only for a VM that reboots, in the order of `cargo xtask test`.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tests::{
    finding::kind_and_form,
    keyed::Faults,
    node::Node,
    story::{Stage, Truth, service},
    stream::Received,
};

use crate::verdict::{declared_store, findings, wait_for_candidates, watch_store};

/// A file on the disk, which survives the reboot.
const SAVED: &str = "/root/reboot.json";
const PODS: usize = 2;

/// The data that a boot leaves to the next.
#[derive(Serialize, Deserialize)]
struct Saved {
    /// The argument of `--ipam-store`. `None` for a plugin whose store `sandprobe` finds by itself.
    store: Option<String>,
    truth: Truth,
}

/// When the agent of the next boot starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Agent {
    BeforeTheRuntime,
    AfterTheRuntime,
}

fn keyed() -> Result<Node> {
    Node::start_keyed(Faults::default())
}

/// Runs pods until the node goes down.
fn run_pods(mut node: Node) -> Result<()> {
    ensure!(!node.is_private(), "only a VM is rebooted for a test");
    let store = declared_store(&node);
    let pods: Vec<_> = (0..PODS).map(|index| service(&format!("rebooted-{index}"))).collect();
    let truth = Stage::new(&mut node)?.before_reboot(&pods)?;
    serde_json::to_writer(File::create(SAVED)?, &Saved { store, truth })?;
    node.leave()
}

/// Checks the boot after that. Compares the events during the kubelet's cleanup, and the result of `sandprobe
/// leaks` afterwards, with the story's truth. Returns the truth.
fn clean_up(start: impl Fn() -> Result<Node>, agent: Agent) -> Result<Truth> {
    let saved = fs::read(SAVED).with_context(|| format!("read {SAVED}: did pods run in a boot before?"))?;
    // The file is only for the boot right after it.
    fs::remove_file(SAVED)?;
    let Saved { store, truth } = serde_json::from_slice(&saved)?;
    let store = store.as_deref();
    let watch = || watch_store(store);
    let (mut node, mut stream) = match agent {
        Agent::BeforeTheRuntime => {
            let stream = watch()?;
            (start()?, stream)
        }
        Agent::AfterTheRuntime => (start()?, watch()?),
    };
    let mut stage = Stage::new(&mut node)?;
    let truth = stage.after_reboot(truth)?;
    ensure!(truth.known.len() == PODS, "the known sandboxes are not exactly the new ones: {truth:#?}");
    let leaked = truth.leaked();
    for address in leaked.keys() {
        stream.until(&format!("{address} confirmed"), |event| {
            event["event"] == "finding.confirmed"
                && event["finding"]["detail"]["address"] == address.to_string()
        })?;
    }
    // Without a leak to wait for, waits as long as a confirmation would take.
    if leaked.is_empty() {
        wait_for_candidates();
    }
    let (received, _) = stream.end()?;
    ensure_reported(&received, &truth)?;
    ensure_listed(store, &truth)?;
    stage.clean()?;
    node.stop()?;
    Ok(truth)
}

/// Returns the address and the sandbox of each leak finding.
fn leaked<'a>(found: impl IntoIterator<Item = &'a Value>) -> Result<BTreeMap<String, String>> {
    let pair = |it: &Value| -> Result<(String, String)> {
        let address = it["detail"]["address"].as_str().with_context(|| format!("no address: {it:#}"))?;
        let sandbox = it["sandboxes"][0].as_str().with_context(|| format!("no sandbox: {it:#}"))?;
        ensure!(it["kind"] == "leaked_address" && it["confirmed_at"].is_string(), "{it:#}");
        Ok((address.to_owned(), sandbox.to_owned()))
    };
    found.into_iter().map(pair).collect()
}

/// Returns the leaked addresses by the test driver's own knowledge.
fn truly_leaked(truth: &Truth) -> BTreeMap<String, String> {
    truth.leaked().iter().map(|(address, holder)| (address.to_string(), holder.container.clone())).collect()
}

fn ensure_reported(received: &Received, truth: &Truth) -> Result<()> {
    let found = findings(received);
    ensure!(leaked(found.values())? == truly_leaked(truth), "not {truth:#?}, but {found:#?}");
    if received.lost()? > 0 {
        // Skipped runs may hide CNI calls, and then the cause is unknown.
        return Ok(());
    }
    for it in found.values() {
        ensure!(
            kind_and_form(it) == "leaked_address/del_blind" && it["detail"]["plugin"] == "keyed",
            "{it:#}"
        );
        let pod =
            truth.pods.iter().find(|pod| it["pod"]["uid"] == *pod.uid).context("a pod of another test")?;
        ensure!(
            it["pod"]["name"] == pod.name && it["sandboxes"] == Value::from([&*pod.sandboxes[0].id]),
            "{it:#}"
        );
    }
    Ok(())
}

/// Runs `sandprobe leaks` once, on a node that nobody watches now.
fn ensure_listed(store: Option<&str>, truth: &Truth) -> Result<()> {
    let mut command = Command::new("sandprobe");
    command.args(["leaks", "-o", "json", "--leak-grace", "1s"]);
    command.args(store.map(|store| ["--ipam-store", store]).into_iter().flatten());
    let output = command.output().context("run sandprobe leaks")?;
    let (text, stderr) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
    let found: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let expected = truly_leaked(truth);
    ensure!(leaked(&found)? == expected, "not {expected:#?}, but {found:#?}: {stderr}");
    let status = i32::from(!expected.is_empty());
    ensure!(output.status.code() == Some(status), "sandprobe leaks ended with {}: {stderr}", output.status);
    Ok(())
}

/// Checks that every pod's address of the boot before is leaked, and no address of this boot.
fn ensure_all_leaked(truth: &Truth) -> Result<()> {
    let first = truth.pods.iter().map(|pod| &pod.sandboxes[0]);
    let before: BTreeMap<_, _> =
        first.flat_map(|one| one.addresses.iter().map(|it| (it.clone(), one.id.clone()))).collect();
    ensure!(
        before.len() == PODS && truly_leaked(truth) == before,
        "the leaked addresses are not {before:#?}: {truth:#?}"
    );
    Ok(())
}

#[test]
fn pods_with_keyed_addresses_run() -> Result<()> {
    run_pods(keyed()?)
}

#[test]
fn an_early_agent_finds_the_keyed_addresses() -> Result<()> {
    ensure_all_leaked(&clean_up(keyed, Agent::BeforeTheRuntime)?)
}

#[test]
fn a_late_agent_finds_the_keyed_addresses() -> Result<()> {
    ensure_all_leaked(&clean_up(keyed, Agent::AfterTheRuntime)?)
}

#[test]
fn pods_with_addresses_of_host_local_run() -> Result<()> {
    run_pods(Node::start()?)
}

#[test]
fn no_agent_finds_an_address_of_host_local() -> Result<()> {
    let truth = clean_up(Node::start, Agent::AfterTheRuntime)?;
    if let Some((address, holder)) = truth.leaked().first_key_value() {
        bail!("{address} of {holder:?} is leaked: {truth:#?}");
    }
    Ok(())
}
