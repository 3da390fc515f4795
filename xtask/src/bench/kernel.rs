//! The hooks in the kernel: the cost of an event without an observer, with other observers, and with ours.
//!
//! The kernel counts how long each eBPF program runs (`kernel.bpf_stats_enabled`). This adds about the time
//! of two clock reads to each run.

use super::comparison::{Comparison, Figures};
use super::event::{EVENTS, Maker};
use super::observer::{self, OURS, Observer, Run};
use super::table;
use crate::build::{self, Profile};
use crate::package::Need;
use crate::{building, root, workspace};
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

pub(super) const NEEDS: &[Need] = &[
    Need::any(&["bpftool"], "bpftool"),
    Need::any(&["runc"], "runc"),
    Need::any(&["/bin/busybox"], "busybox-static"),
];

const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";
const ROUNDS: usize = 5;

pub(super) fn compare(quick: bool) -> Result<Vec<Comparison>> {
    let agent = build::agent(Profile::Release)?;
    let maker = Maker::new(actor()?, quick)?;
    root::authorize()?;
    let _counting = Statistics::on()?;
    let observers = observer::all()?;
    let names: Vec<&str> = observers.iter().map(|it| &*it.name).collect();
    let mut comparisons: Vec<Comparison> =
        EVENTS.iter().map(|event| Comparison::new(event.name, &["us", "ns in programs"], &names)).collect();
    let mut times = Comparison::new("programs of sandprobe, ns a run", &[], &[]);
    let mut counts = Comparison::new("programs of sandprobe, runs an event", &[], &[]);
    for _ in 0..if quick { 1 } else { ROUNDS } {
        for observer in observers.iter().filter(|it| it.is_here) {
            let running = Observer::begin(observer.command(&agent)?)?;
            for (event, comparison) in EVENTS.iter().zip(&mut comparisons) {
                let before = running.runs()?;
                let took = maker.make(event)?;
                let runs = since(&before, &running.runs()?);
                let happened = maker.times(event, &runs);
                let mut figures = Figures::from([("us".to_owned(), took)]);
                if !runs.is_empty() {
                    let sum: f64 = runs.values().map(|run| run.nanoseconds).sum();
                    figures.insert("ns in programs".to_owned(), sum / happened);
                }
                comparison.add(&observer.name, figures);
                if observer.name == OURS {
                    times.add(event.name, each(&runs, |run| run.nanoseconds / run.count));
                    counts.add(event.name, each(&runs, |run| run.count / happened));
                }
            }
        }
    }
    for of_programs in [times, counts] {
        comparisons.push(of_programs.with_all_shown());
    }
    comparisons.iter().for_each(|it| println!("{}", table::text(it)));
    Ok(comparisons)
}

/// Builds the program that makes the events of the tests.
fn actor() -> Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--package", "tests", "--features", "kernel", "--bin", "actor", "--target"]);
    cargo.arg(workspace::static_target());
    let built = building::executables("the programs of the bench", &mut cargo)?;
    built.into_iter().find(|it| it.name == "actor").map(|it| it.path).context("cargo built no actor")
}

fn since(before: &BTreeMap<String, Run>, now: &BTreeMap<String, Run>) -> BTreeMap<String, Run> {
    let mut runs = BTreeMap::new();
    for (name, now) in now {
        let before = before.get(name).copied().unwrap_or_default();
        let count = now.count - before.count;
        if count > 0.0 {
            runs.insert(name.clone(), Run { nanoseconds: now.nanoseconds - before.nanoseconds, count });
        }
    }
    runs
}

fn each(runs: &BTreeMap<String, Run>, figure: impl Fn(&Run) -> f64) -> Figures {
    runs.iter().map(|(name, run)| (name.clone(), figure(run))).collect()
}

/// Lets the kernel count run times, and restores the old setting when it is dropped.
struct Statistics {
    before: String,
}

impl Statistics {
    fn on() -> Result<Self> {
        let before = fs::read_to_string(STATISTICS).with_context(|| format!("cannot read {STATISTICS}"))?;
        let before = before.trim().to_owned();
        ensure!(Self::set("1")?, "the kernel does not count how long programs run");
        Ok(Self { before })
    }

    fn set(value: &str) -> Result<bool> {
        let setting = format!("kernel.bpf_stats_enabled={value}");
        let status =
            root::command("sysctl").args(["--quiet", &setting]).status().context("cannot run sysctl")?;
        Ok(status.success())
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        let _ = Self::set(&self.before);
    }
}
