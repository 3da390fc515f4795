//! How often the node's logs are searched. A search reads megabytes, and while many pods wait or fail there
//! is always something to search for.
//!
//! **Invariant:** searches take at most one part in [`SHARE`] of the time, plus one search.

use std::time::Duration;

use crate::model::time::Timestamp;

/// Searches may take one part in this many of the time: 6 s of a minute.
const SHARE: u32 = 10;
/// The longest rest after a search.
const MAX_REST: Duration = Duration::from_secs(60);

/// When the next search may begin. Questions that come meanwhile wait for it, and are searched for together.
#[derive(Debug, Default)]
pub(super) struct SearchPace {
    next: Timestamp,
}

impl SearchPace {
    /// Records that a search began at this time and has ended.
    pub(super) fn ended(&mut self, began: Timestamp, now: Timestamp) {
        self.next = now + (now.since(began) * (SHARE - 1)).min(MAX_REST);
    }

    /// Returns how long until the next search may begin.
    pub(super) fn wait(&self, now: Timestamp) -> Duration {
        self.next.since(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{SearchPace, Timestamp};

    #[test]
    fn a_search_is_followed_by_a_rest_that_is_longer_than_itself() {
        let at = |ms: u64| Timestamp(ms * 1_000_000);
        let mut pace = SearchPace::default();
        assert_eq!(pace.wait(at(0)), Duration::ZERO);
        pace.ended(at(1_000), at(1_200));
        assert_eq!(pace.wait(at(1_200)), Duration::from_millis(1_800));
        assert_eq!(pace.wait(at(3_000)), Duration::ZERO);
        pace.ended(at(10_000), at(40_000));
        assert_eq!(pace.wait(at(40_000)), Duration::from_secs(60));
    }
}
