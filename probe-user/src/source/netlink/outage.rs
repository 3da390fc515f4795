//! Handles failures to read notifications: when to try again, and what to report.
//!
//! A single failure may pass, such as a lack of kernel memory. What was missed is then found as after an
//! overrun. If the next try fails too, the signals that netlink reports count as not seen until a try
//! succeeds.

use std::{io, time::Duration};

use tokio::time::Instant;
use tracing::warn;

use crate::model::fact::{Attached, Mechanism};

/// How long to wait after the first failure. Each further failure doubles it.
const MIN_WAIT: Duration = Duration::from_millis(250);
const MAX_WAIT: Duration = Duration::from_secs(60);

/// After this many failures in a row the signals count as not seen.
const UNSEEN_FAILURES: u32 = 2;

#[derive(Debug)]
pub(super) struct Outage {
    /// The signals that netlink reports, as they are seen while it works.
    signals: Vec<Attached>,
    /// The failures in a row.
    failures: u32,
    retry_at: Option<Instant>,
}

impl Outage {
    pub(super) fn new(signals: Vec<Attached>) -> Self {
        Self { signals, failures: 0, retry_at: None }
    }

    /// Returns when reading is tried again; `None` if it works.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Returns whether reading works, or should be tried now.
    pub(super) fn may_read(&self) -> bool {
        self.retry_at.is_none_or(|retry_at| retry_at <= Instant::now())
    }

    /// Records that reading failed. Returns how the signals are seen from now on; empty if that has not
    /// changed.
    pub(super) fn failed(&mut self, error: &io::Error) -> Vec<Attached> {
        self.failures = self.failures.saturating_add(1);
        let doubled = 2_u32.saturating_pow(self.failures - 1);
        self.retry_at = Some(Instant::now() + MIN_WAIT.saturating_mul(doubled).min(MAX_WAIT));
        if self.failures == 1 {
            warn!(%error, "netlink's notifications cannot be read: trying again");
        }
        if self.failures != UNSEEN_FAILURES {
            return Vec::new();
        }
        let unseen = self.signals.iter().map(|it| {
            let mut missed = it.missed.clone();
            missed.push((Mechanism::Netlink, format!("its notifications cannot be read: {error}")));
            Attached { signal: it.signal, mechanism: None, note: String::new(), missed }
        });
        unseen.collect()
    }

    /// Records that reading works. Returns how the signals are seen again; `None` if it worked before.
    pub(super) fn over(&mut self) -> Option<Vec<Attached>> {
        self.retry_at.take()?;
        let failures = std::mem::take(&mut self.failures);
        warn!(failures, "netlink's notifications can be read again");
        Some(if failures >= UNSEEN_FAILURES { self.signals.clone() } else { Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use tokio::time;

    use super::{MAX_WAIT, MIN_WAIT, Outage};
    use crate::model::fact::{Attached, Mechanism, Signal};

    fn seen() -> Attached {
        let missed = vec![(Mechanism::Fentry, "no".to_owned())];
        Attached {
            signal: Signal::AddressV4,
            mechanism: Some(Mechanism::Netlink),
            note: "late".to_owned(),
            missed,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_tried_again_ever_later_and_the_second_makes_the_signals_unseen() {
        let error = io::Error::other("no memory");
        let mut outage = Outage::new(vec![seen()]);
        assert!(outage.may_read() && outage.over().is_none());
        assert_eq!(outage.failed(&error), []);
        assert!(!outage.may_read());
        assert_eq!(outage.retry_at(), Some(time::Instant::now() + MIN_WAIT));
        time::advance(MIN_WAIT).await;
        assert!(outage.may_read());
        let [unseen] = &outage.failed(&error)[..] else { panic!("one signal") };
        assert_eq!((unseen.signal, unseen.mechanism), (Signal::AddressV4, None));
        let last = unseen.missed.last().expect("the reason");
        assert_eq!(last, &(Mechanism::Netlink, "its notifications cannot be read: no memory".to_owned()));
        for _ in 0..100 {
            assert_eq!(outage.failed(&error), [], "it was told");
        }
        assert_eq!(outage.retry_at(), Some(time::Instant::now() + MAX_WAIT));
        time::advance(Duration::from_secs(60)).await;
        assert!(outage.may_read());
        assert_eq!(outage.over(), Some(vec![seen()]));
        assert_eq!((outage.over(), outage.retry_at()), (None, None));
        // One failure alone does not make them unseen.
        assert_eq!((outage.failed(&error), outage.over()), (Vec::new(), Some(Vec::new())));
    }
}
