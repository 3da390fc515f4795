//! `sandprobe pods`: the pods of this node and how they started: from its files, once, and from what a running agent has
//! seen; or all of it from a recording.

#[cfg(feature = "live")]
mod look;
mod share;
mod table;

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use anyhow::anyhow;
use clap::{Args, ValueEnum};

use super::{
    ExitStatus,
    account::{AgentSnapshot, SnapshotArgs},
    args::Form,
    output,
    picture::Pictures,
    say,
};
#[cfg(feature = "live")]
use super::{
    account::NothingKept,
    args::{ConfigArgs, HostArgs},
};
use crate::{
    engine::view::PodView,
    model::{id::PodUid, phase::Start, time::Timestamp},
    sink::chart::{self, Chart},
};

#[derive(Debug, Args)]
pub(super) struct Pods {
    /// The order of the rows
    #[arg(long, value_name = "BY", default_value = "name")]
    sort: Sort,

    /// List only pods whose start took more than 5 s, which 99 in a hundred are not to, image pulls aside
    #[arg(long)]
    slow: bool,

    /// Instead of pods, list how long each phase of a start takes on this node: p50, p90 and p99
    #[arg(long, conflicts_with_all = ["sort", "slow", "html", "perfetto"])]
    phases: bool,

    /// The form of the output
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Form,

    #[command(flatten)]
    pictures: Pictures,

    #[command(flatten)]
    from: SnapshotArgs,

    #[cfg(feature = "live")]
    #[command(flatten)]
    host: HostArgs,

    #[cfg(feature = "live")]
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// By namespace and name
    Name,
    /// The slowest start first; those of which none was seen last
    Start,
}

/// `pod_startup_latency` of the scalability SLOs of Kubernetes (kubernetes/community, sig-scalability/slos).
const SLOW: Duration = Duration::from_secs(5);

/// How old pods are, as far as the node's files say.
type Ages = BTreeMap<PodUid, Duration>;

/// What is to be listed.
struct Seen {
    pods: Vec<PodView>,
    ages: Ages,
    /// What an agent or a recording tells; of files alone, nothing.
    told: Option<AgentSnapshot>,
    now: Timestamp,
    done: ExitStatus,
}

impl Pods {
    pub(super) fn run(&self) -> anyhow::Result<ExitStatus> {
        if self.phases {
            let account = self.account()?;
            return self.write(share::write(&account.shares, self.output), ExitStatus::Ok);
        }
        let Seen { mut pods, ages, told, now, done } = self.see()?;
        if self.pictures.are_wanted() {
            let told = told.ok_or_else(|| anyhow!("no start was seen: start sandprobe run"))?;
            self.pictures.draw(&self.chart(told, &pods))?;
            return Ok(done);
        }
        if self.slow {
            pods.retain(|pod| pod.start.as_ref().is_some_and(|start| start.total() > SLOW));
        }
        if self.sort == Sort::Start {
            // The sort is stable: those that took as long stay in the order of their names.
            pods.sort_by_key(|pod| Reverse(pod.start.as_ref().map(Start::total)));
        }
        let bytes = match self.output {
            Form::Text => table::text(&pods, &ages, now),
            Form::Json => table::json(&pods),
        };
        self.write(bytes, done)
    }

    /// Starts of pods that are gone are drawn too.
    fn chart(&self, told: AgentSnapshot, pods: &[PodView]) -> Chart {
        let AgentSnapshot { label, mut starts, shares, caveats, .. } = told;
        if self.slow {
            starts.retain(|start| start.total() > SLOW);
        }
        let name = |it: &Start| (it.pod.namespace.clone(), it.pod.name.clone());
        match self.sort {
            Sort::Name => starts.sort_by_cached_key(|it| (name(it), it.begin)),
            Sort::Start => starts.sort_by_cached_key(|it| (Reverse(it.total()), name(it), it.begin)),
        }
        let mut chart = chart::pod::chart(&label, &starts, &shares, pods);
        chart.notes.extend(caveats);
        chart
    }

    fn write(&self, mut bytes: Vec<u8>, done: ExitStatus) -> anyhow::Result<ExitStatus> {
        output::write(&mut bytes)?;
        Ok(done)
    }

    fn account(&self) -> anyhow::Result<AgentSnapshot> {
        let account = self.from.read()?;
        for caveat in &account.caveats {
            say(caveat);
        }
        Ok(account)
    }

    fn see(&self) -> anyhow::Result<Seen> {
        if self.from.is_recording() {
            let mut account = self.account()?;
            let (pods, now) = (std::mem::take(&mut account.pods), account.now);
            return Ok(Seen { pods, ages: Ages::new(), told: Some(account), now, done: ExitStatus::Ok });
        }
        self.look()
    }

    /// Without the readers of a node's files.
    #[cfg(not(feature = "live"))]
    fn look(&self) -> anyhow::Result<Seen> {
        Err(anyhow!("built without what reads this node: give --recording"))
    }

    #[cfg(feature = "live")]
    fn look(&self) -> anyhow::Result<Seen> {
        let Seen { mut pods, mut ages, now, done, .. } = look::look(&self.host, &self.config)?;
        // Starts are the agent's to tell; without one there are pods all the same.
        let wanted = self.slow || self.sort == Sort::Start || self.pictures.are_wanted();
        let mut told = None;
        match self.from.read() {
            Ok(account) if account.label.boot_id == look::boot_id() => {
                account.caveats.iter().for_each(|caveat| say(caveat));
                give(&mut pods, &account.starts);
                older(&mut ages, &account.starts, now);
                told = Some(account);
            }
            Ok(_) if wanted => return Err(anyhow!("no start was seen in this boot: start sandprobe run")),
            Err(error) if wanted => return Err(error),
            // The list says nothing of starts then, and why is said only where one could have been told.
            Err(error) if !error.is::<NothingKept>() => say(&format!("{error:#}")),
            Ok(_) | Err(_) => {}
        }
        Ok(Seen { pods, ages, told, now, done })
    }
}

/// Each pod's latest start: by its UID, which the file names and the agent too.
#[cfg(feature = "live")]
fn give(pods: &mut [PodView], starts: &[Start]) {
    for pod in pods {
        let is_of = |start: &&Start| pod.uid.is_some() && start.pod.uid == pod.uid;
        pod.start = starts.iter().filter(is_of).max_by_key(|start| start.begin).cloned();
    }
}

/// Where the node's files do not say how old a pod is, its first start that was seen tells it.
#[cfg(feature = "live")]
fn older(ages: &mut Ages, starts: &[Start], now: Timestamp) {
    let mut seen = Ages::new();
    for start in starts.iter().filter(|start| !start.listed) {
        let Some(uid) = &start.pod.uid else { continue };
        let age = seen.entry(uid.clone()).or_default();
        *age = now.since(start.begin).max(*age);
    }
    for (uid, age) in seen {
        ages.entry(uid).or_insert(age);
    }
}
