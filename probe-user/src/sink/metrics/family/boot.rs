//! The families of a node's recovery after a restart.

use super::{Family, counter, gauge};

pub(crate) const MILESTONE: Family = gauge(
    "sandprobe_node_boot_milestone_seconds",
    &["milestone"],
    "When this boot reached a milestone, from the kernel's start on; below zero: before it. Absent: not reached, or not \
     known.",
)
.unit("seconds")
.from("see docs/boot.md");
pub(crate) const PERIOD: Family = gauge(
    "sandprobe_node_boot_period_seconds",
    &["period"],
    "The periods of this boot, from the order of the restart on where that is known (docs/boot.md).",
)
.unit("seconds")
.from("see docs/boot.md");
pub(crate) const BOOT_CNI_LOST: Family = gauge(
    "sandprobe_node_boot_cni_lost_seconds",
    &[],
    "From the first CNI ADD of this boot that failed or hung to the first that did not, or until now (docs/boot.md).",
)
.unit("seconds");
pub(crate) const BOOT_CLOSED: Family = gauge(
    "sandprobe_node_boot_recovered",
    &[],
    "Whether the node's recovery after this boot is over: the last pod is back, or no pod came back for long enough.",
)
.unit("0 or 1");
pub(crate) const BOOT_TARGET: Family =
    gauge("sandprobe_node_boot_target_seconds", &[], "How long a recovery may take (--boot-target).")
        .unit("seconds");
pub(crate) const BOOT_LESS_NETWORK: Family = gauge(
    "sandprobe_node_boot_pods_with_less_network",
    &[],
    "Pods that run again after the restart and lack an interface that they had before (docs/boot.md).",
)
.unit("pods");
pub(crate) const BOOT_TARGET_MISSED: Family = gauge(
    "sandprobe_node_boot_target_missed",
    &[],
    "Whether this boot has taken longer than its target (docs/boot.md). 0 also while that is not known.",
)
.unit("0 or 1");
pub(crate) const BOOT_TIME: Family = gauge(
    "sandprobe_node_boot_time_seconds",
    &[],
    "When the node's kernel started, by the wall clock, since the epoch.",
)
.unit("seconds");
pub(crate) const BOOT_INFO: Family = gauge(
    "sandprobe_node_boot_info",
    &["boot_id", "recovered"],
    "Which boot this is, and by which rule its pods count as back; always 1.",
)
.from("/proc/sys/kernel/random/boot_id");
pub(crate) const DAEMON_RESTARTS: Family = counter(
    "sandprobe_node_daemon_restarts_total",
    &["daemon"],
    "Restarts of a runtime or of the kubelet alone, since the node's boot, as far as they were seen (docs/boot.md). A \
     daemon that ended again before it was ready counts once.",
)
.unit("restarts")
.from("see docs/boot.md");
pub(crate) const DAEMON_RESTART_PERIOD: Family = gauge(
    "sandprobe_node_daemon_restart_period_seconds",
    &["daemon", "period"],
    "The periods of the last restart of this daemon alone, from the end of its process on, and the whole until the node \
     was as before (docs/boot.md).",
)
.unit("seconds")
.from("see docs/boot.md");
pub(crate) const DAEMON_RESTART_PODS: Family = gauge(
    "sandprobe_node_daemon_restart_pods",
    &["daemon", "why"],
    "Pods that the last restart of this daemon alone held up: their start waited for it, or it gave them other sandboxes \
     (docs/boot.md).",
)
.unit("pods")
.from("see docs/boot.md");
