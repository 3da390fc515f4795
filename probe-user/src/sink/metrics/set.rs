//! The closed sets of label values.

use strum::VariantNames;

use crate::model::{fact::Loss, finding::Stage};

/// The value if none is known.
pub(super) const UNKNOWN: &str = "unknown";

/// The stages of open findings. A closed finding is in no series.
pub(super) const STAGES: &[&str] = Stage::VARIANTS.split_last().expect("there are stages").1;
/// Whether a finding is the first of its incident, or an effect of another one.
pub(super) const ROLES: [&str; 2] = ["root", "effect"];
pub(super) const EXITS: [&str; 4] = ["success", "error", "signal", "oom"];
pub(super) const COMPARABLE: [&str; 2] = ["true", "false"];
pub(super) const KNOWN: [&str; 2] = ["true", "false"];
pub(super) const OPERATIONS: [&str; 5] = ["ADD", "DEL", "CHECK", "GC", "other"];
pub(super) const SANDBOX_STATES: [&str; 3] = ["created", "ready", "stopped"];
pub(super) const ALLOCATION_STATES: [&str; 4] = ["in_use", "pending_cleanup", "leak_candidate", "leaked"];
/// The states of attachments that were not released.
pub(super) const ATTACHMENT_STATES: [&str; 4] = ["live", "ended", "unreleased", "unknown"];
/// Whether a DEL named a network namespace.
pub(super) const DEL_NETNS: [&str; 2] = ["named", "empty"];
/// The rings, whose own counters give their losses by kind of record.
pub(super) const RINGS: [&str; 2] = ["lifecycle", "bulk"];
/// The other places of losses.
pub(super) const LOSSES: [&str; 4] = ["netlink_socket", "record", "channel", "skipped_run"];
/// Each period is from the milestone before it; the first and `whole` are from the order of the restart.
pub(super) const PERIODS: [&str; 5] = ["kubelet_start", "static_pod", "first_pod", "last_pod", "whole"];
/// The periods of a restart of a daemon alone.
pub(super) const RESTART_PERIODS: [&str; 5] = ["start", "ready", "first_pod", "as_before", "whole"];
/// Why a restart held a pod up.
pub(super) const HELD: [&str; 2] = ["waited", "replaced"];

/// All combinations of one value from each set, in order.
pub(super) fn all(sets: &[&[&'static str]]) -> Vec<Vec<&'static str>> {
    let mut rows = vec![Vec::new()];
    for set in sets {
        let mut longer = Vec::with_capacity(rows.len() * set.len());
        for row in &rows {
            longer.extend(set.iter().map(|value| [&row[..], &[*value]].concat()));
        }
        rows = longer;
    }
    rows
}

pub(super) fn operation(command: &str) -> &'static str {
    OPERATIONS.into_iter().find(|known| *known == command).unwrap_or("other")
}

pub(super) fn lost_in(what: Loss) -> &'static str {
    match what {
        Loss::LifecycleRing => "lifecycle",
        Loss::BulkRing => "bulk",
        Loss::NetlinkSocket
        | Loss::Record
        | Loss::Channel
        | Loss::SkippedRun
        | Loss::NoAgent
        | Loss::State => what.into_str(),
    }
}

pub(super) fn role(is_effect: bool) -> &'static str {
    let [root, effect] = ROLES;
    if is_effect { effect } else { root }
}

pub(super) fn yes(is_so: bool) -> &'static str {
    if is_so { "true" } else { "false" }
}
