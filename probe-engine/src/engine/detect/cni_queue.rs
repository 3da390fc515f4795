//! **Rule:** the runtime has as many plugins running at once as the limit says, and the oldest has run for
//! more than five seconds.
//!
//! Plugins wait for each other's locks: host-local locks its network's store, iptables its tables, ipamd its
//! pool. A node that starts many pods has many running plugins. It is a queue only if the oldest of them does
//! not end.
//!
//! Not flagged: plugins that another plugin called (they would count one operation several times); calls
//! whose end may be among lost records, until a listing shows that they still run.

use std::time::Duration;

use super::{DetectContext, Detection, Verdict};
use crate::{
    engine::world::table::call::Call,
    model::{
        fact::{List, Origin},
        finding::{CniQueue, Explain, Severity, Thing},
        id::ContainerId,
    },
    words::{count::counted, escape::escaped, shell::cni_in_journal, span::span},
};

/// Up to this age the oldest plugin may simply be at work.
pub(super) const OLD: Duration = Duration::from_secs(5);

/// How many sandboxes, those that have waited longest, are shown as evidence.
const SHOWN: usize = 16;

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    let mut open: Vec<&Call> =
        ctx.world.calls.values().filter(|call| call.top && call.origin != Origin::Listed).collect();
    let waiting = u32::try_from(open.len()).unwrap_or(u32::MAX);
    open.sort_by_key(|call| (call.at, call.call.process.key));
    if waiting < ctx.limits.cni_queue {
        return;
    }
    let Some(oldest) = open.first() else { return };
    let gapped = ctx.world.lists.is_gapped(List::Processes);
    let until = ctx.awake(oldest.at) + OLD;
    let verdict = if gapped {
        Verdict::Watched { until: None }
    } else if ctx.now < until {
        Verdict::Watched { until: Some(until) }
    } else {
        Verdict::Confirmed
    };
    let kind = CniQueue {
        waiting,
        oldest: ctx.world.awake_for(oldest.at, ctx.now),
        plugin: oldest.call.plugin.clone(),
    };
    found.push(Detection {
        sandboxes: open.iter().filter_map(|call| call.container.clone()).take(SHOWN).collect(),
        gapped,
        ..Detection::new(kind, &["node"], Severity::Warning, oldest.at, verdict)
    });
}

impl Explain for CniQueue {
    fn summary(&self) -> String {
        let Self { waiting, oldest, plugin } = self;
        let plugins = counted((*waiting).into(), "CNI plugin");
        let run = if *waiting == 1 { "runs" } else { "run" };
        format!("{plugins} {run} at once, the oldest ({}) for {}", escaped(plugin), span(*oldest))
    }

    fn cause(&self) -> &'static str {
        "CNI plugins wait for each other, most often for one lock."
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        cni_in_journal()
    }

    fn forget_numbers(&mut self) {
        *self = Self { waiting: 0, oldest: Duration::ZERO, plugin: String::new() };
    }

    fn shows_some(&self) -> bool {
        true
    }

    fn named(&self) -> Vec<Thing<'_>> {
        vec![Thing::Plugin(&self.plugin)]
    }
}
