//! The metric families in groups by subject: each field with its type and its family.

use prometheus::{CounterVec, GaugeVec, HistogramVec};

use super::{
    family as f,
    series::{Registrar, Series},
};

macro_rules! families {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $vector:ty = $family:ident,)* }) => {
        $(#[$doc])*
        pub(super) struct $name {
            $(pub(super) $field: Series<$vector>,)*
        }

        impl $name {
            pub(super) fn new(registrar: Registrar<'_>) -> prometheus::Result<Self> {
                Ok(Self { $($field: registrar.series(&f::$family)?,)* })
            }
        }
    };
}

families! {
    /// Families counted by event and by loss.
    EventCounters {
        events: CounterVec = EVENTS,
        late: CounterVec = LATE,
        lost: CounterVec = LOST,
    }
}

families! {
    /// Families of pods and their containers.
    PodCounters {
        stopped: CounterVec = STOPPED,
        sandbox_ready: HistogramVec = SANDBOX_READY,
        duplicates: CounterVec = DUPLICATES,
        exits: CounterVec = EXITS,
        starts: CounterVec = STARTS,
        start: HistogramVec = START,
        start_sli: HistogramVec = START_SLI,
        phase: HistogramVec = PHASE,
        image_part: HistogramVec = IMAGE_PART,
        listening: HistogramVec = LISTENING,
    }
}

families! {
    /// Families of calls of CNI plugins.
    CniCounters {
        calls: CounterVec = CNI,
        duration: HistogramVec = CNI_TIME,
        del_without_netns: CounterVec = BLIND_DEL,
    }
}

families! {
    /// Families of findings.
    FindingCounters {
        leaks: CounterVec = LEAKS,
        opened: CounterVec = OPENED,
        confirmed: CounterVec = CONFIRMED,
    }
}

families! {
    /// Families of the kernel, and of the latency of events.
    KernelCounters {
        latency: HistogramVec = LATENCY,
        netns_teardown: HistogramVec = NETNS_TEARDOWN,
        cgroup_teardown: HistogramVec = CGROUP_TEARDOWN,
        runtime_lag: HistogramVec = RUNTIME_LAG,
    }
}

families! {
    /// Families of the node.
    NodeGauges {
        pods: GaugeVec = PODS,
        sandboxes: GaugeVec = SANDBOXES,
        allocations: GaugeVec = ALLOCATIONS,
        pool_size: GaugeVec = POOL_SIZE,
        pool_free: GaugeVec = POOL_FREE,
        findings: GaugeVec = FINDINGS,
        incidents: GaugeVec = INCIDENTS,
        leaked: GaugeVec = LEAKED,
        attached_pods: CounterVec = ATTACHED_PODS,
        attached_sandboxes: CounterVec = ATTACHED_SANDBOXES,
        attachments_added: CounterVec = ATTACHMENTS_ADDED,
        attachments_released: CounterVec = ATTACHMENTS_RELEASED,
        attachments_unverified: CounterVec = ATTACHMENTS_UNVERIFIED,
        attachments: GaugeVec = ATTACHMENTS,
        netns: GaugeVec = NETNS,
        netns_limit: GaugeVec = NETNS_LIMIT,
        daemon_start: GaugeVec = DAEMON_START,
    }
}

families! {
    /// Families of the recovery after a restart.
    BootGauges {
        milestone: GaugeVec = MILESTONE,
        period: GaugeVec = PERIOD,
        cni_lost: GaugeVec = BOOT_CNI_LOST,
        closed: GaugeVec = BOOT_CLOSED,
        target: GaugeVec = BOOT_TARGET,
        target_missed: GaugeVec = BOOT_TARGET_MISSED,
        less_network: GaugeVec = BOOT_LESS_NETWORK,
        restarts: CounterVec = DAEMON_RESTARTS,
        restart_period: GaugeVec = DAEMON_RESTART_PERIOD,
        restart_pods: GaugeVec = DAEMON_RESTART_PODS,
        time: GaugeVec = BOOT_TIME,
        info: GaugeVec = BOOT_INFO,
    }
}

families! {
    /// Families of hooks, rings and eBPF programs.
    ProbeGauges {
        hooks: GaugeVec = HOOKS,
        records: CounterVec = RECORDS,
        stale: CounterVec = STALE,
        unwatched: GaugeVec = UNWATCHED,
        program_time: CounterVec = PROGRAM_TIME,
        program_runs: CounterVec = PROGRAM_RUNS,
        program_missed: CounterVec = PROGRAM_MISSED,
        netns_untracked: CounterVec = NETNS_UNTRACKED,
        not_kept: CounterVec = NOT_KEPT,
    }
}

families! {
    /// Families of the reading of the node's files.
    ReadingGauges {
        unreadable: GaugeVec = UNREADABLE,
        hanging: GaugeVec = HANGING,
        oldest_question: GaugeVec = OLDEST_QUESTION,
        dropped_questions: CounterVec = DROPPED_QUESTIONS,
    }
}

families! {
    /// Families of the agent itself.
    AgentGauges {
        ready: GaugeVec = READY,
        queue: GaugeVec = QUEUE,
        queue_capacity: GaugeVec = QUEUE_CAPACITY,
        refused: CounterVec = REFUSED,
        dropped: CounterVec = DROPPED,
        stream_written: GaugeVec = STREAM_WRITTEN,
        kubernetes_requests: CounterVec = KUBERNETES_REQUESTS,
        kubernetes_waiting: GaugeVec = KUBERNETES_WAITING,
        state_written: GaugeVec = STATE_WRITTEN,
        state_failures: CounterVec = STATE_FAILURES,
        outdated: GaugeVec = OUTDATED,
        certificate_expires: GaugeVec = CERTIFICATE_EXPIRES,
    }
}

families! {
    /// Families of the exports to an OTLP receiver.
    ExportGauges {
        exported: CounterVec = OTLP_EXPORTED,
        dropped: CounterVec = OTLP_DROPPED,
        failed: CounterVec = OTLP_FAILED,
        succeeded: GaugeVec = OTLP_SUCCEEDED,
    }
}

families! {
    /// Families of the agent's process.
    ProcessGauges {
        cpu: CounterVec = CPU,
        resident: GaugeVec = RESIDENT,
        memory: GaugeVec = MEMORY,
        virtual_size: GaugeVec = VIRTUAL,
        open_fds: GaugeVec = OPEN_FDS,
        max_fds: GaugeVec = MAX_FDS,
        threads: GaugeVec = THREADS,
        started: GaugeVec = STARTED,
    }
}
