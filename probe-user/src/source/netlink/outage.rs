//! Notifications cannot be read: when that is tried again, and what is told of it.
//!
//! One failure may be of the moment, as where the kernel has no memory. What was missed is then found out as after an overrun.
//! If the next try fails too, the signals that netlink reports are not seen until one succeeds.

use std::{io, time::Duration};

use tokio::time::Instant;
use tracing::warn;

use crate::model::fact::{Attached, Mechanism};

/// How long to wait after the first failure. Each further one doubles it.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(60);

/// After so many failures in a row the signals count as not seen.
const UNSEEN: u32 = 2;

#[derive(Debug)]
pub(super) struct Outage {
    /// The signals that netlink reports, as they are seen while it works.
    signals: Vec<Attached>,
    /// The failures in a row.
    failures: u32,
    again: Option<Instant>,
}

impl Outage {
    pub(super) fn new(signals: Vec<Attached>) -> Self {
        Self { signals, failures: 0, again: None }
    }

    /// When reading is tried again; `None` if it works.
    pub(super) fn again(&self) -> Option<Instant> {
        self.again
    }

    /// Whether reading works, or is to be tried now.
    pub(super) fn may_read(&self) -> bool {
        self.again.is_none_or(|again| again <= Instant::now())
    }

    /// Reading failed. Gives how the signals are seen from now on, if that is otherwise than before.
    pub(super) fn failed(&mut self, error: &io::Error) -> Vec<Attached> {
        self.failures = self.failures.saturating_add(1);
        let doubled = 2_u32.saturating_pow(self.failures - 1);
        self.again = Some(Instant::now() + FIRST.saturating_mul(doubled).min(LONGEST));
        if self.failures == 1 {
            warn!(%error, "netlink's notifications cannot be read: trying again");
        }
        let unseen = |it: &Attached| {
            let mut missed = it.missed.clone();
            missed.push((Mechanism::Netlink, format!("its notifications cannot be read: {error}")));
            Attached { signal: it.signal, mechanism: None, note: String::new(), missed }
        };
        if self.failures == UNSEEN { self.signals.iter().map(unseen).collect() } else { Vec::new() }
    }

    /// Reading works. Gives how the signals are seen again; `None` if it worked before.
    pub(super) fn over(&mut self) -> Option<Vec<Attached>> {
        self.again.take()?;
        let failures = std::mem::take(&mut self.failures);
        warn!(failures, "netlink's notifications can be read again");
        Some(if failures >= UNSEEN { self.signals.clone() } else { Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use tokio::time;

    use super::{FIRST, LONGEST, Outage};
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
        assert_eq!(outage.again(), Some(time::Instant::now() + FIRST));
        time::advance(FIRST).await;
        assert!(outage.may_read());
        let [unseen] = &outage.failed(&error)[..] else { panic!("one signal") };
        assert_eq!((unseen.signal, unseen.mechanism), (Signal::AddressV4, None));
        let last = unseen.missed.last().expect("the reason");
        assert_eq!(last, &(Mechanism::Netlink, "its notifications cannot be read: no memory".to_owned()));
        for _ in 0..100 {
            assert_eq!(outage.failed(&error), [], "it was told");
        }
        assert_eq!(outage.again(), Some(time::Instant::now() + LONGEST));
        time::advance(Duration::from_secs(60)).await;
        assert!(outage.may_read());
        assert_eq!(outage.over(), Some(vec![seen()]));
        assert_eq!((outage.over(), outage.again()), (None, None));
        // One failure alone does not make them unseen.
        assert_eq!((outage.failed(&error), outage.over()), (Vec::new(), Some(Vec::new())));
    }
}
