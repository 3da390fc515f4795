//! **Rule:** the last reference to a network namespace is gone, and for a while the kernel has finished
//! neither its teardown nor that of any other namespace.
//!
//! The kernel tears down namespaces batch by batch, in one queue. The finding names the namespace that has
//! waited longest, with the number of those behind it.
//!
//! Not flagged: a queue that is long but moves; any namespace if no hook sees the end of a teardown; a
//! namespace that existed while records were lost, since the record of its end may be among them; a namespace
//! whose drop no hook saw (netlink reported it, or a listing did not have it); a namespace whose successors
//! in the queue are done, since the kernel works in order.

use std::{fmt::Write as _, time::Duration};

use super::{DetectContext, Detection, Verdict};
use crate::{
    engine::world::table::netns::{Netns, SAME_BATCH, State, passed_at},
    model::{
        fact::Signal,
        finding::{Explain, Severity, StuckNetnsTeardown},
        id::ContainerId,
        time::Timestamp,
    },
    words::{shell::lines, span::span},
};

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    let attached = ctx.world.coverage.attached.get(&Signal::NetnsFreed);
    if attached.is_none_or(|attached| attached.mechanism.is_none()) {
        return;
    }
    let rows = ctx.index.ending.iter().filter_map(|life| ctx.world.netns.get(*life));
    let passed = passed_at(rows.clone());
    let mut dying: Vec<(Timestamp, &Netns)> = rows
        .clone()
        .filter_map(|row| Some((row.ending_since()?, row)))
        .filter(|(at, _)| passed.is_none_or(|passed| *at + SAME_BATCH >= passed))
        .collect();
    dying.sort_by_key(|(at, row)| (*at, row.life));
    let Some(((since, row), behind)) = dying.split_first() else { return };
    let freed = rows.filter_map(freed_at).max();
    let until = ctx.awake(freed.unwrap_or(*since).max(*since)) + ctx.limits.stuck_after;
    let kind = StuckNetnsTeardown {
        netns: row.key,
        held: ctx.world.awake_for(*since, ctx.now),
        waiting: u32::try_from(behind.len()).unwrap_or(u32::MAX),
    };
    let parts = [row.key.inode.to_string(), row.key.cookie.to_string()];
    let verdict = if ctx.now < until { Verdict::Watched { until: Some(until) } } else { Verdict::Confirmed };
    found.push(Detection {
        pod: row
            .sandbox
            .as_ref()
            .and_then(|id| ctx.world.sandboxes.recall(id))
            .map(|row| row.reported.pod.clone()),
        sandboxes: row.sandbox.iter().cloned().collect(),
        ..Detection::new(kind, &[&parts[0], &parts[1]], Severity::Warning, *since, verdict)
    });
}

fn freed_at(row: &Netns) -> Option<Timestamp> {
    match row.state {
        State::Freed { at } => Some(at),
        State::Live | State::Dropped { .. } => None,
    }
}

impl Explain for StuckNetnsTeardown {
    fn summary(&self) -> String {
        let mut text =
            format!("teardown of netns {} has not ended for {}", self.netns.inode, span(self.held));
        match self.waiting {
            0 => {}
            1 => text.push_str(", 1 other waits behind it"),
            many => _ = write!(text, ", {many} others wait behind it"),
        }
        text
    }

    fn cause(&self) -> &'static str {
        "The last reference to the network namespace is gone, and the kernel has not finished its teardown. One \
         worker of the kernel tears down all network namespaces, so others wait behind this one."
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        lines(&[
            "# \"waiting for DEV to become free\" names a leaked device; the stack shows where the kernel's worker waits.",
            "dmesg | grep -F 'unregister_netdevice: waiting for'",
            "grep -l cleanup_net /proc/[0-9]*/stack 2>/dev/null | while read -r it; do cat \"$it\"; done",
        ])
    }

    fn forget_numbers(&mut self) {
        (self.held, self.waiting) = (Duration::ZERO, 0);
    }
}
