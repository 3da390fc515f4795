//! Computes the watermark, and when to move it.

use std::time::Duration;

use crate::model::time::Timestamp;

#[derive(Debug)]
pub(super) struct WatermarkTimer {
    slack: Duration,
    /// The time of the newest record.
    newest: Timestamp,
    /// The last watermark, and when it was returned.
    last: Timestamp,
    last_at: Timestamp,
}

/// The shortest time between two watermarks while records come without a pause. Each one is a call into the
/// engine.
const PERIOD: Duration = Duration::from_millis(2);

/// How long after the earliest possible time the watermark moves past the last record.
const BEHIND: Duration = Duration::from_millis(1);

impl WatermarkTimer {
    pub(super) fn new(slack: Duration) -> Self {
        Self { slack, newest: Timestamp::ZERO, last: Timestamp::ZERO, last_at: Timestamp::ZERO }
    }

    /// Records that a record with the time `at` was read at `now`. A time in the future is wrong and is not
    /// waited for.
    pub(super) fn saw(&mut self, at: Timestamp, now: Timestamp) {
        self.newest = self.newest.max(at.min(now));
    }

    /// Returns the new watermark, if it moves. The rings were empty in a poll that began at `now`.
    pub(super) fn advance(&mut self, now: Timestamp) -> Option<Timestamp> {
        if now.since(self.last_at) < PERIOD {
            return None;
        }
        self.last = now.saturating_sub(self.slack);
        self.last_at = now;
        Some(self.last)
    }

    /// Returns how long after `now` to move it even if no more records come; `None` if it is past all
    /// records.
    pub(super) fn due(&self, now: Timestamp) -> Option<Duration> {
        (self.newest > self.last).then(|| (self.newest + self.slack + BEHIND).since(now).max(BEHIND))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Timestamp, WatermarkTimer};

    const fn ms(ms: u64) -> Timestamp {
        Timestamp(ms * 1_000_000)
    }

    fn mark() -> WatermarkTimer {
        WatermarkTimer::new(Duration::from_millis(5))
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
        // This record took long: it is older than the watermark could be now, and still has to be passed.
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
