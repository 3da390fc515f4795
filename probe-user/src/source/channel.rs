//! The channels between the sources and the agent.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::{mpsc, watch};

use crate::model::{change::Question, fact::Observation};

/// What a source has to say at one time; the engine takes all of it before it is asked what it makes of it.
pub type Batch = Vec<Observation>;

/// Batches that may wait for the engine. A source whose batch finds no room waits, and what it waits on (the
/// kernel's ring, a socket, a directory) is then its buffer: nothing is lost here, and where that buffer overflows
/// its own counter says so.
const DEPTH: usize = 64;

/// A source's way to the engine.
#[derive(Clone, Debug)]
pub struct BatchSender(mpsc::Sender<Batch>);

/// The agent takes nothing any more: the source should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent is gone")]
pub struct Closed;

#[must_use]
pub fn feed() -> (BatchSender, mpsc::Receiver<Batch>) {
    let (sender, receiver) = mpsc::channel(DEPTH);
    (BatchSender(sender), receiver)
}

impl BatchSender {
    /// Hands over `batch`, in order; waits while the engine is behind. An empty batch is nothing.
    pub async fn send(&self, batch: Batch) -> Result<(), Closed> {
        if batch.is_empty() {
            return Ok(());
        }
        self.0.send(batch).await.map_err(|mpsc::error::SendError(_)| Closed)
    }

    /// Looks on, and keeps nobody from ending.
    #[must_use]
    pub fn gauge(&self) -> Gauge {
        Gauge(self.0.downgrade())
    }

    /// The same from a thread of its own, as file readers are.
    pub fn send_blocking(&self, batch: Batch) -> Result<(), Closed> {
        if batch.is_empty() {
            return Ok(());
        }
        self.0.blocking_send(batch).map_err(|mpsc::error::SendError(_)| Closed)
    }
}

/// How full the channel is.
#[derive(Clone, Debug)]
pub struct Gauge(mpsc::WeakSender<Batch>);

impl Gauge {
    /// Batches that wait, of [`Self::CAPACITY`].
    #[must_use]
    pub fn length(&self) -> usize {
        self.0.upgrade().map_or(0, |sender| sender.max_capacity() - sender.capacity())
    }

    pub const CAPACITY: usize = DEPTH;
}

/// Questions that may wait for a source: more than a full node has pods, containers and namespaces.
const QUESTIONS: usize = 16_384;

/// The agent's way to one answering source.
#[derive(Clone, Debug)]
pub struct Asker {
    questions: mpsc::Sender<Question>,
    refused: Arc<AtomicU64>,
}

/// The questions to one answering source.
#[derive(Debug)]
pub struct Asks {
    questions: mpsc::Receiver<Question>,
    refused: Arc<AtomicU64>,
}

/// The agent must never wait for a source that may be waiting for the agent. A question for which there is no room is
/// refused and counted, and the source learns of it.
#[must_use]
pub fn asks() -> (Asker, Asks) {
    let (sender, receiver) = mpsc::channel(QUESTIONS);
    let refused = Arc::new(AtomicU64::new(0));
    (Asker { questions: sender, refused: Arc::clone(&refused) }, Asks { questions: receiver, refused })
}

impl Asker {
    /// A source that has ended answers nothing, which is an answer that the engine can live with.
    pub fn ask(&self, question: Question) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.questions.try_send(question) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Asks {
    /// The next question; `None` when no more will come.
    pub async fn next(&mut self) -> Option<Question> {
        self.questions.recv().await
    }

    /// The same from a thread of its own.
    pub fn next_blocking(&mut self) -> Option<Question> {
        self.questions.blocking_recv()
    }

    /// Another one that is waiting already, if any: for answering several from one look at the node.
    pub fn try_next(&mut self) -> Option<Question> {
        self.questions.try_recv().ok()
    }

    /// How many questions found no room since this was last asked.
    pub fn refused(&self) -> u64 {
        self.refused.swap(0, Ordering::Relaxed)
    }
}

/// Tells all sources to end, when dropped or told so.
#[derive(Debug)]
pub struct CancellationSource(watch::Sender<bool>);

/// How a source learns that it should end.
#[derive(Clone, Debug)]
pub struct CancellationToken(watch::Receiver<bool>);

#[must_use]
pub fn stop() -> (CancellationSource, CancellationToken) {
    let (sender, receiver) = watch::channel(false);
    (CancellationSource(sender), CancellationToken(receiver))
}

impl CancellationSource {
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl CancellationToken {
    /// Returns when the source should end; for `select!`.
    pub async fn requested(&mut self) {
        // A stopper that is gone asks for the same as one that says so.
        self.0.wait_for(|stopped| *stopped).await.ok();
    }

    /// For readers on a thread of their own, to look at between two files.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::{QUESTIONS, asks, feed};
    use crate::model::{
        change::Question,
        fact::{Fact, Observation, Origin},
        time::Timestamp,
    };

    #[test]
    fn questions_that_find_no_room_are_counted_and_keep_nobody_waiting() {
        let (asker, mut asks) = asks();
        (0..QUESTIONS + 3).for_each(|_| asker.ask(Question::Relist));
        assert_eq!((asks.refused(), asks.refused()), (3, 0));
        assert_eq!(std::iter::from_fn(|| asks.try_next()).count(), QUESTIONS);
        asker.ask(Question::Relist);
        assert_eq!((asks.try_next(), asks.refused()), (Some(Question::Relist), 0));
    }

    #[test]
    fn a_gauge_sees_what_waits_and_holds_nothing_open() {
        let (feed, mut batches) = feed();
        let gauge = feed.gauge();
        let fact = || Observation { at: Timestamp(1), origin: Origin::Agent, fact: Fact::Watermark };
        for _ in 0..3 {
            feed.send_blocking(vec![fact()]).expect("the agent is there");
        }
        assert_eq!(gauge.length(), 3);
        drop(feed);
        assert_eq!(gauge.length(), 0, "nobody sends any more");
        (0..3).for_each(|_| assert!(batches.blocking_recv().is_some()));
        assert!(batches.blocking_recv().is_none(), "and the channel is closed");
    }
}
