//! Verdicts. Each rule judges its subjects (a sandbox, a pod, an address) by the present state of the world,
//! and reports a problem. A finding closes when its rule no longer reports it.
//!
//! A rule sees no events and keeps no state, so out-of-order records, a restart or a listing cannot confuse
//! it. A subject is judged again only when something changed on which its verdict depends, or when a time
//! limit of it passes (`index`, `rule`). Where several problems are one finding, the rule reads the open
//! findings, so that they stay one finding. A state that ends within [`PERIOD`] is no problem, so it is not
//! judged.
//!
//! **Invariant:** rules change nothing. Nothing is concluded from missing records across a gap. Judging
//! everything anew gives the findings that are tracked ([`FindingTracker::differences`]).

mod abandoned_sandbox;
mod abandoned_store;
mod blind_spot;
mod closed;
mod cni_failing;
mod cni_queue;
mod cni_slow;
mod cni_wrong_del;
mod daemon_failing;
mod duplicate_address;
mod duplicate_container;
mod duplicate_sandbox;
mod finding_tracker;
mod findings;
mod index;
mod judge;
mod leaked_address;
mod links;
mod lost_network;
mod missed_runtime_event;
mod node_network_unready;
mod orphan_netns;
mod orphan_sandbox;
mod ownerless_reservation;
#[cfg(test)]
mod pages;
mod phantom_sandbox;
mod pool;
mod pool_exhaustion;
mod restarted_in_bulk;
mod rule;
mod runtime_unresponsive;
mod sandboxes_replaced;
mod stale_runtime_status;
mod stuck_cgroup;
mod stuck_netns_teardown;
mod stuck_start;
mod stuck_stop;
mod survey;
mod teardown_out_of_order;
mod unverified_release;
mod words;

pub(super) use finding_tracker::FindingTracker;
pub(super) use leaked_address::unjudged;
pub use survey::Daemons;
pub(super) use survey::survey;
pub(super) use words::About;

use std::{cell::OnceCell, collections::BTreeMap, time::Duration};

use findings::Findings;
use index::Index;
use judge::Situation;
use rule::{ByScan, BySubject, Detector};
use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::world::World;
use crate::{
    engine::world::{
        lookup::{self, record::PodsWithRecords},
        table::{
            belief::{Belief, Runtime},
            container::{Container, Group},
            record::HasRecord,
            sandbox::Sandbox,
        },
    },
    model::{
        change::Finding,
        fact::{List, PodName},
        finding::{
            AbandonedSandbox, DuplicateAddress, DuplicateContainer, FindingKind, Key, Kind, LostNetwork,
            MissedRuntimeEvent, OrphanNetns, OrphanSandbox, Severity, StaleRuntimeStatus, StuckCgroup,
            StuckStart, StuckStop, TeardownOutOfOrder,
        },
        id::{ContainerId, PodUid, TaskKey},
        time::{Nanoseconds, Timestamp},
    },
};

/// The world is judged this long after a change, and not more often. With thousands of findings it is judged
/// less often.
pub(super) const PERIOD: Duration = Duration::from_millis(100);

/// A listing is answered within this time after the request. Anything that it has not found by then does not
/// exist.
const ANSWER: Duration = Duration::from_secs(60);

/// A listing's result counts for this long.
const FRESH: Duration = Duration::from_secs(10 * 60);

/// How long a state must last until it counts as a problem.
#[serde_as]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// How long an address may stay allocated after the end of its sandbox, while the runtime and the kubelet
    /// run and could free it. The same limit holds for namespaces, cgroups and sandboxes that outlive their
    /// pod.
    #[serde(rename = "leak_grace_ns")]
    #[serde_as(as = "Nanoseconds")]
    pub leak_grace: Duration,
    /// How long the kernel may take to tear down a network namespace.
    #[serde(rename = "stuck_after_ns")]
    #[serde_as(as = "Nanoseconds")]
    pub stuck_after: Duration,
    /// How long one call of a plugin may take.
    #[serde(rename = "cni_slow_ns")]
    #[serde_as(as = "Nanoseconds")]
    pub cni_slow: Duration,
    /// This many plugins that run at once are a queue.
    pub cni_queue: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            leak_grace: Duration::from_secs(120),
            stuck_after: Duration::from_secs(60),
            cni_slow: Duration::from_secs(10),
            cni_queue: 20,
        }
    }
}

/// The input of a rule.
#[derive(Clone, Copy)]
pub(super) struct DetectContext<'a> {
    pub(super) world: &'a World,
    pub(super) limits: &'a Limits,
    pub(super) now: Timestamp,
    /// Since when the runtime, the kubelet and the node have all been up, so that they can clean up. None:
    /// one of them is down.
    pub(super) up: Option<Timestamp>,
    /// The records of a running runtime were not read.
    pub(super) unread: bool,
    index: &'a Index,
    /// The stores of networks that are no longer configured.
    abandoned: &'a Abandoned,
    /// The findings so far. None: this is one pass without a tracker.
    findings: Option<&'a Findings>,
    /// The pods that have a sandbox on record. The set is built at most once in a pass.
    pods: &'a OnceCell<PodsWithRecords<'a>>,
}

/// A problem that exists now.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Detection {
    pub(super) key: Key,
    pub(super) kind: Kind,
    pub(super) severity: Severity,
    pub(super) since: Timestamp,
    pub(super) pod: Option<PodName>,
    pub(super) sandboxes: Vec<ContainerId>,
    pub(super) gapped: bool,
    /// The call whose process is to be looked at.
    pub(super) call: Option<TaskKey>,
    pub(super) verdict: Verdict,
}

impl Detection {
    /// Makes a detection about no pod and no sandbox. The name of its kind and the parts are its key.
    pub(super) fn new(
        kind: impl Into<Kind>,
        parts: &[&str],
        severity: Severity,
        since: Timestamp,
        verdict: Verdict,
    ) -> Self {
        let kind = kind.into();
        Self::keyed(Key::new(kind.into_str(), parts), kind, severity, since, verdict)
    }

    pub(super) fn keyed(
        key: Key,
        kind: impl Into<Kind>,
        severity: Severity,
        since: Timestamp,
        verdict: Verdict,
    ) -> Self {
        let kind = kind.into();
        Self {
            key,
            kind,
            severity,
            since,
            pod: None,
            sandboxes: Vec::new(),
            gapped: false,
            call: None,
            verdict,
        }
    }

    /// Keeps an open finding about no sandbox open, since it cannot be judged now.
    fn unsure(open: &Finding) -> Self {
        Self::keyed(open.key.clone(), open.kind.clone(), open.severity, open.since, Verdict::Unsure)
    }
}

/// Returns the detector of each kind, in the order in which findings are reported. Leaks come before these,
/// and pools after them, because pools are judged by the leaks ([`judge`]).
fn detectors() -> Vec<Box<dyn Detector>> {
    vec![
        ByScan::detector(FindingKind::AbandonedStore, abandoned_store::detect),
        ByScan::detector(FindingKind::OwnerlessReservation, ownerless_reservation::detect),
        BySubject::detector(FindingKind::DuplicateSandbox, duplicate_sandbox::gather),
        BySubject::detector(FindingKind::SandboxesReplaced, sandboxes_replaced::gather),
        BySubject::and_scan(FindingKind::RestartedInBulk, restarted_in_bulk::gather),
        BySubject::<TeardownOutOfOrder>::each(FindingKind::TeardownOutOfOrder),
        BySubject::detector(FindingKind::CniFailing, cni_failing::gather),
        BySubject::detector(FindingKind::CniWrongDel, cni_wrong_del::gather),
        BySubject::and_scan(FindingKind::CniSlow, cni_slow::gather),
        ByScan::detector(FindingKind::CniQueue, cni_queue::detect),
        BySubject::<DuplicateAddress>::each(FindingKind::DuplicateAddress),
        BySubject::<LostNetwork>::each(FindingKind::LostNetwork),
        BySubject::<DuplicateContainer>::each(FindingKind::DuplicateContainer),
        BySubject::<OrphanNetns>::each(FindingKind::OrphanNetns),
        BySubject::<OrphanSandbox>::each(FindingKind::OrphanSandbox),
        BySubject::<AbandonedSandbox>::each(FindingKind::AbandonedSandbox),
        BySubject::and_scan(FindingKind::PhantomSandbox, phantom_sandbox::gather),
        BySubject::<StaleRuntimeStatus>::each(FindingKind::StaleRuntimeStatus),
        BySubject::<MissedRuntimeEvent>::each(FindingKind::MissedRuntimeEvent),
        ByScan::detector(FindingKind::DaemonFailing, daemon_failing::detect),
        ByScan::detector(FindingKind::RuntimeUnresponsive, runtime_unresponsive::detect),
        ByScan::detector(FindingKind::NodeNetworkUnready, node_network_unready::detect),
        ByScan::detector(FindingKind::StuckNetnsTeardown, stuck_netns_teardown::detect),
        BySubject::<StuckCgroup>::each(FindingKind::StuckCgroup),
        BySubject::<StuckStop>::each_step(FindingKind::StuckStop),
        BySubject::<StuckStart>::each_step(FindingKind::StuckStart),
        ByScan::detector(FindingKind::UnverifiedRelease, unverified_release::detect),
        ByScan::detector(FindingKind::BlindSpot, blind_spot::detect),
    ]
}

/// Whether a container has run in a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HasRun {
    Yes,
    No,
    /// The kernel cannot show it, and no runtime has reported it.
    Unknown,
}

/// The stores of networks that no configuration names any more, by path. `true`: this is certain.
type Abandoned = BTreeMap<String, bool>;

/// The detections of one kind in one pass.
type Found = (FindingKind, Vec<Detection>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Not reported yet, because the state may end in a moment. It is judged again at `until`, if not before.
    Watched {
        until: Option<Timestamp>,
    },
    /// Reported as a candidate, and judged again at `until`.
    Candidate {
        until: Option<Timestamp>,
    },
    /// The state on which the verdict depends cannot be read at the moment. No finding opens or closes.
    Unsure,
    /// The time limit has passed. The records must be read again. If they show the same, the verdict is
    /// confirmed.
    Unverified,
    /// The time limit has passed. The node must be listed again. If the listing shows the same, the verdict
    /// is confirmed.
    Unlisted,
    Confirmed,
    /// Confirmed, and judged again at `until`. It closes by itself if nothing more of the kind happens.
    Passing {
        until: Timestamp,
    },
}

impl<'a> DetectContext<'a> {
    fn of(
        it: Situation<'a>,
        index: &'a Index,
        abandoned: &'a Abandoned,
        pods: &'a OnceCell<PodsWithRecords<'a>>,
    ) -> Self {
        let Situation { world, limits, now, up, findings } = it;
        let unread = lookup::record::has_unread_runtime(world);
        Self { world, limits, now, up, unread, index, abandoned, findings, pods }
    }

    /// Whether any running runtime has this sandbox on record.
    pub(super) fn has_record(&self, id: &ContainerId) -> HasRecord {
        self.world.records.has_record(id).unless(self.unread)
    }

    /// Whether any running runtime has a sandbox of this pod on record.
    pub(super) fn pod_has_record(&self, uid: &PodUid) -> HasRecord {
        self.pods
            .get_or_init(|| lookup::record::pods_with_records(self.world))
            .has_record(uid)
            .unless(self.unread)
    }

    /// Returns the start of a duration that began at `since`. After a suspend of the node it begins again.
    pub(super) fn awake(&self, since: Timestamp) -> Timestamp {
        since.max(self.world.node.woke_at)
    }

    /// Returns the verdict on a state that must last for `grace`: at first it is watched, after a quarter of
    /// the time it is a candidate, and at the end it is confirmed.
    pub(super) fn after(&self, since: Timestamp, grace: Duration) -> Verdict {
        let since = self.awake(since);
        let early = since + grace / 4;
        if self.now < early {
            Verdict::Watched { until: Some(early) }
        } else if self.now < since + grace {
            Verdict::Candidate { until: Some(since + grace) }
        } else {
            Verdict::Confirmed
        }
    }

    /// Like [`after`](Self::after), for a state that the runtime and the kubelet should clean up. The time
    /// begins when both are up, because nobody can clean up while one is down.
    pub(super) fn after_cleanup(&self, since: Timestamp, grace: Duration) -> Verdict {
        match self.up {
            Some(up) => self.after(since.max(up), grace),
            // It is judged again when one of them starts.
            None => Verdict::Watched { until: None },
        }
    }

    /// Like [`after_cleanup`](Self::after_cleanup), for a leftover. It is a candidate only if the records
    /// (`read_at`) and a listing of this list (`found_at`) show it after `since`. It is confirmed only if
    /// they still show it when the time is up. None: a listing does not find it any more.
    pub(super) fn left_over(
        &self,
        list: List,
        since: Timestamp,
        read_at: Timestamp,
        found_at: Option<Timestamp>,
    ) -> Option<Verdict> {
        let verdict = self.after_cleanup(since, self.limits.leak_grace);
        match verdict {
            Verdict::Candidate { until } if read_at < since || found_at < Some(since) => {
                return Some(Verdict::Watched { until });
            }
            Verdict::Watched { .. }
            | Verdict::Candidate { .. }
            | Verdict::Unsure
            | Verdict::Unverified
            | Verdict::Unlisted
            | Verdict::Passing { .. } => return Some(verdict),
            Verdict::Confirmed => {}
        }
        let up = self.up?;
        let ready = since.max(up) + self.limits.leak_grace;
        if read_at < ready {
            return Some(Verdict::Unverified);
        }
        if let Some(found_at) = found_at
            && found_at >= ready.max(self.now.saturating_sub(FRESH))
        {
            return Some(Verdict::Passing { until: found_at + FRESH + Duration::from_nanos(1) });
        }
        // A listing that did not find it any more is not requested again.
        let last = found_at.map_or(ready, |at| at + Duration::from_nanos(1));
        self.listed_since(&[list], ready.max(last))
    }

    /// Asks for these lists since `ready`, for a thing that no listing has found since. None: they were read,
    /// and do not contain it.
    pub(super) fn listed_since(&self, lists: &[List], ready: Timestamp) -> Option<Verdict> {
        match self.world.lists.relisted_at.filter(|asked| *asked >= ready) {
            None => Some(Verdict::Unlisted),
            Some(asked) if self.now < asked + ANSWER => {
                Some(Verdict::Watched { until: Some(asked + ANSWER) })
            }
            // The thing may be in the part that could not be read.
            Some(_) if lists.iter().any(|list| self.world.lists.partial.contains_key(list)) => {
                Some(Verdict::Unlisted)
            }
            Some(_) => None,
        }
    }

    /// Whether the process of a sandbox or of one of its containers runs.
    pub(super) fn has_process(&self, sandbox: &ContainerId) -> bool {
        let mut all = self.index.sandboxes.by(sandbox).chain([sandbox]);
        all.any(|id| self.world.containers.get(id).is_some_and(Container::is_running))
    }

    /// Returns what runtimes report about the containers of a sandbox, each with its runtime.
    pub(super) fn said_of(&self, sandbox: &ContainerId) -> impl Iterator<Item = (&'a Belief, &'a Runtime)> {
        let all = self.index.said.by(sandbox).filter_map(|id| self.world.beliefs.get(id));
        all.filter_map(|row| Some((row, self.world.beliefs.runtime_of(row)?)))
    }

    /// Returns what the runtime reports about a sandbox, and the runtime.
    pub(super) fn said_of_sandbox(&self, sandbox: &ContainerId) -> Option<(&'a Belief, &'a Runtime)> {
        let row = self.world.beliefs.get(sandbox)?;
        Some((row, self.world.beliefs.runtime_of(row)?))
    }

    /// Whether a container has run in a sandbox: the kernel has shown it, or the runtime says so. If the
    /// programs of containers are not processes of the node, only a followed runtime shows it, and only for a
    /// sandbox that lives. `Unknown` as well: a container of its pod has run, perhaps in this sandbox.
    pub(super) fn has_run(&self, row: &Sandbox) -> HasRun {
        if !row.containers().is_empty() || self.said_of(&row.id).any(|(it, runtime)| it.has_begun(runtime)) {
            return HasRun::Yes;
        }
        let of_pod = row.pod.map(|pod| self.world.containers.group(Group::Pod(pod)));
        if of_pod.into_iter().flatten().any(|container| row.may_have_run(container)) {
            return HasRun::Unknown;
        }
        if !row.hides_programs {
            return HasRun::No;
        }
        if self.said_of(&row.id).any(|(it, runtime)| it.has_ended(runtime)) {
            return HasRun::Yes;
        }
        let is_followed = !row.is_stopped() && self.said_of_sandbox(&row.id).is_some();
        if is_followed { HasRun::No } else { HasRun::Unknown }
    }

    /// Returns the open findings.
    pub(super) fn open(&self) -> impl Iterator<Item = &'a Finding> {
        self.findings.into_iter().flat_map(Findings::open)
    }

    /// Returns the finding of this key, if it is open.
    pub(super) fn open_finding(&self, key: &Key) -> Option<&'a Finding> {
        self.findings?.get(key).filter(|it| it.closed_at.is_none())
    }

    /// Whether the runtime finished creating the sandbox: a process of it ran. CRI-O creates sandboxes
    /// without a process.
    pub(super) fn was_made(&self, row: &Sandbox) -> bool {
        row.up_since.is_some() || lookup::daemons::has_crio(self.world)
    }

    /// Whether a sandbox has its network. It has if every plugin's ADD succeeded, if it needs no ADD, or if
    /// its ADDs were before the agent started.
    pub(super) fn is_connected(&self, row: &Sandbox) -> bool {
        let host_network = self.world.sandboxes.get(&row.id).is_some_and(|row| row.network.is_host);
        let mut all = self.world.attachments.of(&row.id).filter(|it| !it.is_loopback()).peekable();
        host_network || all.peek().is_some() && all.all(|it| it.is_added() || !it.was_seen())
    }
}
