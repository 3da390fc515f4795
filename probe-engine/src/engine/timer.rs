//! Named deadlines. Setting a deadline again moves it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Name {
    /// Remove rows of what is over, once they have been kept long enough.
    Reap,
    /// List the node again, at most once in a few seconds.
    Relist,
    /// Read the records again.
    Records,
    /// Check which pods are back after the boot.
    Recovery,
    /// Check whether a start is complete.
    Starts,
    /// Ask for the message of an ADD that failed too soon after another one to ask at once.
    Message,
    /// Ask netlink to watch the namespaces that wait for it.
    Watch,
    /// Ask the runtimes for states, since one may not have noticed something.
    Statuses,
    /// Check the open restarts of daemons.
    Restarts,
    /// Check the sandboxes without a running container, which may wait for an image.
    Pulls,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timers(BTreeMap<Name, Timestamp>);

impl Timers {
    pub(crate) fn set(&mut self, name: Name, due: Timestamp) {
        self.0.insert(name, due);
    }

    /// Sets a deadline, unless it is set to an earlier time.
    pub(crate) fn arm_earlier(&mut self, name: Name, due: Timestamp) {
        let at = self.0.entry(name).or_insert(due);
        *at = due.min(*at);
    }

    #[must_use]
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.0.values().min().copied()
    }

    /// Takes a deadline that is due by `now`, the earliest first.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<Name> {
        let (name, _) =
            self.0.iter().filter(|(_, due)| **due <= now).min_by_key(|(name, due)| (**due, **name))?;
        let name = *name;
        self.0.remove(&name);
        Some(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Name, Timestamp)> {
        self.0.iter().map(|(name, due)| (*name, *due))
    }
}

#[cfg(test)]
mod tests {
    use super::{Name, Timers};
    use crate::model::time::Timestamp;

    #[test]
    fn a_deadline_falls_due_once_and_the_earliest_first() {
        let mut timers = Timers::default();
        timers.set(Name::Relist, Timestamp(5));
        timers.arm_earlier(Name::Reap, Timestamp(9));
        timers.arm_earlier(Name::Reap, Timestamp(3));
        timers.arm_earlier(Name::Reap, Timestamp(7));
        assert_eq!(timers.next(), Some(Timestamp(3)));
        assert_eq!(timers.pop(Timestamp(2)), None);
        assert_eq!(timers.pop(Timestamp(9)), Some(Name::Reap));
        assert_eq!(timers.pop(Timestamp(9)), Some(Name::Relist));
        assert_eq!(timers.pop(Timestamp(9)), None);
    }
}
