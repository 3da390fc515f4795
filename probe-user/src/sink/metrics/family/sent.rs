//! The families about data that is sent to other machines: to the API server of the cluster, and to an OTLP
//! receiver.

use super::{Family, counter, gauge};

pub(crate) const KUBERNETES_REQUESTS: Family = counter(
    "sandprobe_kubernetes_requests_total",
    &["what", "result"],
    "Requests to the API server for Events, the node's condition, and whose an address is: done; gone, because the pod's namespace, \
     the Event or the handle of the address is no more; refused, because the agent may not or the API server does not take it; \
     failed, because it was not reached. Only with --kubernetes-events, --kubernetes-condition or --kubernetes-ipam.",
);
pub(crate) const KUBERNETES_WAITING: Family = gauge(
    "sandprobe_kubernetes_events_waiting",
    &[],
    "Findings without an Event because there are many (at most ten Events a minute are begun, and ten of a kind stand on the node \
     at one time), or because the API server is away.",
);
pub(crate) const OTLP_EXPORTED: Family = counter(
    "sandprobe_otlp_exported_total",
    &["signal"],
    "Spans (traces) and log records (logs) that the receiver of --otlp has taken.",
);
pub(crate) const OTLP_DROPPED: Family = counter(
    "sandprobe_otlp_dropped_total",
    &["signal", "reason"],
    "Spans and log records that did not reach the receiver of --otlp: newer ones needed their room (queue_full), it was not to be reached for 10 minutes (expired), it refused the request (refused) or these alone (rejected), the trace was longer than a receiver takes (too_large), or sandprobe ended (ended).",
);
pub(crate) const OTLP_FAILED: Family = counter(
    "sandprobe_otlp_requests_failed_total",
    &["signal", "reason"],
    "Requests to the receiver of --otlp that failed, with those that were tried again, by reason (docs/otlp.md).",
);
pub(crate) const OTLP_SUCCEEDED: Family = gauge(
    "sandprobe_otlp_last_success_timestamp_seconds",
    &["signal"],
    "When the receiver of --otlp last took a request; absent until it did.",
)
.unit("seconds since the epoch");
