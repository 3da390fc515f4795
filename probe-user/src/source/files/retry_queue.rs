//! Questions whose answer is logged only some time after they are asked. A runtime logs why an ADD failed
//! after it has cleaned up, which includes a DEL; it logs why a DEL failed after it has tried the rest of the
//! chain.
//!
//! **Invariant:** at most [`MAX_WAITING`] questions wait, because each costs a search through the node's
//! logs.

use std::time::Duration;

use crate::model::{fact::CniCommand, id::ContainerId, time::Timestamp};

/// How long after the question each search is made. The answer of the last search is final.
const SEARCH_AFTER: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(20)];
const MAX_WAITING: usize = 64;

/// A search for a plugin's message about this sandbox's failed ADD or DEL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) container: ContainerId,
    pub(super) command: CniCommand,
    pub(super) since: Timestamp,
    asked: Timestamp,
    searches: usize,
}

#[derive(Debug, Default)]
pub(super) struct RetryQueue(Vec<Wanted>);

impl Wanted {
    fn due(&self) -> Timestamp {
        SEARCH_AFTER.get(self.searches).map_or(self.asked, |after| self.asked + *after)
    }

    /// Returns whether another search follows.
    pub(super) fn is_early(&self) -> bool {
        self.searches + 1 < SEARCH_AFTER.len()
    }
}

impl RetryQueue {
    /// Adds a question; returns false if too many wait already.
    pub(super) fn ask(
        &mut self,
        container: ContainerId,
        command: CniCommand,
        since: Timestamp,
        now: Timestamp,
    ) -> bool {
        let room = self.0.len() < MAX_WAITING;
        if room {
            self.0.push(Wanted { container, command, since, asked: now, searches: 0 });
        }
        room
    }

    /// Searches again later for a question that found no answer.
    pub(super) fn again(&mut self, wanted: Wanted) {
        self.0.push(Wanted { searches: wanted.searches + 1, ..wanted });
    }

    /// Puts back questions that could not be searched for.
    pub(super) fn put_back(&mut self, wanted: Vec<Wanted>) {
        self.0.extend(wanted);
    }

    /// Returns how long until the next search.
    pub(super) fn wait(&self, now: Timestamp) -> Option<Duration> {
        self.0.iter().map(|wanted| wanted.due().since(now)).min()
    }

    /// Returns the questions whose search is due.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<Wanted> {
        let (due, waiting) = std::mem::take(&mut self.0).into_iter().partition(|wanted| wanted.due() <= now);
        self.0 = waiting;
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{MAX_WAITING, RetryQueue};
    use crate::model::{fact::CniCommand, id::ContainerId, time::Timestamp};

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * 1_000_000_000)
    }

    #[test]
    fn each_is_looked_for_again_until_the_last_time() {
        let id = ContainerId::parse("c1").expect("an id");
        let mut later = RetryQueue::default();
        assert_eq!(later.wait(at(100)), None);
        assert!(later.ask(id.clone(), CniCommand::Add, at(99), at(100)));
        let mut searches = Vec::new();
        while let Some(wait) = later.wait(at(100)) {
            let now = at(100) + wait;
            assert!(later.due(Timestamp(now.0 - 1)).is_empty(), "none before its time");
            for wanted in later.due(now) {
                assert_eq!((&wanted.container, wanted.since), (&id, at(99)));
                searches.push(wait);
                if wanted.is_early() {
                    later.again(wanted);
                }
            }
        }
        assert_eq!(searches, [1, 5, 20].map(Duration::from_secs));
    }

    #[test]
    fn no_more_wait_than_can_be_looked_for() {
        let id = ContainerId::parse("c1").expect("an id");
        let mut later = RetryQueue::default();
        let taken = (0..1000).filter(|_| later.ask(id.clone(), CniCommand::Add, at(1), at(1))).count();
        assert_eq!(taken, MAX_WAITING);
        assert_eq!(later.due(at(2)).len(), MAX_WAITING);
    }
}
