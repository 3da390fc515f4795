//! **Rule:** every container that ran in a sandbox has ended, only what holds the sandbox lives, and for
//! longer than the kubelet's longest back-off nobody has made another container in it or begun to stop it.
//! The time runs only while the runtime and the kubelet are both up.
//!
//! Not flagged: a container that crashes again and again, as long as it is started or tried again after each
//! back-off; a pod that has completed and whose sandbox the kubelet stops; a pod that is still starting: a
//! container exited 0, and one that the kubelet has on record has not run yet, since its image may be pulled
//! for long. If the kubelet's record does not name the pod's containers, any container that exited 0 may be
//! such an init container, so the limit is longer. While a pull is under way on the node, for an hour, the
//! image may be that of the next container. A sandbox that the runtime has begun to stop is not flagged
//! either. Nor is one whose containers' programs are not processes of the node (gVisor, Kata Containers), or
//! one with a container that runs according to its runtime and that the kernel has not shown.
//!
//! No finding opens or closes between a gap and the listing that shows which containers run, nor without a
//! kubelet. A container may have ended unseen in the gap, so the time counts from the gap at the earliest.

use std::{fmt::Write as _, time::Duration};

use super::{
    DetectContext, Detection, Verdict,
    index::{Marks, Subjects},
    rule::Rule,
};
use crate::{
    engine::world::{
        lookup,
        table::{
            container::{Group, State},
            sandbox::{ContainerRun, Ended, Sandbox},
        },
    },
    model::{
        fact::{Believed, List},
        finding::{AbandonedSandbox, Explain, Severity},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        escape::escaped,
        shell::{asked, stop_if_nothing_runs},
    },
};

/// The kubelet's longest back-off (five minutes), and the time until its next try shows.
pub(super) const BACK_OFF: Duration = Duration::from_secs(6 * 60);

/// The limit if the next container's image may be pulled first.
pub(super) const PULL: Duration = Duration::from_secs(60 * 60);

impl Rule for AbandonedSandbox {
    type Subject = ContainerId;
    type Part = Detection;
    const SUBJECTS: Subjects<ContainerId> =
        Subjects::sandboxes(|ctx| ctx.world.sandboxes.values().map(|row| row.id.clone()).collect());

    /// The kubelet's record of a pod's containers, or a runtime's list, may be read late.
    fn depends_on_others(marks: &Marks) -> bool {
        !marks.pods.is_empty() || marks.runtimes
    }

    fn judge(ctx: &DetectContext<'_>, id: &ContainerId, found: &mut Vec<Detection>) {
        let Some(row) = ctx.world.sandboxes.get(id) else { return };
        let is_held = !row.is_stopped() && row.ending.stop_at.is_none() && row.presence.is_alive();
        if is_held
            && !row.hides_programs
            && !has_live_container(ctx, row)
            && !has_unseen_container(ctx, row)
            && let Some((last, ended)) = last_ended(row)
        {
            found.push(detection(ctx, row, last, ended));
        }
    }
}

/// Whether a container of the sandbox runs or is being made.
fn has_live_container(ctx: &DetectContext<'_>, row: &Sandbox) -> bool {
    let own = ctx.world.containers.group(Group::Sandbox(row.id.clone()));
    let of_pod = row.pod.into_iter().flat_map(|pod| ctx.world.containers.group(Group::Pod(pod)));
    own.chain(of_pod.filter(|it| it.sandbox.is_none())).any(|it| match it.state {
        State::Created | State::Running { .. } => it.id != row.id,
        State::Exited { .. } => false,
    })
}

/// Whether a container runs, or is being made, according to the runtime, and the kernel has not shown its
/// program.
fn has_unseen_container(ctx: &DetectContext<'_>, row: &Sandbox) -> bool {
    ctx.said_of(&row.id).any(|(it, runtime)| {
        let is_live = matches!(it.state(runtime), Some(Believed::Created | Believed::Running));
        is_live && row.containers().iter().all(|ran| ran.id != it.id)
    })
}

/// Returns the container that ended last. None: one has not ended, or none has run.
fn last_ended(row: &Sandbox) -> Option<(&ContainerRun, Ended)> {
    let all: Option<Vec<_>> = row.containers().iter().map(|ran| Some((ran, ran.ended?))).collect();
    all?.into_iter().max_by_key(|(ran, ended)| (ended.at, &ran.id))
}

fn detection(ctx: &DetectContext<'_>, row: &Sandbox, last: &ContainerRun, ended: Ended) -> Detection {
    let kind = AbandonedSandbox { container: last.name.clone(), exit_code: ended.code };
    let since = ended.at.max(row.work.tried_at.unwrap_or(Timestamp::ZERO));
    let verdict = verdict(ctx, row, since, ended);
    Detection {
        pod: Some(row.reported.pod.clone()),
        sandboxes: vec![row.id.clone()],
        gapped: row.work.is_unsure,
        ..Detection::new(kind, &[row.id.as_str()], Severity::Warning, since, verdict)
    }
}

fn verdict(ctx: &DetectContext<'_>, row: &Sandbox, since: Timestamp, ended: Ended) -> Verdict {
    if row.gapped || ctx.world.lists.is_gapped(List::Processes) || !lookup::daemons::has_kubelet(ctx.world) {
        return Verdict::Unsure;
    }
    let expected = lookup::start::expected_in(ctx.world, row);
    // The kubelet starts a pod's containers one after the other, and pulls the image of each before.
    if !expected.iter().all(|name| row.containers().iter().any(|ran| ran.name.as_ref() == Some(name))) {
        return Verdict::Watched { until: None };
    }
    let limit = match ended.code {
        Some(0) | None if expected.is_empty() => PULL,
        Some(_) | None => BACK_OFF,
    };
    let losses = if row.work.is_unsure { ctx.world.coverage.losses.as_ref() } else { None };
    let lost_at = losses.map(|it| it.last_at);
    let since = [lost_at, row.work.pulling_at].into_iter().flatten().fold(since, Timestamp::max);
    match ctx.after_cleanup(since, limit) {
        // A crash loop in its back-off is not a candidate.
        Verdict::Candidate { until } => Verdict::Watched { until },
        other @ (Verdict::Watched { .. }
        | Verdict::Unsure
        | Verdict::Unverified
        | Verdict::Unlisted
        | Verdict::Confirmed
        | Verdict::Passing { .. }) => other,
    }
}

impl Explain for AbandonedSandbox {
    fn summary(&self) -> String {
        let container = self.container.as_deref().map_or_else(|| "its last container".into(), escaped);
        let mut text = format!("no container runs since {container} ended");
        if let Some(code) = self.exit_code {
            _ = write!(text, " with {code}");
        }
        text.push_str(", and nobody starts one or stops the sandbox");
        text
    }

    fn cause(&self) -> &'static str {
        "All containers of the pod have ended, and for longer than the kubelet's longest back-off (CrashLoopBackOff) no \
         container was made again and the sandbox was not stopped. Either the kubelet has lost track of the pod (its PLEG \
         missed the end of the container, or the pod's worker hangs), or each of its tries ends before the runtime makes \
         a container (ImagePullBackOff, CreateContainerConfigError)."
    }

    fn repair(&self, sandboxes: &[ContainerId], runtimes: &[String]) -> Vec<String> {
        let mut all = vec!["# What the runtime knows of the sandbox and its containers:".to_owned()];
        all.extend(asked(runtimes, "inspectp", sandboxes));
        all.extend(asked(runtimes, "ps --all --pod", sandboxes));
        all.push("# If kubectl describe pod shows no back-off, stop the sandbox: the kubelet then notices the pod.".to_owned());
        all.extend(stop_if_nothing_runs(runtimes, sandboxes));
        all
    }
}
