//! The engine by itself: a bench of the crate `probe-engine` plays one scenario a run.

use super::comparison::{Comparison, Figures};
use super::table;
use crate::{building, workspace};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROUNDS: usize = 5;

/// Cases that differ in one parameter.
struct Axis {
    title: &'static str,
    name: &'static str,
    values: &'static [u64],
    quick: &'static [u64],
    turns: u64,
    /// The parameters that are equal in all cases.
    rest: &'static str,
}

const AXES: [Axis; 6] = [
    Axis {
        title: "pods that live",
        name: "pods",
        values: &[10, 100, 1000, 10_000],
        quick: &[10, 100],
        turns: 200,
        rest: "",
    },
    Axis {
        title: "pods that live, one comes and one goes a second",
        name: "pods",
        values: &[10, 100, 300, 1000, 5000],
        quick: &[10, 100],
        turns: 60,
        rest: "step_us=5000 pause_ms=1000",
    },
    Axis {
        title: "findings that are open, of 100 pods",
        name: "findings",
        values: &[0, 10, 100, 1000],
        quick: &[0, 10],
        turns: 200,
        rest: "",
    },
    Axis {
        title: "leases of no pod, beside 100 pods",
        name: "leases",
        values: &[0, 1000, 10_000, 65_000],
        quick: &[0, 100],
        turns: 200,
        rest: "",
    },
    Axis {
        title: "ADDs that failed, beside 100 pods",
        name: "failed",
        values: &[0, 100, 1000, 10_000],
        quick: &[0, 10],
        turns: 200,
        rest: "",
    },
    Axis {
        title: "network namespaces of no pod, beside 100 pods",
        name: "namespaces",
        values: &[0, 100, 1000, 10_000],
        quick: &[0, 100],
        turns: 200,
        rest: "",
    },
];

/// A history of a million observations, as values and not as JSON, shows how many the engine takes in a
/// second: with an event each millisecond, and with 200 in a millisecond, as in a storm.
const LONG: &[&str] = &["pods=100 turns=11400", "pods=100 turns=11400 step_us=5"];
const LONG_QUICK: &[&str] = &["pods=100 turns=100", "pods=100 turns=100 step_us=5"];

const SHOWN: &[&str] = &["ns/event", "ns/answer", "us/turn", "allocations/event", "KB"];
const SHOWN_LONG: &[&str] = &["observations", "observations/s", "ns/event", "allocations/event", "KB"];

/// The arguments of cargo for it.
pub(super) const BUILD: &str = "bench --no-run --package probe-engine --bench engine";

pub(super) fn build() -> Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args(BUILD.split(' '));
    let built = building::executables("the bench of the engine", &mut cargo)?;
    let program = built.into_iter().find(|it| it.name == "engine");
    program.map(|it| it.path).context("cargo built no bench of the engine")
}

pub(super) fn compare(program: &Path, quick: bool) -> Result<Vec<Comparison>> {
    let rounds = if quick { 1 } else { ROUNDS };
    let mut comparisons = Vec::new();
    for axis in AXES {
        let turns = if quick { 20 } else { axis.turns };
        let values = if quick { axis.quick } else { axis.values };
        let mut names = Vec::new();
        for value in values {
            names.push(format!("{}={value} turns={turns} {}", axis.name, axis.rest).trim().to_owned());
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let it = Comparison::new(axis.title, SHOWN, &names).measure(rounds, |name| measure(program, name))?;
        println!("{}", table::text(&it));
        comparisons.push(it);
    }
    let long = if quick { LONG_QUICK } else { LONG };
    let it = Comparison::new("a history of a million observations, without JSON", SHOWN_LONG, long)
        .measure(rounds, |name| measure(program, name))?;
    println!("{}", table::text(&it));
    comparisons.push(it);
    Ok(comparisons)
}

fn measure(program: &Path, scenario: &str) -> Result<Figures> {
    let text = workspace::output(Command::new(program).args(scenario.split(' ')))?;
    let told: Value = serde_json::from_str(&text).context("the bench of the engine did not print JSON")?;
    let events = number(&told, "events")?;
    let answers = number(&told, "answers")?;
    let events_ns = number(&told, "events_ns")?;
    let answers_ns = number(&told, "answers_ns")?;
    let observations = events + answers;
    let all_ns = events_ns + answers_ns;
    let figures = [
        ("observations", observations),
        ("observations/s", observations * 1e9 / all_ns),
        ("ns/event", events_ns / events),
        ("ns/answer", answers_ns / answers),
        ("us/turn", all_ns / 1000.0 / number(&told, "turns")?),
        ("allocations/event", number(&told, "event_allocations")? / events),
        ("KB", number(&told, "heap_bytes")? / 1000.0),
    ];
    Ok(figures.map(|(name, figure)| (name.to_owned(), figure)).into())
}

fn number(told: &Value, name: &str) -> Result<f64> {
    told[name].as_f64().with_context(|| format!("the bench does not report {name}"))
}
