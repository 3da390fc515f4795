//! The namespaces that wait for a search, and when it is due.
//!
//! **Invariant:** in the long run, searches take at most a tenth of the time. The namespace that has waited
//! longest is searched for first.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use crate::model::{fact::Task, id::NetnsKey, time::Timestamp};

/// How many namespaces are searched for, and held open, together.
pub(super) const BATCH_SIZE: usize = 64;

/// The idle time after a search, as a multiple of its duration.
const REST: u32 = 9;

/// The most namespaces that wait: those of the whole node at the agent's start, and those that the engine
/// asks for during a search.
const MAX_WAITING: usize = 16_384;

/// A namespace that the engine wants watched.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) netns: NetnsKey,
    pub(super) by: Task,
    pub(super) unheard_since: Option<Timestamp>,
    /// Another namespace has its inode by now.
    pub(super) is_over: bool,
}

#[derive(Debug)]
pub(super) struct Waiting {
    asked: VecDeque<Asked>,
    rested: Instant,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { asked: VecDeque::new(), rested: Instant::now() }
    }
}

impl Waiting {
    /// Adds a namespace; false if there is no room.
    pub(super) fn add(&mut self, asked: Asked) -> bool {
        let has_room = self.asked.len() < MAX_WAITING;
        if has_room {
            self.asked.push_back(asked);
        }
        has_room
    }

    /// Returns when to search; `None` if no namespace waits.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.asked.is_empty()).then_some(self.rested)
    }

    /// Takes the namespaces to search for now, in their order. If two that wait have the same inode, the
    /// earlier one has ended.
    pub(super) fn take(&mut self) -> Vec<Asked> {
        let mut taken: Vec<Asked> = self.asked.drain(..self.asked.len().min(BATCH_SIZE)).collect();
        let mut later: BTreeSet<u32> = self.asked.iter().map(|it| it.netns.inode).collect();
        for asked in taken.iter_mut().rev() {
            asked.is_over = !later.insert(asked.netns.inode);
        }
        taken
    }

    /// Records that the search that began at `begun` ends now.
    pub(super) fn searched(&mut self, begun: Instant) {
        let now = Instant::now();
        self.rested = now + rest(now - begun);
    }
}

fn rest(took: Duration) -> Duration {
    took.saturating_mul(REST)
}

#[cfg(test)]
mod tests {
    use super::{Asked, BATCH_SIZE, Duration, Instant, MAX_WAITING, NetnsKey, Task, Waiting, rest};

    fn asked(inode: usize, cookie: u64) -> Asked {
        let netns = NetnsKey::new(u32::try_from(inode).expect("few"), cookie);
        Asked { netns, by: Task::default(), unheard_since: None, is_over: false }
    }

    /// Returns the keys that are taken, and whether each is over.
    fn taken(waiting: &mut Waiting) -> Vec<(NetnsKey, bool)> {
        waiting.take().into_iter().map(|it| (it.netns, it.is_over)).collect()
    }

    #[test]
    fn those_that_waited_longest_are_looked_for_first_and_a_number_means_its_last_holder() {
        let mut waiting = Waiting::default();
        assert_eq!(waiting.due(), None);
        for inode in 0..BATCH_SIZE {
            assert!(waiting.add(asked(inode, 1)));
        }
        assert!(waiting.add(asked(5, 2)));
        assert!(waiting.due().is_some_and(|due| due <= Instant::now()), "nothing was searched for lately");
        let first = (0..BATCH_SIZE).map(|inode| (asked(inode, 1).netns, inode == 5)).collect::<Vec<_>>();
        assert_eq!(taken(&mut waiting), first);
        assert!(waiting.add(asked(5, 3)));
        assert_eq!(taken(&mut waiting), [(asked(5, 2).netns, true), (asked(5, 3).netns, false)]);
        assert!(waiting.take().is_empty() && waiting.due().is_none());
    }

    #[test]
    fn it_rests_nine_times_as_long_as_it_looked() {
        assert_eq!(rest(Duration::from_millis(10)), Duration::from_millis(90));
        let mut waiting = Waiting::default();
        let begun = Instant::now();
        waiting.searched(begun);
        assert!(waiting.add(asked(1, 0)));
        assert!(waiting.due().is_some_and(|due| due >= begun));
    }

    #[test]
    fn so_many_wait_at_most() {
        let mut waiting = Waiting::default();
        let added = (0..2 * MAX_WAITING).filter(|inode| waiting.add(asked(*inode, 0))).count();
        assert_eq!(added, MAX_WAITING);
    }
}
