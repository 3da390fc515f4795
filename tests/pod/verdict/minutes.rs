//! Four stories whose findings take a minute or more. They happen at the same time on one node under one
//! agent. The test of each story checks its own findings, and that only the four stories have any.

use std::{collections::BTreeMap, sync::OnceLock, time::Duration};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::Value;
use tests::{
    keyed::Faults,
    node::Node,
    story::{Stage, Truth, job},
};

use super::{
    REDUNDANT, bulk::Bulk, failing::FailingPods, findings, left::Records, rarer::Kubelet, until_confirmed,
    wait_for_candidates, watch_store,
};

/// The kinds of the findings, each of one finding.
const KINDS: [&str; 8] = [
    "daemon_failing",
    "duplicate_sandbox",
    "phantom_sandbox",
    "restarted_in_bulk",
    "restarted_in_bulk",
    "sandboxes_replaced",
    "teardown_out_of_order",
    "unverified_release",
];

/// What the agent found, and what happened.
pub(super) struct Seen {
    findings: BTreeMap<String, Value>,
    pub(super) redundant: Truth,
    pub(super) records: Records,
}

/// Runs the stories for the first test that asks.
pub(super) fn seen() -> Result<&'static Seen> {
    static SEEN: OnceLock<Result<Seen, String>> = OnceLock::new();
    let seen = SEEN.get_or_init(|| run().map_err(|error| format!("{error:#}")));
    seen.as_ref().map_err(|error| anyhow!("{error}"))
}

fn run() -> Result<Seen> {
    let before = Kubelet::start()?;
    let mut node = Node::start_keyed(Faults::default())?;
    // The agent does not know the plugin's store.
    let mut stream = watch_store(None)?;
    let mut kubelet = node.kubelet()?;
    let bulk = Bulk::start(&mut kubelet)?;
    drop(before);
    let _kubelet = Kubelet::start()?;
    bulk.restart(&mut kubelet)?;
    let failing = FailingPods::start(&mut kubelet)?;
    let records = Records::leave(&mut kubelet)?;
    let mut stage = Stage::new(&mut node)?;
    let redundant = stage.redundant_sandbox(&job("unseen"))?;
    failing.until_told(&mut stream)?;
    failing.end(&mut kubelet)?;
    FailingPods::until_over(&mut stream)?;
    Bulk::until_told(&mut stream)?;
    bulk.end(&mut kubelet)?;
    records.until_told(&mut stream)?;
    // Before that time the stores may not have been read again.
    stream.until_after(Duration::from_secs(60), "the plugin", |event| {
        event["finding"]["kind"] == "unverified_release"
    })?;
    until_confirmed(&mut stream, &REDUNDANT)?;
    wait_for_candidates();
    let (received, _) = stream.end()?;
    records.remove(&mut kubelet)?;
    stage.clean()?;
    node.stop()?;
    Ok(Seen { findings: findings(&received), redundant, records })
}

impl Seen {
    /// Returns the finding of this kind. Fails if anything else was found, except blind spots.
    pub(super) fn only(&self, kind: &str) -> Result<&Value> {
        let known: Vec<&Value> = self.findings.values().filter(|it| it["kind"] != "blind_spot").collect();
        let mut kinds: Vec<&str> = known.iter().filter_map(|it| it["kind"].as_str()).collect();
        kinds.sort_unstable();
        ensure!(kinds == KINDS, "found {kinds:?}, not {KINDS:?}: {:#?}", self.findings);
        let vague = known.iter().find(|it| !it["confirmed_at"].is_string());
        ensure!(vague.is_none(), "never confirmed: {vague:#?}");
        known.into_iter().find(|it| it["kind"] == kind).with_context(|| format!("no {kind}"))
    }

    /// Returns the finding whose key begins so.
    pub(super) fn with_key(&self, begin: &str) -> Result<&Value> {
        let mut all = self.findings.iter();
        let found = all.find(|(key, _)| key.starts_with(begin));
        found.map(|(_, it)| it).with_context(|| format!("no {begin}"))
    }

    pub(super) fn has_blind_spot(&self) -> bool {
        self.findings.values().any(|it| it["kind"] == "blind_spot")
    }
}
