//! **Rule:** a runtime says that a sandbox is ready, and nothing of it is left in the kernel: no process of it or of its
//! containers, no shim, no network namespace. The time runs while the runtime and the kubelet are both up, and at its end
//! the runtime must say so again.
//!
//! Not flagged: a sandbox of which the agent has never seen anything, since it may be made in a way that leaves nothing to
//! see (a virtual machine), unless the runtime made it before this boot; a node with CRI-O, whose sandboxes need no process
//! and on the node's network leave nothing. No finding opens or closes while the runtime does not answer, nor between a
//! gap and the listing that shows what is there.

use std::collections::BTreeSet;

use super::{DetectContext, Detection, Verdict, index::Marks, rule::Rule};
use crate::{
    engine::world::belief::{Belief, Runtime},
    model::{
        fact::{Believed, List, Role},
        finding::{Explain, Key, Kind, PhantomSandbox, Severity},
        id::ContainerId,
        time::Timestamp,
    },
    words::shell::{asked, stop_if_nothing_runs},
};

impl Rule for PhantomSandbox {
    type Subject = ContainerId;
    type Part = Detection;

    fn subjects(ctx: &DetectContext<'_>) -> BTreeSet<ContainerId> {
        ctx.world.beliefs.rows().map(|row| row.id.clone()).collect()
    }

    fn marked(marks: &Marks) -> &BTreeSet<ContainerId> {
        &marks.sandboxes
    }

    /// The network namespace of a sandbox may end, and so may the last process that works for it.
    fn depends_on_others(marks: &Marks) -> bool {
        marks.runtimes || !marks.netns.is_empty() || !marks.sandboxes.is_empty()
    }

    fn judge(ctx: &DetectContext<'_>, id: &ContainerId, found: &mut Vec<Detection>) {
        let Some(row) = ctx.world.beliefs.get(id).filter(|row| row.role == Some(Role::Sandbox)) else {
            return;
        };
        let Some(runtime) = ctx.world.beliefs.runtime_of(row) else { return };
        let is_ready = row.state(runtime) == Some(Believed::Running);
        if is_ready
            && !is_anything_left(ctx, id)
            && !ctx.world.has_crio()
            && let Some(since) = since(ctx, row)
        {
            found.extend(detection(ctx, row, runtime, since));
        }
    }
}

/// Whether anything of a sandbox is in the kernel.
pub(super) fn is_anything_left(ctx: &DetectContext<'_>, id: &ContainerId) -> bool {
    let world = ctx.world;
    let row = world.sandboxes.recall(id);
    let lives = || row.is_some_and(|row| !row.is_stopped());
    let netns = row.and_then(|row| world.netns.get(row.network.netns?));
    lives()
        || ctx.has_process(id)
        || ctx.index.monitors.by(id).next().is_some()
        || netns.is_some_and(|it| it.is_live())
}

/// Since when nothing of it has been there. None: nothing of it was ever seen, and it is of this boot.
fn since(ctx: &DetectContext<'_>, row: &Belief) -> Option<Timestamp> {
    let ended = ctx.world.sandboxes.recall(&row.id).and_then(|row| row.over_at());
    ended.or_else(|| (row.listed.made_at == Some(Timestamp::ZERO)).then_some(row.first_at))
}

fn detection(
    ctx: &DetectContext<'_>,
    row: &Belief,
    runtime: &Runtime,
    since: Timestamp,
) -> Option<Detection> {
    let kind = Kind::from(PhantomSandbox { runtime: runtime.socket.clone() });
    Some(Detection {
        key: Key::new(kind.into_str(), &[row.id.as_str()]),
        kind,
        severity: Severity::Warning,
        since,
        pod: Some(ctx.world.pod_of_nameless(&row.id)),
        sandboxes: vec![row.id.clone()],
        gapped: ctx.world.sandboxes.recall(&row.id).is_some_and(|row| row.gapped),
        verdict: verdict(ctx, row, runtime, since)?,
    })
}

/// None: a listing of the node shows it.
fn verdict(ctx: &DetectContext<'_>, row: &Belief, runtime: &Runtime, since: Timestamp) -> Option<Verdict> {
    let lists = [List::Processes, List::Cgroups, List::Netns];
    if !runtime.answers() || lists.iter().any(|list| ctx.world.is_gapped(*list)) {
        return Some(Verdict::Unsure);
    }
    let since = since.max(runtime.answer_since);
    match ctx.after_cleanup(since, ctx.limits.leak_grace) {
        Verdict::Confirmed => {}
        // The list may be from before its end.
        Verdict::Candidate { until } if runtime.read_at < runtime.must_know_by(since) => {
            return Some(Verdict::Watched { until });
        }
        other @ (Verdict::Watched { .. }
        | Verdict::Candidate { .. }
        | Verdict::Unsure
        | Verdict::Unverified
        | Verdict::Unlisted
        | Verdict::Passing { .. }) => return Some(other),
    }
    let ready = ctx.awake(since.max(ctx.up?)) + ctx.limits.leak_grace;
    if runtime.read_at < ready {
        // Its next list is awaited.
        return Some(Verdict::Watched { until: None });
    }
    // What is known of it may be incomplete: a listing that shows anything of it ends the finding.
    let is_known = ctx.world.sandboxes.recall(&row.id).is_some_and(|row| !row.gapped);
    if is_known {
        Some(Verdict::Confirmed)
    } else {
        Some(ctx.listed_since(&lists, ready).unwrap_or(Verdict::Confirmed))
    }
}

impl Explain for PhantomSandbox {
    fn summary(&self) -> String {
        "the runtime says that the sandbox is ready, and nothing of it is left".to_owned()
    }

    fn cause(&self) -> &'static str {
        "The sandbox has ended, with its processes and its network, and the runtime has not noticed: its shim was killed, \
         the message of the end was lost, or the record is from before a restart of the node. The kubelet believes the \
         runtime, so the pod stays as it is and gets no new sandbox."
    }

    fn repair(&self, sandboxes: &[ContainerId], runtimes: &[String]) -> Vec<String> {
        let mut all = vec!["# What the runtime says:".to_owned()];
        all.extend(asked(runtimes, "inspectp", sandboxes));
        all.push(
            "# If it still says that the sandbox is ready, stop it: the kubelet then makes another one."
                .to_owned(),
        );
        all.extend(stop_if_nothing_runs(runtimes, sandboxes));
        all
    }
}
