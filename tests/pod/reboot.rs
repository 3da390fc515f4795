//! A reboot of a node with pods running, under the eyes of `sandprobe`: what each boot's test keeps on the disk is what
//! the next one's begins with. For a VM that boots again alone, in the order that `cargo xtask test` says.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tests::{
    finding::word,
    keyed::Faults,
    node::Node,
    story::{Stage, Truth, service},
    stream::Told,
};

use crate::verdict::{declared_store, findings, wait_for_nothing, watch_store};

/// On the disk that outlives the boot.
const KEPT: &str = "/root/reboot.json";
const PODS: usize = 2;

/// What a boot leaves to the next.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// As `--ipam-store` takes it; none of a plugin whose store `sandprobe` finds by itself.
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

/// Pods that run when the node goes down.
fn run_pods(mut node: Node) -> Result<()> {
    ensure!(!node.is_private(), "no machine but a VM is rebooted for a test");
    let store = declared_store(&node);
    let pods: Vec<_> = (0..PODS).map(|index| service(&format!("rebooted-{index}"))).collect();
    let truth = Stage::new(&mut node)?.before_reboot(&pods)?;
    serde_json::to_writer(File::create(KEPT)?, &Kept { store, truth })?;
    node.leave()
}

/// The boot after that: what was told while the kubelet cleaned up, and what a single look finds then, held against the
/// story's truth, which is given back.
fn clean_up(start: impl Fn() -> Result<Node>, agent: Agent) -> Result<Truth> {
    let kept = fs::read(KEPT).with_context(|| format!("read {KEPT}: did pods run in a boot before?"))?;
    // It is of one boot before, and of no other.
    fs::remove_file(KEPT)?;
    let Kept { store, truth } = serde_json::from_slice(&kept)?;
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
    ensure!(truth.known.len() == PODS, "other than the new sandboxes are known: {truth:#?}");
    let leaked = truth.leaked();
    for address in leaked.keys() {
        stream.until(&format!("{address} confirmed"), |event| {
            event["event"] == "finding.confirmed"
                && event["finding"]["detail"]["address"] == address.to_string()
        })?;
    }
    // The grace of those that were confirmed was such a moment for all others.
    if leaked.is_empty() {
        wait_for_nothing();
    }
    let (told, _) = stream.end()?;
    ensure_told(&told, &truth)?;
    ensure_seen(store, &truth)?;
    stage.clean()?;
    node.stop()?;
    Ok(truth)
}

/// Address and sandbox of each that is leaked.
fn leaked<'a>(found: impl IntoIterator<Item = &'a Value>) -> Result<BTreeMap<String, String>> {
    let pair = |it: &Value| -> Result<(String, String)> {
        let address = it["detail"]["address"].as_str().with_context(|| format!("no address: {it:#}"))?;
        let sandbox = it["sandboxes"][0].as_str().with_context(|| format!("no sandbox: {it:#}"))?;
        ensure!(it["kind"] == "leaked_address" && it["confirmed_at"].is_string(), "{it:#}");
        Ok((address.to_owned(), sandbox.to_owned()))
    };
    found.into_iter().map(pair).collect()
}

/// The same by the driver's own knowledge.
fn truly_leaked(truth: &Truth) -> BTreeMap<String, String> {
    truth.leaked().iter().map(|(address, holder)| (address.to_string(), holder.container.clone())).collect()
}

fn ensure_told(told: &Told, truth: &Truth) -> Result<()> {
    let found = findings(told);
    ensure!(leaked(found.values())? == truly_leaked(truth), "not {truth:#?}, but {found:#?}");
    if told.lost()? > 0 {
        // Of calls that were not seen no cause follows.
        return Ok(());
    }
    for it in found.values() {
        ensure!(word(it) == "leaked_address/del_blind" && it["detail"]["plugin"] == "keyed", "{it:#}");
        let pod = truth.pods.iter().find(|pod| it["pod"]["uid"] == *pod.uid).context("another's pod")?;
        ensure!(
            it["pod"]["name"] == pod.name && it["sandboxes"] == Value::from([&*pod.sandboxes[0].id]),
            "{it:#}"
        );
    }
    Ok(())
}

/// One look, on a node where nobody watches now.
fn ensure_seen(store: Option<&str>, truth: &Truth) -> Result<()> {
    let mut look = Command::new("sandprobe");
    look.args(["leaks", "-o", "json", "--leak-grace", "1s"]);
    look.args(store.map(|store| ["--ipam-store", store]).into_iter().flatten());
    let looked = look.output().context("run sandprobe leaks")?;
    let (text, said) = (String::from_utf8(looked.stdout)?, String::from_utf8_lossy(&looked.stderr));
    let found: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let expected = truly_leaked(truth);
    ensure!(leaked(&found)? == expected, "not {expected:#?}, but {found:#?}: {said}");
    let status = i32::from(!expected.is_empty());
    ensure!(looked.status.code() == Some(status), "it ended with {}: {said}", looked.status);
    Ok(())
}

/// Each pod's address of the boot before, and none of this one's.
fn ensure_all_leaked(truth: &Truth) -> Result<()> {
    let first = truth.pods.iter().map(|pod| &pod.sandboxes[0]);
    let before: BTreeMap<_, _> =
        first.flat_map(|one| one.addresses.iter().map(|it| (it.clone(), one.id.clone()))).collect();
    ensure!(
        before.len() == PODS && truly_leaked(truth) == before,
        "leaked other than {before:#?}: {truth:#?}"
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
