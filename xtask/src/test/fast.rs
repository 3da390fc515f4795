//! Tests that need neither root nor a VM: style, lints, the pure core alone, and every plain test.

use super::plain_tests;
use super::report::Tier;
use super::step::Step;
use crate::{bench, program, tool, workspace};
use anyhow::Result;
use std::process::Command;
use std::time::Duration;

/// Most checks keep one processor busy for a part of their time.
const LANES: usize = 2;
/// Beside the tests in VMs a check gets a small part of the processors.
const LIMIT: Duration = Duration::from_secs(40 * 60);
/// With `--fast`, most of it compiles what the plain tests of all tiers need.
const TESTS_LIMIT: Duration = Duration::from_secs(35 * 60);

/// Returns the checks that need no program of ours: style, lints, and builds with other features.
pub(super) fn checks() -> Vec<Step> {
    let all = [
        ("format", cargo("fmt --all --check")),
        ("lints", clippy("--all-targets")),
        // "All targets" are not those that run only if they are named.
        ("lints of the other tests", clippy("--test *")),
        // A step of its own: features of its dependencies would unify with those of the host's build.
        ("lints of the eBPF programs", ebpf_clippy()),
        ("replay alone, without the agent", cargo("check --package probe-user --no-default-features")),
        // The fuzzers are a workspace of their own, which no step here builds.
        ("lock of the fuzzers", cargo("update --workspace --locked --manifest-path tests/fuzz/Cargo.toml")),
    ];
    all.into_iter().map(|(name, command)| step(name, command)).collect()
}

/// Returns the step that compiles all plain tests.
pub(super) fn compilation() -> Result<Step> {
    Ok(step("compilation of the tests", program::plain_tests(&["--no-run"])?))
}

/// Returns the step that compiles what [`instructions`] runs. It is optimized as a release is, which takes
/// minutes on one processor.
pub(super) fn bench() -> Step {
    step("bench of the engine", cargo(bench::BUILD))
}

/// Counts the engine's instructions. Valgrind counts them, so that other work on the machine makes no
/// difference.
pub(super) fn instructions(tier: &mut Tier) {
    tier.attempt("instructions of the engine", bench::check);
}

fn step(name: &str, command: Command) -> Step {
    Step { name: name.to_owned(), command, limit: LIMIT, runners: 0, is_serial: false }
}

/// Runs those of the [`checks`] that have not run yet, and the tests.
pub(super) fn tier(tier: &mut Tier, checks: Vec<Step>) {
    tier.lanes(checks, LANES);
    plain_tests(tier, "tests", &["--no-fail-fast"], &[], TESTS_LIMIT);
    if let Some(zizmor) = tier.attempt("zizmor", || tool::ZIZMOR.ensure()) {
        let mut workflows = Command::new(zizmor.join("bin/zizmor"));
        workflows.args(["--offline", "--quiet"]).arg(workspace::root().join(".github"));
        tier.check("lints of the workflows", workflows, LIMIT);
    }
    // A step of its own: it needs helm.
    if let Some(tools) = tier.attempt("helm", || tool::HELM.ensure()) {
        let variables = [("SANDPROBE_TOOLS", tools.as_os_str())];
        plain_tests(tier, "chart and manifests", &["--test", "deploy"], &variables, LIMIT);
    }
}

fn clippy(targets: &str) -> Command {
    cargo(&format!("clippy --workspace --exclude probe-ebpf --all-features {targets} -- -D warnings"))
}

fn ebpf_clippy() -> Command {
    let mut command = workspace::cargo();
    command
        .args(
            "clippy --package probe-ebpf --target bpfel-unknown-none -Z build-std=core --target-dir"
                .split(' '),
        )
        .arg(workspace::target_dir().join("bpf/clippy"))
        .args(["--", "-D", "warnings"])
        .env("RUSTC_BOOTSTRAP", "1");
    command
}

fn cargo(line: &str) -> Command {
    let mut command = workspace::cargo();
    command.args(line.split(' '));
    command
}
