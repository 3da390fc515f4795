//! The agent is killed, things happen, and another agent continues with the first one's state, and with its
//! hooks if they were left.

use std::{collections::BTreeSet, path::Path, process::Command};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tests::{
    clock,
    finding::kind_and_form,
    guard::unique_name,
    keyed::Faults,
    node::Node,
    skipped,
    story::{Stage, job},
    stream::{Received, Stream, is_unheard},
};

use super::{
    REDUNDANT, declared_store, ensure_exactly, findings, grace, key, losses::remaining_shim, until_confirmed,
    wait_for_candidates,
};

/// Runs an agent that keeps its state in this directory, and leaves its hooks in the folder `pins`.
fn run(state: &Path, pins: &str, store: &str) -> Result<Stream> {
    let (state, grace) = (state.display().to_string(), format!("{}s", grace().as_secs()));
    Stream::start(&[
        "run",
        "--state-dir",
        &state,
        "--pin-dir",
        pins,
        "--listen",
        "none",
        "--ipam-store",
        store,
        "--leak-grace",
        &grace,
    ])
}

fn seqs(received: &Received) -> Result<Vec<u64>> {
    let seq = |event: &Value| event["seq"].as_u64().context("no seq");
    received.events.iter().map(seq).collect()
}

/// Returns the keys of the findings that the command lists, with their stages.
fn listed(state: &Path) -> Result<BTreeSet<(String, String)>> {
    let listed = Command::new("sandprobe")
        .args(["findings", "--all", "-o", "json", "--socket", "none", "--state-dir"])
        .arg(state)
        .output()?;
    let text = String::from_utf8(listed.stdout)?;
    let finding = |line: &str| -> Result<(String, String)> {
        let it: Value = serde_json::from_str(line)?;
        Ok((key(&it), it["stage"].as_str().context("no stage")?.to_owned()))
    };
    text.lines().map(finding).collect()
}

#[test]
fn a_killed_agent_loses_no_finding_and_the_next_one_finds_the_leak_that_nobody_saw() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let store = declared_store(&node).context("the plugin's store")?;
    let state = tempfile::tempdir()?;
    let words = [&REDUNDANT[..], &["leaked_address/del_blind"]].concat();

    let mut first = run(state.path(), "none", &store)?;
    let mut stage = Stage::new(&mut node)?;
    stage.redundant_sandbox(&job("seen"))?;
    until_confirmed(&mut first, &words)?;
    let before = findings(&first.received);
    let last = seqs(&first.received)?.into_iter().max().context("no event")?;
    // It is killed.
    drop(first);

    let unseen = stage.redundant_sandbox(&job("unseen"))?;
    let pod = unseen.pods.last().context("its pod")?;
    let address = pod.sandboxes[1].addresses.first().context("an address")?.clone();
    let mut second = run(state.path(), "none", &store)?;
    second.until("the time without an agent", |event| {
        event["event"] == "gap" && event["gap"]["what"] == "no_agent"
    })?;
    second.until("the leak that nobody saw", |event| {
        event["event"] == "finding.confirmed" && event["finding"]["detail"]["address"] == *address
    })?;
    let (received, _) = second.end()?;
    let kept = listed(state.path())?;
    stage.clean()?;
    node.stop()?;

    let numbers = seqs(&received)?;
    ensure!(numbers.first() > Some(&last), "the events go on with {numbers:?} after {last}");
    ensure!(numbers.is_sorted_by(|one, next| one + 1 == *next), "{numbers:?}");
    let lasting: BTreeSet<_> = before.keys().map(|key| (key.clone(), "confirmed".to_owned())).collect();
    ensure!(kept.is_superset(&lasting), "{kept:?} are kept, not {lasting:?}");
    for event in received.events.iter().filter(|it| it["event"] == "finding.opened") {
        let (it, form) = (&event["finding"], kind_and_form(&event["finding"]));
        ensure!(!before.contains_key(&key(it)), "{form} is reported again: {it:#}");
        let is_true = match it["kind"].as_str() {
            Some("leaked_address") => it["detail"]["address"] == *address,
            // The second sandbox is redundant also for an agent that saw only its remains.
            Some("duplicate_sandbox") => it["pod"]["name"] == pod.name,
            Some("blind_spot") => it["detail"]["what"] == "no_agent",
            Some(_) | None => false,
        };
        ensure!(is_true, "{form} is not true: {it:#}");
    }
    Ok(())
}

/// Ends the hooks that agents have left.
struct Pins(String);

impl Drop for Pins {
    fn drop(&mut self) {
        // If this fails, the test has failed before for its own reason.
        Command::new("sandprobe").args(["detach", "--pin-dir", &self.0]).output().ok();
    }
}

/// Checks that everything the hooks saw since this time was reported in order. A verdict waits a moment for
/// earlier records, so an event that the agent itself makes may come after a later one.
fn ensure_in_order(received: &Received, since: u64) -> Result<()> {
    let at = |event: &Value| event["boot_ns"].as_str().and_then(|at| at.parse().ok()).unwrap_or(0_u64);
    let late = |event: &&Value| event["late"] == true && event["origin"] != "agent" && at(event) > since;
    let Some(late) = received.events.iter().find(late) else { return Ok(()) };
    let before = received.events.iter().take_while(|event| event["seq"] != late["seq"]);
    let ahead = before.filter(|event| at(event) > at(late)).collect::<Vec<_>>();
    bail!("{late:#}\nwas in the rings in its order, but was told after {ahead:#?}")
}

const PAUSE_KILLED: &str = "teardown_out_of_order/pause_killed";
const OUT_OF_MEMORY: &str = "teardown_out_of_order/pause_out_of_memory";

/// The hooks worked while no agent ran. Their records are reported as if the agent had run.
#[test]
fn what_happened_while_no_agent_ran_is_told_with_its_cause() -> Result<()> {
    skipped::retry(|_| {
        let mut node = Node::start_keyed(Faults::default())?;
        let store = declared_store(&node).context("the plugin's store")?;
        let state = tempfile::tempdir()?;
        let pins = Pins(format!("/sys/fs/bpf/{}", unique_name("sandprobe")));
        let mut words = [&REDUNDANT[..], &["leaked_address/del_blind", OUT_OF_MEMORY]].concat();

        // It is killed.
        drop(run(state.path(), &pins.0, &store)?);
        let killed_at = clock::boot_ns()?;
        let mut stage = Stage::new(&mut node)?;
        let truth = stage.redundant_sandbox(&job("unseen"))?;
        let starved = stage.starved_pause(&job("starved"))?;
        let starved = starved.pods.last().context("its pod")?;
        words.extend(remaining_shim(&starved.sandboxes[0].id)?.map(|_pid| "orphan_sandbox"));
        let mut second = run(state.path(), &pins.0, &store)?;
        let confirmed = until_confirmed(&mut second, &words);
        wait_for_candidates();
        let (received, _) = second.end()?;
        stage.clean()?;
        node.stop()?;

        confirmed?;
        let is_gap = |event: &&Value| event["event"] == "gap" && !is_unheard(event);
        let gaps: Vec<_> = received.events.iter().filter(is_gap).collect();
        ensure!(gaps.is_empty(), "{gaps:#?}");
        ensure_in_order(&received, killed_at)?;
        let found = ensure_exactly(&received, &words)?;
        let killed = &found[PAUSE_KILLED];
        ensure!(killed["detail"]["killer"]["pid"] == truth.driver, "{killed:#?}");
        let leaked = &found["leaked_address/del_blind"];
        let address = truth.pods[0].sandboxes[1].addresses.first().context("an address")?;
        ensure!(
            leaked["detail"]["address"] == **address && leaked["detail"]["plugin"] == "keyed",
            "{leaked:#?}"
        );
        ensure!(found[OUT_OF_MEMORY]["pod"]["name"] == starved.name, "{:#?}", found[OUT_OF_MEMORY]);
        Ok(())
    })
}
