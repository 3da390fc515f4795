//! **Rule:** the runtime called DEL for a sandbox and an interface while an ADD of both was still running; or
//! after the last ADD of both was killed before it could answer; or with the node's own network namespace, or
//! one that is another living sandbox's.
//!
//! While a plugin hangs, the ADD of each try is killed. So DELs after such an ADD are one finding for each
//! plugin.
//!
//! Not flagged: a DEL after an ADD that failed by itself, which cleans up; a DEL while the ADD of another
//! interface or sandbox runs; a DEL without a namespace; a call that a plugin makes or that was found
//! running; a sandbox about which records are missing by then, since the end of the ADD may be among them.
//!
//! It is about the past, and closes after a while.

use std::{collections::BTreeMap, time::Duration};

use super::{
    DetectContext, Detection, Verdict,
    index::Subjects,
    rule::{Judged, Part, Rule},
};
use crate::{
    engine::world::table::attachment::Attachment,
    model::{
        fact::PodName,
        finding::{CniWrongDel, Explain, Severity, Thing, WrongDelForm},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        count::counted,
        escape::escaped,
        shell::{UNPRINTABLE, cni_in_journal, quoted},
    },
};

/// After this time the agent knows whether records were lost at the time of the DEL.
pub(super) const SETTLE: Duration = Duration::from_secs(10);

/// How long the finding stays open.
pub(super) const AFTERWARDS: Duration = Duration::from_secs(10 * 60);

/// How many sandboxes, the latest ones, are named.
const SHOWN: usize = 16;

/// A wrong DEL.
#[derive(PartialEq)]
pub(super) struct Wrong {
    at: Timestamp,
    sandbox: ContainerId,
    pod: PodName,
    finding: CniWrongDel,
    /// The sandbox whose network namespace the DEL was given.
    other: Option<ContainerId>,
    severity: Severity,
    verdict: Verdict,
}

impl Rule for CniWrongDel {
    type Subject = ContainerId;
    type Part = Wrong;
    const SUBJECTS: Subjects<ContainerId> = Subjects::sandboxes(|ctx| {
        let rows = ctx.world.attachments.values().filter(|row| row.wrong_del.is_some());
        rows.map(|row| row.container.clone()).collect()
    });

    fn judge(ctx: &DetectContext<'_>, id: &ContainerId, found: &mut Vec<Wrong>) {
        found.extend(ctx.world.attachments.of(id).filter_map(|row| wrong(ctx, row)));
    }
}

impl Part for Wrong {
    fn due_at(&self) -> Option<Timestamp> {
        self.verdict.due_at()
    }

    fn makes_same(&self, other: &Self) -> bool {
        self == other
    }
}

fn wrong(ctx: &DetectContext<'_>, row: &Attachment) -> Option<Wrong> {
    let wrong = row.wrong_del.as_ref()?;
    if ctx.now >= wrong.at + AFTERWARDS {
        return None;
    }
    // After a reboot the sandbox has no row.
    let sandbox = ctx.world.sandboxes.recall(&row.container);
    let is_known = sandbox.map_or(!row.gapped, |sandbox| sandbox.is_known_until(wrong.at));
    let settled = wrong.at + SETTLE;
    let verdict = if !is_known {
        Verdict::Unsure
    } else if ctx.now < settled {
        Verdict::Watched { until: Some(settled) }
    } else {
        Verdict::Passing { until: wrong.at + AFTERWARDS }
    };
    Some(Wrong {
        at: wrong.at,
        sandbox: row.container.clone(),
        pod: sandbox.map_or(&row.pod, |sandbox| &sandbox.reported.pod).clone(),
        finding: wrong.finding.clone(),
        other: wrong.other.clone(),
        severity: if wrong.by_restart { Severity::Info } else { Severity::Warning },
        verdict,
    })
}

pub(super) fn gather(_ctx: &DetectContext<'_>, judged: &Judged<CniWrongDel>, found: &mut Vec<Detection>) {
    let mut killed: BTreeMap<&str, Vec<&Wrong>> = BTreeMap::new();
    for it in judged.parts() {
        match it.finding.how {
            WrongDelForm::AddKilled => killed.entry(&it.finding.plugin).or_default().push(it),
            WrongDelForm::AddOpen | WrongDelForm::ForeignNetns | WrongDelForm::NodeNetns => {
                let parts = [it.sandbox.as_str(), &it.finding.ifname];
                found.push(detection(it.finding.clone(), parts, it.severity, &[it]));
            }
        }
    }
    for (plugin, mut all) in killed {
        all.sort_by_key(|it| (it.at, &it.sandbox));
        found.extend(after_killed(plugin, &all));
    }
}

/// Joins the DELs (the oldest first) after ADDs of one plugin that were killed.
fn after_killed(plugin: &str, all: &[&Wrong]) -> Option<Detection> {
    // A DEL that is not judged yet does not count beside judged ones.
    let mut judged = all.to_vec();
    judged.retain(|it| matches!(it.verdict, Verdict::Passing { .. }));
    if judged.is_empty() {
        judged = all.to_vec();
    }
    let last = judged.last()?;
    let count = u32::try_from(judged.len()).unwrap_or(u32::MAX);
    let addresses = judged.iter().rev().flat_map(|it| &it.finding.addresses).take(SHOWN).copied().collect();
    let kind = CniWrongDel { count, addresses, ..last.finding.clone() };
    let severity = judged.iter().map(|it| it.severity).max()?;
    Some(detection(kind, [plugin, WrongDelForm::AddKilled.into_str()], severity, &judged))
}

/// Makes one detection of these DELs, the oldest first.
fn detection(kind: CniWrongDel, parts: [&str; 2], severity: Severity, all: &[&Wrong]) -> Detection {
    let shown = all.get(all.len().saturating_sub(SHOWN)..).unwrap_or_default();
    let since = all.first().map_or(Timestamp::ZERO, |it| it.at);
    let verdict = all.iter().map(|it| it.verdict).min_by_key(|it| it.due_at()).unwrap_or(Verdict::Unsure);
    Detection {
        pod: if let [only] = all { Some(only.pod.clone()) } else { None },
        sandboxes: shown.iter().flat_map(|it| [&it.sandbox].into_iter().chain(&it.other)).cloned().collect(),
        ..Detection::new(kind, &parts, severity, since, verdict)
    }
}

impl Explain for CniWrongDel {
    fn summary(&self) -> String {
        let plugin = escaped(&self.plugin);
        let ifname = escaped(&self.ifname);
        let netns = escaped(self.netns.as_deref().unwrap_or_default());
        match self.how {
            WrongDelForm::AddOpen => format!("DEL of {plugin} began while the ADD of {ifname} was running"),
            WrongDelForm::AddKilled => {
                let sandboxes = counted(self.count.into(), "sandbox");
                format!("ADD of {plugin} was killed before it answered, and DEL followed, for {sandboxes}")
            }
            WrongDelForm::ForeignNetns => {
                format!("DEL of {plugin} was given the network namespace of another sandbox, {netns}")
            }
            WrongDelForm::NodeNetns => {
                format!("DEL of {plugin} was given the node's own network namespace, {netns}")
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
                 (RunPodSandbox) was over, and the runtime then called DEL. A kill ends the plugin alone: a program that \
                 it runs, or the daemon that it asked, can go on after the DEL, and then an address stays allocated or an \
                 interface stays. Each further try can leave one more."
            }
            WrongDelForm::ForeignNetns => {
                "The runtime called DEL with a network namespace that belongs to another sandbox, as when the pid in \
                 /proc/PID/ns/net was used again. The plugin may have taken that sandbox's interface away."
            }
            WrongDelForm::NodeNetns => {
                "The runtime called DEL with a path that leads to the node's own network namespace, as when the pid in \
                 /proc/PID/ns/net was used again after a reboot. The plugin may have removed an interface, an address or a \
                 route of the node."
            }
        }
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        let mut all = match self.how {
            WrongDelForm::AddOpen | WrongDelForm::AddKilled => vec![
                "# What may be left of it, and which address it had:".to_owned(),
                "sandprobe findings --kind leaked_address --kind orphan_netns".to_owned(),
            ],
            WrongDelForm::ForeignNetns => vec![
                "# Whether the other pod still has its interface, its address and its routes:".to_owned(),
                self.netns.as_deref().and_then(quoted).map_or_else(
                    || UNPRINTABLE.to_owned(),
                    |netns| format!("nsenter --net={netns} sh -c 'ip address; ip route'"),
                ),
            ],
            WrongDelForm::NodeNetns => vec![
                "# Whether the node still has its interfaces, addresses and routes:".to_owned(),
                "ip address; ip route".to_owned(),
            ],
        };
        all.extend(cni_in_journal());
        all
    }

    fn forget_numbers(&mut self) {
        self.count = 1;
        self.addresses = Vec::new();
    }

    fn shows_some(&self) -> bool {
        self.how == WrongDelForm::AddKilled
    }

    fn named(&self) -> Vec<Thing<'_>> {
        let addresses = self.addresses.iter().copied().map(Thing::Address);
        [Thing::Plugin(&self.plugin)].into_iter().chain(addresses).collect()
    }
}
