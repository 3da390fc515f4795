//! `cargo xtask bench`: what the engine, the hooks and the agent as a whole cost, as tables and as JSON.
//!
//! The cases of a comparison are measured in turns, several times, and reported as a ratio with its
//! quartiles, so that other work on the machine slows all of them alike. The agent's cases run one after the
//! other, because their pods take long to start. Counts of instructions do not depend on other work, and only
//! they have a limit.

mod agent;
mod comparison;
mod engine;
mod event;
mod exact;
mod kernel;
mod observer;
mod replay;
mod spread;
mod table;

use crate::package;
use crate::toolchain;
use anyhow::{Context as _, Result};
use clap::ValueEnum as _;
use comparison::Comparison;
use serde_json::json;
use std::fs;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to measure; without it, everything
    #[arg(value_enum)]
    part: Option<Part>,
    /// Count instructions and measure small cases once: enough to see that all of it works
    #[arg(long)]
    quick: bool,
    /// Folder of containerd and ctr, in place of the machine's own
    #[arg(long, value_name = "FOLDER")]
    containerd: Option<PathBuf>,
    /// Write the figures there, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The engine by itself, without hooks, files or JSON
    Engine,
    /// Programs in the kernel, ours beside those of other observers; needs root
    Kernel,
    /// The agent as a whole, with real pods of a private containerd: its start, its rest and lives of pods;
    /// needs root
    Agent,
    /// The agent beside thousands of pods, replayed
    Replay,
    /// The agent while this machine makes as many programs, namespaces and cgroups as it can; needs root
    Storms,
    /// How soon the end of a container is known: by listing, by the runtime's events, by the agent; needs
    /// root
    Deaths,
}

pub(crate) fn run(Args { part, quick, containerd, json }: &Args) -> Result<()> {
    toolchain::ensure()?;
    let mut comparisons = Vec::new();
    let mut held = Ok(());
    let all = Part::value_variants().iter();
    for each in all.filter(|each| part.is_none_or(|part| part == **each)) {
        comparisons.extend(match each {
            Part::Engine => {
                package::ensure(exact::NEEDS)?;
                let program = engine::build()?;
                held = exact::check(&program);
                engine::compare(&program, *quick)?
            }
            Part::Kernel => {
                package::ensure(kernel::NEEDS)?;
                kernel::compare(*quick)?
            }
            Part::Agent => agent::compare(agent::Part::Lives, *quick, containerd.as_deref())?,
            Part::Replay => replay::compare(*quick)?,
            Part::Storms => agent::compare(agent::Part::Storms, *quick, containerd.as_deref())?,
            Part::Deaths => agent::compare(agent::Part::Deaths, *quick, containerd.as_deref())?,
        });
    }
    if let Some(file) = json {
        let text = figures(&comparisons)?;
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    held
}

/// The command that builds what [`check`] counts.
pub(crate) const BUILD: &str = engine::BUILD;

/// Checks only the counts of instructions, for the tests.
pub(crate) fn check() -> Result<()> {
    package::ensure(exact::NEEDS)?;
    exact::check(&engine::build()?)
}

fn figures(comparisons: &[Comparison]) -> Result<String> {
    let processors = read("/proc/cpuinfo")?;
    let mut models = processors.lines().filter(|line| line.starts_with("model name"));
    let model = models.next().and_then(|line| line.split_once(": ")).map(|(_, model)| model);
    let machine = json!({
        "processor": model,
        "processors": processors.lines().filter(|line| line.starts_with("processor")).count(),
        "kernel": read("/proc/sys/kernel/osrelease")?.trim(),
        "load_average": read("/proc/loadavg")?.trim(),
    });
    let all: Vec<_> = comparisons.iter().map(Comparison::json).collect();
    let mut text = serde_json::to_string_pretty(&json!({ "machine": machine, "comparisons": all }))?;
    text.push('\n');
    Ok(text)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}
