//! Measures the agent's cost on a node with real pods: at its start, at rest, and while pods come and go. Every round
//! prints its results as a line of JSON. The pods run in a private containerd, which is removed afterwards.

mod agent;
mod opened;
mod pods;
mod usage;

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use clap::Parser;
use serde_json::json;
use tests::{
    containerd::{Containerd, Options},
    interrupt::Interrupt,
    kubelet::{Driver, Kubelet},
};

use self::{agent::Agent, pods::Pods, usage::Usage};

/// The agent needs this time to read the node after its start.
const SETTLE: Duration = Duration::from_secs(10);
/// The agent reads the runtime's records once more after the last pod's end.
const AFTERWARDS: Duration = Duration::from_secs(6);
/// Opened files are counted for some of the pods only, because strace slows the agent down.
const TRACED: u32 = 5;

#[derive(Parser)]
#[command(about = "Measures what the agent costs while pods live, and prints each round as a line of JSON")]
struct Cli {
    /// How many pods run all the time, in each case
    #[arg(long, value_delimiter = ',', default_values_t = [0, 100, 300])]
    standing: Vec<u32>,
    /// How many pods come and go in a round, one after the other
    #[arg(long, default_value_t = 20)]
    lives: u32,
    /// How often each case is measured, with a new agent each time
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds without any change in each round
    #[arg(long, default_value_t = 10)]
    rest: u32,
}

struct Round {
    figures: BTreeMap<&'static str, f64>,
    /// The CPU time of each thread of the agent, in ms for each pod.
    threads: BTreeMap<String, f64>,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let interrupt = Interrupt::watch()?;
    let containerd = Containerd::start(&Options::default())?;
    let measured = measure(&cli, &containerd, &interrupt);
    containerd.stop()?;
    measured
}

#[expect(clippy::print_stdout, reason = "the program's output")]
fn measure(cli: &Cli, containerd: &Containerd, interrupt: &Interrupt) -> Result<()> {
    let mut pods = Pods::new(Kubelet::new(containerd.socket(), Driver::default())?);
    for standing in &cli.standing {
        pods.start_until(*standing, interrupt)?;
        for _ in 0..cli.rounds {
            let Round { figures, threads } = round(cli, containerd.pid(), &mut pods, interrupt)?;
            let case = format!("{standing} pods");
            println!("{}", json!({ "case": case, "figures": figures, "threads": threads }));
        }
    }
    Ok(())
}

fn round(cli: &Cli, containerd: u32, pods: &mut Pods, interrupt: &Interrupt) -> Result<Round> {
    let agent = Agent::start()?;
    let pid = agent.pid();
    let mut figures = BTreeMap::from([
        ("ms to attached", agent.attached.as_secs_f64() * 1e3),
        ("ms to ready", agent.ready.as_secs_f64() * 1e3),
        ("CPU ms to ready", Usage::of(pid)?.cpu.as_secs_f64() * 1e3),
    ]);
    interrupt.pause(SETTLE)?;

    let seconds = f64::from(cli.rest);
    let before = Usage::of(pid)?;
    interrupt.pause(Duration::from_secs(cli.rest.into()))?;
    let resting = Usage::of(pid)?.since(&before);
    figures.extend([
        ("CPU us/s at rest", resting.cpu.as_secs_f64() * 1e6 / seconds),
        ("wakeups/s at rest", resting.wakeups / seconds),
        ("MB at rest", usage::memory(pid, "VmRSS")?),
    ]);

    let lives = f64::from(cli.lives);
    let (before, runtime_before) = (Usage::of(pid)?, Usage::of(containerd)?);
    pods.live(cli.lives, interrupt)?;
    interrupt.pause(AFTERWARDS)?;
    let (churn, runtime) = (Usage::of(pid)?.since(&before), Usage::of(containerd)?.since(&runtime_before));
    figures.extend([
        ("CPU ms/life", churn.cpu.as_secs_f64() * 1e3 / lives),
        ("containerd's", runtime.cpu.as_secs_f64() * 1e3 / lives),
        ("wakeups/life", churn.wakeups / lives),
        ("KB written/life", churn.written / 1e3 / lives),
        ("MB, peak", usage::memory(pid, "VmHWM")?),
    ]);

    let traced = cli.lives.min(TRACED);
    let opened = opened::count(pid, || {
        pods.live(traced, interrupt)?;
        interrupt.pause(AFTERWARDS)
    })?;
    figures.insert("opens/life", opened / f64::from(traced));
    agent.end()?;
    let ran = churn.threads.into_iter().filter(|(_, ran)| *ran > 0.0);
    let threads = ran.map(|(name, ran)| (name, ran / 1e6 / lives)).collect();
    Ok(Round { figures, threads })
}
