//! The stories under the eyes of `sandprobe`: what it finds wrong, and that it finds nothing else.

mod crowded;
mod killed;
mod losses;
mod rarer;
mod torn;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::Value;
use tests::{
    finding::word,
    keyed::Faults,
    kubelet::Step,
    machine,
    node::Node,
    skipped,
    story::{Act, Stage, Truth, job},
    stream::{Stream, Told},
};

/// What an address may stay given out after its sandbox: long enough for a slow machine's runtime to end its part.
const GRACE: Duration = Duration::from_secs(5);

fn grace() -> Duration {
    GRACE * if machine::is_emulated() { 3 } else { 1 }
}

/// An agent beside a node, which knows the plugin's store.
fn watch(node: &Node) -> Result<Stream> {
    watch_store(declared_store(node).as_deref())
}

/// The store of our own plugin, as `--ipam-store` takes it.
pub(crate) fn declared_store(node: &Node) -> Option<String> {
    let network = node.network();
    network.keyed.as_ref().map(|_| format!("{}:{}", network.store().display(), network.name))
}

/// An agent that was told of this store.
pub(crate) fn watch_store(store: Option<&str>) -> Result<Stream> {
    let grace = format!("{}s", grace().as_secs());
    let mut arguments = vec!["watch", "--leak-grace", &grace];
    arguments.extend(store.map(|store| ["--ipam-store", store]).into_iter().flatten());
    Stream::start(&arguments)
}

/// The findings that were told, each as it was told last.
pub(crate) fn findings(told: &Told) -> BTreeMap<String, Value> {
    let of = |event: &Value| event["event"].as_str().is_some_and(|name| name.starts_with("finding."));
    let finding = |event: &'_ Value| event["finding"].clone();
    let all = told.events.iter().filter(|event| of(event)).map(finding);
    all.map(|finding| (key(&finding), finding)).collect()
}

fn key(finding: &Value) -> String {
    finding["key"].as_str().unwrap_or_default().to_owned()
}

/// Those of exactly these words were confirmed, each once, and no other finding was told of at all.
fn ensure_exactly(told: &Told, words: &[&str]) -> Result<BTreeMap<String, Value>> {
    let found = findings(told);
    let mut got: Vec<String> = found.values().map(word).collect();
    got.sort_unstable();
    let mut expected: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    expected.sort_unstable();
    ensure!(got == expected, "found {got:?}, not {expected:?}: {found:#?}");
    for it in found.values() {
        ensure!(it["confirmed_at"].is_string(), "never confirmed: {it:#?}");
    }
    Ok(found.into_values().map(|it| (word(&it), it)).collect())
}

/// Waits until a finding was confirmed for each of the words, as often as it stands there.
fn until_confirmed(stream: &mut Stream, words: &[&str]) -> Result<()> {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for wanted in words {
        let is_it = |event: &Value| {
            event["event"] == "finding.confirmed"
                && word(&event["finding"]) == *wanted
                && !seen.contains(&key(&event["finding"]))
        };
        stream.until(&format!("{wanted} confirmed"), is_it)?;
        let found = stream.told.events.iter().find(|event| is_it(event)).map(|event| key(&event["finding"]));
        seen.extend(found);
    }
    Ok(())
}

/// A moment in which everything that was wrong would have been told of as a candidate at least.
pub(crate) fn wait_for_nothing() {
    thread::sleep(grace() + Duration::from_secs(2));
}

/// What is wrong began within that step, as the driver saw it.
fn began_within(finding: &Value, step: Step) -> Result<()> {
    let since: u64 = finding["since_boot_ns"].as_str().context("a time")?.parse()?;
    ensure!((step.asked..=step.done).contains(&since), "{since} is not within {step:?}: {finding:#?}");
    Ok(())
}

/// What is found of the one story, in whichever node.
const REDUNDANT: [&str; 2] = ["duplicate_sandbox/after_completion", "teardown_out_of_order/pause_killed"];

fn redundant(node: &mut Node, words: &[&str]) -> Result<(Truth, BTreeMap<String, Value>)> {
    let mut stream = watch(node)?;
    let mut stage = Stage::new(node)?;
    let truth = stage.redundant_sandbox(&job("redundant"))?;
    let confirmed = until_confirmed(&mut stream, words);
    wait_for_nothing();
    let (told, _) = stream.end()?;
    stage.clean()?;
    let lost = told.lost()?;
    ensure!(lost == 0, "{lost} runs were skipped, so that nothing may be concluded but what the records say");
    confirmed?;
    Ok((truth, ensure_exactly(&told, words)?))
}

#[test]
fn a_sandbox_that_nobody_needs_and_its_leaked_address_are_found() -> Result<()> {
    skipped::retry(|_| {
        let mut node = Node::start_keyed(Faults::default())?;
        let words = [&REDUNDANT[..], &["leaked_address/del_blind"]].concat();
        let told = redundant(&mut node, &words);
        node.stop()?;
        let (truth, found) = told?;
        check_redundant(&truth, &found)
    })
}

fn check_redundant(truth: &Truth, found: &BTreeMap<String, Value>) -> Result<()> {
    let pod = &truth.pods[0];
    let second = &pod.sandboxes[1];
    for it in found.values() {
        ensure!(it["pod"]["name"] == pod.name && it["pod"]["uid"] == pod.uid, "{it:#?}");
        let sandboxes = it["sandboxes"].as_array().context("its sandboxes")?;
        ensure!(sandboxes.last().is_some_and(|id| *id == second.id), "{it:#?}");
    }
    let step = |act: Act| truth.steps(act).last().copied().context("the driver did it");
    let duplicate = &found["duplicate_sandbox/after_completion"];
    began_within(duplicate, step(Act::RunSandbox)?)?;
    // A process that was sent a signal ends when it runs next: before the driver saw it dead and went on.
    let dead = Step { asked: step(Act::KillSandbox)?.asked, done: step(Act::LoseNetns)?.asked };
    let killed = &found["teardown_out_of_order/pause_killed"];
    began_within(killed, dead)?;
    ensure!(killed["detail"]["killer"]["pid"] == truth.driver, "{killed:#?}");
    let leaked = &found["leaked_address/del_blind"];
    let address = second.addresses.first().context("an address")?;
    ensure!(leaked["detail"]["address"] == **address, "{leaked:#?}");
    ensure!(leaked["detail"]["plugin"] == "keyed", "{leaked:#?}");
    Ok(())
}

#[test]
fn with_host_local_the_same_story_leaks_nothing() -> Result<()> {
    skipped::retry(|_| {
        let mut node = Node::start()?;
        let told = redundant(&mut node, &REDUNDANT);
        node.stop()?;
        told.map(drop)
    })
}

/// A day's pods, or a part of them: how many, and how many at a time.
fn day() -> (usize, usize) {
    if machine::is_soak() {
        (1440, 4)
    } else if machine::is_emulated() {
        (4, 1)
    } else {
        (100, 4)
    }
}

/// What starts, runs, crashes again and again, is restarted, is done, and goes.
#[test]
fn healthy_pods_make_no_finding() -> Result<()> {
    let (count, concurrency) = day();
    let mut node = Node::start_keyed(Faults::default())?;
    let mut stream = watch(&node)?;
    let mut stage = Stage::new(&mut node)?;
    let truth = stage.churn(count, concurrency)?;
    ensure!(truth.held.is_empty() && truth.known.is_empty(), "the pods were not healthy: {truth:#?}");
    let gone = |event: &Value| event["event"] == "pod.gone";
    for pod in &truth.pods {
        stream.until("the end of a pod", |event| gone(event) && event["pod"]["uid"] == pod.uid)?;
    }
    wait_for_nothing();
    let (told, _) = stream.end()?;
    let lost = told.lost()?;
    if lost == 0 {
        ensure_exactly(&told, &[])?;
        // Every call that the plugin itself counted was told of.
        let finished = |command: &str, blind: bool| {
            let is_one = |event: &&Value| {
                let cni = &event["cni"];
                cni["plugin"] == "keyed"
                    && cni["command"] == command
                    && cni["netns"].as_str().is_none_or(str::is_empty) == blind
            };
            u64::try_from(told.named("cni.finished").filter(is_one).count())
        };
        let calls = truth.calls;
        let told = (finished("ADD", false)?, finished("DEL", false)?, finished("DEL", true)?);
        let counted = (calls.adds, calls.dels, calls.dels_blind);
        ensure!(told == counted, "told of {told:?} ADDs, DELs and blind DELs, of {counted:?}");
    }
    stage.clean()?;
    node.stop()
}

/// Whenever an agent comes, the leak is found, and nothing that was not.
#[test]
fn an_agent_that_comes_in_the_middle_finds_the_leak() -> Result<()> {
    for when in [Act::WaitForExit, Act::StopSandbox, Act::KillSandbox, Act::LoseNetns, Act::RemoveSandbox] {
        let mut node = Node::start_keyed(Faults::default())?;
        let store = declared_store(&node);
        let stream: Mutex<Option<Stream>> = Mutex::new(None);
        let mut stage = Stage::new(&mut node)?.before_each(|act| {
            let mut stream = stream.lock().map_err(|_poisoned| anyhow!("an agent could not be started"))?;
            if act == when && stream.is_none() {
                *stream = Some(watch_store(store.as_deref())?);
            }
            Ok(())
        });
        let truth = stage.redundant_sandbox(&job("late"))?;
        stage.clean()?;
        let stream = stream.into_inner().ok().flatten();
        let mut stream = stream.context("the story has such an act")?;
        let is_leak = |event: &Value| {
            event["event"] == "finding.confirmed" && event["finding"]["kind"] == "leaked_address"
        };
        stream.until(&format!("the leak, by an agent from {when:?} on,"), is_leak)?;
        let (told, _) = stream.end()?;
        let address = truth.pods[0].sandboxes[1].addresses.first().context("an address")?;
        for it in findings(&told).values() {
            let is_true = match it["kind"].as_str() {
                Some("leaked_address") => it["detail"]["address"] == **address,
                Some("duplicate_sandbox" | "teardown_out_of_order") => it["pod"]["name"] == "late",
                _ => false,
            };
            ensure!(is_true, "by an agent from {when:?} on: {it:#?}");
        }
        node.stop()?;
    }
    Ok(())
}
