//! The promises of README.md. Each names the tests that hold it, and these tests must exist.

use std::fs;

use crate::page::{files, root};

const PROMISES: &str = "| over a restart of the agent | held by the tests |\n|---|---|\n";

#[test]
fn every_promise_over_a_restart_names_tests_that_exist() {
    let readme = fs::read_to_string(root().join("README.md")).expect("README.md");
    let (_, table) = readme.split_once(PROMISES).expect("the table of promises");
    let places = ["tests", "probe-user/src", "probe-engine/src"];
    let sources: Vec<_> = places.iter().flat_map(|place| files(place, ".rs")).collect();
    let rows: Vec<_> = table.lines().take_while(|line| line.starts_with("| ")).collect();
    assert!(rows.len() > 5, "{rows:?}");
    for row in rows {
        let tests = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        let names: Vec<_> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test holds: {row}");
        for name in names {
            let is_there = |(_, text): &(String, String)| {
                text.split_once(&format!("fn {name}(")).is_some_and(|(before, _)| is_test(before))
            };
            assert!(sources.iter().any(is_there), "there is no test {name}");
        }
    }
}

/// Whether the next function is a test.
fn is_test(before: &str) -> bool {
    let lines = before.lines().rev().skip_while(|line| line.trim().is_empty());
    lines.take_while(|line| line.trim_start().starts_with(['#', '/'])).any(|line| line.trim() == "#[test]")
}
