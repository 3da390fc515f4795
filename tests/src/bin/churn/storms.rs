//! Measures storms: as many programs, network namespaces and cgroups as this machine can make, with and
//! without the agent.

use std::{
    fs::File,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use tests::{interrupt::Interrupt, program};

use crate::{agent::Agent, report::tell, usage, usage::Usage};

/// After a storm the kernel still frees namespaces and the agent still reads its rings.
const AFTERWARDS: Duration = Duration::from_secs(5);

#[derive(Args)]
pub(crate) struct Storms {
    /// Seconds that each storm lasts
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// How often each is measured, with a new agent each time
    #[arg(long, default_value_t = 3)]
    rounds: u32,
}

/// What a storm makes, and how.
struct Kind {
    name: &'static str,
    /// The arguments of the program `actor`. `ACTOR` stands for the path of this program.
    words: &'static [&'static str],
    /// How many one run of it makes.
    portion: u32,
    /// The kind of the event that the agent writes for each.
    event: Option<&'static str>,
}

const ACTOR: &str = "ACTOR";
const KINDS: [Kind; 4] = [
    Kind {
        name: "programs on the host",
        words: &["repeat", "100", ACTOR, "exit", "0"],
        portion: 100,
        event: None,
    },
    Kind {
        name: "containers' cgroups with a program in each",
        words: &["contained", ACTOR, "exit", "0"],
        portion: 1,
        event: None,
    },
    Kind { name: "network namespaces", words: &["netns", "20"], portion: 20, event: Some("netns.created") },
    Kind { name: "cgroups", words: &["cgroups", "500"], portion: 500, event: Some("cgroup.created") },
];

impl Storms {
    pub(crate) fn run(&self, interrupt: &Interrupt) -> Result<()> {
        for _ in 0..self.rounds {
            for kind in &KINDS {
                // Two makers work at the same time.
                self.storm(&format!("storm of {}", kind.name), &[kind, kind], interrupt)?;
            }
            self.storm("storm of all these", &KINDS.each_ref(), interrupt)?;
        }
        Ok(())
    }

    /// Measures a storm first without the agent and then with it.
    fn storm(&self, table: &str, kinds: &[&Kind], interrupt: &Interrupt) -> Result<()> {
        let time = Duration::from_secs(self.seconds.into());
        let made = rage(kinds, time, interrupt)?;
        interrupt.pause(AFTERWARDS)?;
        tell(table, "nobody", [("made a second", f64::from(made) / time.as_secs_f64())]);

        let agent = Agent::start(|folder| Ok(File::create(folder.join("events"))?.into()))?;
        interrupt.pause(AFTERWARDS)?;
        let (metrics, used) = (agent.get("/metrics")?, Usage::of(agent.pid())?);
        let made = rage(kinds, time, interrupt)?;
        interrupt.pause(AFTERWARDS)?;
        let cpu = Usage::of(agent.pid())?.since(&used).cpu;
        let after = agent.get("/metrics")?;
        let grown = |name: &str, label: &str| counter(&after, name, label) - counter(&metrics, name, label);
        let lost = |label: &str| grown("sandprobe_events_lost_total", label);
        let (lifecycle, skipped) = (lost("ring=\"lifecycle\""), lost("ring=\"skipped_run\""));
        let mut figures = vec![
            ("made a second", f64::from(made) / time.as_secs_f64()),
            ("CPU %", cpu.as_secs_f64() * 100.0 / time.as_secs_f64()),
            ("CPU us each", cpu.as_secs_f64() * 1e6 / f64::from(made)),
            ("lost of lifecycle", lifecycle),
            ("skipped by the kernel", skipped),
            ("lost elsewhere", lost("") - lifecycle - skipped),
            ("MB, peak", usage::memory(agent.pid(), "VmHWM")?),
        ];
        if let [Kind { event: Some(event), .. }, ..] = kinds {
            let told = grown("sandprobe_events_total", &format!("kind=\"{event}\""));
            figures.push(("events for each made", told / f64::from(made)));
        }
        tell(table, "sandprobe", figures);
        agent.end()
    }
}

/// Makes as many as possible, with one thread for each kind given, and returns how many.
fn rage(kinds: &[&Kind], time: Duration, interrupt: &Interrupt) -> Result<u32> {
    let actor = program::path("actor")?;
    let begun = Instant::now();
    let maker = |kind: &Kind| -> Result<u32> {
        let mut made = 0;
        while begun.elapsed() < time {
            interrupt.check()?;
            let words = kind.words.iter().map(|word| match *word {
                ACTOR => actor.clone(),
                other => PathBuf::from(other),
            });
            let status = Command::new(&actor).args(words).stdin(Stdio::null()).status()?;
            ensure!(status.success(), "the maker of {} ended with {status}", kind.name);
            made += kind.portion;
        }
        Ok(made)
    };
    thread::scope(|scope| {
        let makers: Vec<_> = kinds.iter().map(|kind| scope.spawn(|| maker(kind))).collect();
        let made =
            makers.into_iter().map(|maker| maker.join().map_err(|_panic| anyhow!("a maker panicked"))?);
        made.sum()
    })
}

/// Returns the sum of those series of a metric that have the label.
fn counter(metrics: &str, name: &str, label: &str) -> f64 {
    let series = metrics.lines().filter(|line| line.starts_with(name) && line.contains(label));
    series.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}
