//! How far the kernel's records are told. A source that lists what exists waits for the records of what happened before, so
//! that nothing counts as found that a record tells of.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Notify, watch};

use super::patience;
use crate::model::time::Timestamp;

/// A reader of records that is behind for longer does not hold a listing back.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the reader of the records has of it.
#[derive(Debug)]
pub(crate) struct Teller {
    up_to: watch::Sender<Timestamp>,
    wanted: Arc<Notify>,
}

/// What a source has of it that waits for the records.
#[derive(Clone, Debug)]
pub(crate) struct RecordsFirst {
    up_to: watch::Receiver<Timestamp>,
    wanted: Arc<Notify>,
    slack: Duration,
}

/// `slack`: how long after its time a record may become readable.
#[must_use]
pub(crate) fn records_first(slack: Duration) -> (Teller, RecordsFirst) {
    let ((sender, up_to), wanted) = (watch::channel(Timestamp::ZERO), Arc::<Notify>::default());
    (Teller { up_to: sender, wanted: Arc::clone(&wanted) }, RecordsFirst { up_to, wanted, slack })
}

impl Teller {
    /// All records that were readable at this time are told.
    pub(crate) fn told(&self, readable: Timestamp) {
        self.up_to.send_replace(readable);
    }

    /// Returns when a source waits.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }
}

impl RecordsFirst {
    /// Waits until the records of what happened until `at` are told.
    pub(crate) async fn wait(&mut self, at: Timestamp) {
        let told = async {
            while !self.has_told(at) {
                self.tells_more().await;
            }
        };
        patience::within(PATIENCE, told).await;
    }

    /// Whether the records of what happened until `at` are told, or nobody reads records any more.
    pub(crate) fn has_told(&self, at: Timestamp) -> bool {
        *self.up_to.borrow() >= at + self.slack || self.up_to.has_changed().is_err()
    }

    /// Asks for the records, and returns when more of them are told.
    pub(crate) async fn tells_more(&mut self) {
        self.up_to.mark_unchanged();
        self.wanted.notify_one();
        // The caller looks whether anybody reads records.
        self.up_to.changed().await.ok();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, timeout};

    use super::{PATIENCE, Timestamp, records_first};

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
        // A record from before may come until 105 ms.
        for readable in [99, 104] {
            timeout(PATIENCE / 4, teller.wanted()).await.expect("it asks");
            assert!(!waiting.is_finished());
            teller.told(ms(readable));
        }
        timeout(PATIENCE / 4, teller.wanted()).await.expect("it asks again");
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
        assert_eq!(begun.elapsed(), PATIENCE);
        drop(teller);
        records.wait(ms(100)).await;
        assert_eq!(begun.elapsed(), PATIENCE, "nobody is there to be waited for");
    }
}
