//! The families about the balance of CNI plugins.

use super::{Family, counter, gauge};

pub(crate) const ATTACHMENTS_ADDED: Family = counter(
    "sandprobe_cni_attachments_added_total",
    &["plugin", "network"],
    "Attachments of pods whose ADD succeeded, each sandbox and interface once between two DELs, since the first agent of this boot.",
)
.from("sched_process_exit");
pub(crate) const ATTACHMENTS_RELEASED: Family = counter(
    "sandprobe_cni_attachments_released_total",
    &["plugin", "network", "netns"],
    "Those of the attachments added that were released, each once, by whether the DEL that succeeded named a network \
     namespace.",
)
.from("sched_process_exit");
pub(crate) const ATTACHMENTS_UNVERIFIED: Family = counter(
    "sandprobe_cni_attachments_unverified_total",
    &["plugin", "network"],
    "Attachments released by a DEL without a network namespace whose addresses are not known to be freed. Absent until \
     the next boot if an earlier version of the agent, which did not count them, ran in this one.",
)
.from("the IPAM stores");
pub(crate) const ATTACHED_SANDBOXES: Family = counter(
    "sandprobe_cni_attached_sandboxes_total",
    &["plugin", "network"],
    "Sandboxes of pods with an attachment that was added, each once.",
)
.from("sched_process_exit");
pub(crate) const ATTACHED_PODS: Family = counter(
    "sandprobe_cni_attached_pods_total",
    &["plugin", "network"],
    "Pods with an attachment that was added, each once.",
)
.from("sched_process_exit");
pub(crate) const ATTACHMENTS: Family = gauge(
    "sandprobe_cni_attachments",
    &["plugin", "network", "state"],
    "Those of the attachments added that were not released, by state.",
);
