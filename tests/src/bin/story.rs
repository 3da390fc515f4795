//! Runs one of the stories by hand and prints its truth: on a private containerd, or on a VM's own.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand, ValueEnum};
use tests::{
    keyed::Faults,
    node::Node,
    story::{Stage, Truth, job, service},
};

#[derive(Parser)]
#[command(about = "Makes a node leak addresses, and prints the truth about it as JSON")]
struct Cli {
    /// Use the plugins bridge and host-local, which leak nothing when a namespace is lost
    #[arg(long)]
    host_local: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a story from beginning to end
    Play { story: Story },
    /// Run pods in a VM that is about to reboot, and write the truth to this file
    BeforeReboot {
        truth: PathBuf,
        #[arg(long, default_value_t = 3)]
        pods: u32,
    },
    /// Do the work of the kubelet in the next boot
    AfterReboot { truth: PathBuf },
}

#[derive(Clone, Copy, ValueEnum)]
enum Story {
    RedundantSandbox,
    CompletedJob,
    RestartedSandbox,
    FailingAdds,
    ReservingAdds,
    SlowAdd,
    FailedThenBlindDel,
    FailingDel,
    RepairedDel,
    KilledPause,
    StarvedPause,
    StrayMount,
    StuckCgroup,
    RestartedRuntime,
    KilledRuntime,
    ForgottenSandboxes,
    Churn,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let mut node = if cli.host_local { Node::start()? } else { Node::start_keyed(Faults::default())? };
    let mut stage = Stage::new(&mut node)?;
    match cli.verb {
        Verb::Play { story } => {
            let outcome = run_story(&mut stage, story);
            // Cleans up in any case. The story's own error is the one to report.
            let cleaned = stage.clean();
            let stopped = node.stop();
            print(&outcome?)?;
            cleaned.and(stopped)
        }
        Verb::BeforeReboot { truth, pods } => {
            let pods: Vec<_> = (0..pods).map(|index| service(&format!("pod-{index}"))).collect();
            let truth_before = stage.before_reboot(&pods)?;
            fs::write(&truth, serde_json::to_vec(&truth_before)?)
                .with_context(|| format!("write {}", truth.display()))?;
            drop(stage);
            node.leave()
        }
        Verb::AfterReboot { truth } => {
            let text = fs::read(&truth).with_context(|| format!("read {}", truth.display()))?;
            print(&stage.after_reboot(serde_json::from_slice(&text)?)?)?;
            stage.clean()?;
            node.stop()
        }
    }
}

fn run_story(stage: &mut Stage<'_>, story: Story) -> Result<Truth> {
    match story {
        Story::RedundantSandbox => stage.redundant_sandbox(&job("redundant")),
        Story::CompletedJob => stage.completed_job(&job("completed")),
        Story::RestartedSandbox => stage.restarted_sandbox(&job("restarted")),
        Story::FailingAdds => stage.failing_adds(&job("failing"), 3, false),
        Story::ReservingAdds => stage.failing_adds(&job("reserving"), 3, true),
        Story::SlowAdd => stage.slow_add(&job("slow"), 12_000),
        Story::FailedThenBlindDel => stage.failed_then_blind_del(&job("blind")),
        Story::FailingDel => stage.failing_del(&job("failing"), 3),
        Story::RepairedDel => stage.repaired_del(&job("mended"), 2),
        Story::KilledPause => stage.killed_pause(&service("killed")),
        Story::StarvedPause => stage.starved_pause(&service("starved")),
        Story::StrayMount => stage.stray_mount(&job("stray")).map(|(truth, _)| truth),
        Story::StuckCgroup => stage.stuck_cgroup(&job("stuck")).map(|(truth, _)| truth),
        Story::RestartedRuntime => stage.restarted_runtime(&[service("first"), service("second")]),
        Story::KilledRuntime => stage.killed_runtime(&[service("first"), service("second")]),
        Story::ForgottenSandboxes => stage.forgotten_sandboxes(&[service("forgotten")]),
        Story::Churn => stage.churn(20, 4),
    }
}

#[expect(clippy::print_stdout, reason = "the program's output")]
fn print(truth: &Truth) -> Result<()> {
    println!("{}", serde_json::to_string_pretty(truth)?);
    Ok(())
}
