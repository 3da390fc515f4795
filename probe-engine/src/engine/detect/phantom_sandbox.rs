//! **Rule:** a runtime says that a sandbox is ready, and nothing of it is left in the kernel: no process of
//! it or of its containers, no shim, no network namespace. The time runs while the runtime and the kubelet
//! are both up, and at its end the runtime must say so again. Or a runtime has sandboxes on record that are
//! not ready, of which nothing is left either, and whose pods are gone: they have neither a cgroup nor a log
//! folder. All of one runtime are one finding.
//!
//! Not flagged: a sandbox of a completed pod that is not ready, since the kubelet keeps the pod's log folder
//! until the pod is deleted; a sandbox of which the agent has never seen anything, since it may be made in a
//! way that leaves nothing to see (a virtual machine), unless the runtime made it before this boot; a node
//! with CRI-O, whose sandboxes need no process and, on the node's network, leave nothing. No finding opens or
//! closes while the runtime does not answer, nor between a gap and the listing that shows what exists.

use super::{
    DetectContext, Detection, Verdict,
    index::{Marks, Subjects},
    rule::{Judged, Rule},
};
use crate::{
    engine::world::{
        lookup,
        table::belief::{Belief, Runtime},
    },
    model::{
        fact::{Believed, List, Role},
        finding::{Explain, FindingKind, Key, PhantomSandbox, Severity},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        count::counted,
        shell::{asked, crictl, stop_if_nothing_runs},
    },
};

/// The lists that show whether anything of a sandbox exists.
const LISTS: [List; 3] = [List::Processes, List::Cgroups, List::Netns];

/// At most this many sandboxes on record, the oldest, are shown as evidence.
const SHOWN: usize = 16;

impl Rule for PhantomSandbox {
    type Subject = ContainerId;
    type Part = Detection;
    const SUBJECTS: Subjects<ContainerId> = Subjects::BELIEVED;

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
            && !lookup::daemons::has_crio(ctx.world)
            && let Some(since) = since(ctx, row)
        {
            found.extend(detection(ctx, row, runtime, since));
        }
    }
}

pub(super) fn gather(ctx: &DetectContext<'_>, judged: &Judged<PhantomSandbox>, found: &mut Vec<Detection>) {
    found.extend(judged.parts().cloned());
    for runtime in ctx.world.beliefs.runtimes() {
        found.extend(left_on_record(ctx, runtime));
    }
}

/// Reports a runtime's recorded sandboxes whose pods are gone as one finding.
fn left_on_record(ctx: &DetectContext<'_>, runtime: &Runtime) -> Option<Detection> {
    let own = ctx.world.beliefs.rows().filter(|row| row.socket.as_ref() == Some(&runtime.socket));
    let mut all: Vec<(Timestamp, &Belief, Verdict)> =
        own.filter_map(|row| Some((left_since(ctx, row)?, row, is_left(ctx, &row.id)?))).collect();
    if all.is_empty() {
        return None;
    }
    let parts = ["left_on_record", &runtime.socket];
    let until = all.iter().filter_map(|(_, _, verdict)| verdict.due_at()).min();
    let is_overdue = all.iter().any(|(since, ..)| ctx.awake(*since) + ctx.limits.leak_grace <= ctx.now);
    all.retain(|(_, _, verdict)| *verdict == Verdict::Confirmed);
    all.sort_by_key(|(since, row, _)| (row.listed.made_at, *since, row.id.clone()));
    let since = all.iter().map(|(since, ..)| *since).min();
    if since.is_none()
        && is_overdue
        && let Some(open) = ctx.open_finding(&Key::new(FindingKind::PhantomSandbox.into_str(), &parts))
    {
        // Runtime or kubelet has just started again, or does not run: the finding keeps its number.
        return Some(Detection::unsure(open));
    }
    let is_unsure = !runtime.answers() || LISTS.iter().any(|list| ctx.world.lists.is_gapped(*list));
    let verdict = match since {
        None => Verdict::Watched { until },
        Some(_) if is_unsure => Verdict::Unsure,
        Some(_) => Verdict::Confirmed,
    };
    let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
    let kind = PhantomSandbox { runtime: runtime.socket.clone(), left_on_record: Some(count) };
    Some(Detection {
        sandboxes: all.iter().take(SHOWN).map(|(_, row, _)| row.id.clone()).collect(),
        ..Detection::new(kind, &parts, Severity::Info, since.unwrap_or(ctx.now), verdict)
    })
}

/// Returns the verdict on a sandbox on record whose pod is gone: confirmed, or still watched.
pub(super) fn is_left(ctx: &DetectContext<'_>, id: &ContainerId) -> Option<Verdict> {
    let since = left_since(ctx, ctx.world.beliefs.get(id)?)?;
    match ctx.after_cleanup(since, ctx.limits.leak_grace) {
        Verdict::Candidate { until } => Some(Verdict::Watched { until }),
        other @ (Verdict::Watched { .. }
        | Verdict::Unsure
        | Verdict::Unverified
        | Verdict::Unlisted
        | Verdict::Confirmed
        | Verdict::Passing { .. }) => Some(other),
    }
}

/// Returns since when a sandbox that is not ready has been on record with nothing of it, or of its pod, left
/// on the node.
fn left_since(ctx: &DetectContext<'_>, row: &Belief) -> Option<Timestamp> {
    let pod_gone_at = row.pod_gone_at?;
    let runtime = ctx.world.beliefs.runtime_of(row).filter(|it| row.is_not_ready(it))?;
    let over_at = ctx.world.sandboxes.recall(&row.id).and_then(|row| row.over_at());
    let since = pod_gone_at.max(row.said_since(runtime)).max(over_at.unwrap_or(pod_gone_at));
    (!is_anything_left(ctx, &row.id)).then_some(since)
}

/// Whether anything of a sandbox is left in the kernel.
pub(super) fn is_anything_left(ctx: &DetectContext<'_>, id: &ContainerId) -> bool {
    let world = ctx.world;
    let row = world.sandboxes.recall(id);
    let netns = row.and_then(|row| world.netns.get(row.network.netns?));
    row.is_some_and(|row| !row.is_stopped())
        || ctx.has_process(id)
        || ctx.index.monitors.by(id).next().is_some()
        || netns.is_some_and(|it| it.is_live())
}

/// Returns since when nothing of it has been left. None: nothing of it was ever seen, and it was made in this
/// boot.
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
    let kind = PhantomSandbox { runtime: runtime.socket.clone(), left_on_record: None };
    let verdict = verdict(ctx, row, runtime, since)?;
    Some(Detection {
        pod: Some(lookup::record::pod_of_nameless(ctx.world, &row.id)),
        sandboxes: vec![row.id.clone()],
        gapped: ctx.world.sandboxes.recall(&row.id).is_some_and(|row| row.gapped),
        ..Detection::new(kind, &[row.id.as_str()], Severity::Warning, since, verdict)
    })
}

/// Judges a sandbox of which nothing is left. None: a listing of the node shows it.
fn verdict(ctx: &DetectContext<'_>, row: &Belief, runtime: &Runtime, since: Timestamp) -> Option<Verdict> {
    if !runtime.answers() || LISTS.iter().any(|list| ctx.world.lists.is_gapped(*list)) {
        return Some(Verdict::Unsure);
    }
    let since = since.max(runtime.answer_since);
    match ctx.after_cleanup(since, ctx.limits.leak_grace) {
        Verdict::Confirmed => {}
        // The runtime's list may be from before its end.
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
        // Wait for the runtime's next list.
        return Some(Verdict::Watched { until: None });
    }
    // What is known of it may be incomplete: a listing that shows anything of it ends the finding.
    let is_known = ctx.world.sandboxes.recall(&row.id).is_some_and(|row| !row.gapped);
    if is_known {
        Some(Verdict::Confirmed)
    } else {
        Some(ctx.listed_since(&LISTS, ready).unwrap_or(Verdict::Confirmed))
    }
}

impl Explain for PhantomSandbox {
    fn summary(&self) -> String {
        match self.left_on_record {
            None => "the runtime says that the sandbox is ready, and nothing of it is left".to_owned(),
            Some(count) => {
                let count = counted(count.into(), "sandbox");
                format!("the runtime has {count} on record, not ready, whose pods are gone")
            }
        }
    }

    fn cause(&self) -> &'static str {
        if self.left_on_record.is_some() {
            return "The pods were deleted, and nothing of them is on the node any more. The kubelet has not had their \
                    sandboxes removed, or the runtime failed to: nobody does it later. The runtime reads all of them at \
                    each of its starts, and an IPAM plugin may hold their addresses.";
        }
        "The sandbox has ended, with its processes and its network, and the runtime has not noticed: its shim was killed, \
         the message of the end was lost, or the record is from before a restart of the node. The kubelet believes the \
         runtime, so the pod stays as it is and gets no new sandbox."
    }

    fn repair(&self, sandboxes: &[ContainerId], runtimes: &[String]) -> Vec<String> {
        if self.left_on_record.is_some() {
            let mut all = vec![
                "# These are the oldest. Look at one, and remove it: the runtime then calls CNI DEL for it."
                    .to_owned(),
            ];
            all.extend(asked(runtimes, "inspectp", sandboxes.get(..1).unwrap_or_default()));
            all.extend(asked(runtimes, "rmp", sandboxes));
            all.push(
                "# All that are not ready, with those of pods that have completed and are still there:"
                    .to_owned(),
            );
            all.extend(crictl(runtimes).map(|crictl| format!("{crictl} pods --state NotReady")));
            return all;
        }
        let mut all = vec!["# What the runtime says:".to_owned()];
        all.extend(asked(runtimes, "inspectp", sandboxes));
        all.push(
            "# If it still says that the sandbox is ready, stop it: the kubelet then makes another one."
                .to_owned(),
        );
        all.extend(stop_if_nothing_runs(runtimes, sandboxes));
        all
    }

    fn forget_numbers(&mut self) {
        self.left_on_record = self.left_on_record.map(|_count| 0);
    }

    fn shows_some(&self) -> bool {
        self.left_on_record.is_some()
    }
}
