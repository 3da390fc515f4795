//! The cost of a pod's life beside thousands of pods, more than a test machine can run: the engine's bench
//! records the history of such a node, and the agent replays it and prints the events as JSON.
//!
//! The cost includes reading the recording, and not reading the node's files.

use super::comparison::{Comparison, Figures};
use super::{engine, table};
use crate::build::{self, Profile};
use crate::workspace;
use anyhow::Result;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PODS: &[u32] = &[100, 300, 1000, 5000];
const PODS_QUICK: &[u32] = &[10, 100];
const ROUNDS: usize = 5;

/// Recordings of a node where one pod comes and one goes each second.
struct Recordings {
    name: String,
    /// The node without these pods, and with them.
    without: PathBuf,
    with: PathBuf,
}

pub(super) fn compare(quick: bool) -> Result<Vec<Comparison>> {
    let (pods, lives, rounds) = if quick { (PODS_QUICK, 10, 1) } else { (PODS, 600, ROUNDS) };
    let agent = build::agent(Profile::Release)?;
    let bench = engine::build()?;
    let folder = tempfile::tempdir()?;
    let mut recordings = Vec::new();
    for pods in pods {
        let without = folder.path().join(format!("{pods}-0.jsonl"));
        let with = folder.path().join(format!("{pods}-{lives}.jsonl"));
        for (lives, file) in [(0, &without), (lives, &with)] {
            let scenario = format!("pods={pods} turns={lives} step_us=5000 pause_ms=1000");
            let record = format!("record={}", file.display());
            workspace::output(Command::new(&bench).args(scenario.split(' ')).arg(record))?;
        }
        recordings.push(Recordings { name: format!("{pods} pods, replayed"), without, with });
    }
    let names: Vec<&str> = recordings.iter().map(|it| &*it.name).collect();
    let mut measured = Comparison::new("a pod's life, replayed", &["CPU ms"], &names);
    for _ in 0..rounds {
        for it in &recordings {
            let used = replay(&agent, &it.with)? - replay(&agent, &it.without)?;
            measured.add(&it.name, Figures::from([("CPU ms".to_owned(), used / f64::from(lives))]));
        }
    }
    println!("{}", table::text(&measured));
    Ok(vec![measured])
}

/// The CPU time of a replay, ms.
fn replay(agent: &Path, recording: &Path) -> Result<f64> {
    let before = of_children()?;
    let mut command = Command::new(agent);
    command.args(["replay", "--output", "json"]).arg(recording).stdout(Stdio::null());
    workspace::run(&mut command)?;
    Ok(of_children()? - before)
}

fn of_children() -> Result<f64> {
    let used = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok((used.user_time() + used.system_time()).num_microseconds() as f64 / 1e3)
}
