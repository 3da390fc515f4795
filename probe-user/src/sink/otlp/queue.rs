//! The queue between the agent's loop, which puts items in and never waits, and the thread that sends them.
//!
//! **Invariant:** the number of bytes that wait is bounded. If there is no room for the newest item, the
//! oldest are dropped.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    sync::Notify,
    time::{self, Instant},
};
use tracing::warn;

use super::{
    figures::{Dropped, ExportCounters},
    pace::Pace,
    signal::Item,
};

/// The memory of an item besides its bytes.
const ITEM_OVERHEAD: usize = 64;

/// A clone is the same queue.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    shared: Arc<Shared>,
    pub(super) figures: ExportCounters,
}

#[derive(Debug)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Notify,
    room: usize,
    /// The longest item that is sent, bytes.
    longest: usize,
    /// It was logged that an item was longer.
    has_logged_too_large: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    items: VecDeque<Item>,
    bytes: usize,
    entries: u64,
    is_closed: bool,
}

/// The content of one request.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Encoded scopes, one after another.
    pub(super) scopes: Vec<u8>,
    pub(super) entries: u64,
}

impl Queue {
    pub(super) fn new(pace: &Pace, figures: ExportCounters) -> Self {
        let shared = Shared {
            waiting: Mutex::default(),
            changed: Notify::new(),
            room: pace.room,
            longest: pace.longest,
            has_logged_too_large: AtomicBool::default(),
        };
        Self { shared: Arc::new(shared), figures }
    }

    pub(super) fn push(&self, item: Item) {
        if item.bytes.len() > self.shared.longest {
            self.figures.add_dropped(Dropped::TooLarge, item.entries);
            if !self.shared.has_logged_too_large.swap(true, Ordering::Relaxed) {
                let signal = self.figures.signal();
                let len = item.bytes.len();
                let longest = self.shared.longest;
                warn!(
                    "{signal} of {len} bytes that belong together are dropped: {longest} are sent at once at most; \
                     logged once"
                );
            }
            return;
        }
        let mut waiting = self.waiting();
        waiting.add(item);
        while waiting.bytes > self.shared.room
            && let Some(oldest) = waiting.take()
        {
            self.figures.add_dropped(Dropped::QueueFull, oldest.entries);
        }
        self.figures.set_waiting(waiting.entries);
        drop(waiting);
        self.shared.changed.notify_one();
    }

    /// Closes the queue: no more items come.
    pub(super) fn close(&self) {
        self.waiting().is_closed = true;
        self.shared.changed.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.waiting().is_closed
    }

    /// Returns once the queue is closed.
    pub(super) async fn closed(&self) {
        while !self.is_closed() {
            self.shared.changed.notified().await;
        }
    }

    /// Waits for the next batch: as much as fits into a request, or what came within a short time. `None` if
    /// the queue is closed and empty.
    pub(super) async fn batch(&self, pace: &Pace) -> Option<Batch> {
        while self.waiting().items.is_empty() {
            if self.is_closed() {
                return None;
            }
            self.shared.changed.notified().await;
        }
        let until = Instant::now() + pace.gather;
        while !self.is_full(pace.batch) {
            if time::timeout_at(until, self.shared.changed.notified()).await.is_err() {
                break;
            }
        }
        Some(self.take(pace.batch))
    }

    /// Drops all that waits.
    pub(super) fn clear(&self, why: Dropped) {
        let mut waiting = self.waiting();
        while let Some(item) = waiting.take() {
            self.figures.add_dropped(why, item.entries);
        }
        self.figures.set_waiting(0);
    }

    fn is_full(&self, batch: usize) -> bool {
        let waiting = self.waiting();
        waiting.is_closed || waiting.bytes >= batch
    }

    /// Takes items of at most `most` bytes, but at least one item, however long it is.
    pub(super) fn take(&self, most: usize) -> Batch {
        let mut batch = Batch::default();
        let mut waiting = self.waiting();
        while let Some(next) = waiting.items.front()
            && (batch.entries == 0 || batch.scopes.len() + next.bytes.len() <= most)
            && let Some(item) = waiting.take()
        {
            batch.scopes.extend(&item.bytes);
            batch.entries += item.entries;
        }
        self.figures.set_waiting(waiting.entries);
        batch
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // No code panics while it holds the lock.
        self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn add(&mut self, item: Item) {
        self.bytes += item.bytes.len() + ITEM_OVERHEAD;
        self.entries += item.entries;
        self.items.push_back(item);
    }

    fn take(&mut self) -> Option<Item> {
        let item = self.items.pop_front()?;
        self.bytes -= item.bytes.len() + ITEM_OVERHEAD;
        self.entries -= item.entries;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::{Item, Pace, Queue};
    use crate::sink::otlp::{figures::ExportCounters, signal::Signal};

    fn queue(pace: &Pace) -> Queue {
        Queue::new(pace, ExportCounters::new(Signal::Traces))
    }

    fn item(byte: u8, len: usize) -> Item {
        Item { bytes: vec![byte; len], entries: 2 }
    }

    fn dropped(queue: &Queue, why: &str) -> u64 {
        queue.figures.read().dropped.into_iter().find(|(name, _)| *name == why).expect("a reason").1
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_are_kept_within_the_room_and_each_is_sent_or_counted() {
        let pace = Pace { room: 10_000, batch: 3_000, ..Pace::default() };
        let queue = queue(&pace);
        for byte in 0..200 {
            queue.push(item(byte, 1000));
            assert!(queue.waiting().bytes <= 10_000);
        }
        queue.push(item(0, pace.longest + 1));
        assert_eq!((dropped(&queue, "queue_full"), dropped(&queue, "too_large")), (2 * (200 - 9), 2));
        assert_eq!(queue.figures.read().waiting, 18);
        queue.close();
        let mut seen = Vec::new();
        while let Some(batch) = queue.batch(&pace).await {
            assert!(batch.scopes.len() <= 3_000 && batch.entries == 2 * batch.scopes.len() as u64 / 1000);
            seen.extend(batch.scopes.chunks(1000).map(|it| it[0]));
        }
        assert_eq!(seen, (191..200).collect::<Vec<u8>>());
        assert_eq!(queue.figures.read().waiting, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_within_a_moment_goes_together() {
        let pace = Pace::default();
        let queue = queue(&pace);
        let filled = queue.clone();
        let filling = tokio::spawn(async move {
            for byte in 0..4 {
                filled.push(item(byte, 10));
                tokio::time::sleep(pace.gather / 3).await;
            }
        });
        let batches = [queue.batch(&pace).await, queue.batch(&pace).await];
        assert_eq!(batches.map(|batch| batch.expect("it is open").entries), [6, 2]);
        filling.await.expect("no panic");
        queue.push(item(0, pace.batch + 1));
        assert_eq!(queue.batch(&pace).await.expect("it is open").entries, 2, "a long one goes alone");
    }
}
