//! What to log about sending: a line when it begins to fail, one for each other reason that follows, and one
//! when it works again.
//!
//! **Invariant:** for a receiver that fails now and then, at most one such group of lines is logged a minute.

use std::time::Duration;

use tokio::time::Instant;

use super::failure::Reason;

/// How long nothing is logged after the line that says that sending works again.
const QUIET: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Health {
    /// The last request failed.
    is_failing: bool,
    /// The reasons that were logged since sending last worked again.
    logged: Vec<Reason>,
    /// Requests that failed since then.
    failed: u64,
    /// How many spans or records had been dropped before the first of these failures.
    dropped: u64,
    /// Until when nothing is logged.
    quiet: Option<Instant>,
}

/// Says that sending works again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Again {
    /// How many requests failed.
    pub(super) failed: u64,
    /// How many spans or records were dropped meanwhile.
    pub(super) dropped: u64,
}

impl Health {
    pub(super) fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// Records a failed request. Returns whether to log it. `dropped`: all spans or records that were dropped
    /// so far.
    #[must_use]
    pub(super) fn failed(&mut self, reason: Reason, dropped: u64, now: Instant) -> bool {
        if self.failed == 0 {
            self.dropped = dropped;
        }
        self.is_failing = true;
        self.failed += 1;
        if self.quiet.is_some_and(|until| now < until) || self.logged.contains(&reason) {
            return false;
        }
        self.logged.push(reason);
        true
    }

    /// Records an accepted request. Returns what to log about it.
    #[must_use]
    pub(super) fn succeeded(&mut self, dropped: u64, now: Instant) -> Option<Again> {
        self.is_failing = false;
        if self.logged.is_empty() {
            return None;
        }
        let again = Again { failed: self.failed, dropped: dropped.saturating_sub(self.dropped) };
        *self = Self { quiet: Some(now + QUIET), ..Self::default() };
        Some(again)
    }
}

#[cfg(test)]
mod tests {
    use super::{Again, Duration, Health, Instant, Reason};

    #[test]
    fn a_failure_is_told_once_for_each_reason_and_so_is_its_end() {
        let (mut health, now) = (Health::default(), Instant::now());
        assert_eq!(health.succeeded(0, now), None);
        assert!(health.failed(Reason::Connect, 4, now));
        assert!(!health.failed(Reason::Connect, 5, now));
        assert!(health.failed(Reason::Timeout, 6, now) && health.is_failing());
        assert_eq!(health.succeeded(7, now), Some(Again { failed: 3, dropped: 3 }));
        assert_eq!(health.succeeded(7, now), None);
        assert!(!health.is_failing());
    }

    #[test]
    fn one_that_fails_now_and_then_is_told_once_a_minute_and_all_failures_are_counted() {
        let (mut health, begin) = (Health::default(), Instant::now());
        let (mut lines, mut ends) = (Vec::new(), Vec::new());
        for second in 0..180 {
            let now = begin + Duration::from_secs(second);
            if second % 2 == 0 {
                lines.extend(health.failed(Reason::Busy, second, now).then_some(second));
            } else {
                ends.extend(health.succeeded(second, now));
            }
        }
        assert_eq!(lines, [0, 62, 124]);
        assert_eq!(ends, [(1, 1), (31, 61), (31, 61)].map(|(failed, dropped)| Again { failed, dropped }));
    }

    #[test]
    fn an_outage_within_the_minute_is_told_after_it() {
        let (mut health, begin) = (Health::default(), Instant::now());
        assert!(health.failed(Reason::Lost, 0, begin));
        assert!(health.succeeded(0, begin).is_some());
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert!(!health.failed(Reason::Connect, 0, after(10)) && health.is_failing());
        assert!(!health.failed(Reason::Connect, 0, after(40)));
        assert!(health.failed(Reason::Connect, 0, after(70)));
        assert_eq!(health.succeeded(9, after(100)), Some(Again { failed: 3, dropped: 9 }));
    }
}
