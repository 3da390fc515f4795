//! The listings that are under way, and the gaps after which rows are in doubt.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    engine::world::EventContext,
    model::{fact::List, time::Timestamp},
};

/// A listing that has begun and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    pub(crate) list: List,
    pub(crate) at: Timestamp,
    /// The listing has only what changed since the one before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_unchanged: bool,
}

/// The time from which the rows of one kind of list are in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    pub(crate) list: List,
    pub(crate) at: Timestamp,
    #[serde(default)]
    pub(crate) doubt: Doubt,
}

/// What is in doubt after a loss, until a complete listing that began after the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Doubt {
    /// Records that verdicts depend on may be missing. A row's absence proves nothing.
    #[default]
    Lost,
    /// Only records of the bulk ring or of netlink may be missing. Rows may be out of date, but verdicts
    /// still hold.
    Excess,
    /// No agent heard netlink. A network namespace may have ended, and another one may have its inode by now.
    Unheard,
    /// Rows that existed when records were lost are marked (`gapped`). A later listing can show that they are
    /// unchanged.
    Marked,
}

/// The state of the listings.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    /// The listings that have begun and not ended.
    pub(crate) begun: BTreeMap<List, Timestamp>,
    /// The listing of libcni's cache that has begun has only what changed since the one before it.
    pub(crate) is_cache_unchanged: bool,
    pub(crate) gaps: BTreeMap<(Doubt, List), Timestamp>,
    /// The lists whose last reading was incomplete, and since when.
    pub(crate) partial: BTreeMap<List, Timestamp>,
    /// When the node was last asked to be listed again.
    pub(crate) relisted_at: Option<Timestamp>,
}

/// How long no record must have been lost before marks are removed. By then operations that were under way
/// have ended, or their records have come.
pub(crate) const QUIET: Duration = Duration::from_secs(30);

/// The lists that can show that a sandbox is unchanged.
pub(crate) const HEALING: [List; 3] = [List::Processes, List::Netns, List::CniCache];

impl Lists {
    pub(in crate::engine::world) fn begin(&mut self, ctx: EventContext, list: List) {
        self.begun.insert(list, ctx.at);
        if list == List::CniCache {
            self.is_cache_unchanged = false;
        }
    }

    pub(in crate::engine::world) fn out_of_date(&mut self, at: Timestamp, lists: &[List]) {
        for list in lists {
            self.gaps.insert((Doubt::Excess, *list), at);
        }
    }

    /// Whether a listing that began at `begun` began after this gap.
    pub(crate) fn is_gap_over(&self, doubt: Doubt, list: List, begun: Timestamp) -> bool {
        self.gaps.get(&(doubt, list)).is_some_and(|gap| *gap <= begun)
    }

    /// Whether records that verdicts depend on may be missing until this list is read again.
    pub(crate) fn is_gapped(&self, list: List) -> bool {
        self.gaps.contains_key(&(Doubt::Lost, list))
    }

    /// Returns until when something of this list may have come or gone unseen. The list was not read again.
    pub(crate) fn in_doubt_until(&self, list: List) -> Option<Timestamp> {
        [Doubt::Lost, Doubt::Excess].iter().filter_map(|it| self.gaps.get(&(*it, list)).copied()).max()
    }

    /// Returns the time by which records were last lost. What happened before it may be known in part.
    pub(crate) fn lost_until(&self) -> Timestamp {
        self.gaps.get(&(Doubt::Lost, List::Processes)).copied().unwrap_or_default()
    }

    /// Whether marks of a loss have not been removed yet. What is found now may have existed when records
    /// were lost.
    pub(crate) fn is_marked(&self) -> bool {
        HEALING.iter().any(|list| self.gaps.contains_key(&(Doubt::Marked, *list)))
    }
}
