//! The table of all metric families: name, labels, unit, meaning and source. The registry and
//! `docs/metrics.md` are made from it.

mod balance;
mod boot;
mod sent;

use super::label::PodLabel;
pub(crate) use balance::{
    ATTACHED_PODS, ATTACHED_SANDBOXES, ATTACHMENTS, ATTACHMENTS_ADDED, ATTACHMENTS_RELEASED,
    ATTACHMENTS_UNVERIFIED,
};
pub(crate) use boot::{
    BOOT_CLOSED, BOOT_CNI_LOST, BOOT_INFO, BOOT_LESS_NETWORK, BOOT_TARGET, BOOT_TARGET_MISSED, BOOT_TIME,
    DAEMON_RESTART_PERIOD, DAEMON_RESTART_PODS, DAEMON_RESTARTS, MILESTONE, PERIOD,
};
pub(crate) use sent::{
    KUBERNETES_REQUESTS, KUBERNETES_WAITING, OTLP_DROPPED, OTLP_EXPORTED, OTLP_FAILED, OTLP_SUCCEEDED,
};

/// One family of series.
#[derive(Debug)]
pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    /// The family's own labels. Labels of pods follow them.
    pub labels: &'static [&'static str],
    pub pods: Pods,
    pub unit: &'static str,
    /// The `HELP` line.
    pub help: &'static str,
    /// The kernel event or file that it comes from; empty for sandprobe's own statistics and verdicts.
    pub source: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Which of the optional pod labels a family can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pods {
    None,
    /// Only the labels of workloads. A pod starts once, so a histogram of a single pod's starts is useless.
    Workloads,
    All,
}

/// Labels with values from the node, of which there can be any number.
pub(super) const OPEN: [&str; 5] = ["plugin", "network", "pool", "program", "boot_id"];

impl Kind {
    #[must_use]
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }

    /// The maximum number of series of a family. A series of a histogram has a line for each bucket.
    #[must_use]
    pub(crate) fn cap(self) -> usize {
        match self {
            Self::Counter | Self::Gauge => 1000,
            Self::Histogram => 250,
        }
    }
}

impl Pods {
    #[must_use]
    pub(crate) fn takes(self, label: PodLabel) -> bool {
        match self {
            Self::None => false,
            Self::Workloads => label != PodLabel::Pod,
            Self::All => true,
        }
    }
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Family {
    Family { name, kind: Kind::Counter, labels, pods: Pods::None, unit: "", help, source: "" }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Family {
    Family { kind: Kind::Gauge, ..counter(name, labels, help) }
}

const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Family {
    Family { kind: Kind::Histogram, unit: "seconds", ..counter(name, labels, help) }
}

impl Family {
    const fn of_pods(self) -> Self {
        Self { pods: Pods::All, ..self }
    }

    const fn of_workloads(self) -> Self {
        Self { pods: Pods::Workloads, ..self }
    }

    const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    const fn from(self, source: &'static str) -> Self {
        Self { source, ..self }
    }
}

pub(crate) const EVENTS: Family =
    counter("sandprobe_events_total", &["kind"], "Events of the stream, before any filter (docs/events.md).");
pub(crate) const LATE: Family = counter(
    "sandprobe_events_late_total",
    &[],
    "Events that became known only after later events had been written.",
);
pub(crate) const LATENCY: Family = histogram(
    "sandprobe_event_latency_seconds",
    &[],
    "From an event in the kernel until sandprobe counts it, including the wait for the pod's name, and for the next agent where none ran.",
)
.from("bpf_ktime_get_boot_ns in the hook");

pub(crate) const PODS: Family = gauge("sandprobe_pods", &[], "Pods that are on the node.");
pub(crate) const SANDBOXES: Family =
    gauge("sandprobe_sandboxes", &["state"], "Sandboxes of pods that are on the node, by state.");
pub(crate) const STOPPED: Family = counter(
    "sandprobe_sandboxes_stopped_total",
    &["reason"],
    "Sandboxes that ended, by the first sign of their end.",
)
.of_pods();
pub(crate) const SANDBOX_READY: Family = histogram(
    "sandprobe_sandbox_create_duration_seconds",
    &[],
    "From a sandbox's first sign until its network is set up and what holds it runs.",
)
.of_workloads()
.from("copy_net_ns to sched_process_exec");
pub(crate) const DUPLICATES: Family = counter(
    "sandprobe_sandbox_duplicates_total",
    &["reason"],
    "Sandboxes confirmed to be duplicates, which their pods did not need, by form.",
)
.of_pods();
pub(crate) const EXITS: Family = counter(
    "sandprobe_container_exits_total",
    &["result"],
    "Containers that ended, by how their main process ended.",
)
.of_pods()
.from("sched_process_exit");

pub(crate) const STARTS: Family = counter(
    "sandprobe_pod_starts_total",
    &["comparable"],
    "Pod starts that are complete. Only comparable ones, which were seen whole from the beginning to the end, are in the \
     histograms.",
)
.of_pods();
pub(crate) const START: Family = histogram(
    "sandprobe_pod_start_duration_seconds",
    &["containers_known"],
    "From the pod's cgroup to the last of its containers' programs; comparable starts only. Where it is not known which \
     containers a pod is to have (`false`), a later one may be missing.",
)
.of_workloads()
.from("cgroup_mkdir to sched_process_exec");
pub(crate) const START_SLI: Family = histogram(
    "sandprobe_pod_start_sli_duration_seconds",
    &["containers_known"],
    "Starts as above without image pulls and init containers, as the objective of Kubernetes counts them (99 % within 5 s); \
     an image phase that no log has is left out whole.",
)
.of_workloads()
.from("cgroup_mkdir to sched_process_exec, and logs of the runtime");
pub(crate) const PHASE: Family = histogram(
    "sandprobe_pod_start_phase_duration_seconds",
    &["phase", "containers_known"],
    "Time that a pod's start spent in a phase, all of that phase together (docs/phases.md); comparable starts only. Where \
     it is not known which containers a pod is to have (`false`), those of a later one may be missing.",
)
.of_workloads()
.from("see docs/phases.md");

pub(crate) const IMAGE_PART: Family = histogram(
    "sandprobe_pod_start_image_part_duration_seconds",
    &["part"],
    "Time that a pod's start spent in a part of its `image` phases, all of that part together (docs/phases.md); comparable \
     starts with an image phase of a second or longer, where logs tell of it.",
)
.of_workloads()
.from("the logs of the runtime and the kubelet, and the dates of containerd's files");

pub(crate) const LISTENING: Family = histogram(
    "sandprobe_container_listening_duration_seconds",
    &[],
    "From the start of a container's program until its first socket listens (TCP and its like), for containers that have \
     one within 10 min; restarts count too.",
)
.of_workloads()
.from("sched_process_exec to inet_sock_set_state");

pub(crate) const CNI: Family = counter(
    "sandprobe_cni_operations_total",
    &["operation_type", "plugin", "result"],
    "Calls of CNI plugins that ended, made by the node's runtime.",
)
.of_pods()
.from("sched_process_exit");
pub(crate) const CNI_TIME: Family = histogram(
    "sandprobe_cni_operation_duration_seconds",
    &["operation_type", "plugin", "result"],
    "From exec to exit of a CNI plugin, with the plugins that it calls itself.",
)
.from("sched_process_exec to sched_process_exit");
pub(crate) const BLIND_DEL: Family = counter(
    "sandprobe_cni_del_empty_netns_total",
    &["plugin"],
    "CNI DELs with an empty CNI_NETNS: a plugin that looks the address up in the network namespace frees nothing then.",
)
.of_pods()
.from("CNI_NETNS at sched_process_exec");

pub(crate) const ALLOCATIONS: Family = gauge(
    "sandprobe_ip_allocations",
    &["pool", "state"],
    "Addresses of a pool that are allocated, by state.",
)
.unit("addresses")
.from("the IPAM stores, the runtimes' records");
pub(crate) const POOL_SIZE: Family =
    gauge("sandprobe_ip_pool_size", &["pool"], "Addresses that a pool has for pods.")
        .unit("addresses")
        .from("the networks' configuration");
pub(crate) const POOL_FREE: Family =
    gauge("sandprobe_ip_pool_free", &["pool"], "Addresses of a pool that are not allocated.")
        .unit("addresses");
pub(crate) const LEAKS: Family =
    counter("sandprobe_ip_leaks_total", &["reason"], "Addresses confirmed to be leaked, by cause.").of_pods();
pub(crate) const LEAKED: Family = gauge(
    "sandprobe_ip_leaked_addresses",
    &["reason", "role", "root"],
    "Addresses that are confirmed to be leaked and not freed yet, by cause. Each counts, also where many are one finding.",
)
.unit("addresses");

pub(crate) const FINDINGS: Family = gauge(
    "sandprobe_findings",
    &["kind", "severity", "stage", "role", "root"],
    "Findings that are open (docs/findings.md), by their role in their incident (docs/incidents.md).",
);
pub(crate) const INCIDENTS: Family = gauge(
    "sandprobe_incidents",
    &["severity", "stage"],
    "Incidents with a finding that is open, by the worst of these (docs/incidents.md).",
);
pub(crate) const OPENED: Family =
    counter("sandprobe_findings_opened_total", &["kind", "severity"], "Findings that were opened.").of_pods();
pub(crate) const CONFIRMED: Family =
    counter("sandprobe_findings_confirmed_total", &["kind", "severity"], "Findings that were confirmed.")
        .of_pods();

pub(crate) const NETNS_TEARDOWN: Family = histogram(
    "sandprobe_netns_teardown_duration_seconds",
    &[],
    "From the last reference to a network namespace to the end of its teardown.",
)
.from("netns_put or __put_net to proc_free_inum");
pub(crate) const CGROUP_TEARDOWN: Family = histogram(
    "sandprobe_cgroup_teardown_duration_seconds",
    &[],
    "From the end of the last process in a cgroup to the removal of its directory.",
)
.from("cgroup_notify_populated to cgroup_rmdir");

pub(crate) const RUNTIME_LAG: Family = histogram(
    "sandprobe_runtime_event_lag_seconds",
    &["event", "by"],
    "From the start or end of a container's program in the kernel until the runtime reports it over CRI, by an event or in \
     the list read 1 s after an end without an event.",
)
.from("sched_process_exec, sched_process_exit to GetContainerEvents, ListContainers");

pub(crate) const DAEMON_START: Family = gauge(
    "sandprobe_daemon_start_seconds",
    &["daemon"],
    "When a runtime or kubelet that runs started, since the kernel's start. It changes with each restart.",
)
.unit("seconds")
.from("sched_process_exec");

pub(crate) const BUILD: Family =
    gauge("sandprobe_build_info", &["version"], "Which sandprobe this is; always 1.");
pub(crate) const READY: Family = gauge(
    "sandprobe_ready",
    &[],
    "Whether sandprobe's output can be relied on, as /readyz says: hooks attached, node listed, no records being lost.",
)
.unit("0 or 1");
pub(crate) const HOOKS: Family = gauge(
    "sandprobe_hook_attached",
    &["signal", "mechanism"],
    "How a kernel signal is seen: 1 with the mechanism in use, 0 with mechanism none where no hook could be attached.",
)
.unit("0 or 1");
pub(crate) const RECORDS: Family = counter(
    "sandprobe_records_total",
    &["ring", "kind"],
    "Records that the hooks have written into a ring, by kind.",
)
.from("per-CPU counters of the eBPF programs");
pub(crate) const LOST: Family = counter(
    "sandprobe_events_lost_total",
    &["ring", "kind"],
    "Records that were lost, by place. Those lost in a ring have their kind; elsewhere (netlink_socket, record, channel, \
     skipped_run) the kind is unknown.",
)
.from("per-CPU counters of the eBPF programs, bpf_prog_info.recursion_misses");
pub(crate) const STALE: Family = counter(
    "sandprobe_netlink_stale_total",
    &[],
    "Ends of network namespaces that netlink reported too late, when nothing else of them was left. They are not believed.",
)
.from("RTM_DELNSID");
pub(crate) const NETNS: Family = gauge(
    "sandprobe_netns",
    &[],
    "Network namespaces that the kernel has besides the node's own, as far as is known. One that only a descriptor or a \
     socket holds may be missing.",
)
.from("the hooks, /proc/PID/ns/net, /proc/PID/mountinfo");
pub(crate) const NETNS_LIMIT: Family = gauge(
    "sandprobe_netns_limit",
    &[],
    "Network namespaces that each user may have made, in the agent's user namespace.",
)
.from("/proc/sys/user/max_net_namespaces");
pub(crate) const UNWATCHED: Family = gauge(
    "sandprobe_netns_unwatched",
    &[],
    "Network namespaces that netlink does not watch yet, where no hook sees their end or their addresses: containers made \
     too many at once, or netlink could not watch them. Addresses set in them meanwhile are listed later, not seen.",
);
pub(crate) const PROGRAM_TIME: Family = counter(
    "sandprobe_program_run_seconds_total",
    &["program"],
    "Time that an eBPF program ran on all CPUs; counted only with --bpf-stats, or kernel.bpf_stats_enabled=1.",
)
.unit("seconds")
.from("bpf_prog_info.run_time_ns");
pub(crate) const PROGRAM_RUNS: Family = counter(
    "sandprobe_program_runs_total",
    &["program"],
    "Runs of an eBPF program; counted only with --bpf-stats, or kernel.bpf_stats_enabled=1.",
)
.from("bpf_prog_info.run_cnt");
pub(crate) const PROGRAM_MISSED: Family = counter(
    "sandprobe_program_missed_total",
    &["program"],
    "Runs of an eBPF program that the kernel skipped because one was under way on that CPU.",
)
.from("bpf_prog_info.recursion_misses");
pub(crate) const NETNS_UNTRACKED: Family = counter(
    "sandprobe_netns_untracked_total",
    &[],
    "Network namespaces whose end no hook will see: without fentry and kprobes only so many can be tracked, and there were \
     more. rtnetlink reports their end.",
)
.from("per-CPU counters of the eBPF programs");
pub(crate) const NOT_KEPT: Family = counter(
    "sandprobe_program_table_full_total",
    &[],
    "Entries that a table of the eBPF programs had no room for.",
)
.from("per-CPU counters of the eBPF programs");
pub(crate) const REFUSED: Family = counter(
    "sandprobe_system_calls_refused_total",
    &[],
    "System calls of sandprobe that its own confinement refused (docs/security.md): a value other than 0 is a fault to \
     report; the log names the call.",
)
.from("SIGSYS");
pub(crate) const UNREADABLE: Family = gauge(
    "sandprobe_node_files_unreadable",
    &[],
    "Files and folders of the node that exist and could not be read when last tried; the log names them.",
);
pub(crate) const HANGING: Family = gauge(
    "sandprobe_node_files_hanging",
    &[],
    "Files of the node at which reading hangs, as it does where a process is stuck in the kernel; the other files are \
     read without them.",
);
pub(crate) const OLDEST_QUESTION: Family = gauge(
    "sandprobe_oldest_question_age_seconds",
    &[],
    "Age of the oldest request to read files of the node, or of the listing of the node that is under way.",
)
.unit("seconds");
pub(crate) const DROPPED_QUESTIONS: Family = counter(
    "sandprobe_questions_dropped_total",
    &[],
    "Requests to read files of the node that found their queue full: events and findings then lack a name or a cause.",
);
pub(crate) const DROPPED: Family = counter(
    "sandprobe_stream_events_dropped_total",
    &["why"],
    "Events that were not written to standard output or the log file: slow, because nothing read it or because it could not \
     be written, as on a full disk; rate, because there were more than --event-rate allows. The API has them all the same.",
);
pub(crate) const STREAM_WRITTEN: Family = gauge(
    "sandprobe_stream_last_write_successful",
    &[],
    "Whether events could be written to standard output or the log file at the last try, and are read. With 0 they wait in memory, and \
     those for which there is no room are dropped; /readyz and the log say why.",
)
.unit("0 or 1");
pub(crate) const STATE_WRITTEN: Family = gauge(
    "sandprobe_state_last_write_successful",
    &["file"],
    "Whether the last write of the findings, the engine's state or the history of boots to the state directory succeeded. With 0 they \
     are lost when sandprobe ends; /readyz and the log say why.",
)
.unit("0 or 1");
pub(crate) const STATE_FAILURES: Family = counter(
    "sandprobe_state_write_failures_total",
    &["file"],
    "Failed writes of the findings, the engine's state or the history of boots to the state directory.",
);
pub(crate) const OUTDATED: Family = gauge(
    "sandprobe_server_files_stale",
    &[],
    "1 if the server's certificate, key, client authority or token have changed in their files and cannot be used: the \
     server still uses the old ones, and the log says why.",
)
.unit("0 or 1");
pub(crate) const CERTIFICATE_EXPIRES: Family = gauge(
    "sandprobe_tls_certificate_expiration_timestamp_seconds",
    &[],
    "When the server's certificate expires, or the certificate of its chain that expires first; only with TLS.",
)
.unit("seconds since the epoch");
pub(crate) const QUEUE: Family =
    gauge("sandprobe_queue_length", &["queue"], "Entries that wait in a queue of sandprobe.");
pub(crate) const QUEUE_CAPACITY: Family =
    gauge("sandprobe_queue_capacity", &["queue"], "Entries that a queue of sandprobe has room for.");
pub(crate) const FOLDED: Family = counter(
    "sandprobe_metric_series_folded_total",
    &["metric"],
    "Values that went to the series `other` because their family already has as many series as it may have.",
);

pub(crate) const CPU: Family = counter(
    "process_cpu_seconds_total",
    &[],
    "CPU time of sandprobe, user and system, without that of its eBPF programs.",
)
.unit("seconds")
.from("getrusage");
pub(crate) const RESIDENT: Family =
    gauge("process_resident_memory_bytes", &[], "Resident memory of sandprobe.")
        .unit("bytes")
        .from("/proc/self/status");
pub(crate) const MEMORY: Family = gauge(
    "sandprobe_memory_bytes",
    &["owner"],
    "Resident memory of sandprobe by owner: its own file (`program`), the maps of the hooks (`hooks`), the latest events for \
     clients (`latest_events`), and the `rest`: the model of the node, buffers and stacks.",
)
.unit("bytes")
.from("/proc/self/smaps");
pub(crate) const VIRTUAL: Family = gauge("process_virtual_memory_bytes", &[], "Virtual memory of sandprobe.")
    .unit("bytes")
    .from("/proc/self/status");
pub(crate) const OPEN_FDS: Family =
    gauge("process_open_fds", &[], "Open file descriptors of sandprobe.").from("/proc/self/fd");
pub(crate) const MAX_FDS: Family =
    gauge("process_max_fds", &[], "File descriptors that sandprobe may have open.").from("RLIMIT_NOFILE");
pub(crate) const THREADS: Family =
    gauge("process_threads", &[], "Threads of sandprobe.").from("/proc/self/status");
pub(crate) const STARTED: Family =
    gauge("process_start_time_seconds", &[], "When this run of sandprobe began, since the epoch.")
        .unit("seconds");

/// All families, in the order and under the headings of the reference.
pub const ALL: &[(&str, &[&Family])] = &[
    ("Events", &[&EVENTS, &LATE, &LATENCY]),
    ("Pods and sandboxes", &[&PODS, &SANDBOXES, &STOPPED, &SANDBOX_READY, &DUPLICATES, &EXITS]),
    ("Pod starts", &[&STARTS, &START, &START_SLI, &PHASE, &IMAGE_PART, &LISTENING]),
    (
        "CNI",
        &[
            &CNI,
            &CNI_TIME,
            &BLIND_DEL,
            &ATTACHED_PODS,
            &ATTACHED_SANDBOXES,
            &ATTACHMENTS_ADDED,
            &ATTACHMENTS_RELEASED,
            &ATTACHMENTS_UNVERIFIED,
            &ATTACHMENTS,
        ],
    ),
    ("Addresses", &[&ALLOCATIONS, &POOL_SIZE, &POOL_FREE, &LEAKS, &LEAKED]),
    ("Findings", &[&FINDINGS, &INCIDENTS, &OPENED, &CONFIRMED]),
    ("Teardown", &[&NETNS_TEARDOWN, &CGROUP_TEARDOWN]),
    ("Network namespaces", &[&NETNS, &NETNS_LIMIT]),
    ("Runtimes", &[&RUNTIME_LAG]),
    (
        "Restarts of the node",
        &[
            &MILESTONE,
            &PERIOD,
            &BOOT_CNI_LOST,
            &BOOT_CLOSED,
            &BOOT_TARGET,
            &BOOT_TARGET_MISSED,
            &BOOT_LESS_NETWORK,
            &DAEMON_RESTARTS,
            &DAEMON_RESTART_PERIOD,
            &DAEMON_RESTART_PODS,
            &BOOT_TIME,
            &BOOT_INFO,
            &DAEMON_START,
        ],
    ),
    (
        "What goes to other machines",
        &[
            &KUBERNETES_REQUESTS,
            &KUBERNETES_WAITING,
            &OTLP_EXPORTED,
            &OTLP_DROPPED,
            &OTLP_FAILED,
            &OTLP_SUCCEEDED,
        ],
    ),
    (
        "sandprobe itself",
        &[
            &BUILD,
            &READY,
            &HOOKS,
            &RECORDS,
            &LOST,
            &STALE,
            &UNWATCHED,
            &PROGRAM_TIME,
            &PROGRAM_RUNS,
            &PROGRAM_MISSED,
            &QUEUE,
            &QUEUE_CAPACITY,
            &NETNS_UNTRACKED,
            &NOT_KEPT,
            &REFUSED,
            &UNREADABLE,
            &HANGING,
            &OLDEST_QUESTION,
            &DROPPED_QUESTIONS,
            &DROPPED,
            &STREAM_WRITTEN,
            &STATE_WRITTEN,
            &STATE_FAILURES,
            &OUTDATED,
            &CERTIFICATE_EXPIRES,
            &FOLDED,
            &CPU,
            &RESIDENT,
            &MEMORY,
            &VIRTUAL,
            &OPEN_FDS,
            &MAX_FDS,
            &THREADS,
            &STARTED,
        ],
    ),
];
