//! Network namespaces. The kernel reuses an inode number at once, so the world numbers each life of an inode.

pub(crate) mod address;
pub(crate) mod rows;
pub(crate) mod watch;

use std::{net::IpAddr, time::Duration};

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use crate::{
    engine::{grouped::Grouped, world::netns_path::plain},
    model::{
        fact::Task,
        id::{ContainerId, NetnsKey, Subnet},
        time::Timestamp,
    },
};

#[serde_as]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Netns {
    /// The number of this life of the inode. Numbers only rise and are never reused.
    #[serde_as(as = "DisplayFromStr")]
    pub(crate) life: u64,
    pub(crate) key: NetnsKey,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) found_at: Option<Timestamp>,
    /// Since when every listing of the namespace has found no process in it.
    pub(crate) vacant_since: Option<Timestamp>,
    /// The task that made the namespace. All zero if no hook saw that.
    pub(crate) creator: Task,
    /// The files to which the namespace is bound.
    pub(crate) mounts: Vec<String>,
    pub(crate) sandbox: Option<ContainerId>,
    /// A CNI plugin worked in the namespace for that sandbox, or the sandbox's process is in it. If this is
    /// false, the sandbox is only the likeliest one.
    pub(crate) proven: bool,
    pub(crate) addresses: Vec<Address>,
    /// When its addresses were last listed while some of them were in doubt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) relisted_at: Option<Timestamp>,
    /// When the last reference to the namespace was dropped.
    pub(crate) dropped_at: Option<Timestamp>,
    /// No hook saw the end of the namespace: netlink reported it, or a listing did not have it, or a
    /// namespace that was dropped later has been torn down. The duration of the teardown is not known.
    #[serde(default)]
    pub(crate) end_inferred: bool,
    /// The hooks reported that they will not see the end of the namespace. Netlink's report of its end
    /// counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) end_unseen: bool,
    /// The end of the namespace may have been among lost records.
    pub(crate) gapped: bool,
    /// Since when no complete listing has had it although its sandbox is over and a hook would report its
    /// end: no process is in it, no file that a listing looks at is bound to it, and something keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unlisted_since: Option<Timestamp>,
    /// Netlink was asked to watch the namespace.
    #[serde(default)]
    pub(crate) watched: bool,
    /// Netlink could not watch the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) watch_failed: Option<watch::Failed>,
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    #[default]
    Live,
    /// The last reference is gone, and its teardown is under way.
    Dropped { at: Timestamp },
    /// The inode number is free.
    Freed { at: Timestamp },
}

/// The transitions of a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Drop,
    Free,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Address {
    pub(crate) address: Subnet,
    pub(crate) ifname: String,
    pub(crate) ifindex: u32,
    pub(crate) flags: u32,
}

/// The properties by which the table finds network namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    /// It is or was bound to this file. The path is spelled as [`plain`] spells it.
    Path(String),
    /// It lives, a hook saw its making, and it is known to belong to no sandbox and no file.
    Unclaimed,
    /// Its last reference was dropped.
    Over,
    /// No listing shows it, whether it lives or not.
    Unlisted,
}

impl Grouped for Netns {
    type Group = Group;

    fn groups(&self) -> impl Iterator<Item = Group> {
        let is_unclaimed =
            self.is_live() && self.created_at.is_some() && self.sandbox.is_none() && self.mounts.is_empty();
        let paths = self.mounts.iter().map(|path| Group::Path(plain(path).into_owned()));
        let over = (!self.is_live()).then_some(Group::Over);
        let unlisted = (!self.is_listable()).then_some(Group::Unlisted);
        paths.chain(is_unclaimed.then_some(Group::Unclaimed)).chain(over).chain(unlisted)
    }
}

impl State {
    pub(crate) fn step(self, step: Step, at: Timestamp) -> Option<Self> {
        match (self, step) {
            (Self::Live, Step::Drop) => Some(Self::Dropped { at }),
            (Self::Live | Self::Dropped { .. }, Step::Free) => Some(Self::Freed { at }),
            (Self::Dropped { .. } | Self::Freed { .. }, Step::Drop) | (Self::Freed { .. }, Step::Free) => {
                None
            }
        }
    }
}

impl Netns {
    /// Whether an interface in it has this address.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|it| it.address.address == address)
    }

    #[must_use]
    pub(crate) fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// Since when its addresses are unheard, if netlink was never asked to watch it. One that a listing found
    /// may have waited for other reasons.
    pub(crate) fn unheard_since(&self) -> Option<Timestamp> {
        if self.watch_failed.is_none() && self.found_at.is_none() { self.created_at } else { None }
    }

    /// Since when the teardown has been under way. None: it is not under way, or no hook would see its end.
    #[must_use]
    pub(crate) fn ending_since(&self) -> Option<Timestamp> {
        match self.state {
            State::Dropped { at } if !self.gapped && !self.end_inferred => Some(at),
            State::Live | State::Dropped { .. } | State::Freed { .. } => None,
        }
    }

    /// Whether the kernel has it: it counts against the kernel's limit until its teardown is done.
    #[must_use]
    pub(crate) fn is_in_kernel(&self) -> bool {
        self.is_live() || self.ending_since().is_some()
    }

    /// Whether a listing has the namespace as long as it exists: an earlier listing had it, a file is bound
    /// to it, or a sandbox is in it. A namespace that only a descriptor, a socket or a thread holds is in no
    /// listing.
    pub(crate) fn is_listable(&self) -> bool {
        self.found_at.is_some() || !self.mounts.is_empty() || self.sandbox.is_some()
    }

    /// Whether a sandbox may still be in it: it lives, and listings have it.
    #[must_use]
    pub(crate) fn may_be_used(&self) -> bool {
        self.is_live() && self.unlisted_since.is_none()
    }

    /// When a record or a listing last showed that it exists.
    pub(crate) fn seen_at(&self) -> Option<Timestamp> {
        self.created_at.max(self.found_at)
    }

    /// Whether it may have ended since it was last seen: netlink could not watch it since, which it cannot
    /// where there is nothing left to watch.
    pub(crate) fn may_be_over(&self) -> bool {
        self.watch_failed.is_some_and(|failed| failed.is_after(self.seen_at()))
    }

    /// When the namespace ended. While it lives: when a listing last had it.
    pub(crate) fn last_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Live => self.found_at,
            State::Dropped { at } | State::Freed { at } => Some(at),
        }
    }
}

/// The kernel may tear down namespaces that are dropped within this time in one batch, in any order.
pub(crate) const SAME_BATCH: Duration = Duration::from_secs(1);

/// The latest drop of a namespace whose teardown was seen to end. The kernel works in order: every namespace
/// that was dropped before it, except in the same batch, has been torn down as well.
pub(crate) fn passed_at<'a>(rows: impl Iterator<Item = &'a Netns>) -> Option<Timestamp> {
    rows.filter_map(|row| match row.state {
        State::Freed { .. } if !row.end_inferred => row.dropped_at,
        State::Live | State::Dropped { .. } | State::Freed { .. } => None,
    })
    .max()
}
