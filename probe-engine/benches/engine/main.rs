//! Measures the engine by itself: no hooks, no files, no JSON on the way in. One run measures one scenario
//! and prints one line of JSON; `cargo xtask bench engine` runs many and compares them.
//!
//! A scenario is a node with things that stay, while pods come and go:
//!
//! `engine pods=100 findings=0 leases=0 failed=0 namespaces=0 turns=200 step_us=1000 pause_ms=0`
//!
//! With `record=FILE` it also writes a recording, which the agent can replay.

#![expect(clippy::print_stdout, reason = "a command-line program: its output is its result")]

mod drive;
mod memory;
mod node;
mod pod;
mod scenario;
mod script;

use anyhow::{Result, bail};
use drive::Drive;
use node::Node;
use scenario::Scenario;
use serde_json::json;
use std::fs;

const RECORD: &str = "record=";
/// The number of pods that share an address, which makes a finding.
const SHARERS: u64 = 2;
/// The number of pods that come and go and live at the same time.
const COHORT: u64 = 8;
/// The number of probes in containers of other pods for each pod that comes and goes.
const PROBES: u64 = 4;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let (files, words): (Vec<String>, Vec<String>) =
        words.into_iter().partition(|word| word.starts_with(RECORD));
    let scenario = Scenario::parse(&words)?;
    let mut drive = Drive::new(Node::new(&scenario));
    if !files.is_empty() {
        drive.record()?;
    }
    drive.settle_in(&scenario);
    let open = drive.open_findings();
    if open < scenario.findings {
        bail!("{open} findings are open, not {}", scenario.findings);
    }
    let resting = drive.engine_rows();
    drive.begin_to_measure();
    for turn in 0..scenario.turns {
        drive.turn(turn, &scenario);
    }
    let (events, answers, changes) = (drive.events, drive.answers, drive.changes);
    let rows = drive.engine_rows();
    if let Some(bytes) = drive.recorded()? {
        for file in files {
            fs::write(file.trim_start_matches(RECORD), &bytes)?;
        }
    }
    let heap = drive.heap();
    println!(
        "{}",
        json!({
            "scenario": words.join(" "),
            "turns": scenario.turns,
            "events": events.count,
            "events_ns": events.nanoseconds,
            "event_allocations": events.allocations,
            "answers": answers.count,
            "answers_ns": answers.nanoseconds,
            "changes": changes,
            "findings": open,
            "rows_at_rest": resting,
            "rows": rows,
            "heap_bytes": heap,
        })
    );
    Ok(())
}
