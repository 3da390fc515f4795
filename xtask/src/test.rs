//! `cargo xtask test`: runs all tests, in tiers, and prints one line with the result.
//!
//! Invariant: a tier runs or fails. None is skipped silently, and a failed one does not stop the others.

mod browser;
mod fast;
#[cfg(test)]
mod filter;
mod fleet;
mod machine;
mod native;
mod prometheus;
mod report;
mod step;

use crate::arch::Arch;
use crate::build::{self, Profile};
use crate::setup::{self, Level};
use crate::{cross, program};
use anyhow::{Result, ensure};
use report::{Report, Tier};
use std::ffi::OsStr;
use std::process::ExitCode;
use std::time::Duration;
use std::{mem, thread};
use step::{Queue, Step};

/// If it is set, the tests do their long runs.
const SOAK_VARIABLE: &str = "SANDPROBE_SOAK";
/// The time limit of one step in a long run.
const SOAK_LIMIT: Duration = Duration::from_secs(16 * 60 * 60);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    depth: Depth,
    /// End what is not done after this many minutes, as failed
    #[arg(long, value_name = "N")]
    minutes: Option<u64>,
}

#[derive(clap::Args)]
#[group(multiple = false)]
struct Depth {
    /// Only what needs neither root nor a VM
    #[arg(long)]
    fast: bool,
    /// Also hooks and pods in VMs: each kernel with one version of containerd, one of them under systemd
    #[arg(long)]
    full: bool,
    /// Pods on every kernel with every version of containerd, and on aarch64
    #[arg(long)]
    matrix: bool,
    /// Only the matrix's part on aarch64: hooks, pods and confinement in an emulated machine
    #[arg(long)]
    aarch64: bool,
    /// Long runs on this machine
    #[arg(long)]
    soak: bool,
}

pub(crate) fn run(Args { depth, minutes }: &Args) -> Result<ExitCode> {
    let mut report = Report::new(minutes.map(|minutes| Duration::from_secs(minutes * 60)));
    if depth.aarch64 {
        ensure!(
            !Arch::Aarch64.is_ours(),
            "this machine is of aarch64 itself: cargo xtask test --full runs there what --aarch64 emulates elsewhere"
        );
        report.tier("aarch64", |tier| {
            if tier.attempt("setup", || setup::ensure(Level::Build)).is_some() {
                machine::tier(tier, machine::Pods::Aarch64, None);
            }
        });
        return Ok(closed(&report));
    }
    let mut checks = if depth.soak { Vec::new() } else { fast::checks() };
    if depth.is_release() && !depth.soak {
        checks.push(fast::bench());
    }
    if !depth.fast {
        as_root(&mut report, depth, &mut checks);
    }
    if !depth.soak {
        report.tier("fast", |tier| {
            if tier.attempt("setup", || setup::ensure(Level::Build)).is_some() {
                fast::tier(tier, checks);
            }
            if depth.is_release() {
                fast::instructions(tier);
            }
        });
        report.tier("browser", |tier| {
            if tier.attempt("setup", || setup::ensure(Level::Browser)).is_some() {
                browser::tier(tier);
            }
        });
        report.tier("prometheus", |tier| {
            if tier.attempt("setup", || setup::ensure(Level::Prometheus)).is_some() {
                prometheus::tier(tier);
            }
        });
    }
    report.tier("fleet", |tier| {
        if tier.attempt("setup", || setup::ensure(Level::Fleet)).is_some() {
            fleet::tier(tier, depth.soak);
        }
    });
    Ok(closed(&report))
}

/// Builds the agent and the tests that need root, and runs them. Takes the checks that it runs beside them.
fn as_root(report: &mut Report, depth: &Depth, checks: &mut Vec<Step>) {
    let mut is_built = false;
    report.tier("programs", |tier| {
        let levels = [Level::Node, Level::Browser, Level::Prometheus];
        is_built = tier.attempt("setup", || levels.into_iter().try_for_each(setup::ensure)).is_some()
            && tier.attempt("build", || build_all(depth.profile())).is_some()
            && tier.attempt("build tests", || program::build_tests(Arch::ours()?, depth.profile())).is_some();
        if is_built && depth.profile() == Profile::Release {
            tier.attempt("size of the program", || build::check_size(&build::agent_path(Profile::Release)));
        }
    });
    // Without the programs there is nothing to run; their failure has been counted.
    if is_built {
        report.tier("machines", |tier| machines(tier, depth, mem::take(checks)));
    }
}

/// Tests this machine's kernel, and the kernels of the VMs. The checks and the compilation of all other tests
/// take the processors that are idle meanwhile.
fn machines(tier: &mut Tier, depth: &Depth, mut checks: Vec<Step>) {
    let is_root = native::is_root(tier);
    if depth.soak {
        // Nothing runs at the same time.
        if is_root && let Some(step) = tier.attempt("this machine's tests", native::soak) {
            tier.run(step);
        }
        return;
    }
    checks.extend(tier.attempt("the other tests", fast::compilation));
    let checks = Queue { steps: checks.into_iter().map(Step::when_idle).collect(), lanes: 1 };
    tier.beside(checks, |tier| {
        let mut here = None;
        let tests = || native::tests(depth.full || depth.matrix);
        if is_root && let Some((alone, beside)) = tier.attempt("this machine's tests", tests) {
            native::demo(tier);
            tier.run(alone);
            here = Some(beside);
        }
        machine::tier(tier, depth.pods(), here);
    });
}

/// Builds the agent, and compiles the tests of kernels and pods. The next step reports a failure of the
/// tests.
fn build_all(profile: Profile) -> Result<()> {
    let arch = Arch::ours()?;
    cross::ensure(arch)?;
    match profile {
        // Most of its build keeps one processor busy.
        Profile::Release => thread::scope(|scope| {
            scope.spawn(|| {
                let _reported_later = program::compile_tests(arch);
            });
            program::agent(arch, profile)
        }),
        // It is made of the tests' crates.
        Profile::Quick => {
            let _reported_later = program::compile_tests(arch);
            program::agent(arch, profile)
        }
    }
}

/// Runs tests that need neither root nor a VM.
fn plain_tests(
    tier: &mut Tier,
    name: &str,
    arguments: &[&str],
    variables: &[(&str, &OsStr)],
    limit: Duration,
) {
    match program::plain_tests(arguments) {
        Ok(mut command) => {
            command.envs(variables.iter().copied());
            tier.tests(name, command, limit, 1)
        }
        Err(error) => tier.fail(name, &format!("{error:#}")),
    };
}

fn closed(report: &Report) -> ExitCode {
    if report.close() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Depth {
    /// Whether these are the tests that a release must pass.
    const fn is_release(&self) -> bool {
        self.full || self.matrix || self.soak
    }

    fn profile(&self) -> Profile {
        if self.is_release() { Profile::Release } else { Profile::Quick }
    }

    fn pods(&self) -> machine::Pods {
        match (self.full, self.matrix) {
            (_, true) => machine::Pods::Matrix,
            (true, _) => machine::Pods::Pairs,
            _ => machine::Pods::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Args;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn one_depth_at_a_time() {
        let parse = |line: &[&str]| Cli::try_parse_from(std::iter::once(&"test").chain(line));
        assert!(parse(&["--aarch64", "--minutes", "30"]).unwrap().args.depth.aarch64);
        assert!(!parse(&["--matrix"]).unwrap().args.depth.aarch64);
        assert!(parse(&["--aarch64", "--full"]).is_err());
        assert!(parse(&["--aarch64", "--matrix"]).is_err());
    }
}
