//! Counters and histograms, which each change updates.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use probe_common::event;
use strum::VariantNames;

use super::{
    groups::{CniCounters, EventCounters, FindingCounters, KernelCounters, PodCounters},
    label,
    owner::{Owners, Pod},
    series::Registrar,
    set,
};
use crate::{
    engine::{Lag, LagBy, LagOf, view::ManyView},
    model::{
        change::{Change, ChangeKind, CniCall, End, Finding, StopReason},
        fact::Origin,
        finding::{Cause, Duplicate, Kind, LeakedAddress, Severity},
        id::CgroupKey,
        phase::{Kind as PhaseKind, PartKind, Start},
        time::Timestamp,
    },
    sink::render::phase,
};

/// The maximum number of cgroups that are remembered as empty and not removed yet. Beyond it the oldest is
/// forgotten.
const MAX_EMPTY: usize = 4096;

/// The maximum number of changes that wait for their latency. It is only reached if nobody measures it, as in
/// a replay.
const MAX_WAITING: usize = 8192;

/// How often the series of removed pods are dropped.
const SWEEP: Duration = Duration::from_secs(10);

pub(super) struct Counters {
    events: EventCounters,
    pods: PodCounters,
    cni: CniCounters,
    findings: FindingCounters,
    kernel: KernelCounters,

    owners: Owners,
    swept_at: Timestamp,
    /// Since when each cgroup has been empty.
    empty: BTreeMap<CgroupKey, Timestamp>,
    /// The leaks within combined findings that were counted and still exist.
    many: BTreeSet<u64>,
    /// The times of events whose latency is not measured yet.
    waiting: Vec<Timestamp>,
    /// The number of the next measured time of a runtime.
    next_lag: u64,
}

impl Counters {
    pub(super) fn new(registrar: Registrar<'_>) -> prometheus::Result<Self> {
        let labels = registrar.labels;
        let mut counters = Self {
            events: EventCounters::new(registrar)?,
            pods: PodCounters::new(registrar)?,
            cni: CniCounters::new(registrar)?,
            findings: FindingCounters::new(registrar)?,
            kernel: KernelCounters::new(registrar)?,
            owners: Owners::new(labels),
            swept_at: Timestamp::ZERO,
            empty: BTreeMap::new(),
            many: BTreeSet::new(),
            waiting: Vec::new(),
            next_lag: 0,
        };
        counters.begin(&vec![String::new(); labels.len()]);
        Ok(counters)
    }

    /// Sets every series with known labels to zero, so that its first event is an increase.
    fn begin(&mut self, nobody: &[String]) {
        for values in set::all(&[ChangeKind::VARIANTS]) {
            self.events.events.at(&values, &[]);
        }
        for values in set::all(&[StopReason::VARIANTS]) {
            self.pods.stopped.at(&values, nobody);
        }
        for values in set::all(&[Duplicate::VARIANTS]) {
            self.pods.duplicates.at(&values, nobody);
        }
        for values in set::all(&[&set::EXITS]) {
            self.pods.exits.at(&values, nobody);
        }
        for values in set::all(&[&set::COMPARABLE]) {
            self.pods.starts.at(&values, nobody);
        }
        for values in set::all(&[&set::KNOWN]) {
            self.pods.start.at(&values, nobody);
            self.pods.start_sli.at(&values, nobody);
        }
        for values in set::all(&[phase::NAMES, &set::KNOWN]) {
            self.pods.phase.at(&values, nobody);
        }
        for values in set::all(&[PartKind::VARIANTS]) {
            self.pods.image_part.at(&values, nobody);
        }
        for values in set::all(&[Cause::VARIANTS]) {
            self.findings.leaks.at(&values, nobody);
        }
        for values in set::all(&[Kind::VARIANTS, Severity::VARIANTS]) {
            self.findings.opened.at(&values, nobody);
            self.findings.confirmed.at(&values, nobody);
        }
        for values in set::all(&[&set::LOSSES, &[set::UNKNOWN]]) {
            self.events.lost.at(&values, &[]);
        }
        for values in set::all(&[&set::RINGS, &event::NAMES]) {
            self.events.lost.at(&values, &[]);
        }
        self.events.late.at(&[], &[]);
        for values in set::all(&[LagOf::VARIANTS, LagBy::VARIANTS]) {
            self.kernel.runtime_lag.at(&values, &[]);
        }
        self.kernel.latency.at(&[], &[]);
        self.kernel.netns_teardown.at(&[], &[]);
        self.kernel.cgroup_teardown.at(&[], &[]);
        self.pods.sandbox_ready.at(&[], nobody);
        self.pods.start.at(&[], nobody);
        self.pods.listening.at(&[], nobody);
    }

    pub(super) fn on_change(&mut self, change: &Change) {
        self.events.events.add(&[change.what.into_str()], &[], 1.0);
        if change.late {
            self.events.late.add(&[], &[], 1.0);
        }
        if change.origin == Origin::Kernel
            && !matches!(change.what, ChangeKind::PodStarted(_))
            && self.waiting.len() < MAX_WAITING
        {
            self.waiting.push(change.at);
        }
        self.count(change);
        if let (ChangeKind::PodGone { .. }, Some(uid)) =
            (&change.what, change.context.pod.as_ref().and_then(|pod| pod.uid.as_ref()))
        {
            self.owners.gone(uid);
        }
        if change.at.since(self.swept_at) >= SWEEP {
            self.sweep(change.at);
        }
    }

    fn count(&mut self, change: &Change) {
        match &change.what {
            ChangeKind::SandboxReady { since_created: Some(since_created) }
                if change.origin != Origin::Listed =>
            {
                let pod = self.pod(change);
                self.pods.sandbox_ready.observe(&[], &pod, since_created.as_secs_f64());
            }
            ChangeKind::SandboxStopped { why } => {
                let pod = self.pod(change);
                self.pods.stopped.add(&[why.into_str()], &pod, 1.0);
            }
            ChangeKind::ContainerExited { end, .. } => {
                let pod = self.pod(change);
                self.pods.exits.add(&[exit(end)], &pod, 1.0);
            }
            ChangeKind::ContainerListening { since_started, .. } => {
                let pod = self.pod(change);
                self.pods.listening.observe(&[], &pod, since_started.as_secs_f64());
            }
            ChangeKind::PodStarted(start) => self.started(change, start),
            ChangeKind::CniStarted { call } if counts(call) && call.command == "DEL" => {
                if call.netns.as_deref().unwrap_or_default().is_empty() {
                    let pod = self.pod(change);
                    self.cni.del_without_netns.add(&[&label::name(&call.plugin)], &pod, 1.0);
                }
            }
            ChangeKind::CniFinished { call, end, duration } if counts(call) => {
                let pod = self.pod(change);
                let plugin = label::name(&call.plugin);
                let values = [set::operation(&call.command), plugin.as_str(), result(end.as_ref())];
                self.cni.calls.add(&values, &pod, 1.0);
                if end.is_some() {
                    self.cni.duration.observe(&values, &[], duration.as_secs_f64());
                }
            }
            ChangeKind::NetnsFreed { teardown: Some(teardown) } => {
                self.kernel.netns_teardown.observe(&[], &[], teardown.as_secs_f64());
            }
            ChangeKind::CgroupEmptied => {
                if let Some(cgroup) = &change.context.cgroup {
                    self.emptied(cgroup.key, change.at);
                }
            }
            ChangeKind::CgroupRemoved { .. } => {
                let cgroup = change.context.cgroup.as_ref();
                if let Some(since) = cgroup.and_then(|cgroup| self.empty.remove(&cgroup.key)) {
                    self.kernel.cgroup_teardown.observe(&[], &[], change.at.since(since).as_secs_f64());
                }
            }
            // The rings' own counters give the lost records by kind. A loss of a time without an agent has no
            // count.
            ChangeKind::Gap { what, count, lasted: _ }
                if *count > 0 && !set::RINGS.contains(&set::lost_in(*what)) =>
            {
                self.events.lost.add(&[set::lost_in(*what), set::UNKNOWN], &[], real(*count));
            }
            ChangeKind::FindingOpened(it) => {
                let pod = self.pod_of(it, change.at);
                self.findings.opened.add(&[it.kind.into_str(), it.severity.into_str()], &pod, 1.0);
            }
            ChangeKind::FindingConfirmed(it) => self.confirmed(it, change.at),
            ChangeKind::PodFirstSeen => drop(self.pod(change)),
            ChangeKind::ProcessExec { .. }
            | ChangeKind::ProcessExit { .. }
            | ChangeKind::CniStarted { .. }
            | ChangeKind::CniFinished { .. }
            | ChangeKind::NetnsCreated { .. }
            | ChangeKind::NetnsDestroyed { .. }
            | ChangeKind::NetnsFreed { teardown: None }
            | ChangeKind::CgroupCreated { .. }
            | ChangeKind::AddressAdded { .. }
            | ChangeKind::AddressRemoved { .. }
            | ChangeKind::SandboxCreated
            | ChangeKind::SandboxReady { .. }
            | ChangeKind::ContainerStarted { .. }
            | ChangeKind::PodGone { .. }
            | ChangeKind::Gap { .. }
            | ChangeKind::FindingClosed(_) => {}
        }
    }

    /// Counts a start once, when it is first reported, even if it continues. An exception is a start that was
    /// reported because one of its containers did not come: it is counted when that container has come.
    fn started(&mut self, change: &Change, start: &Start) {
        if start.revised && !start.containers_known {
            return;
        }
        let pod = self.pod(change);
        self.pods.starts.add(&[set::yes(start.is_whole())], &pod, 1.0);
        if !start.is_whole() {
            return;
        }
        let known = set::yes(start.containers_known);
        self.pods.start.observe(&[known], &pod, start.total().as_secs_f64());
        self.pods.start_sli.observe(&[known], &pod, start.without_pulls().as_secs_f64());
        let mut phases: BTreeMap<&str, Duration> = BTreeMap::new();
        for phase in &start.phases {
            *phases.entry(phase.kind.into_str()).or_default() += phase.took();
        }
        for (phase, took) in phases {
            self.pods.phase.observe(&[phase, known], &pod, took.as_secs_f64());
        }
        let mut parts: BTreeMap<&str, Duration> = BTreeMap::new();
        let images = start.phases.iter().filter(|phase| phase.kind == PhaseKind::Image);
        for part in images.flat_map(|phase| &phase.parts) {
            *parts.entry(part.kind.into()).or_default() += part.took;
        }
        for (part, took) in parts {
            self.pods.image_part.observe(&[part], &pod, took.as_secs_f64());
        }
    }

    fn confirmed(&mut self, it: &Finding, at: Timestamp) {
        let pod = self.pod_of(it, at);
        self.findings.confirmed.add(&[it.kind.into_str(), it.severity.into_str()], &pod, 1.0);
        if let Kind::LeakedAddress(LeakedAddress { cause, many: None, .. }) = &it.kind {
            // The leaks of a combined finding are counted one by one.
            self.findings.leaks.add(&[cause.into_str()], &pod, 1.0);
        } else if let Kind::DuplicateSandbox(duplicate) = &it.kind {
            self.pods.duplicates.add(&[duplicate.form.into_str()], &pod, 1.0);
        }
    }

    /// Counts each leak of a combined finding once while it lasts, however the finding's number changes.
    pub(super) fn leaked(&mut self, many: &[ManyView]) {
        for leak in many.iter().filter(|it| it.is_confirmed && !self.many.contains(&it.leak)) {
            let nobody = self.owners.of(Pod::default(), self.swept_at);
            self.findings.leaks.add(&[leak.cause.into_str()], &nobody, 1.0);
        }
        let counted = many.iter().filter(|it| it.is_confirmed || self.many.contains(&it.leak));
        self.many = counted.map(|it| it.leak).collect();
    }

    fn emptied(&mut self, cgroup: CgroupKey, at: Timestamp) {
        self.empty.insert(cgroup, at);
        if self.empty.len() > MAX_EMPTY {
            let oldest = self.empty.iter().min_by_key(|(_, at)| **at).map(|(key, _)| *key);
            if let Some(key) = oldest {
                self.empty.remove(&key);
            }
        }
    }

    fn pod(&mut self, change: &Change) -> Vec<String> {
        let pod = change.context.pod.as_ref();
        // An event about a removed pod does not bring it back.
        let uid = if shows_pod(&change.what) { pod.and_then(|pod| pod.uid.as_ref()) } else { None };
        let pod = Pod {
            namespace: pod.and_then(|pod| pod.namespace.as_deref()),
            name: pod.and_then(|pod| pod.name.as_deref()),
            uid,
        };
        self.owners.of(pod, change.at)
    }

    fn pod_of(&mut self, it: &Finding, at: Timestamp) -> Vec<String> {
        let pod = it.pod.as_ref();
        let namespace = pod.and_then(|pod| pod.namespace.as_deref());
        let name = pod.and_then(|pod| pod.name.as_deref());
        self.owners.of(Pod { namespace, name, uid: None }, at)
    }

    /// Drops the series of pods that were removed long enough ago.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.swept_at = self.swept_at.max(now);
        let gone = self.owners.expire(now);
        if gone.is_empty() {
            return;
        }
        let stay: Vec<&Vec<String>> = self.owners.iter().collect();
        for counters in [
            &mut self.pods.stopped,
            &mut self.pods.duplicates,
            &mut self.pods.exits,
            &mut self.pods.starts,
            &mut self.cni.calls,
            &mut self.cni.del_without_netns,
            &mut self.findings.leaks,
            &mut self.findings.opened,
            &mut self.findings.confirmed,
        ] {
            counters.drop_pods(&gone, &stay);
        }
        for histograms in [
            &mut self.pods.sandbox_ready,
            &mut self.pods.start,
            &mut self.pods.start_sli,
            &mut self.pods.phase,
            &mut self.pods.image_part,
            &mut self.pods.listening,
        ] {
            histograms.drop_pods(&gone, &stay);
        }
    }

    /// Measures the latency of the changes so far.
    pub(super) fn timed(&mut self, now: Timestamp) {
        for at in self.waiting.drain(..) {
            self.kernel.latency.observe(&[], &[], now.since(at).as_secs_f64());
        }
    }

    /// Counts how long runtimes took to report, each time once.
    pub(super) fn lags<'a>(&mut self, lags: impl Iterator<Item = &'a Lag>) {
        let next = self.next_lag;
        for it in lags.filter(|it| it.number >= next) {
            let values = [it.what.into_str(), it.by.into_str()];
            self.kernel.runtime_lag.observe(&values, &[], it.took.as_secs_f64());
            self.next_lag = it.number + 1;
        }
    }

    /// Sets the losses from the rings' own counters.
    pub(super) fn lost(&mut self, ring: &str, kind: &str, total: u64) {
        self.events.lost.raise(&[ring, kind], real(total));
    }
}

/// Whether the change shows that the pod exists.
fn shows_pod(what: &ChangeKind) -> bool {
    matches!(what, ChangeKind::PodFirstSeen | ChangeKind::SandboxReady { .. } | ChangeKind::PodStarted(_))
}

/// Whether the call is counted. A call from a container is not, because it alone is not reliable.
fn counts(call: &CniCall) -> bool {
    !call.delegated
}

fn exit(end: &End) -> &'static str {
    match end {
        End { oom: true, .. } => "oom",
        End { signal: Some(_), .. } => "signal",
        End { code: 0, .. } => "success",
        End { .. } => "error",
    }
}

fn result(end: Option<&End>) -> &'static str {
    match end {
        Some(End { code: 0, signal: None, .. }) => "success",
        Some(_) => "error",
        None => set::UNKNOWN,
    }
}

/// Counts beyond 2^53 lose their last digits, as in Prometheus itself.
#[expect(clippy::cast_precision_loss, reason = "samples are of 64 bits floating")]
pub(super) fn real(count: u64) -> f64 {
    count as f64
}
