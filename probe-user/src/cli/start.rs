//! `sandprobe explain pod`: shows where the time of one pod's start went.

pub(super) mod waterfall;

use anyhow::anyhow;
use clap::Args;

use super::{
    ExitStatus,
    args::{self, Form},
    output, say,
    snapshot::{AgentSnapshot, SnapshotArgs},
};
use crate::{
    model::{
        finding::{Kind, Stage},
        phase::Start,
    },
    sink::{
        escape::{escaped, short_key},
        render::{jsonl, phase::pod},
        span::span,
    },
};

#[derive(Debug, Args)]
pub(super) struct PodStart {
    /// The pod's name, or its UID
    #[arg(value_name = "[NAMESPACE/]NAME", value_parser = args::pod)]
    pod: String,

    /// The format of the output
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Form,

    #[command(flatten)]
    from: SnapshotArgs,
}

impl PodStart {
    pub(super) fn run(&self) -> anyhow::Result<ExitStatus> {
        let snapshot = self.from.read()?;
        for caveat in &snapshot.caveats {
            say(caveat);
        }
        let starts = matching(&snapshot, &self.pod)?;
        let mut bytes = match self.output {
            Form::Text => {
                let all: Vec<String> =
                    starts.iter().map(|start| waterfall::text(start, &snapshot.label)).collect();
                all.join("\n").into_bytes()
            }
            Form::Json => {
                let mut bytes = Vec::new();
                starts.iter().for_each(|start| jsonl::started(start, &snapshot.label, &mut bytes));
                bytes
            }
        };
        output::write(&mut bytes)?;
        Ok(snapshot.done)
    }
}

/// Returns the starts of the pod that is asked for: one for each of its sandboxes.
fn matching<'a>(snapshot: &'a AgentSnapshot, asked: &str) -> anyhow::Result<Vec<&'a Start>> {
    let starts: Vec<&Start> = snapshot.starts.iter().filter(|it| is_meant(it, asked)).collect();
    let Some(first) = starts.first() else {
        if let Some(waiting) = waits_for_runtime(snapshot, asked) {
            return Err(waiting);
        }
        return Err(anyhow!(
            "no start of a pod {asked:?} is known: the agent must run before the pod does, and as long as its containers do, and a start that came to nothing is not kept; see sandprobe pods, and sandprobe findings for what failed"
        ));
    };
    if let Some(other) = starts.iter().find(|it| it.pod.namespace != first.pod.namespace) {
        return Err(anyhow!(
            "{asked:?} may be {} or {}: give the namespace too",
            pod(&first.pod),
            pod(&other.pod)
        ));
    }
    Ok(starts)
}

/// Returns why a pod has no sandbox whose start could be shown, if it waits for its runtime in its first
/// phase.
fn waits_for_runtime(snapshot: &AgentSnapshot, asked: &str) -> Option<anyhow::Error> {
    for finding in snapshot.findings.iter().filter(|it| it.stage != Stage::Closed) {
        let Kind::RuntimeUnresponsive(it) = &finding.kind else { continue };
        if let Some(pod) = it.first.iter().find(|pod| is_pod(pod, asked)) {
            return Some(anyhow!(
                "{} has no sandbox yet: it waits in the phase prepare, for the runtime at {}, which has answered nothing for {}; see sandprobe explain {}",
                escaped(pod),
                escaped(&it.runtime),
                span(snapshot.now.since(finding.since)),
                short_key(&finding.key)
            ));
        }
    }
    None
}

/// Whether a pod, as NAMESPACE/NAME, is the one that is asked for.
fn is_pod(pod: &str, asked: &str) -> bool {
    pod == asked || pod.split_once('/').is_some_and(|(_, name)| name == asked)
}

fn is_meant(start: &Start, asked: &str) -> bool {
    let of = &start.pod;
    if of.uid.as_ref().is_some_and(|uid| uid.as_str() == asked) || of.name.as_deref() == Some(asked) {
        return true;
    }
    let Some((namespace, name)) = asked.split_once('/') else { return false };
    of.namespace.as_deref() == Some(namespace) && of.name.as_deref() == Some(name)
}
