//! Counts with valgrind how many instructions the engine executes for an event. The number does not depend on
//! other work on the machine.

use super::table;
use crate::package::Need;
use crate::workspace;
use anyhow::{Context as _, Result, anyhow, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

pub(super) const NEEDS: &[Need] = &[Need::any(&["valgrind"], "valgrind")];

/// Scenarios, each with its instructions for an event when this table was last changed on purpose.
const HELD: [(&str, f64); 4] = [
    ("pods=10 turns=60", 18_577.0),
    ("pods=1000 turns=60", 23_056.0),
    ("leases=2000 turns=60", 29_639.0),
    ("failed=200 turns=60", 22_096.0),
];
/// Another C library or another processor's copy loops change a count by less than this share.
const MARGIN: f64 = 0.04;

/// The function of the bench in which the engine takes events and passes its deadlines.
const COUNTED: &str = "engine::drive::counted*";

/// Counts, and fails if the engine needs more instructions than this file says, or fewer.
pub(super) fn check(program: &Path) -> Result<()> {
    let mut rows = vec![["instructions", "an event", "held"].map(str::to_owned).to_vec()];
    let mut wrong = Vec::new();
    // All at once, because other work does not change a count.
    let counts = thread::scope(|scope| {
        HELD.map(|(scenario, _)| scope.spawn(move || count(program, scenario)))
            .map(|counting| counting.join().map_err(|_panic| anyhow!("counting panicked"))?)
    });
    for ((scenario, held), counted) in HELD.into_iter().zip(counts) {
        let counted = counted?;
        let ratio = counted / held;
        rows.push(vec![scenario.to_owned(), format!("{counted:.0}"), format!("{held:.0}")]);
        if (ratio - 1.0).abs() > MARGIN {
            wrong
                .push(format!("{scenario}: {counted:.0} instructions an event, {ratio:.3} times those held"));
        }
    }
    println!("{}", table::aligned(&rows));
    ensure!(wrong.is_empty(), "{}; what is held stands in xtask/src/bench/exact.rs", wrong.join("; "));
    Ok(())
}

fn count(program: &Path, scenario: &str) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let profile = folder.path().join("profile");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--quiet", "--collect-atstart=no"]);
    valgrind.arg(format!("--toggle-collect={COUNTED}"));
    valgrind.arg(format!("--callgrind-out-file={}", profile.display()));
    valgrind.arg(program).args(scenario.split(' '));
    let told = workspace::output(&mut valgrind)?;
    let told: serde_json::Value =
        serde_json::from_str(&told).context("the bench of the engine did not tell JSON")?;
    let events = told["events"].as_f64().context("the bench does not tell how many events there were")?;
    let profile = fs::read_to_string(&profile).context("valgrind left no profile")?;
    let total = profile.lines().find_map(|line| line.strip_prefix("totals: "));
    let total: f64 = total.context("valgrind's profile has no totals")?.trim().parse()?;
    Ok(total / events)
}
