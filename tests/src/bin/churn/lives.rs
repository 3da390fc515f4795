//! Measures the agent beside real pods: at its start, at rest, at scrapes of its metrics, and while pods come
//! and go.

use std::{fs::File, time::Duration};

use anyhow::Result;
use clap::Args;
use tests::{
    containerd::{Containerd, Options},
    interrupt::Interrupt,
    kubelet::{Driver, Kubelet},
};

use crate::{agent::Agent, opened, pods::Pods, report::tell, usage, usage::Usage};

/// The agent reads the node after its start, and unmaps the code that it used once, within this time.
const SETTLE: Duration = Duration::from_secs(35);
/// The agent reads the runtime's records once more after the last pod's end.
const AFTERWARDS: Duration = Duration::from_secs(6);
/// Opened files are counted for some of the pods only, because strace slows the agent down.
const TRACED: u32 = 5;
const SCRAPES: usize = 21;

#[derive(Args)]
pub(crate) struct Lives {
    /// How many pods run all the time, in each case
    #[arg(long, value_delimiter = ',', default_values_t = [0, 100, 300, 500])]
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
    #[command(flatten)]
    options: Options,
}

impl Lives {
    pub(crate) fn run(&self, interrupt: &Interrupt) -> Result<()> {
        let containerd = Containerd::start(&self.options)?;
        let measured = self.measure(&containerd, interrupt);
        containerd.stop()?;
        measured
    }

    fn measure(&self, containerd: &Containerd, interrupt: &Interrupt) -> Result<()> {
        let mut pods = Pods::new(Kubelet::new(containerd.socket(), Driver::default())?);
        for standing in &self.standing {
            pods.start_until(*standing, interrupt)?;
            for _ in 0..self.rounds {
                self.round(containerd.pid(), &mut pods, &format!("{standing} pods"), interrupt)?;
            }
        }
        Ok(())
    }

    fn round(&self, containerd: u32, pods: &mut Pods, case: &str, interrupt: &Interrupt) -> Result<()> {
        let agent = Agent::start(|folder| Ok(File::create(folder.join("events"))?.into()))?;
        let pid = agent.pid();
        let used = Usage::of(pid)?;
        tell(
            "start",
            case,
            [
                ("ms to attached", milliseconds(agent.attached)),
                ("ms to ready", milliseconds(agent.ready)),
                ("CPU ms to ready", milliseconds(used.cpu)),
                ("MB, peak", usage::memory(pid, "VmHWM")?),
            ],
        );
        tell("CPU of the start by thread, ms", case, used.by_thread(1.0));
        interrupt.pause(SETTLE)?;

        let seconds = f64::from(self.rest);
        let before = Usage::of(pid)?;
        interrupt.pause(Duration::from_secs(self.rest.into()))?;
        let resting = Usage::of(pid)?.since(&before);
        let resident = usage::memory(pid, "VmRSS")?;
        let (scrape, answer) = scrape(&agent)?;
        tell(
            "at rest",
            case,
            [
                ("CPU us/s", milliseconds(resting.cpu) * 1e3 / seconds),
                ("wakeups/s", resting.wakeups / seconds),
                ("MB", resident),
                ("ms a scrape", scrape),
                ("KB a scrape", answer),
            ],
        );

        let lives = f64::from(self.lives);
        let (before, runtime_before) = (Usage::of(pid)?, Usage::of(containerd)?);
        pods.live(self.lives, interrupt)?;
        interrupt.pause(AFTERWARDS)?;
        let churn = Usage::of(pid)?.since(&before);
        let runtime = Usage::of(containerd)?.since(&runtime_before);
        let peak = usage::memory(pid, "VmHWM")?;
        interrupt.pause(SETTLE)?;
        let resident = usage::memory(pid, "VmRSS")?;
        let anonymous = usage::memory(pid, "RssAnon")?;

        let traced = self.lives.min(TRACED);
        let opened = opened::count(pid, || {
            pods.live(traced, interrupt)?;
            interrupt.pause(AFTERWARDS)
        })?;
        agent.end()?;
        tell(
            "a pod's life",
            case,
            [
                ("CPU ms", milliseconds(churn.cpu) / lives),
                ("containerd's", milliseconds(runtime.cpu) / lives),
                ("wakeups", churn.wakeups / lives),
                ("files opened", opened / f64::from(traced)),
                ("KB written", churn.written / 1e3 / lives),
                ("MB, peak", peak),
                ("MB afterwards", resident),
                ("MB of them its own", anonymous),
            ],
        );
        tell("CPU of a pod's life by thread, ms", case, churn.by_thread(lives));
        Ok(())
    }
}

/// Returns the median time of a scrape in ms, from the connection to the end of the answer, and the length of
/// the answer in KB.
fn scrape(agent: &Agent) -> Result<(f64, f64)> {
    let (mut times, mut length) = (Vec::new(), 0);
    for _ in 0..SCRAPES {
        let begun = std::time::Instant::now();
        length = agent.get("/metrics")?.len();
        times.push(begun.elapsed());
    }
    times.sort();
    Ok((times.get(SCRAPES / 2).copied().map_or(0.0, milliseconds), length as f64 / 1e3))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
