//! **Rule:** a runtime's event stream was open when a container or a sandbox started or ended, the runtime's
//! own list shows that it knows, and no event reported it within the grace period.
//!
//! Not flagged: what happened before the stream was open, or while it was closed or the runtime did not
//! answer; a runtime that offers no stream; what the runtime does not know itself (`stale_runtime_status`).
//! An event that comes late (`sandprobe_runtime_event_lag_seconds` measures that) ends the finding.
//!
//! It is about the past, and closes after a while.

use std::time::Duration;

use super::{DetectContext, Detection, Verdict, index::Subjects, rule::Rule};
use crate::{
    engine::world::lookup,
    model::{
        fact::{Role, RuntimeEventKind},
        finding::{Explain, MissedRuntimeEvent, Severity},
        id::ContainerId,
    },
    words::escape::escaped,
};

/// How long the finding stays open.
pub(super) const AFTERWARDS: Duration = Duration::from_secs(10 * 60);

impl Rule for MissedRuntimeEvent {
    type Subject = ContainerId;
    type Part = Detection;
    const SUBJECTS: Subjects<ContainerId> = Subjects::BELIEVED;

    fn judge(ctx: &DetectContext<'_>, id: &ContainerId, found: &mut Vec<Detection>) {
        let Some(row) = ctx.world.beliefs.get(id) else { return };
        let is_sandbox = row.role == Some(Role::Sandbox);
        let sandbox = if is_sandbox { Some(&row.id) } else { row.sandbox.as_ref() };
        for (event, at) in row.missed.iter().filter(|(_, at)| ctx.now < *at + AFTERWARDS) {
            let kind = Self {
                event: *event,
                id: id.clone(),
                is_sandbox,
                container: lookup::belief::name_of(ctx.world, row),
                runtime: row.socket.clone().unwrap_or_default(),
            };
            let verdict = Verdict::Passing { until: *at + AFTERWARDS };
            found.push(Detection {
                pod: sandbox.map(|id| lookup::record::pod_of_nameless(ctx.world, id)),
                sandboxes: sandbox.into_iter().cloned().collect(),
                ..Detection::new(kind, &[id.as_str(), (*event).into()], Severity::Warning, *at, verdict)
            });
        }
    }
}

impl Explain for MissedRuntimeEvent {
    fn summary(&self) -> String {
        let what = match &self.container {
            _ if self.is_sandbox => "the sandbox".to_owned(),
            Some(name) => format!("container {}", escaped(name)),
            None => "a container".to_owned(),
        };
        let happened = match self.event {
            RuntimeEventKind::Created | RuntimeEventKind::Started => "started",
            RuntimeEventKind::Stopped | RuntimeEventKind::Deleted => "ended",
        };
        format!("{what} {happened}, and the runtime sent no event")
    }

    fn cause(&self) -> &'static str {
        "The runtime dropped the event, or never made it. A kubelet that relies on events (EventedPLEG) learns of it only \
         when it lists all containers again, minutes later."
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        vec![
            "# Nothing on the node is to be repaired. Does the kubelet rely on events?".to_owned(),
            "grep -rs EventedPLEG /var/lib/kubelet/config.yaml /etc/kubernetes".to_owned(),
        ]
    }
}
