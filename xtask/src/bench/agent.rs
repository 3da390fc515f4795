//! The agent as a whole, on this machine with real pods of a private containerd: what its start costs, what it costs at rest,
//! and what a pod's life costs it.
//!
//! A program of the tests crate makes the pods and reads the kernel's figures of the agent.

use super::comparison::{Comparison, Figures};
use super::table;
use crate::package::Need;
use crate::setup::{self, Level};
use crate::{program, root, workspace};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) const NEEDS: &[Need] = &[Need::any(&["strace"], "strace")];

/// Two lives beside two pods, once.
const QUICK: [&str; 8] = ["--standing", "0,2", "--lives", "2", "--rounds", "1", "--rest", "3"];

/// A table's title, and the figures in it.
const TABLES: [(&str, &[&str]); 3] = [
    (
        "a pod's life",
        &["CPU ms/life", "containerd's", "wakeups/life", "opens/life", "KB written/life", "MB, peak"],
    ),
    ("at rest", &["CPU us/s at rest", "wakeups/s at rest", "MB at rest"]),
    ("start", &["ms to attached", "ms to ready", "CPU ms to ready"]),
];

pub(super) fn compare(quick: bool) -> Result<Vec<Comparison>> {
    setup::ensure(Level::Node)?;
    program::build()?;
    root::authorize()?;
    let mut churn = program::as_root("churn", &[])?;
    if quick {
        churn.args(QUICK);
    }
    let text = workspace::output(&mut churn)?;
    let mut comparisons: Vec<Comparison> =
        TABLES.iter().map(|(title, shown)| Comparison::new(title, shown, &[])).collect();
    let mut threads = Comparison::new("CPU of a pod's life by thread, ms", &[], &[]);
    for line in text.lines() {
        let (case, figures, its_threads) = round(line).with_context(|| format!("{line} is no round"))?;
        comparisons.iter_mut().for_each(|it| it.add(&case, figures.clone()));
        threads.add(&case, its_threads);
    }
    let names = threads.cases.iter().flat_map(|case| case.figures());
    threads.shown = names.collect::<BTreeSet<_>>().into_iter().collect();
    comparisons.insert(1, threads);
    comparisons.iter().for_each(|it| println!("{}", table::text(it)));
    Ok(comparisons)
}

/// A line of the program: the case's name, its figures, and the CPU of each thread.
fn round(line: &str) -> Result<(String, Figures, Figures)> {
    let mut told: Value = serde_json::from_str(line)?;
    let case = told["case"].as_str().context("no case")?.to_owned();
    let mut figures = |name: &str| serde_json::from_value(told[name].take());
    Ok((case, figures("figures")?, figures("threads")?))
}

#[cfg(test)]
mod tests {
    use super::round;

    #[test]
    fn a_round_has_a_case_and_figures() {
        let line = r#"{"case":"2 pods","figures":{"MB at rest":25.1},"threads":{"files":1.5}}"#;
        let (case, figures, threads) = round(line).unwrap();
        assert_eq!((case.as_str(), figures["MB at rest"], threads["files"]), ("2 pods", 25.1, 1.5));
        round(r#"{"case":"2 pods"}"#).unwrap_err();
    }
}
