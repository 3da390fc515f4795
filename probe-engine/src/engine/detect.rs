//! Verdicts. Each rule judges its subjects (a sandbox, a pod, an address) by the world as it is, and says what is wrong
//! with them. What it said before and no longer says has come right.
//!
//! A rule sees no events and keeps no state: out-of-order records, a restart or a listing cannot confuse it. A subject is
//! judged again only when something changed that its verdict is made of, or when its time is up (`index`, `rule`). Where
//! several things are one finding, the rule looks at what was told before, so that they stay that one. What passes within
//! [`PERIOD`] is not looked at: it was no problem.
//!
//! **Invariant:** rules change nothing; nothing is concluded from what was not seen across a gap. Judging everything
//! anew gives what is tracked ([`FindingTracker::differences`]).

mod abandoned_store;
mod blind_spot;
mod cni_failing;
mod cni_queue;
mod cni_slow;
mod duplicate_address;
mod duplicate_container;
mod duplicate_sandbox;
mod finding_tracker;
mod findings;
mod index;
mod judge;
mod leaked_address;
mod links;
mod orphan_netns;
mod orphan_sandbox;
#[cfg(test)]
mod pages;
mod pool;
mod pool_exhaustion;
mod rule;
mod stuck_cgroup;
mod stuck_netns_teardown;
mod survey;
mod teardown_out_of_order;
mod unverified_release;

use std::{cell::OnceCell, time::Duration};

use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use abandoned_store::Abandoned;
pub(super) use finding_tracker::FindingTracker;
use findings::Findings;
use index::Index;
use judge::Situation;
use rule::{ByScan, BySubject, Detector};
pub use survey::Daemons;
pub(super) use survey::survey;

use super::world::{
    World,
    record::{Kept, pods::PodsKept},
    sandbox::Sandbox,
};
use crate::model::{
    change::Finding,
    fact::PodName,
    finding::{
        DuplicateAddress, DuplicateContainer, FindingKind, Key, Kind, OrphanNetns, OrphanSandbox, Severity,
        StuckCgroup, TeardownOutOfOrder,
    },
    id::{ContainerId, PodUid},
    time::{Nanoseconds, Timestamp},
};

/// The world is looked at so long after it changed, and not more often; where there are thousands of findings, less.
pub(super) const PERIOD: Duration = Duration::from_millis(100);

/// So long a listing may take that was asked for: what it has not found by then is not there to be found.
const ANSWER: Duration = Duration::from_secs(60);
/// What a listing found counts for so long.
const FRESH: Duration = Duration::from_secs(10 * 60);

/// When something has been so for long enough to be called wrong.
#[serde_as]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// How long an address may stay given out after its sandbox, while runtime and kubelet are up to free it. The same
    /// patience is had with namespaces, cgroups and sandboxes that outlive their pod.
    #[serde(rename = "leak_grace_ns")]
    #[serde_as(as = "Nanoseconds")]
    pub leak_grace: Duration,
    /// How long the kernel may take a namespace apart.
    #[serde(rename = "stuck_after_ns")]
    #[serde_as(as = "Nanoseconds")]
    pub stuck_after: Duration,
    /// How long one call of a plugin may take.
    #[serde(rename = "cni_slow_ns")]
    #[serde_as(as = "Nanoseconds")]
    pub cni_slow: Duration,
    /// So many plugins at once are a queue.
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

/// What a rule looks at.
#[derive(Clone, Copy)]
pub(super) struct DetectContext<'a> {
    pub(super) world: &'a World,
    pub(super) limits: &'a Limits,
    pub(super) now: Timestamp,
    /// Since when runtime and kubelet are both up, and the node is, to clean up; none while one of them is not.
    pub(super) up: Option<Timestamp>,
    /// A runtime runs whose records were not read.
    pub(super) unread: bool,
    index: &'a Index,
    /// The stores of networks that are no more.
    abandoned: &'a Abandoned,
    /// What was told before; nothing where nobody watches.
    told: Option<&'a Findings>,
    /// Which pods are on record, gathered once for a look.
    pods: &'a OnceCell<PodsKept<'a>>,
}

/// Something that is wrong now.
#[derive(Clone, Debug)]
pub(super) struct Detection {
    pub(super) key: Key,
    pub(super) kind: Kind,
    pub(super) severity: Severity,
    pub(super) since: Timestamp,
    pub(super) pod: Option<PodName>,
    pub(super) sandboxes: Vec<ContainerId>,
    pub(super) gapped: bool,
    pub(super) standing: Verdict,
}

/// How each kind is found, in the order in which they are told. Leaks come before all others and pools after them: these
/// are judged by the leaks, too ([`judge`]).
fn detectors() -> Vec<Box<dyn Detector>> {
    vec![
        ByScan::detector(FindingKind::AbandonedStore, abandoned_store::detect),
        BySubject::detector(FindingKind::DuplicateSandbox, duplicate_sandbox::gather),
        BySubject::<TeardownOutOfOrder>::each(FindingKind::TeardownOutOfOrder),
        BySubject::detector(FindingKind::CniFailing, cni_failing::gather),
        BySubject::and_scan(FindingKind::CniSlow, cni_slow::gather),
        ByScan::detector(FindingKind::CniQueue, cni_queue::detect),
        BySubject::<DuplicateAddress>::each(FindingKind::DuplicateAddress),
        BySubject::<DuplicateContainer>::each(FindingKind::DuplicateContainer),
        BySubject::<OrphanNetns>::each(FindingKind::OrphanNetns),
        BySubject::<OrphanSandbox>::each(FindingKind::OrphanSandbox),
        ByScan::detector(FindingKind::StuckNetnsTeardown, stuck_netns_teardown::detect),
        BySubject::<StuckCgroup>::each(FindingKind::StuckCgroup),
        ByScan::detector(FindingKind::UnverifiedRelease, unverified_release::detect),
        ByScan::detector(FindingKind::BlindSpot, blind_spot::detect),
    ]
}

/// What one look found of one kind.
type Found = (FindingKind, Vec<Detection>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Not to be told yet: it may be a moment's work. To be looked at again then, if not before.
    Watched {
        until: Option<Timestamp>,
    },
    /// To be told, and looked at again then.
    Candidate {
        until: Option<Timestamp>,
    },
    /// What it rests on cannot be read at the moment: it is told of nothing new, and nothing has come right by that.
    Unsure,
    /// Its time is up. The records are to be read again; if they say the same, it is so.
    Unverified,
    /// Its time is up. The node is to be listed again; if that finds the same, it is so.
    Unlisted,
    Confirmed,
    /// Confirmed, and looked at again then: it is over by itself if nothing more of the kind happens.
    Passing {
        until: Timestamp,
    },
}

impl<'a> DetectContext<'a> {
    fn of(
        it: Situation<'a>,
        index: &'a Index,
        abandoned: &'a Abandoned,
        pods: &'a OnceCell<PodsKept<'a>>,
    ) -> Self {
        let Situation { world, limits, now, up, told } = it;
        let unread = world.has_unread_runtime();
        Self { world, limits, now, up, unread, index, abandoned, told, pods }
    }

    /// Whether any runtime that runs has this sandbox on record.
    pub(super) fn kept(&self, id: &ContainerId) -> Kept {
        self.world.records.kept(id).unless(self.unread)
    }

    /// Whether any runtime that runs has a sandbox of this pod on record.
    pub(super) fn pod_kept(&self, uid: &PodUid) -> Kept {
        self.pods.get_or_init(|| self.world.pods_kept(&self.index.on_record)).kept(uid).unless(self.unread)
    }

    /// From when time counts of what began then: with the node's suspend it begins anew.
    pub(super) fn awake(&self, since: Timestamp) -> Timestamp {
        since.max(self.world.node.woke_at)
    }

    /// The standing of what must have been so for a while: watched first, told when a quarter of it has passed, and
    /// confirmed at its end.
    pub(super) fn after(&self, since: Timestamp, grace: Duration) -> Verdict {
        let since = self.awake(since);
        let told = since + grace / 4;
        if self.now < told {
            Verdict::Watched { until: Some(told) }
        } else if self.now < since + grace {
            Verdict::Candidate { until: Some(since + grace) }
        } else {
            Verdict::Confirmed
        }
    }

    /// The same for what runtime and kubelet are to clean up: their time begins when both are up. While one is down
    /// nobody cleans up, and nothing is held against it.
    pub(super) fn after_cleanup(&self, since: Timestamp, grace: Duration) -> Verdict {
        match self.up {
            Some(up) => self.after(since.max(up), grace),
            // Looked at again when one of them comes up.
            None => Verdict::Watched { until: None },
        }
    }

    /// The same for a thing that is left over: told only if the records (`read_at`) and a listing (`found_at`) show it
    /// since, and confirmed only if they still do when its time is up. None: a listing does not find it any more.
    pub(super) fn left_over(
        &self,
        since: Timestamp,
        read_at: Timestamp,
        found_at: Option<Timestamp>,
    ) -> Option<Verdict> {
        let standing = self.after_cleanup(since, self.limits.leak_grace);
        match standing {
            Verdict::Candidate { until } if read_at < since || found_at < Some(since) => {
                return Some(Verdict::Watched { until });
            }
            Verdict::Watched { .. }
            | Verdict::Candidate { .. }
            | Verdict::Unsure
            | Verdict::Unverified
            | Verdict::Unlisted
            | Verdict::Passing { .. } => return Some(standing),
            Verdict::Confirmed => {}
        }
        let up = self.up?;
        let ready = since.max(up) + self.limits.leak_grace;
        if read_at < ready {
            return Some(Verdict::Unverified);
        }
        let ready = ready.max(self.now.saturating_sub(FRESH));
        if let Some(found_at) = found_at.filter(|at| *at >= ready) {
            return Some(Verdict::Passing { until: found_at + FRESH + Duration::from_nanos(1) });
        }
        self.listed_since(ready)
    }

    /// A listing is wanted of what no listing found since then. None: one was made, and did not find it.
    pub(super) fn listed_since(&self, ready: Timestamp) -> Option<Verdict> {
        match self.world.lists.relisted_at.filter(|asked| *asked >= ready) {
            None => Some(Verdict::Unlisted),
            Some(asked) if self.now < asked + ANSWER => {
                Some(Verdict::Watched { until: Some(asked + ANSWER) })
            }
            Some(_) => None,
        }
    }

    /// What was told and is not over.
    pub(super) fn open(&self) -> impl Iterator<Item = &'a Finding> {
        self.told.into_iter().flat_map(Findings::open)
    }

    /// Whether a sandbox has its network: every plugin's ADD succeeded, or it needs none, or it was there before us.
    pub(super) fn is_connected(&self, row: &Sandbox) -> bool {
        let host_network = self.world.sandboxes.get(&row.id).is_some_and(|row| row.network.is_host);
        let mut all = self.world.attachments_of(&row.id).filter(|it| !it.is_loopback()).peekable();
        host_network || all.peek().is_some() && all.all(|it| it.is_added() || !it.was_seen())
    }
}
