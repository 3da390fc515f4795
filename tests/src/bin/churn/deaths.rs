//! Ends containers and measures for each kind of observer when it learns of the end, and the CPU time of the
//! observer and of the runtime.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tests::{
    clock,
    containerd::{Containerd, Options},
    interrupt::Interrupt,
    kubelet::{Driver, Kubelet},
};

use crate::{
    client::Way,
    observer::{Kind, Observer},
    pods::{self, Pods},
    report::tell,
    usage::Usage,
};

const OBSERVERS: [(&str, Kind); 4] = [
    ("nobody", Kind::Nobody),
    ("listing each second", Kind::Client(Way::List)),
    ("CRI events", Kind::Client(Way::Events)),
    ("sandprobe", Kind::Agent),
];
/// An observer needs this time to read the node after its start.
const SETTLE: Duration = Duration::from_secs(5);
/// The time from one container's start to the next one's. It is not a whole number of seconds, so the ends
/// are spread evenly between two lists.
const PACE: Duration = Duration::from_millis(2700);
/// The time from the request to start a container until it is killed.
const AGE: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Args)]
pub(crate) struct Deaths {
    /// How many containers run all the time, in each case
    #[arg(long, value_delimiter = ',', default_values_t = [10, 50, 100, 500])]
    standing: Vec<u32>,
    /// How many start and end in a round, one after the other
    #[arg(long, default_value_t = 6)]
    deaths: u32,
    /// How often each case is measured
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds without any change in each round: as long as the period of containerd's own work
    #[arg(long, default_value_t = 10)]
    rest: u32,
    #[command(flatten)]
    options: Options,
}

impl Deaths {
    pub(crate) fn run(&self, interrupt: &Interrupt) -> Result<()> {
        let containerd = Containerd::start(&self.options)?;
        let measured = self.measure(&containerd, interrupt);
        containerd.stop()?;
        measured
    }

    fn measure(&self, containerd: &Containerd, interrupt: &Interrupt) -> Result<()> {
        let mut kubelet = Kubelet::new(containerd.socket(), Driver::default())?;
        let version = kubelet.cri().version()?.runtime_version;
        let mut pods = Pods::new(kubelet.another()?);
        let mut number = 0;
        for standing in &self.standing {
            pods.start_until(*standing, interrupt)?;
            let table = format!("{standing} containers, containerd {version}");
            for _ in 0..self.rounds {
                for (name, kind) in OBSERVERS {
                    let observer = Observer::start(kind, containerd.socket())?;
                    interrupt.pause(SETTLE)?;
                    if !observer.is_able() {
                        tell::<&str>(&table, &format!("{name} (this runtime has none)"), []);
                        continue;
                    }
                    let mut round = Round { containerd: containerd.pid(), observer, kubelet: &mut kubelet };
                    let figures = round.measure(self, &mut number, interrupt);
                    tell(&table, name, figures.with_context(|| format!("{table}: {name}"))?);
                }
            }
        }
        Ok(())
    }
}

struct Round<'a> {
    containerd: u32,
    observer: Observer,
    kubelet: &'a mut Kubelet,
}

impl Round<'_> {
    fn measure(
        &mut self,
        asked: &Deaths,
        number: &mut u32,
        interrupt: &Interrupt,
    ) -> Result<Vec<(&'static str, f64)>> {
        let resting = self.used(|_| interrupt.pause(Duration::from_secs(asked.rest.into())))?;
        let mut late = Vec::new();
        let churning = self.used(|round| {
            for _ in 0..asked.deaths {
                late.extend(round.death(*number, interrupt)?);
                *number += 1;
            }
            Ok(())
        })?;
        let mut figures = vec![
            ("containerd, CPU ms/s at rest", resting.runtime),
            ("containerd, CPU ms/s in churn", churning.runtime),
        ];
        figures.extend(resting.observer.map(|it| ("observer, CPU ms/s at rest", it)));
        figures.extend(churning.observer.map(|it| ("observer, CPU ms/s in churn", it)));
        late.sort_by(f64::total_cmp);
        figures.extend(late.get(late.len() / 2).map(|it| ("ms until an end is known", *it)));
        figures.extend(late.last().map(|it| ("at most", *it)));
        Ok(figures)
    }

    /// The CPU time of the runtime and of the observer while `work` runs, in ms a second.
    fn used(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<Used> {
        let of_observer = |it: &Self| it.observer.pid().map(Usage::of).transpose();
        let (begun, runtime, observer) = (Instant::now(), Usage::of(self.containerd)?, of_observer(self)?);
        work(self)?;
        let seconds = begun.elapsed().as_secs_f64();
        let since = |now: Usage, before: &Usage| now.since(before).cpu.as_secs_f64() * 1e3 / seconds;
        Ok(Used {
            runtime: since(Usage::of(self.containerd)?, &runtime),
            observer: of_observer(self)?.zip(observer).map(|(now, before)| since(now, &before)),
        })
    }

    /// Starts a pod with one container, kills it, and removes all of it. Returns the time in ms until its end
    /// was known.
    fn death(&mut self, number: u32, interrupt: &Interrupt) -> Result<Option<f64>> {
        let begun = Instant::now();
        let pause_until =
            |time: Duration| interrupt.pause((begun + time).saturating_duration_since(Instant::now()));
        let pod = pods::pod("dies", 2, number, "exec sleep 1000000");
        self.kubelet.prepare(&pod)?;
        let sandbox = self.kubelet.run_sandbox(&pod, 0)?;
        let container = pod.containers.first().context("the pod has a container")?;
        let container = self.kubelet.run_container(&pod, &sandbox, container, 0)?;
        pause_until(AGE)?;
        let died = clock::boot_ns()?;
        kill(Pid::from_raw(container.pid), Signal::SIGKILL).context("kill the container's process")?;
        let known = match self.observer.pid() {
            Some(_) => Some(self.observer.wait(&container.id, LIMIT)?),
            None => None,
        };
        self.kubelet.stop_sandbox(&sandbox.id)?;
        self.kubelet.remove_cgroup(&pod)?;
        self.kubelet.remove_sandbox(&sandbox.id)?;
        self.kubelet.remove_logs(&pod)?;
        pause_until(PACE)?;
        Ok(known.map(|known| known.saturating_sub(died) as f64 / 1e6))
    }
}

/// CPU time in ms a second.
struct Used {
    runtime: f64,
    observer: Option<f64>,
}
