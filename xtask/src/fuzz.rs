//! `cargo xtask fuzz`: runs the fuzzers of `tests/fuzz`, one after the other, each on one core.
//!
//! The tests run each fuzzer for a moment. This verb runs them for as long as is asked for, with libFuzzer,
//! which finds new inputs by the code that earlier ones reached. Its inputs stay in `target/fuzz/corpus`. A
//! table at the end has a row for each fuzzer.

mod progress;

use crate::package::{self, Need};
use crate::toolchain;
use crate::workspace;
use anyhow::{Context as _, Result, bail, ensure};
use progress::{Outcome, Progress};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const VERSION: &str = "0.13.1";
const NEEDS: &[Need] = &[Need::any(&["c++"], "g++")];
/// The folder of the fuzzers, from the repository's root.
const FOLDER: &str = "tests/fuzz";
/// The variable with the folder to which a fuzzer writes its seeds first.
const SEEDS: &str = "SANDPROBE_SEEDS";
/// Seconds that an input may take before it counts as failed.
const LIMIT: u64 = 20;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The fuzzer to run; without it, all
    target: Option<String>,
    /// How long to run each
    #[arg(long, value_name = "N", default_value_t = 30)]
    minutes: u64,
}

pub(crate) fn run(Args { target, minutes }: &Args) -> Result<()> {
    toolchain::ensure()?;
    package::ensure(NEEDS)?;
    ensure_cargo_fuzz()?;
    let all = workspace::output(cargo_fuzz("list").args(["--fuzz-dir", FOLDER]))?;
    let chosen: Vec<&str> =
        all.lines().filter(|name| target.as_deref().is_none_or(|target| target == *name)).collect();
    if let (Some(target), []) = (target, &chosen[..]) {
        bail!("there is no fuzzer {target}: there are {}", all.lines().collect::<Vec<_>>().join(", "));
    }
    let mut failed = Vec::new();
    let mut broken = Vec::new();
    let mut table = vec![Progress::heading()];
    for name in chosen {
        println!("fuzz: {name}, for {minutes} min");
        let (progress, outcome) = fuzz(name, minutes * 60)?;
        table.push(progress.row(name, outcome));
        match outcome {
            Outcome::Passed => {}
            Outcome::InputFailed => failed.push(name),
            Outcome::Broken => broken.push(name),
        }
    }
    println!("{}", table.join("\n"));
    ensure!(
        failed.is_empty(),
        "an input failed of {}: it is below {}; mend what it found, and keep the input in {FOLDER}/failed",
        failed.join(", "),
        workspace::target_dir().join("fuzz/artifacts").display()
    );
    ensure!(broken.is_empty(), "{} did not run to the end; see above what ended it", broken.join(", "));
    Ok(())
}

/// Runs one fuzzer, and returns how far it came and how it ended.
fn fuzz(name: &str, seconds: u64) -> Result<(Progress, Outcome)> {
    let corpus = folder("corpus", name)?;
    let artifacts = folder("artifacts", name)?;
    let mut command = cargo_fuzz("run");
    // Only the sources of the agent may use unsafe code, so a sanitizer would find little.
    command.args(["--fuzz-dir", FOLDER, "--sanitizer", "none", "--target-dir"]);
    command.arg(workspace::target_dir().join("fuzz")).arg(name).arg(&corpus).arg("--");
    command.args([format!("-max_total_time={seconds}"), format!("-timeout={LIMIT}")]);
    command.arg(format!("-artifact_prefix={}/", artifacts.display())).arg("-print_final_stats=1");
    let mut running =
        command.env(SEEDS, &corpus).stderr(Stdio::piped()).spawn().context("cannot run cargo fuzz")?;
    let mut progress = Progress::default();
    for line in BufReader::new(running.stderr.take().context("it was piped")?).split(b'\n') {
        // A fuzzer may print any bytes.
        let line = line.context("cannot read what cargo fuzz says")?;
        let line = String::from_utf8_lossy(&line);
        progress.see(&line);
        eprintln!("{line}");
    }
    let status = running.wait().context("cannot wait for cargo fuzz")?;
    let outcome = progress.outcome(status.success());
    Ok((progress, outcome))
}

/// Makes the folder for the files of this kind of a fuzzer.
fn folder(kind: &str, fuzzer: &str) -> Result<PathBuf> {
    let path = workspace::target_dir().join("fuzz").join(kind).join(fuzzer);
    fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok(path)
}

/// Allows the pinned stable toolchain the unstable flags that instrumenting needs.
fn cargo_fuzz(verb: &str) -> Command {
    let mut command = workspace::cargo();
    command.args(["fuzz", verb]).env("RUSTC_BOOTSTRAP", "1");
    command
}

fn ensure_cargo_fuzz() -> Result<()> {
    let is_there = cargo_fuzz("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if is_there.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    println!("setup: building cargo-fuzz {VERSION}");
    workspace::run(workspace::cargo().args(["install", "cargo-fuzz", "--version", VERSION, "--locked"]))
}
