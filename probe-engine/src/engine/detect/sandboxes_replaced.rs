//! **Rule:** a runtime or a kubelet started, and within moments the runtime began to stop a sandbox that was
//! older than that start and in which nothing was wrong: its pause lived, its namespace existed, and one of
//! its containers ran. The same pod got another sandbox afterwards. All such sandboxes of one daemon are one
//! finding of the node.
//!
//! Not flagged: the drain of a node and any pod that is deleted, since the pod gets no other sandbox, or
//! comes again with the same UID and another cgroup, as a static pod does; a
//! restart that keeps the sandboxes; a reboot, since the sandboxes from before it ran in no time of this
//! boot; a pod that had completed or whose pause was killed (`duplicate_sandbox`, `teardown_out_of_order`).
//!
//! It is about the past, which no repair undoes, and closes after a while. If records were lost by the end of
//! a sandbox, an exit or a signal may be among them: such a sandbox opens no finding, and closes none.

use std::{collections::BTreeMap, time::Duration};

use super::{
    DetectContext, Detection, Verdict,
    index::Subjects,
    rule::{Judged, Part, Rule},
};
use crate::{
    engine::world::{
        lookup,
        table::sandbox::{LastStarted, Sandbox},
    },
    model::{
        fact::PodName,
        finding::{Explain, SandboxesReplaced, Severity},
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
    words::{
        count::counted,
        escape::escaped,
        shell::{in_journal, in_unit},
    },
};

/// How long the finding stays open after the daemon's start. The world remembers all of its evidence for
/// longer.
pub(super) const AFTERWARDS: Duration = Duration::from_secs(12 * 60);

/// The finding waits this long for further sandboxes, so that it is confirmed with their count.
pub(super) const SETTLE: Duration = Duration::from_secs(60);

/// At most this many pods are named, and their sandboxes shown as evidence.
const SHOWN: usize = 16;

/// A sandbox that was replaced.
#[derive(Debug, PartialEq)]
pub(super) struct Replaced {
    daemon: LastStarted,
    /// When the runtime began to stop it or its containers.
    at: Timestamp,
    pod: PodName,
    sandbox: ContainerId,
    /// No record about it is missing.
    is_known: bool,
}

impl Part for Replaced {
    fn due_at(&self) -> Option<Timestamp> {
        Some(self.daemon.at + AFTERWARDS)
    }

    fn makes_same(&self, other: &Self) -> bool {
        self == other
    }
}

impl Rule for SandboxesReplaced {
    type Subject = PodUid;
    type Part = Replaced;
    const SUBJECTS: Subjects<PodUid> = Subjects::UIDS;

    fn judge(ctx: &DetectContext<'_>, uid: &PodUid, found: &mut Vec<Replaced>) {
        let all: Vec<&Sandbox> =
            ctx.index.uids.by(uid).filter_map(|id| ctx.world.sandboxes.recall(id)).collect();
        let mut last: Option<Replaced> = None;
        for before in &all {
            let Some(it) = replaced(before) else { continue };
            let is_followed = all.iter().any(|after| {
                after.first_at > it.at && !lookup::sandbox::is_of_later_pod(ctx.world, before, after)
            });
            let is_later = last.as_ref().is_none_or(|last| it.at >= last.at);
            if is_followed && is_later && ctx.now < it.daemon.at + AFTERWARDS {
                last = Some(it);
            }
        }
        // A pod that was replaced more than once counts once.
        found.extend(last);
    }
}

fn replaced(row: &Sandbox) -> Option<Replaced> {
    let (daemon, at) = row.replaced_by()?;
    Some(Replaced {
        daemon: daemon.clone(),
        at,
        pod: row.reported.pod.clone(),
        sandbox: row.id.clone(),
        is_known: row.is_known() && !row.work.is_unsure,
    })
}

pub(super) fn gather(
    ctx: &DetectContext<'_>,
    judged: &Judged<SandboxesReplaced>,
    found: &mut Vec<Detection>,
) {
    let mut daemons: BTreeMap<&str, Vec<&Replaced>> = BTreeMap::new();
    for it in judged.parts() {
        daemons.entry(&it.daemon.comm).or_default().push(it);
    }
    for (daemon, mut all) in daemons {
        // Only the last start of a daemon counts.
        let started_at = all.iter().map(|it| it.daemon.at).max();
        all.retain(|it| Some(it.daemon.at) == started_at);
        let is_sure = all.iter().any(|it| it.is_known);
        if is_sure {
            all.retain(|it| it.is_known);
        }
        all.sort_by_key(|it| (it.at, &it.sandbox));
        found.extend(detection(ctx, daemon, &all, is_sure));
    }
}

fn detection(ctx: &DetectContext<'_>, daemon: &str, all: &[&Replaced], is_sure: bool) -> Option<Detection> {
    let (first, last) = all.first().zip(all.last())?;
    let shown = all.iter().take(SHOWN);
    let names = shown
        .clone()
        .filter_map(|it| Some(format!("{}/{}", it.pod.namespace.as_deref()?, it.pod.name.as_deref()?)));
    let kind = SandboxesReplaced {
        daemon: daemon.to_owned(),
        count: u32::try_from(all.len()).unwrap_or(u32::MAX),
        first: names.collect(),
    };
    let verdict = match last.at + SETTLE {
        _ if !is_sure => Verdict::Unsure,
        until if ctx.now < until => Verdict::Candidate { until: Some(until) },
        _ => Verdict::Passing { until: first.daemon.at + AFTERWARDS },
    };
    Some(Detection {
        sandboxes: shown.map(|it| it.sandbox.clone()).collect(),
        ..Detection::new(kind, &[daemon], Severity::Warning, first.at, verdict)
    })
}

impl Explain for SandboxesReplaced {
    fn summary(&self) -> String {
        format!(
            "the sandboxes of {} were replaced with nothing wrong in them, after {} started",
            counted(self.count.into(), "pod"),
            escaped(&self.daemon)
        )
    }

    fn cause(&self) -> &'static str {
        "The runtime or the kubelet had just started, and sandboxes of running pods were stopped and made anew \
         (SandboxChanged). Their pause and their containers ran, and no pod was deleted: at its start the runtime could \
         not take them up from its state and reported them as not ready (SANDBOX_NOTREADY), or the kubelet took them for \
         changed."
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        let mut all = vec![
            "# The pods run again. What the runtime and the kubelet said of their sandboxes:".to_owned(),
            in_journal("sandbox"),
        ];
        if self.daemon != "kubelet" {
            all.push(
                "# If shims or monitors ended with the runtime: its unit must end the runtime alone."
                    .to_owned(),
            );
            all.push("# KillMode=process and Delegate=yes do that:".to_owned());
            all.push(in_unit(&self.daemon));
        }
        all
    }

    fn forget_numbers(&mut self) {
        self.count = 0;
        self.first.clear();
    }

    fn shows_some(&self) -> bool {
        true
    }
}
