//! **Rule:** a sandbox is a duplicate in one of three forms. `concurrent`: it runs at the same time as
//! another sandbox of its pod. `after_completion`: it was made after all of its pod's containers had
//! completed, and no container ever started in it. `unused_rebuild`: after a sandbox that ran a container, it
//! is one of three within ten minutes that ran none. A container has completed if it exited 0. A sidecar has
//! completed if the runtime ended it after the last of the other containers had exited 0.
//!
//! Only sandboxes that got their network and a process count: if RunPodSandbox fails, the kubelet tries with
//! another sandbox, which is `cni_failing` or `stuck_start`. Sandboxes of CRI-O need no process. Not flagged:
//! a sandbox beside one whose runtime ended while it made that one (`world::abandoned`); a new sandbox after
//! a crash, a reboot or a change (a container starts in it); a pod that cannot pull its image (one sandbox);
//! a container that crashes again and again (in one sandbox); any sandbox that existed while records were
//! lost, or in which a container may have run whose files could not be read; a pod that was deleted and came
//! again with the same UID.
//!
//! An init container exits 0 as well. But the kubelet has a sandbox stopped only if its pod has completed, so
//! the rule demands that the runtime had begun to stop the earlier sandbox.
//!
//! `after_completion` and `unused_rebuild` are about the past, which no repair undoes. They close when
//! nothing of the kind happens any more, while the world still remembers all of their evidence. A row that is
//! forgotten closes nothing.

pub(super) mod burst;

use std::{collections::BTreeMap, time::Duration};

use super::{
    DetectContext, Detection, HasRun, Verdict,
    index::Subjects,
    rule::{Judged, Part, Rule},
};
use crate::{
    engine::world::{
        lookup::{self, rebuild::WINDOW},
        table::sandbox::{ContainerRun, Sandbox},
    },
    model::{
        finding::{Duplicate, DuplicateSandbox, Explain, Severity},
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
    words::shell::{asked, lines},
};

/// How long two sandboxes of a pod may live together: the runtime's answer to a stop can come after the next
/// start.
pub(super) const OVERLAP: Duration = Duration::from_secs(20);

/// How long a sandbox of a completed pod may exist before a finding opens.
pub(super) const IDLE: Duration = Duration::from_secs(20);

/// How long the finding stays open after the sandbox's end.
pub(super) const AFTERWARDS: Duration = Duration::from_secs(10 * 60);

/// This many within [`WINDOW`] make a finding.
pub(super) const REBUILDS: usize = 3;

impl Rule for DuplicateSandbox {
    type Subject = PodUid;
    type Part = (Duplicate, Detection);
    const SUBJECTS: Subjects<PodUid> = Subjects::UIDS;

    fn judge(ctx: &DetectContext<'_>, uid: &PodUid, found: &mut Vec<(Duplicate, Detection)>) {
        let all = ctx.index.uids.by(uid).filter_map(|id| ctx.world.sandboxes.recall(id));
        let mut connected: Vec<&Sandbox> =
            all.filter(|row| row.is_known() && ctx.is_connected(row) && ctx.was_made(row)).collect();
        connected.sort_by_key(|row| (row.first_at, &row.id));
        // Nothing shows afterwards whether a sandbox ran a container while records were lost.
        let whole: Vec<&Sandbox> = connected.iter().copied().filter(|row| !row.work.is_unsure).collect();
        found.extend(concurrent(ctx, &connected));
        found.extend(unused_rebuild(ctx, &whole));
        found.extend(after_completion(ctx, &whole));
    }
}

impl Part for (Duplicate, Detection) {
    fn due_at(&self) -> Option<Timestamp> {
        self.1.due_at()
    }
}

pub(super) fn gather(ctx: &DetectContext<'_>, judged: &Judged<DuplicateSandbox>, found: &mut Vec<Detection>) {
    let mut forms: BTreeMap<Duplicate, Vec<Detection>> = BTreeMap::new();
    for (form, it) in judged.parts() {
        forms.entry(*form).or_default().push(it.clone());
    }
    for (form, detections) in forms {
        burst::gather(ctx, form, detections, found);
    }
}

fn concurrent(ctx: &DetectContext<'_>, attempts: &[&Sandbox]) -> Option<(Duplicate, Detection)> {
    let live = attempts.iter().copied().filter(|row| {
        ctx.world.sandboxes.get(&row.id).is_some_and(|row| !row.is_stopped() && row.presence.is_alive())
            && !lookup::abandoned::may_be(ctx.world, &row.id)
    });
    let live: Vec<&Sandbox> = live.collect();
    let since = live.get(1)?.first_at;
    let it = DetectionParts { form: Duplicate::Concurrent, named: live[0], rows: &live, since };
    Some(detection(&it, ctx.after(since, OVERLAP)))
}

fn after_completion<'a>(
    ctx: &'a DetectContext<'_>,
    attempts: &'a [&'a Sandbox],
) -> impl Iterator<Item = (Duplicate, Detection)> + 'a {
    attempts.windows(2).filter_map(move |pair| {
        let [before, row] = pair else { return None };
        if !is_done(before, row.first_at)
            || ctx.has_run(row) != HasRun::No
            || lookup::sandbox::is_of_later_pod(ctx.world, before, row)
        {
            return None;
        }
        let reported_at = ctx.awake(row.first_at) + IDLE;
        let verdict = match row.over_at() {
            Some(at) if ctx.now >= at + AFTERWARDS => return None,
            Some(at) => Verdict::Passing { until: at + AFTERWARDS },
            None if ctx.now < reported_at => Verdict::Watched { until: Some(reported_at) },
            None => Verdict::Candidate { until: None },
        };
        let rows = [*before, *row];
        let it =
            DetectionParts { form: Duplicate::AfterCompletion, named: row, rows: &rows, since: row.first_at };
        Some(detection(&it, verdict))
    })
}

/// Whether all containers of a sandbox had completed before the runtime began to stop it, which was before
/// `by`. Containers that outlive their pause process are stopped whether they have completed or not.
fn is_done(row: &Sandbox, by: Timestamp) -> bool {
    let in_order = row.ending.stop_at.is_some_and(|at| at <= by);
    let by = row.ending.death.as_ref().map_or(by, |death| by.min(death.at));
    // For a container that was restarted, the last run counts.
    let mut last: BTreeMap<&str, &ContainerRun> = BTreeMap::new();
    for ran in row.containers() {
        last.insert(ran.name.as_deref().unwrap_or(ran.id.as_str()), ran);
    }
    let completed = last.values().filter(|ran| has_exited_0(ran, by)).filter_map(|ran| ran.ended);
    let completed = completed.filter(|ended| ended.stopped_at.is_none()).map(|ended| ended.at).max();
    in_order
        && !last.is_empty()
        && last.values().all(|ran| {
            has_exited_0(ran, by) || completed.is_some_and(|completed| is_sidecar(ran, completed, by))
        })
}

fn has_exited_0(ran: &ContainerRun, by: Timestamp) -> bool {
    ran.ended.is_some_and(|ended| ended.code == Some(0) && ended.at <= by)
}

/// Whether a container is a sidecar that the runtime ended because the last of the others had ended by itself
/// at `completed`. It must have run before that time: a container that began later followed an init
/// container.
fn is_sidecar(ran: &ContainerRun, completed: Timestamp, by: Timestamp) -> bool {
    ran.started_at < completed
        && ran.ended.is_some_and(|ended| ended.at <= by && ended.stopped_at >= Some(completed))
}

/// Detects an `unused_rebuild`. The key is the sandbox before the unused ones, which stays the same however
/// many follow. The finding lasts as long as the latest three were made within the window, and one of them
/// within the window before now.
fn unused_rebuild(ctx: &DetectContext<'_>, attempts: &[&Sandbox]) -> Option<(Duplicate, Detection)> {
    let used = attempts.iter().rposition(|row| ctx.has_run(row) != HasRun::No)?;
    let unused: Vec<&Sandbox> =
        attempts[used + 1..].iter().filter(|row| row.over_at().is_some()).copied().collect();
    let rows = unused.windows(REBUILDS).rev().find(|rows| {
        let [first, .., last] = rows else { return false };
        last.first_at.since(first.first_at) <= WINDOW
    })?;
    // A sandbox after the completion of its pod is an `after_completion`.
    if is_done(attempts[used], unused[0].first_at) {
        return None;
    }
    let until = rows[REBUILDS - 1].first_at + WINDOW;
    let it = DetectionParts {
        form: Duplicate::UnusedRebuild,
        named: attempts[used],
        rows: &unused,
        since: rows[0].first_at,
    };
    (ctx.now < until).then(|| detection(&it, Verdict::Passing { until }))
}

/// The parts of a detection.
struct DetectionParts<'a> {
    form: Duplicate,
    /// The sandbox that the key names: a pod's sandboxes can be duplicates more than once.
    named: &'a Sandbox,
    rows: &'a [&'a Sandbox],
    since: Timestamp,
}

fn detection(it: &DetectionParts<'_>, verdict: Verdict) -> (Duplicate, Detection) {
    let pod = it.rows.last().map(|row| row.reported.pod.clone());
    let uid = pod.as_ref().and_then(|pod| pod.uid.as_ref()).map_or("", |uid| uid.as_str());
    let kind = DuplicateSandbox { form: it.form, count: 1 };
    let parts = [it.form.into_str(), uid, it.named.id.as_str()];
    let detection = Detection::new(kind, &parts, Severity::Warning, it.since, verdict);
    let sandboxes = it.rows.iter().map(|row| row.id.clone()).collect();
    (it.form, Detection { pod, sandboxes, ..detection })
}

impl Explain for DuplicateSandbox {
    fn summary(&self) -> String {
        let text = match self.form {
            Duplicate::Concurrent => "two sandboxes of the pod live at once",
            Duplicate::AfterCompletion => "a sandbox was made after the pod was done",
            Duplicate::UnusedRebuild => "sandboxes are made again and again and run no container",
        };
        if self.count > 1 { format!("{text} ({} pods at once)", self.count) } else { text.to_owned() }
    }

    fn cause(&self) -> &'static str {
        match self.form {
            Duplicate::Concurrent => "Two sandboxes of one pod have their network at the same time.",
            Duplicate::AfterCompletion => {
                "All containers of the pod had ended with success, and the kubelet made another sandbox, in which no \
                 container ever ran. It takes an address, and its teardown differs from that of the first sandbox."
            }
            Duplicate::UnusedRebuild => {
                "After a sandbox that ran containers, several sandboxes were made for the pod in which no container ran."
            }
        }
    }

    fn repair(&self, sandboxes: &[ContainerId], runtimes: &[String]) -> Vec<String> {
        let mut all = lines(&[
            "# The kubelet removes the extra sandbox by itself. If it stays, see which sandbox runs the pod's containers,",
            "# and stop the other one. Do not use crictl's --force: without it crictl removes no running sandbox.",
        ]);
        all.extend(asked(runtimes, "inspectp", sandboxes));
        all
    }

    fn forget_numbers(&mut self) {
        self.count = 0;
    }
}
