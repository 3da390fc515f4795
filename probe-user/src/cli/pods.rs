//! `sandprobe pods`: the pods of this node and how they started. The pods come from the node's files and the
//! starts from the running agent; or all of it comes from a recording.

#[cfg_attr(not(feature = "live"), path = "pods/recording_only.rs")]
mod from_files;
mod share;
mod table;

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use anyhow::anyhow;
use clap::{Args, ValueEnum};

use super::{
    ExitStatus,
    args::Form,
    output,
    picture::Pictures,
    say,
    snapshot::{AgentSnapshot, SnapshotArgs},
};
use crate::{
    engine::view::PodView,
    model::{id::PodUid, phase::Start, time::Timestamp},
    sink::render::chart::{self, Chart},
};

#[derive(Debug, Args)]
pub(super) struct Pods {
    /// The order of the rows
    #[arg(long, value_name = "BY", default_value = "name")]
    sort: Sort,

    /// List only pods whose start took more than 5 s without image pulls and init containers (the Kubernetes
    /// objective for 99 % of pods)
    #[arg(long)]
    slow: bool,

    /// Instead of pods, list how long each phase of a start takes on this node: p50, p90 and p99
    #[arg(long, conflicts_with_all = ["sort", "slow", "html", "perfetto"])]
    phases: bool,

    /// The format of the output
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Form,

    #[command(flatten)]
    pictures: Pictures,

    #[command(flatten)]
    from: SnapshotArgs,

    #[command(flatten)]
    node: from_files::NodeArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// By namespace and name
    Name,
    /// The slowest start first; pods without a known start last
    Start,
}

/// The objective for [`Start::without_pulls`], which 99 % of all starts must meet.
pub(in crate::cli) const SLOW: Duration = Duration::from_secs(5);

/// The ages of pods, as far as the node's files show them.
type Ages = BTreeMap<PodUid, Duration>;

/// The content of the list.
struct Seen {
    pods: Vec<PodView>,
    ages: Ages,
    /// The starts from an agent or a recording; `None` if there are only files.
    snapshot: Option<AgentSnapshot>,
    now: Timestamp,
    done: ExitStatus,
}

impl Pods {
    pub(super) fn run(&self) -> anyhow::Result<ExitStatus> {
        self.pictures.refuse_over(self.from.recording())?;
        if self.phases {
            let snapshot = self.snapshot()?;
            return self.write(share::write(&snapshot.shares, self.output), snapshot.done);
        }
        let Seen { mut pods, ages, snapshot, now, done } = self.see()?;
        if self.pictures.are_wanted() {
            let snapshot = snapshot.ok_or_else(|| anyhow!("no start was seen: start sandprobe run"))?;
            self.pictures.draw(&self.chart(snapshot, &pods))?;
            return Ok(done);
        }
        if self.slow {
            pods.retain(|pod| pod.start.as_ref().is_some_and(|start| start.without_pulls() > SLOW));
        }
        if self.sort == Sort::Start {
            // The sort is stable: pods with equal times stay sorted by name.
            pods.sort_by_key(|pod| Reverse(pod.start.as_ref().map(Start::total)));
        }
        let bytes = match self.output {
            Form::Text => table::text(&pods, &ages, now),
            Form::Json => table::json(&pods),
        };
        self.write(bytes, done)
    }

    /// Starts of removed pods are drawn too.
    fn chart(&self, snapshot: AgentSnapshot, pods: &[PodView]) -> Chart {
        let AgentSnapshot { label, mut starts, shares, caveats, .. } = snapshot;
        if self.slow {
            starts.retain(|start| start.without_pulls() > SLOW);
        }
        starts.sort_by_cached_key(|it| {
            let slowest = (self.sort == Sort::Start).then(|| Reverse(it.total()));
            (slowest, it.pod.namespace.clone(), it.pod.name.clone(), it.begin)
        });
        let mut chart = chart::pod::chart(&label, &starts, &shares, pods);
        chart.notes.extend(caveats);
        chart
    }

    fn write(&self, mut bytes: Vec<u8>, done: ExitStatus) -> anyhow::Result<ExitStatus> {
        output::write(&mut bytes)?;
        Ok(done)
    }

    fn snapshot(&self) -> anyhow::Result<AgentSnapshot> {
        let snapshot = self.from.read()?;
        for caveat in &snapshot.caveats {
            say(caveat);
        }
        Ok(snapshot)
    }

    fn see(&self) -> anyhow::Result<Seen> {
        if self.from.recording().is_some() {
            let mut snapshot = self.snapshot()?;
            let pods = std::mem::take(&mut snapshot.pods);
            let now = snapshot.now;
            let done = snapshot.done;
            return Ok(Seen { pods, ages: Ages::new(), snapshot: Some(snapshot), now, done });
        }
        from_files::list(self)
    }
}
