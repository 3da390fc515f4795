//! Stories on a node that `sandprobe` watches. Each test checks its findings, and that there are no others.

mod abandoned;
mod bulk;
mod crowded;
mod failing;
mod incomplete;
mod killed;
mod known;
mod left;
mod losses;
mod lost;
mod minutes;
mod ownerless;
mod rarer;
mod restarted;
mod stopped;
mod stuck;
mod torn;
mod unready;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::Value;
use tests::{
    finding::kind_and_form,
    keyed::Faults,
    kubelet::Step,
    machine,
    node::Node,
    skipped,
    story::{Action, Stage, Truth, job},
    stream::{Received, Stream},
};

pub(crate) use self::rarer::Kubelet;

/// How long an address may stay allocated after its sandbox: long enough for a slow machine's runtime to
/// finish.
const GRACE: Duration = Duration::from_secs(5);

pub(crate) fn grace() -> Duration {
    GRACE * if machine::is_emulated() { 3 } else { 1 }
}

/// Runs an agent beside a node. It knows the plugin's store.
fn watch(node: &Node) -> Result<Stream> {
    watch_store(declared_store(node).as_deref())
}

/// Returns the store of the test's own plugin, as an argument of `--ipam-store`.
pub(crate) fn declared_store(node: &Node) -> Option<String> {
    let network = node.network();
    network.keyed.as_ref().map(|_| format!("{}:{}", network.store().display(), network.name))
}

/// Runs an agent with this store as an argument.
pub(crate) fn watch_store(store: Option<&str>) -> Result<Stream> {
    let grace = format!("{}s", grace().as_secs());
    let mut arguments = vec!["watch", "--leak-grace", &grace];
    arguments.extend(store.map(|store| ["--ipam-store", store]).into_iter().flatten());
    Stream::start(&arguments)
}

/// Returns the reported findings, each in its last state.
pub(crate) fn findings(received: &Received) -> BTreeMap<String, Value> {
    let of = |event: &Value| event["event"].as_str().is_some_and(|name| name.starts_with("finding."));
    let finding = |event: &'_ Value| event["finding"].clone();
    let all = received.events.iter().filter(|event| of(event)).map(finding);
    all.map(|finding| (key(&finding), finding)).collect()
}

fn key(finding: &Value) -> String {
    finding["key"].as_str().unwrap_or_default().to_owned()
}

/// Checks that exactly these kinds of findings were confirmed, each once, and that no other finding was
/// reported.
fn ensure_exactly(received: &Received, words: &[&str]) -> Result<BTreeMap<String, Value>> {
    let found = findings(received);
    let mut got: Vec<String> = found.values().map(kind_and_form).collect();
    got.sort_unstable();
    let mut expected: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    expected.sort_unstable();
    ensure!(got == expected, "found {got:?}, not {expected:?}: {found:#?}");
    for it in found.values() {
        ensure!(it["confirmed_at"].is_string(), "never confirmed: {it:#?}");
    }
    Ok(found.into_values().map(|it| (kind_and_form(&it), it)).collect())
}

/// Waits until there is a confirmed finding for each of `words`, which may name one twice.
fn until_confirmed(stream: &mut Stream, words: &[&str]) -> Result<()> {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for wanted in words {
        let is_it = |event: &Value| {
            event["event"] == "finding.confirmed"
                && kind_and_form(&event["finding"]) == *wanted
                && !seen.contains(&key(&event["finding"]))
        };
        stream.until(&format!("{wanted} confirmed"), is_it)?;
        let found =
            stream.received.events.iter().find(|event| is_it(event)).map(|event| key(&event["finding"]));
        seen.extend(found);
    }
    Ok(())
}

/// Waits long enough for every problem to be reported, at least as a candidate.
pub(crate) fn wait_for_candidates() {
    thread::sleep(grace() + Duration::from_secs(2));
}

/// Checks that the problem began within that step of the test driver.
fn began_within(finding: &Value, step: Step) -> Result<()> {
    let since: u64 = finding["since_boot_ns"].as_str().context("no time")?.parse()?;
    ensure!((step.asked..=step.done).contains(&since), "{since} is not within {step:?}: {finding:#?}");
    Ok(())
}

/// The findings of the redundant sandbox, with any plugin.
const REDUNDANT: [&str; 2] = ["duplicate_sandbox/after_completion", "teardown_out_of_order/pause_killed"];

fn redundant(node: &mut Node, words: &[&str]) -> Result<(Truth, BTreeMap<String, Value>)> {
    let mut stream = watch(node)?;
    let mut stage = Stage::new(node)?;
    let truth = stage.redundant_sandbox(&job("redundant"))?;
    let confirmed = until_confirmed(&mut stream, words);
    wait_for_candidates();
    let (received, _) = stream.end()?;
    stage.clean()?;
    // Skipped hook runs may not matter. If they do, the findings show it.
    received.lost()?;
    confirmed?;
    Ok((truth, ensure_exactly(&received, words)?))
}

#[test]
fn a_sandbox_that_nobody_needs_and_its_leaked_address_are_found() -> Result<()> {
    skipped::retry(|_| {
        let mut node = Node::start_keyed(Faults::default())?;
        let words = [&REDUNDANT[..], &["leaked_address/del_blind"]].concat();
        let received = redundant(&mut node, &words);
        node.stop()?;
        let (truth, found) = received?;
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
    let step = |action: Action| truth.steps(action).last().copied().context("the driver never did this");
    let duplicate = &found["duplicate_sandbox/after_completion"];
    began_within(duplicate, step(Action::RunSandbox)?)?;
    // A killed process ends when it runs next. That is before the driver saw that it had ended and went on.
    let dead = Step { asked: step(Action::KillSandbox)?.asked, done: step(Action::LoseNetns)?.asked };
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
        let received = redundant(&mut node, &REDUNDANT);
        node.stop()?;
        received.map(drop)
    })
}

/// Returns the minimum number of pods, how many run at a time, and the minimum duration.
fn churn() -> (usize, usize, Duration) {
    if machine::is_soak() {
        (PORTION, 4, Duration::from_secs(10 * 60))
    } else if machine::is_emulated() {
        (4, 1, Duration::ZERO)
    } else {
        (50, 4, Duration::ZERO)
    }
}

/// The number of pods in each portion.
const PORTION: usize = 60;

/// The pods start, run, crash repeatedly, are restarted, complete, and are removed.
#[test]
#[expect(clippy::print_stderr, reason = "figures for whoever looks")]
fn healthy_pods_make_no_finding() -> Result<()> {
    let (count, concurrency, time) = churn();
    // Pods without a kubelet are a blind spot after ten minutes.
    let _kubelet = Kubelet::start()?;
    let mut node = Node::start_keyed(Faults::default())?;
    let mut stream = watch(&node)?;
    let mut stage = Stage::new(&mut node)?;
    let begun = Instant::now();
    let mut truth = stage.churn(count, concurrency)?;
    while begun.elapsed() < time {
        truth = stage.churn(count, concurrency)?;
    }
    eprintln!("{} healthy pods in {:?}", truth.pods.len(), begun.elapsed());
    ensure!(truth.held.is_empty() && truth.known.is_empty(), "the pods were not healthy: {truth:#?}");
    let gone = |event: &Value| event["event"] == "pod.gone";
    for pod in &truth.pods {
        stream.until("the end of a pod", |event| gone(event) && event["pod"]["uid"] == pod.uid)?;
    }
    wait_for_candidates();
    let (received, _) = stream.end()?;
    let lost = received.lost()?;
    if lost == 0 {
        ensure_exactly(&received, &[])?;
        // Every call that the plugin itself counted is reported.
        let finished = |command: &str, blind: bool| {
            let is_one = |event: &&Value| {
                let cni = &event["cni"];
                cni["plugin"] == "keyed"
                    && cni["command"] == command
                    && cni["netns"].as_str().is_none_or(str::is_empty) == blind
            };
            u64::try_from(received.named("cni.finished").filter(is_one).count())
        };
        let calls = truth.calls;
        let received = (finished("ADD", false)?, finished("DEL", false)?, finished("DEL", true)?);
        let counted = (calls.adds, calls.dels, calls.dels_blind);
        ensure!(
            received == counted,
            "{received:?} ADDs, DELs and blind DELs are reported, {counted:?} were made"
        );
    }
    stage.clean()?;
    node.stop()
}

/// An agent that starts at any point of the story finds the leak and no other finding. One starts at each
/// point of the same story.
#[test]
fn an_agent_that_starts_in_the_middle_finds_the_leak() -> Result<()> {
    const POINTS: [Action; 5] = [
        Action::WaitForExit,
        Action::StopSandbox,
        Action::KillSandbox,
        Action::LoseNetns,
        Action::RemoveSandbox,
    ];
    let mut node = Node::start_keyed(Faults::default())?;
    let store = declared_store(&node);
    let agents: Mutex<Vec<(Action, Stream)>> = Mutex::new(Vec::new());
    let mut stage = Stage::new(&mut node)?.before_each(|action| {
        let mut agents = agents.lock().map_err(|_poisoned| anyhow!("an agent could not be started"))?;
        if POINTS.contains(&action) && agents.iter().all(|(started, _)| *started != action) {
            agents.push((action, watch_store(store.as_deref())?));
        }
        Ok(())
    });
    let truth = stage.redundant_sandbox(&job("late"))?;
    stage.clean()?;
    let agents = agents.into_inner().ok().context("an agent could not be started")?;
    ensure!(agents.iter().map(|(when, _)| *when).eq(POINTS), "the story has other points");
    let address = truth.pods[0].sandboxes[1].addresses.first().context("an address")?;
    for (when, mut stream) in agents {
        let is_leak = |event: &Value| {
            event["event"] == "finding.confirmed" && event["finding"]["kind"] == "leaked_address"
        };
        stream.until(&format!("the leak by an agent that starts at {when:?}"), is_leak)?;
        let (received, _) = stream.end()?;
        for it in findings(&received).values() {
            let is_true = match it["kind"].as_str() {
                Some("leaked_address") => it["detail"]["address"] == **address,
                Some("duplicate_sandbox" | "teardown_out_of_order") => it["pod"]["name"] == "late",
                _ => false,
            };
            ensure!(is_true, "by an agent that starts at {when:?}: {it:#?}");
        }
    }
    node.stop()
}
