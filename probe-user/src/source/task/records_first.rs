//! Tracks how far the kernel's records were reported. A source that lists what exists waits for the records
//! of earlier events, so that nothing counts as found by a listing if a record reports it.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Notify, watch};

use super::patience;
use crate::model::time::Timestamp;

/// The longest time for which a listing waits for the records.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// The end for the reader of the records.
#[derive(Debug)]
pub(crate) struct Teller {
    up_to: watch::Sender<Timestamp>,
    wanted: Arc<Notify>,
}

/// The end for a source that waits for the records.
#[derive(Clone, Debug)]
pub(crate) struct RecordsFirst {
    up_to: watch::Receiver<Timestamp>,
    wanted: Arc<Notify>,
    slack: Duration,
}

/// Makes the two ends. `slack`: how long after its time a record may become readable.
#[must_use]
pub(crate) fn records_first(slack: Duration) -> (Teller, RecordsFirst) {
    let (sender, up_to) = watch::channel(Timestamp::ZERO);
    let wanted = Arc::<Notify>::default();
    (Teller { up_to: sender, wanted: Arc::clone(&wanted) }, RecordsFirst { up_to, wanted, slack })
}

impl Teller {
    /// Records that all records that were readable at this time were reported.
    pub(crate) fn told(&self, readable: Timestamp) {
        self.up_to.send_replace(readable);
    }

    /// Returns when a source waits.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }
}

impl RecordsFirst {
    /// Waits until the records of all events until `at` were reported.
    pub(crate) async fn wait(&mut self, at: Timestamp) {
        let reported = async {
            while !self.has_told(at) {
                self.tells_more().await;
            }
        };
        patience::within(MAX_WAIT, reported).await;
    }

    /// Returns whether the records of all events until `at` were reported, or the reader is gone.
    pub(crate) fn has_told(&self, at: Timestamp) -> bool {
        *self.up_to.borrow() >= at + self.slack || self.up_to.has_changed().is_err()
    }

    /// Asks for the records, and returns when more of them were reported.
    pub(crate) async fn tells_more(&mut self) {
        self.up_to.mark_unchanged();
        self.wanted.notify_one();
        // The caller checks whether the reader is gone.
        self.up_to.changed().await.ok();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, timeout};

    use super::{MAX_WAIT, Timestamp, records_first};

    const SLACK: Duration = Duration::from_millis(5);

    fn ms(ms: u64) -> Timestamp {
        Timestamp(ms * 1_000_000)
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_waits_until_all_of_before_is_told_and_asks_for_it() {
        let (teller, mut records) = records_first(SLACK);
        let waiting = tokio::spawn(async move {
            records.wait(ms(100)).await;
            records
        });
        // An earlier record may come until 105 ms.
        for readable in [99, 104] {
            timeout(MAX_WAIT / 4, teller.wanted()).await.expect("it asks");
            assert!(!waiting.is_finished());
            teller.told(ms(readable));
        }
        timeout(MAX_WAIT / 4, teller.wanted()).await.expect("it asks again");
        teller.told(ms(105));
        let mut records = waiting.await.expect("no panic");
        let begun = Instant::now();
        records.wait(ms(100)).await;
        assert_eq!(begun.elapsed(), Duration::ZERO, "that is told already");
    }

    #[tokio::test(start_paused = true)]
    async fn it_does_not_wait_for_ever() {
        let begun = Instant::now();
        let (teller, mut records) = records_first(SLACK);
        records.wait(ms(100)).await;
        assert_eq!(begun.elapsed(), MAX_WAIT);
        drop(teller);
        records.wait(ms(100)).await;
        assert_eq!(begun.elapsed(), MAX_WAIT, "nobody is there to be waited for");
    }
}
