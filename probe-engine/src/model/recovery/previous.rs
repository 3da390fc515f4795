//! The boot before this one: how it ended, and which pods it had.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use super::{Order, Pod, Recovery, RunningPods, Source, ns};
use crate::model::{scalar::is_default, time::Timestamp};

/// How long a node may stay alive after an order that ended it.
pub const LONGEST_SHUTDOWN: Duration = Duration::from_secs(10 * 60);

/// What a boot is, and what is known of the one before.
#[serde_as]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootRead {
    /// The kernel's random id of it.
    pub boot_id: String,
    /// The kernel's release.
    pub kernel: String,
    /// What the wall clock showed at its beginning, ns since the epoch; follows the clock when that is set.
    #[serde_as(as = "DisplayFromStr")]
    pub boot_wall_ns: i64,
    pub before: PreviousBoot,
    /// What the node's owner says of it, by which boots can be compared.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The end of the boot before, as far as anything kept it.
#[serde_as]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousBoot {
    pub boot_id: Option<String>,
    pub ordered: Option<Ordered>,
    /// The last time at which an agent showed that the node was alive, ns since the epoch.
    #[serde_as(as = "Option<DisplayFromStr>")]
    pub alive_wall_ns: Option<i64>,
    /// The pods that were there at the order, or at that last time. `None`: nothing was kept.
    pub pods: Option<Vec<Pod>>,
    /// At least so many more were there, for which there was no room.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pods_left_out: u32,
    /// If there are known to be others in between: then this is not the boot before, but the last that is known.
    pub unseen: Option<Unseen>,
}

/// Boots that no agent has kept anything of.
#[serde_as]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    /// At least so many.
    pub boots: u32,
    /// When the last of them began, ns since the epoch.
    #[serde_as(as = "DisplayFromStr")]
    pub last_wall_ns: i64,
    /// What has kept a record of them.
    pub source: Source,
}

/// The last boot that is known, for whoever looks for others since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    /// When it began, and its last sign of life, ns since the epoch.
    pub began_wall_ns: i64,
    pub alive_wall_ns: i64,
    /// The ids of all that are known, this one's among them.
    pub known: Vec<String>,
}

/// A restart was ordered.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ordered {
    /// On the wall clock, ns since the epoch.
    #[serde_as(as = "DisplayFromStr")]
    pub wall_ns: i64,
    /// What ordered it: a program and what it was told, or the record of it.
    pub by: String,
    pub source: Source,
}

impl PreviousBoot {
    /// What a boot and the last sign of life tell to the next one.
    #[must_use]
    pub fn of(last: Option<&Recovery>, alive: Option<Alive>) -> Self {
        let boot = last.and_then(|last| last.boot.as_ref());
        // A heartbeat of yet another boot says nothing of this one's end.
        let alive = alive.filter(|it| boot.is_none_or(|boot| boot.boot_id == it.boot_id));
        let wall = |at: Timestamp| boot.map(|boot| boot.boot_wall_ns.saturating_add_unsigned(at.0));
        let order = last.and_then(|last| last.order.as_ref());
        let ordered = order
            .and_then(|it| Some(Ordered { wall_ns: wall(it.at)?, by: it.by.clone(), source: Source::Hook }));
        let seen = last.and_then(|last| wall(last.seen_until.max(order.map_or(Timestamp::ZERO, |it| it.at))));
        let alive_wall_ns = alive.as_ref().map(|it| it.wall_ns).max(seen);
        let outlived = |it: &Order| wall(it.at + LONGEST_SHUTDOWN) < alive_wall_ns;
        let at_order = order.filter(|it| !outlived(it)).map(|it| it.running.clone());
        let running = at_order.or_else(|| alive.as_ref().map(|it| it.running.clone()));
        Self {
            boot_id: boot.map(|boot| &boot.boot_id).or(alive.as_ref().map(|it| &it.boot_id)).cloned(),
            ordered,
            alive_wall_ns,
            pods_left_out: running.as_ref().map_or(0, |it| it.pods_left_out),
            pods: running.map(|it| it.pods),
            unseen: None,
        }
    }

    /// There were others since: what ended the boot that is known did not lead to this one.
    #[must_use]
    pub fn followed_by(mut self, unseen: Option<Unseen>) -> Self {
        self.unseen = unseen;
        self.ordered.take_if(|it| unseen.is_some_and(|unseen| it.wall_ns < unseen.last_wall_ns));
        self
    }

    /// With the order that somebody else has written down, if there is none that can have led to this boot.
    #[must_use]
    pub fn or_ordered(mut self, look: impl FnOnce() -> Option<Ordered>) -> Self {
        if self.ordered.is_none() || self.has_outlived_order() {
            let since = self.unseen.map_or(i64::MIN, |unseen| unseen.last_wall_ns);
            self.ordered = look().filter(|it| it.wall_ns >= since).or(self.ordered);
        }
        self
    }

    /// The node was still alive so long after the order that it is not what ended it.
    #[must_use]
    pub(crate) fn has_outlived_order(&self) -> bool {
        let outlived = |ordered: &Ordered| {
            self.alive_wall_ns
                .is_some_and(|alive| alive.saturating_sub(ordered.wall_ns) > ns(LONGEST_SHUTDOWN))
        };
        self.ordered.as_ref().is_some_and(outlived)
    }
}

/// The last sign of life of a boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alive {
    pub boot_id: String,
    /// Ns since the epoch.
    pub wall_ns: i64,
    /// The pods that ran at that time.
    pub running: RunningPods,
}
