//! The words of closed sets, as users read them in the JSON stream and in the text.

use probe_common::event::KINDS as KINDS_OF_RECORDS;

use crate::engine::{
    change::StopReason,
    fact::{Family, List, Loss, NameSource, Origin, StoreKind},
    finding::{OutOfOrder, Severity, Stage, Weaker},
    phase::Kind,
};

/// The names of all events, as `What::name` gives them.
pub const EVENTS: [&str; 25] = [
    "process.exec",
    "process.exit",
    "cni.started",
    "cni.finished",
    "netns.created",
    "netns.destroyed",
    "netns.freed",
    "cgroup.created",
    "cgroup.emptied",
    "cgroup.removed",
    "address.added",
    "address.removed",
    "sandbox.created",
    "sandbox.ready",
    "sandbox.stopped",
    "container.started",
    "container.listening",
    "container.exited",
    "pod.first_seen",
    "pod.started",
    "pod.gone",
    "gap",
    "finding.opened",
    "finding.confirmed",
    "finding.closed",
];

/// The names of all kinds of findings, as `Kind::name` gives them.
pub const KINDS: [&str; 16] = [
    "leaked_address",
    "abandoned_store",
    "unverified_release",
    "duplicate_sandbox",
    "teardown_out_of_order",
    "orphan_netns",
    "stuck_netns_teardown",
    "stuck_cgroup",
    "orphan_sandbox",
    "duplicate_container",
    "duplicate_address",
    "cni_failing",
    "cni_slow",
    "cni_queue",
    "pool_exhaustion",
    "blind_spot",
];

/// The names of all phases of a start, in the order in which they come.
pub const PHASES: [&str; 11] = [
    "prepare",
    "retry",
    "netns",
    "cni",
    "between",
    "pause",
    "image",
    "runtime",
    "cgroup",
    "post_start",
    "init",
];

/// The names of all kinds of the hooks' records, by the numbers of `probe_common::event::kind`.
pub const RECORDS: [&str; KINDS_OF_RECORDS] = [
    "exec",
    "cni_call",
    "exit",
    "signal",
    "oom_kill",
    "netns_created",
    "netns_dropped",
    "netns_freed",
    "address_added",
    "address_removed",
    "cgroup_created",
    "cgroup_removed",
    "cgroup_released",
    "cgroup_attached",
    "cgroup_emptied",
    "listen",
];

#[must_use]
pub fn phase(kind: &Kind) -> &'static str {
    match kind {
        Kind::Prepare => "prepare",
        Kind::Retry => "retry",
        Kind::Netns => "netns",
        Kind::Cni { .. } => "cni",
        Kind::Between => "between",
        Kind::Pause => "pause",
        Kind::Image => "image",
        Kind::Runtime => "runtime",
        Kind::Cgroup => "cgroup",
        Kind::PostStart => "post_start",
        Kind::Init => "init",
        Kind::Listening => "listening",
    }
}

#[must_use]
pub fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Kernel => "kernel",
        Origin::Netlink => "netlink",
        Origin::Listed => "listed",
        Origin::Delegated => "delegated",
        Origin::Cri => "cri",
        Origin::Agent => "agent",
    }
}

#[must_use]
pub fn name_source(source: NameSource) -> &'static str {
    match source {
        NameSource::CniArgs => "cni_args",
        NameSource::CgroupPath => "cgroup_path",
        NameSource::Bundle => "bundle",
        NameSource::LogFolder => "log_folder",
        NameSource::Argv => "argv",
        NameSource::CniCache => "cni_cache",
        NameSource::Cri => "cri",
    }
}

#[must_use]
pub fn stop_reason(why: StopReason) -> &'static str {
    match why {
        StopReason::PauseExited => "pause_exited",
        StopReason::Emptied => "emptied",
        StopReason::NetworkRemoved => "network_removed",
        StopReason::NetnsGone => "netns_gone",
        StopReason::NotListed => "not_listed",
        StopReason::RuntimeEnded => "runtime_ended",
    }
}

#[must_use]
pub fn loss(what: Loss) -> &'static str {
    match what {
        Loss::LifecycleRing => "lifecycle_ring",
        Loss::BulkRing => "bulk_ring",
        Loss::NetlinkSocket => "netlink_socket",
        Loss::Record => "record",
        Loss::Channel => "channel",
        Loss::SkippedRun => "skipped_run",
    }
}

#[must_use]
pub fn family(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "ipv4",
        Family::Ipv6 => "ipv6",
    }
}

#[must_use]
pub fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

#[must_use]
pub fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Candidate => "candidate",
        Stage::Confirmed => "confirmed",
        Stage::Closed => "closed",
    }
}

#[must_use]
pub fn out_of_order(how: OutOfOrder) -> &'static str {
    match how {
        OutOfOrder::PauseKilled => "pause_killed",
        OutOfOrder::PauseOutOfMemory => "pause_out_of_memory",
        OutOfOrder::NetnsGone => "netns_gone",
    }
}

#[must_use]
pub fn store_kind(kind: StoreKind) -> &'static str {
    match kind {
        StoreKind::HostLocal => "host-local",
        StoreKind::AwsIpamd => "aws-ipamd",
        StoreKind::Declared => "declared",
    }
}

/// What is in a list, in the plural.
#[must_use]
pub fn list(list: List) -> &'static str {
    match list {
        List::Processes => "processes",
        List::Netns => "network namespaces",
        List::Addresses => "addresses",
        List::Cgroups => "cgroups",
        List::Containers => "containers",
        List::Pods => "pods",
        List::CniCache => "attachments in libcni's cache",
        List::Ipam => "stores of addresses",
        List::Runtimes => "runtimes' records",
    }
}

#[must_use]
pub fn weaker(weaker: Weaker) -> &'static str {
    match weaker {
        Weaker::LeakedAddress => "leaked_address",
        Weaker::DuplicateSandbox => "duplicate_sandbox",
        Weaker::TeardownOutOfOrder => "teardown_out_of_order",
        Weaker::OrphanNetns => "orphan_netns",
        Weaker::StuckNetnsTeardown => "stuck_netns_teardown",
        Weaker::StuckCgroup => "stuck_cgroup",
        Weaker::OrphanSandbox => "orphan_sandbox",
        Weaker::CniFailing => "cni_failing",
        Weaker::PoolExhaustion => "pool_exhaustion",
    }
}

/// A signal's name, for those that end processes (`signal(7)`); numbers are the same on every architecture for these.
#[must_use]
pub fn signal_number(number: u32) -> Option<&'static str> {
    Some(match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        _ => return None,
    })
}
