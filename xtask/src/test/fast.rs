//! Tests that need neither root nor a VM: style, lints, the pure core alone, and every plain test.

use super::report::Tier;
use crate::{bench, tool, workspace};
use std::process::Command;
use std::thread;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20 * 60);
/// Most of it compiles what the host's tests of all tiers need.
const TESTS_LIMIT: Duration = Duration::from_secs(35 * 60);

pub(super) fn tier(tier: &mut Tier) {
    tier.check("format", cargo("fmt --all --check"), LIMIT);
    tier.check(
        "lints",
        cargo("clippy --workspace --exclude probe-ebpf --all-targets --all-features -- -D warnings"),
        LIMIT,
    );
    // A step of its own: features of its dependencies would unify with those of the host's build.
    tier.check("lints of the eBPF programs", ebpf_clippy(), LIMIT);
    tier.check(
        "replay alone, without the agent",
        cargo("check --package probe-user --no-default-features"),
        LIMIT,
    );
    // The fuzzers are a workspace of their own, which no step here builds.
    tier.check(
        "lock of the fuzzers",
        cargo("update --workspace --locked --manifest-path tests/fuzz/Cargo.toml"),
        LIMIT,
    );
    tier.tests("tests", super::host_tests(&["--no-fail-fast"]), TESTS_LIMIT, 1);
    if let Some(zizmor) = tier.attempt("zizmor", || tool::ZIZMOR.ensure()) {
        let mut workflows = Command::new(zizmor.join("bin/zizmor"));
        workflows.args(["--offline", "--quiet"]).arg(workspace::root().join(".github"));
        tier.check("lints of the workflows", workflows, LIMIT);
    }
    // The bench is one crate that takes minutes, on one processor.
    thread::scope(|scope| {
        scope.spawn(bench::build_early);
        // A step of its own: it needs helm.
        if let Some(tools) = tier.attempt("helm", || tool::HELM.ensure()) {
            let mut deploy = super::host_tests(&["--test", "deploy"]);
            deploy.env("SANDPROBE_TOOLS", tools);
            tier.tests("chart and manifests", deploy, LIMIT, 1);
        }
    });
    // Valgrind counts instructions, so that other work on the machine makes no difference.
    tier.attempt("instructions of the engine", bench::check);
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
