//! The hooks in the kernel: what an event costs while nobody watches, while others do, and while we do.
//!
//! The kernel itself counts how long each eBPF program runs (`kernel.bpf_stats_enabled`), which adds to each run about as
//! much as it takes to look at the clock twice.

use super::comparison::{Comparison, Figures};
use super::observer::{self, Observer, Run};
use super::table;
use crate::package::Need;
use crate::{build, root, workspace};
use anyhow::{Context as _, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

pub(super) const NEEDS: &[Need] = &[
    Need::any(&["bpftool"], "bpftool"),
    Need::any(&["/usr/sbin/execsnoop"], "libbpf-tools"),
    Need::any(&["bpftrace"], "bpftrace"),
];

const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";
const ROUNDS: usize = 5;
/// So many times each thing happens in a round.
const TIMES: u32 = 2000;
const TIMES_QUICK: u32 = 100;
/// Services of a namespace leave a container with variables like this.
const VARIABLE: &str = "tcp://10.96.112.217:8080";

/// What happens again and again.
struct Event {
    name: &'static str,
    /// Variables in the environment of each program.
    variables: usize,
    /// The length of each; 0: as a service's.
    length: usize,
}

const EVENTS: [Event; 5] = [
    Event::exec("exec and exit, no variables", 0, 0),
    Event::exec("exec and exit, 30 variables", 30, 0),
    Event::exec("exec and exit, 200 variables", 200, 0),
    Event::exec("exec and exit, 1000 variables", 1000, 0),
    Event::exec("exec and exit, one variable of 100 KB", 1, 100_000),
];

impl Event {
    const fn exec(name: &'static str, variables: usize, length: usize) -> Self {
        Self { name, variables, length }
    }

    /// Makes it happen so many times, and tells how long each took.
    fn happen(&self, actor: &Path, times: u32) -> Result<f64> {
        let mut command = Command::new(actor);
        command.env_clear().stdin(Stdio::null()).args(["repeat", &times.to_string()]).arg(actor);
        command.args(["exit", "0"]);
        let value = if self.length == 0 { VARIABLE.to_owned() } else { "x".repeat(self.length) };
        for number in 0..self.variables {
            command.env(format!("SERVICE_{number}_PORT"), &value);
        }
        let begun = Instant::now();
        workspace::run(&mut command)?;
        Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(times))
    }
}

pub(super) fn compare(quick: bool) -> Result<Vec<Comparison>> {
    let agent = build::agent(&build::Args::default())?;
    let actor = actor()?;
    root::authorize()?;
    let _counting = Statistics::on()?;
    let (rounds, times) = if quick { (1, TIMES_QUICK) } else { (ROUNDS, TIMES) };
    let names: Vec<&str> = observer::commands(&agent)?.iter().map(|(name, _)| *name).collect();
    let mut comparisons: Vec<Comparison> =
        EVENTS.iter().map(|event| Comparison::new(event.name, &["us", "ns in programs"], &names)).collect();
    let mut ours = Comparison::new("programs of sandprobe, ns a run", &[], &[]);
    for _ in 0..rounds {
        for (name, command) in observer::commands(&agent)? {
            let observer = Observer::begin(command)?;
            for (event, comparison) in EVENTS.iter().zip(&mut comparisons) {
                let before = observer.runs()?;
                let took = event.happen(&actor, times)?;
                let runs = since(&before, &observer.runs()?);
                let mut figures = Figures::from([("us".to_owned(), took)]);
                figures.extend(an_event(&runs).map(|it| ("ns in programs".to_owned(), it)));
                comparison.add(name, figures);
                if name == "sandprobe" {
                    ours.add(event.name, a_run(&runs));
                }
            }
        }
    }
    let ran = ours.cases.iter().flat_map(|case| case.figures());
    ours.shown = ran.collect::<BTreeSet<_>>().into_iter().collect();
    comparisons.push(ours);
    comparisons.iter().for_each(|it| println!("{}", table::text(it)));
    Ok(comparisons)
}

/// What happens in the tests is made by this program.
fn actor() -> Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--package", "tests", "--features", "kernel", "--bin", "actor", "--target"]);
    cargo.arg(workspace::static_target());
    let built = workspace::executables(&mut cargo)?;
    built.into_iter().find(|it| it.name == "actor").map(|it| it.path).context("cargo built no actor")
}

fn since(before: &BTreeMap<String, Run>, now: &BTreeMap<String, Run>) -> BTreeMap<String, Run> {
    let run = |(name, now): (&String, &Run)| {
        let before = before.get(name).copied().unwrap_or_default();
        let run = Run { nanoseconds: now.nanoseconds - before.nanoseconds, count: now.count - before.count };
        (run.count > 0.0).then(|| (name.clone(), run))
    };
    now.iter().filter_map(run).collect()
}

/// All programs together, for one event. Others on this machine start programs meanwhile: the program that ran most often
/// ran once for each event.
fn an_event(runs: &BTreeMap<String, Run>) -> Option<f64> {
    let events = runs.values().map(|run| run.count).max_by(f64::total_cmp)?;
    Some(runs.values().map(|run| run.nanoseconds).sum::<f64>() / events)
}

fn a_run(runs: &BTreeMap<String, Run>) -> Figures {
    runs.iter().map(|(name, run)| (name.clone(), run.nanoseconds / run.count)).collect()
}

/// The kernel counts; it is then as it was.
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
