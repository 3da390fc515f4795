//! The namespaces that wait for a search, and when it is due.
//!
//! **Invariant:** in the long run, searches take at most a tenth of the time. The namespace that has waited
//! longest is searched for first.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use crate::model::{fact::Task, id::NetnsKey};

/// How many namespaces are searched for, and held open, together.
pub(super) const BATCH_SIZE: usize = 64;

/// The idle time after a search, as a multiple of its duration.
const REST: u32 = 9;

/// The most namespaces that wait: those of the whole node at the agent's start, and those that the engine
/// asks for during a search.
const MAX_WAITING: usize = 16_384;

#[derive(Debug)]
pub(super) struct Waiting {
    asked: VecDeque<(NetnsKey, Task)>,
    rested: Instant,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { asked: VecDeque::new(), rested: Instant::now() }
    }
}

impl Waiting {
    /// Adds a namespace; false if there is no room.
    pub(super) fn add(&mut self, netns: NetnsKey, by: Task) -> bool {
        let has_room = self.asked.len() < MAX_WAITING;
        if has_room {
            self.asked.push_back((netns, by));
        }
        has_room
    }

    /// Returns when to search; `None` if no namespace waits.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.asked.is_empty()).then_some(self.rested)
    }

    /// Takes the namespaces to search for now. If two have the same inode, the earlier one has ended.
    pub(super) fn take(&mut self) -> Vec<(NetnsKey, Task)> {
        let mut taken: Vec<(NetnsKey, Task)> = Vec::new();
        for (netns, by) in self.asked.drain(..self.asked.len().min(BATCH_SIZE)) {
            taken.retain(|(other, _)| other.inode != netns.inode);
            taken.push((netns, by));
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
    use super::{BATCH_SIZE, Duration, Instant, MAX_WAITING, NetnsKey, Task, Waiting, rest};

    fn key(inode: usize, cookie: u64) -> NetnsKey {
        NetnsKey::new(u32::try_from(inode).expect("few"), cookie)
    }

    #[test]
    fn those_that_waited_longest_are_looked_for_first_and_a_number_means_its_last_holder() {
        let mut waiting = Waiting::default();
        assert_eq!(waiting.due(), None);
        for inode in 0..BATCH_SIZE {
            assert!(waiting.add(key(inode, 1), Task::default()));
        }
        waiting.add(key(5, 2), Task::default());
        assert!(waiting.due().is_some_and(|due| due <= Instant::now()), "nothing was searched for lately");
        let first: Vec<_> = waiting.take().into_iter().map(|(netns, _)| netns).collect();
        assert_eq!(first, (0..BATCH_SIZE).map(|inode| key(inode, 1)).collect::<Vec<_>>());
        waiting.add(key(5, 3), Task::default());
        let rest: Vec<_> = waiting.take().into_iter().map(|(netns, _)| netns).collect();
        assert_eq!(rest, [key(5, 3)]);
        assert!(waiting.take().is_empty() && waiting.due().is_none());
    }

    #[test]
    fn it_rests_nine_times_as_long_as_it_looked() {
        assert_eq!(rest(Duration::from_millis(10)), Duration::from_millis(90));
        let mut waiting = Waiting::default();
        let begun = Instant::now();
        waiting.searched(begun);
        waiting.add(key(1, 0), Task::default());
        assert!(waiting.due().is_some_and(|due| due >= begun));
    }

    #[test]
    fn so_many_wait_at_most() {
        let mut waiting = Waiting::default();
        let taken = (0..2 * MAX_WAITING).filter(|inode| waiting.add(key(*inode, 0), Task::default())).count();
        assert_eq!(taken, MAX_WAITING);
    }
}
