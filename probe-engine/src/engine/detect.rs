//! Verdicts: each detector looks at the world as it is and says what it finds wrong; what it said before and no
//! longer says has come right.
//!
//! A detector sees no events and keeps no state: out-of-order records, a restart or a listing cannot confuse it. Where
//! several things are one finding it looks at what was told before, so that they stay that one. What passes within
//! [`PERIOD`] is not looked at: it was no problem.
//!
//! **Invariant:** detectors change nothing; nothing is concluded from what was not seen across a gap.

mod abandoned_store;
mod blind_spot;
mod cni_failing;
mod cni_queue;
mod cni_slow;
mod duplicate_address;
mod duplicate_container;
mod duplicate_sandbox;
mod finding_tracker;
mod leaked_address;
mod orphan_netns;
mod orphan_sandbox;
#[cfg(test)]
mod pages;
mod pool;
mod pool_exhaustion;
mod stuck_cgroup;
mod stuck_netns_teardown;
mod survey;
mod teardown_out_of_order;
mod unverified_release;

use std::{cell::OnceCell, time::Duration};

use serde::{Deserialize, Serialize};
use serde_with::serde_as;

pub(super) use finding_tracker::FindingTracker;
pub(super) use leaked_address::{Leak, many::members as many};
pub(super) use pool::pools;
pub use survey::Daemons;
pub(super) use survey::survey;

use super::world::{
    World,
    record::{Kept, pods::PodsKept},
    sandbox::Sandbox,
};
use crate::model::{
    fact::PodName,
    finding::{Finding, Key, Kind, Severity, Stage},
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

/// What a detector looks at.
#[derive(Clone, Copy)]
pub(super) struct DetectContext<'a> {
    pub(super) world: &'a World,
    pub(super) limits: &'a Limits,
    pub(super) now: Timestamp,
    /// Since when runtime and kubelet are both up, and the node is, to clean up; none while one of them is not.
    pub(super) up: Option<Timestamp>,
    /// A runtime runs whose records were not read.
    pub(super) unread: bool,
    /// What was told before; nothing at a first look.
    told: Option<&'a FindingTracker>,
    /// What more than one detector looks at, once it was found.
    leaks: &'a OnceCell<Vec<Leak<'a>>>,
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

/// Adds what it finds to what those before it have found.
pub(super) type Detector = fn(&DetectContext<'_>, &mut Vec<Detection>);

pub(super) const DETECTORS: &[Detector] = &[
    leaked_address::detect,
    abandoned_store::detect,
    duplicate_sandbox::detect,
    teardown_out_of_order::detect,
    cni_failing::detect,
    cni_slow::detect,
    cni_queue::detect,
    duplicate_address::detect,
    duplicate_container::detect,
    orphan_netns::detect,
    orphan_sandbox::detect,
    stuck_netns_teardown::detect,
    stuck_cgroup::detect,
    pool_exhaustion::detect,
    unverified_release::detect,
    blind_spot::detect,
];

impl<'a> DetectContext<'a> {
    pub(super) fn of(
        world: &'a World,
        limits: &'a Limits,
        now: Timestamp,
        leaks: &'a OnceCell<Vec<Leak<'a>>>,
    ) -> Self {
        let up = world.cleaners_since().map(|at| at.max(world.woke_at));
        let unread = world.has_unread_runtime();
        Self { world, limits, now, up, unread, told: None, leaks }
    }

    /// With what was found before.
    pub(super) fn told(self, finding_tracker: &'a FindingTracker) -> Self {
        Self { told: Some(finding_tracker), ..self }
    }

    /// Whether what is found goes into a finding_tracker: then it was looked before, and will be again.
    pub(super) fn is_watching(&self) -> bool {
        self.told.is_some()
    }

    /// Every address that is leaked, or may be.
    pub(super) fn leaks(&self) -> &'a [Leak<'a>] {
        self.leaks.get_or_init(|| leaked_address::leaks(self))
    }

    /// Whether any runtime that runs has this sandbox on record.
    pub(super) fn kept(&self, id: &ContainerId) -> Kept {
        self.world.records.kept(id).unless(self.unread)
    }

    /// Whether any runtime that runs has a sandbox of this pod on record; what is on record is gathered once for a look.
    pub(super) fn pod_kept(&self, pods: &OnceCell<PodsKept<'a>>, uid: &PodUid) -> Kept {
        pods.get_or_init(|| self.world.pods_kept()).kept(uid).unless(self.unread)
    }

    /// From when time counts of what began then: with the node's suspend it begins anew.
    pub(super) fn awake(&self, since: Timestamp) -> Timestamp {
        since.max(self.world.woke_at)
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
        if found_at >= Some(ready) {
            return Some(Verdict::Confirmed);
        }
        match self.world.relisted_at.filter(|asked| *asked >= ready) {
            None => Some(Verdict::Unlisted),
            Some(asked) if self.now < asked + ANSWER => {
                Some(Verdict::Watched { until: Some(asked + ANSWER) })
            }
            Some(_) => None,
        }
    }

    /// What was told and is not over.
    pub(super) fn open(&self) -> impl Iterator<Item = &'a Finding> {
        self.told.into_iter().flat_map(FindingTracker::iter).filter(|it| it.stage != Stage::Closed)
    }

    /// Whether a sandbox has its network: every plugin's ADD succeeded, or it needs none, or it was there before us.
    pub(super) fn is_connected(&self, row: &Sandbox) -> bool {
        let host_network = self.world.sandboxes.get(&row.id).is_some_and(|row| row.network.is_host);
        let mut all = self.world.attachments_of(&row.id).filter(|it| !it.is_loopback()).peekable();
        host_network || all.peek().is_some() && all.all(|it| it.is_added() || !it.was_seen())
    }
}
