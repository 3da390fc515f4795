//! **Rule:** the runtime called DEL for a sandbox and an interface while an ADD of both was still running; or after the
//! last ADD of both was killed before it could answer; or with a network namespace that is another living sandbox's.
//!
//! Not flagged: a DEL after an ADD that failed by itself, which cleans up; a DEL while the ADD of another interface or
//! sandbox runs; a DEL without a namespace; a call that a plugin makes or that was found running; a sandbox about which
//! records are missing by then, since the end of the ADD may be among them.
//!
//! It is about the past, and closes after a while.

use std::{collections::BTreeSet, time::Duration};

use super::{DetectContext, Detection, Verdict, index::Marks, rule::Rule};
use crate::{
    model::{
        finding::{CniWrongDel, Explain, Key, Kind, Severity, WrongDelForm},
        id::ContainerId,
    },
    words::{escape::escaped, shell::cni_in_journal},
};

/// By then the agent knows whether records of that time were lost.
pub(super) const SETTLE: Duration = Duration::from_secs(10);
/// How long the finding stays open.
pub(super) const AFTERWARDS: Duration = Duration::from_secs(10 * 60);

impl Rule for CniWrongDel {
    type Subject = ContainerId;
    type Part = Detection;

    fn subjects(ctx: &DetectContext<'_>) -> BTreeSet<ContainerId> {
        ctx.world.sandboxes.all().map(|row| row.id.clone()).collect()
    }

    fn marked(marks: &Marks) -> &BTreeSet<ContainerId> {
        &marks.sandboxes
    }

    fn judge(ctx: &DetectContext<'_>, id: &ContainerId, found: &mut Vec<Detection>) {
        let Some(row) = ctx.world.sandboxes.recall(id) else { return };
        let Some(wrong) = &row.ending.wrong_del else { return };
        if ctx.now >= wrong.at + AFTERWARDS {
            return;
        }
        let settled = wrong.at + SETTLE;
        let verdict = if !row.is_known_until(wrong.at) {
            Verdict::Unsure
        } else if ctx.now < settled {
            Verdict::Watched { until: Some(settled) }
        } else {
            Verdict::Passing { until: wrong.at + AFTERWARDS }
        };
        let it = wrong.finding.clone();
        let severity = match it.how {
            WrongDelForm::AddKilled => Severity::Info,
            WrongDelForm::AddOpen | WrongDelForm::ForeignNetns => Severity::Warning,
        };
        let ifname = it.ifname.clone();
        let kind = Kind::from(it);
        found.push(Detection {
            key: Key::new(kind.into_str(), &[row.id.as_str(), &ifname]),
            kind,
            severity,
            since: wrong.at,
            pod: Some(row.reported.pod.clone()),
            sandboxes: vec![row.id.clone()],
            gapped: false,
            verdict,
        });
    }
}

impl Explain for CniWrongDel {
    fn summary(&self) -> String {
        let (plugin, ifname) = (escaped(&self.plugin), escaped(&self.ifname));
        match self.how {
            WrongDelForm::AddOpen => format!("DEL of {plugin} began while the ADD of {ifname} was running"),
            WrongDelForm::AddKilled => format!("DEL of {plugin} after the ADD of {ifname} was killed"),
            WrongDelForm::ForeignNetns => {
                let netns = escaped(self.netns.as_deref().unwrap_or_default());
                format!("DEL of {plugin} was given the network namespace of another sandbox, {netns}")
            }
        }
    }

    fn cause(&self) -> &'static str {
        match self.how {
            WrongDelForm::AddOpen => {
                "The runtime called DEL while the ADD of the same sandbox and interface had not ended: it was restarted, or \
                 gave the ADD up. What the ADD does after the DEL is never undone, so an address or an interface may stay."
            }
            WrongDelForm::AddKilled => {
                "The ADD was killed before it could answer, most often when the time of the kubelet's request \
                 (RunPodSandbox) was over, and the runtime then called DEL. The plugin may have left what DEL does not \
                 know of."
            }
            WrongDelForm::ForeignNetns => {
                "The runtime called DEL with a network namespace that belongs to another sandbox, as when the pid in \
                 /proc/PID/ns/net was used again. The plugin may have taken that sandbox's interface away."
            }
        }
    }

    fn known(&self) -> &'static [&'static str] {
        &["the order of ADD and DEL for one container: https://www.cni.dev/docs/spec/#cni-operations"]
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        let mut all = vec![
            "# What may be left of it, and which address it had:".to_owned(),
            "sandprobe findings --kind leaked_address".to_owned(),
        ];
        all.extend(cni_in_journal());
        all
    }
}
