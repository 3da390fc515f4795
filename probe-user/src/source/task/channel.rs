//! The channels between the sources and the agent.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::{mpsc, watch};

use crate::model::{change::Question, fact::Observation};

/// The observations of a source at one time. The engine takes a whole batch before it is polled.
pub type Batch = Vec<Observation>;

/// The most batches that can wait for the engine. A source with no room for its batch waits, and the source's
/// own buffer (the kernel's ring, a socket, a directory) fills up meanwhile. This channel loses nothing; if
/// that buffer overflows, its own counter shows it.
const DEPTH: usize = 64;

/// Sends batches to the engine.
#[derive(Clone, Debug)]
pub struct BatchSender(mpsc::Sender<Batch>);

/// The agent takes no more batches, so the source should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent is gone")]
pub(crate) struct Closed;

#[must_use]
pub fn feed() -> (BatchSender, mpsc::Receiver<Batch>) {
    let (sender, receiver) = mpsc::channel(DEPTH);
    (BatchSender(sender), receiver)
}

impl BatchSender {
    /// Sends `batch`, in order; waits while the engine is behind. An empty batch is not sent.
    pub(crate) async fn send(&self, batch: Batch) -> Result<(), Closed> {
        if batch.is_empty() {
            return Ok(());
        }
        self.0.send(batch).await.map_err(|mpsc::error::SendError(_)| Closed)
    }

    /// Measures the channel without keeping it open.
    #[must_use]
    pub(crate) fn gauge(&self) -> Gauge {
        Gauge(self.0.downgrade())
    }
}

/// Shows how full the channel is.
#[derive(Clone, Debug)]
pub(crate) struct Gauge(mpsc::WeakSender<Batch>);

impl Gauge {
    /// Returns how many batches wait, of at most [`Self::CAPACITY`].
    #[must_use]
    pub(crate) fn length(&self) -> usize {
        self.0.upgrade().map_or(0, |sender| sender.max_capacity() - sender.capacity())
    }

    pub(crate) const CAPACITY: usize = DEPTH;
}

/// The most questions that wait for a source: more than the pods, containers and namespaces of a full node.
const QUESTIONS: usize = 16_384;

/// Sends questions to one source.
#[derive(Clone, Debug)]
pub struct QuestionSender {
    questions: mpsc::Sender<Question>,
    refused: Arc<AtomicU64>,
}

/// Receives the questions to one source.
#[derive(Debug)]
pub struct QuestionReceiver {
    questions: mpsc::Receiver<Question>,
    refused: Arc<AtomicU64>,
}

/// Makes a channel for questions. The agent must never wait for a source, because the source may be waiting
/// for the agent. So a question without room is refused and counted, and the source learns the count.
#[must_use]
pub fn questions() -> (QuestionSender, QuestionReceiver) {
    let (sender, receiver) = mpsc::channel(QUESTIONS);
    let refused = Arc::new(AtomicU64::new(0));
    (
        QuestionSender { questions: sender, refused: Arc::clone(&refused) },
        QuestionReceiver { questions: receiver, refused },
    )
}

impl QuestionSender {
    /// Sends a question, or returns it if there is no room. A source that has ended gives no answer; the
    /// engine can deal with that.
    pub fn ask(&self, question: Question) -> Option<Question> {
        match self.questions.try_send(question) {
            Err(mpsc::error::TrySendError::Full(question)) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Some(question)
            }
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => None,
        }
    }
}

impl QuestionReceiver {
    /// Returns the next question; `None` once no more will come.
    pub(crate) async fn next(&mut self) -> Option<Question> {
        self.questions.recv().await
    }

    /// Returns another question if one is waiting, so that several are answered together.
    pub(crate) fn try_next(&mut self) -> Option<Question> {
        self.questions.try_recv().ok()
    }

    /// Returns how many questions were refused since the last call.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.swap(0, Ordering::Relaxed)
    }
}

/// Stops all sources when it is dropped or cancelled.
#[derive(Debug)]
pub struct CancellationSource(watch::Sender<bool>);

/// Shows a source when to stop.
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
    /// Returns when the source should stop; for `select!`.
    pub(crate) async fn requested(&mut self) {
        // If the sender is gone, the source should stop too.
        self.0.wait_for(|stopped| *stopped).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::{QUESTIONS, feed, questions};
    use crate::model::{
        change::Question,
        fact::{Fact, Observation, Origin},
        time::Timestamp,
    };

    #[test]
    fn questions_that_find_no_room_are_counted_and_keep_nobody_waiting() {
        let (asker, mut receiver) = questions();
        let refused = (0..QUESTIONS + 3).filter_map(|_| asker.ask(Question::Relist));
        assert_eq!(refused.collect::<Vec<_>>(), vec![Question::Relist; 3], "the asker may ask again");
        assert_eq!((receiver.refused(), receiver.refused()), (3, 0));
        assert_eq!(std::iter::from_fn(|| receiver.try_next()).count(), QUESTIONS);
        asker.ask(Question::Relist);
        assert_eq!((receiver.try_next(), receiver.refused()), (Some(Question::Relist), 0));
    }

    #[test]
    fn a_gauge_sees_what_waits_and_holds_nothing_open() {
        let (feed, mut batches) = feed();
        let gauge = feed.gauge();
        let fact = || Observation { at: Timestamp(1), origin: Origin::Agent, fact: Fact::Watermark };
        for _ in 0..3 {
            feed.0.blocking_send(vec![fact()]).expect("the agent is there");
        }
        assert_eq!(gauge.length(), 3);
        drop(feed);
        assert_eq!(gauge.length(), 0, "nobody sends any more");
        (0..3).for_each(|_| assert!(batches.blocking_recv().is_some()));
        assert!(batches.blocking_recv().is_none(), "and the channel is closed");
    }
}
