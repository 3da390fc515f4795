//! The channels between the sources and the agent.

use tokio::sync::{mpsc, watch};

use crate::engine::{change::Question, fact::Observation};

/// What a source has to say at one time; the engine takes all of it before it is asked what it makes of it.
pub type Batch = Vec<Observation>;

/// Batches that may wait for the engine. A source whose batch finds no room waits, and what it waits on (the
/// kernel's ring, a socket, a directory) is then its buffer: nothing is lost here, and where that buffer overflows
/// its own counter says so.
const DEPTH: usize = 64;

/// A source's way to the engine.
#[derive(Clone, Debug)]
pub struct Feed(mpsc::Sender<Batch>);

/// The agent takes nothing any more: the source should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent is gone")]
pub struct Closed;

#[must_use]
pub fn feed() -> (Feed, mpsc::Receiver<Batch>) {
    let (sender, receiver) = mpsc::channel(DEPTH);
    (Feed(sender), receiver)
}

impl Feed {
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

/// The agent's way to one answering source.
#[derive(Clone, Debug)]
pub struct Asker(mpsc::UnboundedSender<Question>);

/// The questions to one answering source.
#[derive(Debug)]
pub struct Asks(mpsc::UnboundedReceiver<Question>);

/// Not bounded, for the agent must never wait for one who may be waiting for it; the engine asks once about each
/// thing that it knows, so there are never more questions than things on the node.
#[must_use]
pub fn asks() -> (Asker, Asks) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Asker(sender), Asks(receiver))
}

impl Asker {
    /// A source that has ended answers nothing, which is an answer that the engine can live with.
    pub fn ask(&self, question: Question) {
        self.0.send(question).ok();
    }
}

impl Asks {
    /// The next question; `None` when no more will come.
    pub async fn next(&mut self) -> Option<Question> {
        self.0.recv().await
    }

    /// The same from a thread of its own.
    pub fn next_blocking(&mut self) -> Option<Question> {
        self.0.blocking_recv()
    }

    /// Another one that is waiting already, if any: for answering several from one look at the node.
    pub fn try_next(&mut self) -> Option<Question> {
        self.0.try_recv().ok()
    }
}

/// Tells all sources to end, when dropped or told so.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

/// How a source learns that it should end.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

#[must_use]
pub fn stop() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(false);
    (Stopper(sender), Stop(receiver))
}

impl Stopper {
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
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
    use super::feed;
    use crate::engine::{
        fact::{Fact, Observation, Origin},
        time::Timestamp,
    };

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
