//! **Rule:** a call of a plugin by the runtime, ADD or DEL, runs for longer than the limit, or did in the last ten
//! minutes.
//!
//! Not flagged: an ADD that ran for long and failed, or that is tried again after one that failed (`cni_failing`); what
//! plugins call themselves (it is part of their own time); a call whose end may have been among lost records, until a
//! listing shows that it still runs; the time in which the node was suspended, and what the call had run before.

use std::{cell::OnceCell, collections::BTreeMap, time::Duration};

use super::{DetectContext, Detection, Verdict, cni_failing};
use crate::{
    engine::world::{
        attachment::{Attachment, LATELY, Plugin, Runs},
        call::Call,
    },
    model::{
        fact::{List, Origin, PodName},
        finding::{Key, Kind, Severity},
        id::ContainerId,
        time::Timestamp,
    },
};

/// So many sandboxes, those whose calls took longest, are shown as evidence.
const SHOWN: usize = 16;

/// Of a call that only a listing showed nothing tells when it ends: its program began before the hooks were there.
fn is_judged(call: &&Call) -> bool {
    call.top && is_operation(&call.call.command) && call.origin != Origin::Listed
}

/// A call that takes, or took, long.
struct Slow<'a> {
    took: Duration,
    since: Timestamp,
    /// Until when it is told of; none while it runs.
    until: Option<Timestamp>,
    pod: &'a PodName,
    container: Option<&'a ContainerId>,
    gapped: bool,
}

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    let mut slow: BTreeMap<(&str, &str), Vec<Slow<'_>>> = BTreeMap::new();
    for row in ctx.world.attachments.values() {
        for (plugin, command, runs) in row.plugins.iter().flat_map(runs_of) {
            if let Some(it) = finished(ctx, row, runs) {
                slow.entry((&plugin.name, command)).or_default().push(it);
            }
        }
    }
    // What has not run for long yet, by when the first of it will have.
    let mut next: Option<Timestamp> = None;
    let failed = OnceCell::new();
    for call in ctx.world.calls.values().filter(is_judged) {
        let (plugin, command) = (call.call.plugin.as_str(), call.call.command.as_str());
        let all_failed = || failed.get_or_init(|| cni_failing::all_failed(ctx.world));
        if command == "ADD" && all_failed().contains(&(&call.pod, plugin)) {
            continue;
        }
        let due = ctx.awake(call.at) + ctx.limits.cni_slow;
        if ctx.now < due {
            next = next.into_iter().chain([due]).min();
            continue;
        }
        slow.entry((plugin, command)).or_default().push(Slow {
            took: ctx.world.awake_for(call.at, ctx.now),
            since: call.at,
            until: None,
            pod: &call.pod,
            container: call.container.as_ref(),
            gapped: ctx.world.is_gapped(List::Processes),
        });
    }
    for ((plugin, command), all) in slow {
        found.extend(detection(plugin, command, all));
    }
    found.extend(next.map(watched));
}

fn runs_of(plugin: &Plugin) -> [(&Plugin, &'static str, &Runs); 3] {
    [(plugin, "ADD", &plugin.add), (plugin, "DEL", &plugin.del), (plugin, "DEL", &plugin.blind)]
}

fn finished<'a>(ctx: &DetectContext<'_>, row: &'a Attachment, runs: &Runs) -> Option<Slow<'a>> {
    let until = runs.longest_at + LATELY;
    let is_slow = runs.longest >= ctx.limits.cni_slow && runs.longest > Duration::ZERO && ctx.now < until;
    is_slow.then(|| Slow {
        took: runs.longest,
        since: runs.longest_at.saturating_sub(runs.longest),
        until: Some(until),
        pod: &row.pod,
        container: Some(&row.container),
        gapped: false,
    })
}

fn is_operation(command: &str) -> bool {
    matches!(command, "ADD" | "DEL")
}

fn detection(plugin: &str, command: &str, mut all: Vec<Slow<'_>>) -> Option<Detection> {
    all.sort_by_key(|it| (it.took, it.container));
    let worst = all.last()?;
    let kind = Kind::CniSlow {
        plugin: plugin.to_owned(),
        command: command.to_owned(),
        took: worst.took,
        open: worst.until.is_none(),
    };
    let mut sandboxes: Vec<ContainerId> = Vec::new();
    for id in all.iter().rev().filter_map(|it| it.container) {
        if !sandboxes.contains(id) && sandboxes.len() < SHOWN {
            sandboxes.push(id.clone());
        }
    }
    let pod = Some(worst.pod.clone()).filter(|pod| *pod != PodName::default());
    let is_sure = all.iter().any(|it| !it.gapped);
    let standing = match all.iter().filter_map(|it| it.until).max() {
        _ if !is_sure => Verdict::Watched { until: None },
        Some(until) => Verdict::Passing { until },
        None => Verdict::Confirmed,
    };
    Some(Detection {
        key: Key::new(kind.into_str(), &[plugin, command]),
        kind,
        severity: Severity::Warning,
        since: all.iter().map(|it| it.since).min()?,
        pod,
        sandboxes,
        gapped: all.iter().any(|it| it.gapped),
        standing,
    })
}

/// Nothing yet, and to be looked at again then. It has a key of its own, so that it keeps no other one open.
fn watched(until: Timestamp) -> Detection {
    let kind =
        Kind::CniSlow { plugin: String::new(), command: String::new(), took: Duration::ZERO, open: true };
    Detection {
        key: Key::new(kind.into_str(), &[""]),
        kind,
        severity: Severity::Info,
        since: until,
        pod: None,
        sandboxes: Vec::new(),
        gapped: false,
        standing: Verdict::Watched { until: Some(until) },
    }
}
