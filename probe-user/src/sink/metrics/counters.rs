//! Counters and histograms: what is counted of each change.

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
    engine::view::ManyView,
    model::{
        change::{Change, ChangeKind, CniCall, End, Finding, StopReason},
        fact::Origin,
        finding::{Cause, Duplicate, Kind, LeakedAddress, Severity},
        id::CgroupKey,
        phase::Start,
        time::Timestamp,
    },
    sink::word,
};

/// How many cgroups may be known as empty and not yet removed; beyond that the oldest is forgotten.
const EMPTY: usize = 4096;

/// How many changes may wait for their latency; more come only where nobody asks for it, as in a replay.
const WAITING: usize = 8192;

/// How often the series of pods that are gone are removed.
const SWEEP: Duration = Duration::from_secs(10);

pub(super) struct Counters {
    events: EventCounters,
    pods: PodCounters,
    cni: CniCounters,
    findings: FindingCounters,
    kernel: KernelCounters,

    owners: Owners,
    swept_at: Timestamp,
    /// Since when a cgroup has been empty.
    empty: BTreeMap<CgroupKey, Timestamp>,
    /// The leaks of findings of many that were counted and are not over.
    many: BTreeSet<u64>,
    /// Times of events that were counted and not yet timed.
    waiting: Vec<Timestamp>,
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
        };
        counters.begin(&vec![String::new(); labels.len()]);
        Ok(counters)
    }

    /// Everything whose labels are known beforehand begins with zero, so that the first of it is seen as one more.
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
        }
        for values in set::all(&[word::PHASES, &set::KNOWN]) {
            self.pods.phase.at(&values, nobody);
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
            && self.waiting.len() < WAITING
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
            ChangeKind::SandboxReady { since_created } if change.origin != Origin::Listed => {
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
            // What a ring lost is known by kind from its own counters.
            ChangeKind::Gap { what, count } if !set::RINGS.contains(&set::lost_in(*what)) => {
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

    /// A start that goes on after it was told counts once, as it was told first; but one that was told because one of its
    /// containers did not come was none yet, and counts as what it is when that has come.
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
        let mut phases: BTreeMap<&str, Duration> = BTreeMap::new();
        for phase in &start.phases {
            *phases.entry(phase.kind.into_str()).or_default() += phase.took();
        }
        for (phase, took) in phases {
            self.pods.phase.observe(&[phase, known], &pod, took.as_secs_f64());
        }
    }

    fn confirmed(&mut self, it: &Finding, at: Timestamp) {
        let pod = self.pod_of(it, at);
        self.findings.confirmed.add(&[it.kind.into_str(), it.severity.into_str()], &pod, 1.0);
        match &it.kind {
            // Those of a finding of many are counted one by one.
            Kind::LeakedAddress(LeakedAddress { cause, many: None, .. }) => {
                self.findings.leaks.add(&[cause.into_str()], &pod, 1.0);
            }
            Kind::DuplicateSandbox { form, .. } => {
                self.pods.duplicates.add(&[form.into_str()], &pod, 1.0);
            }
            Kind::LeakedAddress(_)
            | Kind::AbandonedStore { .. }
            | Kind::UnverifiedRelease { .. }
            | Kind::TeardownOutOfOrder { .. }
            | Kind::OrphanNetns { .. }
            | Kind::StuckNetnsTeardown { .. }
            | Kind::StuckCgroup { .. }
            | Kind::OrphanSandbox { .. }
            | Kind::DuplicateContainer { .. }
            | Kind::DuplicateAddress { .. }
            | Kind::CniFailing(_)
            | Kind::CniSlow { .. }
            | Kind::CniQueue { .. }
            | Kind::PoolExhaustion(_)
            | Kind::BlindSpot { .. } => {}
        }
    }

    /// Counts each leak of a finding of many once, however their number comes and goes, and as long as it lasts.
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
        if self.empty.len() > EMPTY {
            let oldest = self.empty.iter().min_by_key(|(_, at)| **at).map(|(key, _)| *key);
            oldest.map(|key| self.empty.remove(&key));
        }
    }

    fn pod(&mut self, change: &Change) -> Vec<String> {
        let pod = change.context.pod.as_ref();
        let pod = Pod {
            namespace: pod.and_then(|pod| pod.namespace.as_deref()),
            name: pod.and_then(|pod| pod.name.as_deref()),
            // What is told when it has gone does not bring it back.
            uid: pod.and_then(|pod| pod.uid.as_ref()).filter(|_| brings(&change.what)),
        };
        self.owners.of(pod, change.at)
    }

    fn pod_of(&mut self, it: &Finding, at: Timestamp) -> Vec<String> {
        let pod = it.pod.as_ref();
        let (namespace, name) =
            (pod.and_then(|pod| pod.namespace.as_deref()), pod.and_then(|pod| pod.name.as_deref()));
        self.owners.of(Pod { namespace, name, uid: None }, at)
    }

    /// Drops the series of pods that have been gone for long enough.
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
            &mut self.pods.phase,
            &mut self.pods.listening,
        ] {
            histograms.drop_pods(&gone, &stay);
        }
    }

    /// What was told has been told by now.
    pub(super) fn timed(&mut self, now: Timestamp) {
        for at in self.waiting.drain(..) {
            self.kernel.latency.observe(&[], &[], now.since(at).as_secs_f64());
        }
    }

    /// What the rings' own counters say was lost.
    pub(super) fn lost(&mut self, ring: &str, kind: &str, total: u64) {
        self.events.lost.raise(&[ring, kind], real(total));
    }
}

/// Whether a pod of which this is told is there.
fn brings(what: &ChangeKind) -> bool {
    matches!(what, ChangeKind::PodFirstSeen | ChangeKind::SandboxReady { .. } | ChangeKind::PodStarted(_))
}

/// What a container says of itself is not believed alone.
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

/// Counts beyond 2^53 lose their last digits, as with Prometheus itself.
#[expect(clippy::cast_precision_loss, reason = "samples are of 64 bits floating")]
pub(super) fn real(count: u64) -> f64 {
    count as f64
}
