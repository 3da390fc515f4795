//! How often netlink was asked to watch a network namespace, and when it is asked again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::time::Timestamp;

/// How many watches were asked for in the present second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    pub(crate) since: Timestamp,
    pub(crate) spent: u32,
}

/// Netlink could not watch a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failed {
    /// How often, and when last.
    pub(crate) times: u32,
    pub(crate) at: Timestamp,
    /// Since when its addresses were unheard, if netlink was asked for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unheard_since: Option<Timestamp>,
}

/// At most this many new namespaces are watched at once in a second.
pub(crate) const PROMPT: u32 = 64;

/// A namespace that a container made is watched once it has lived this long.
pub(crate) const SETTLED: Duration = Duration::from_secs(1);

/// Netlink reports within this time that it cannot watch a new namespace, unless the agent is held up or more
/// namespaces come than it may search for. One that ends sooner may never be watched.
pub(crate) const LATE: Duration = Duration::from_secs(1);

/// Netlink is asked to watch a namespace at most this often: again after 1 s, 2 s, 4 s, 8 s and 16 s. By then
/// a namespace that a runtime makes is bound to its file, and a burst of pods is over.
pub(crate) const TRIES: u32 = 6;

impl Failed {
    /// When netlink is asked again. None: it was asked often enough.
    pub(crate) fn again_at(self) -> Option<Timestamp> {
        if self.times >= TRIES {
            return None;
        }
        let doubled = self.times.checked_sub(1)?;
        Some(self.at + SETTLED * 2_u32.pow(doubled))
    }

    pub(crate) fn is_due(self, at: Timestamp) -> bool {
        self.again_at().is_some_and(|again| again <= at)
    }

    pub(crate) fn is_after(self, at: Option<Timestamp>) -> bool {
        Some(self.at) > at
    }
}

impl Budget {
    pub(in crate::engine::world) fn take(&mut self, at: Timestamp) -> bool {
        if at >= self.since + SETTLED {
            *self = Self { since: at, spent: 0 };
        }
        self.spent = self.spent.saturating_add(1);
        self.spent <= PROMPT
    }
}
