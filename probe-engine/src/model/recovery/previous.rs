//! The previous boot: how it ended, and which pods it had.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use super::{Pod, Recovery, RunningPods, Source, ns};
use crate::model::{scalar::is_default, time::Timestamp};

/// How long a node may stay alive after an order that ended it.
pub const LONGEST_SHUTDOWN: Duration = Duration::from_secs(10 * 60);

/// This boot, and what is known of the previous one.
#[serde_as]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootRead {
    /// The kernel's random id of the boot.
    pub boot_id: String,
    /// The kernel's release.
    pub kernel: String,
    /// The wall clock at its beginning, ns since the epoch; changes when the clock is set.
    #[serde_as(as = "DisplayFromStr")]
    pub boot_wall_ns: i64,
    pub before: PreviousBoot,
    /// Labels that the operator configured, by which boots can be compared.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The end of the previous boot, as far as it was kept.
#[serde_as]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousBoot {
    pub boot_id: Option<String>,
    pub ordered: Option<Ordered>,
    /// The last time at which an agent showed that the node was alive, ns since the epoch.
    #[serde_as(as = "Option<DisplayFromStr>")]
    pub alive_wall_ns: Option<i64>,
    /// The pods that ran at the order, or at that last time. `None`: nothing was kept.
    pub pods: Option<Vec<Pod>>,
    /// The number of other pods that were not kept, at least.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pods_left_out: u32,
    /// Boots between this record and the current boot: this is then the last known boot, not the previous
    /// one.
    pub unseen: Option<Unseen>,
}

/// Boots that no agent has recorded.
#[serde_as]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    /// Their number, at least.
    pub boots: u32,
    /// When the last of them began, ns since the epoch.
    #[serde_as(as = "DisplayFromStr")]
    pub last_wall_ns: i64,
    /// Where they are on record.
    pub source: Source,
}

/// The last known boot, for the search for later boots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    /// When it began, and its last sign of life, ns since the epoch.
    pub began_wall_ns: i64,
    pub alive_wall_ns: i64,
    /// The ids of all known boots, including this one.
    pub known: Vec<String>,
}

/// A restart was ordered.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ordered {
    /// Wall time, ns since the epoch.
    #[serde_as(as = "DisplayFromStr")]
    pub wall_ns: i64,
    /// What ordered it: a program and its arguments, or a log record.
    pub by: String,
    pub source: Source,
}

impl PreviousBoot {
    /// Summarizes the last recorded boot and the last sign of life for the next boot.
    #[must_use]
    pub fn of(last: Option<&Recovery>, alive: Option<Alive>) -> Self {
        let boot = last.and_then(|last| last.boot.as_ref());
        // A heartbeat of yet another boot says nothing about this one's end.
        let alive = alive.filter(|it| boot.is_none_or(|boot| boot.boot_id == it.boot_id));
        let order = last.and_then(|last| last.order.as_ref());
        let ordered = order.and_then(|it| {
            Some(Ordered { wall_ns: wall(boot?, it.at), by: it.by.clone(), source: Source::Hook })
        });
        let seen = last.and_then(|last| {
            Some(wall(boot?, last.seen_until.max(order.map_or(Timestamp::ZERO, |it| it.at))))
        });
        let alive_wall_ns = alive.as_ref().map(|it| it.wall_ns).max(seen);
        let at_order = order
            .filter(|it| boot.map(|boot| wall(boot, it.at + LONGEST_SHUTDOWN)) >= alive_wall_ns)
            .map(|it| it.running.clone());
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

    /// Adds boots since then: an order that ended the last known boot then did not lead to this one.
    #[must_use]
    pub fn followed_by(mut self, unseen: Option<Unseen>) -> Self {
        self.unseen = unseen;
        self.ordered.take_if(|it| unseen.is_some_and(|unseen| it.wall_ns < unseen.last_wall_ns));
        self
    }

    /// Looks for an order in other records, if none is known that can have led to this boot.
    #[must_use]
    pub fn or_ordered(mut self, look: impl FnOnce() -> Option<Ordered>) -> Self {
        if self.ordered.is_none() || self.has_outlived_order() {
            let since = self.unseen.map_or(i64::MIN, |unseen| unseen.last_wall_ns);
            self.ordered = look().filter(|it| it.wall_ns >= since).or(self.ordered);
        }
        self
    }

    /// Whether the node was alive for so long after the order that the order did not end it.
    #[must_use]
    pub(crate) fn has_outlived_order(&self) -> bool {
        let (Some(ordered), Some(alive)) = (&self.ordered, self.alive_wall_ns) else { return false };
        alive.saturating_sub(ordered.wall_ns) > ns(LONGEST_SHUTDOWN)
    }
}

/// Returns the wall time of a time of this boot, ns since the epoch.
fn wall(boot: &BootRead, at: Timestamp) -> i64 {
    boot.boot_wall_ns.saturating_add_unsigned(at.0)
}

/// The last sign of life of a boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alive {
    pub boot_id: String,
    /// Wall time, ns since the epoch.
    pub wall_ns: i64,
    /// The pods that ran at that time.
    pub running: RunningPods,
}
