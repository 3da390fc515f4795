//! Where the watermark is, and when it should be moved.

use std::time::Duration;

use crate::model::time::Timestamp;

#[derive(Debug)]
pub(super) struct Mark {
    slack: Duration,
    /// Of the newest record yet.
    newest: Timestamp,
    /// What was told last, and when.
    told: Timestamp,
    told_at: Timestamp,
}

/// How often it moves at most while records come without a pause: each time is a call into the engine.
const PERIOD: Duration = Duration::from_millis(2);

/// Behind the time at which it can be past the last record.
const BEHIND: Duration = Duration::from_millis(1);

impl Mark {
    pub(super) fn new(slack: Duration) -> Self {
        Self { slack, newest: Timestamp::ZERO, told: Timestamp::ZERO, told_at: Timestamp::ZERO }
    }

    /// A record of `at` was read at `now`. No record is of the future; one that says so must not be waited for.
    pub(super) fn saw(&mut self, at: Timestamp, now: Timestamp) {
        self.newest = self.newest.max(at.min(now));
    }

    /// The rings were found empty in a turn that began at `now`: where the watermark is moved to, if it is.
    pub(super) fn advance(&mut self, now: Timestamp) -> Option<Timestamp> {
        if now.since(self.told_at) < PERIOD {
            return None;
        }
        (self.told, self.told_at) = (now.saturating_sub(self.slack), now);
        Some(self.told)
    }

    /// How long after `now` it should be moved even if no more records come; `None` if it is past them all.
    pub(super) fn due(&self, now: Timestamp) -> Option<Duration> {
        (self.newest > self.told).then(|| (self.newest + self.slack + BEHIND).since(now).max(BEHIND))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Mark, Timestamp};

    const fn ms(ms: u64) -> Timestamp {
        Timestamp(ms * 1_000_000)
    }

    fn mark() -> Mark {
        Mark::new(Duration::from_millis(5))
    }

    #[test]
    fn it_stays_behind_by_the_slack_until_it_is_past_the_last_record() {
        let mut mark = mark();
        assert_eq!(mark.due(ms(99)), None);
        mark.saw(ms(100), ms(100));
        assert_eq!(mark.advance(ms(100)), Some(ms(95)));
        assert_eq!(mark.due(ms(100)), Some(Duration::from_millis(6)));
        assert_eq!(mark.advance(ms(106)), Some(ms(101)));
        assert_eq!(mark.due(ms(106)), None);
    }

    #[test]
    fn it_moves_seldom_while_records_come_but_never_leaves_one_behind() {
        let mut mark = mark();
        assert!(mark.advance(ms(100)).is_some());
        // Long on its way: older than where the watermark could be by now, and yet not told to be passed.
        mark.saw(ms(96), ms(101));
        assert_eq!(mark.advance(ms(101)), None);
        let due = mark.due(ms(101)).expect("a record is ahead of what was told");
        assert_eq!(mark.advance(ms(101) + due), Some(ms(97)));
        assert_eq!(mark.due(ms(102)), None);
    }

    #[test]
    fn a_record_of_the_future_is_not_waited_for() {
        let mut mark = mark();
        mark.saw(ms(1_000_000), ms(100));
        assert!(mark.due(ms(100)).is_some_and(|due| due <= Duration::from_millis(6)));
        mark.advance(ms(106));
        assert_eq!(mark.due(ms(106)), None);
    }
}
