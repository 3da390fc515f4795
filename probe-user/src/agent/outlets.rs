//! What leaves the agent, in this order: first the recording, so that everything in the stream can be
//! replayed; then the state, with which the next agent goes on; then the stream.

use std::{future, time::Duration};

use tokio::time::{self, Instant};

use super::{
    AgentError,
    record::Record,
    takeover::{
        checkpoint::Checkpoint,
        delivery::{Delivery, StreamLines},
    },
};
use crate::{
    model::time::Timestamp,
    session::Session,
    sink::stream::{Stream, Unwritten},
    source::{live::ring::HeldRings, node::clock},
};

pub(crate) struct Outlets {
    /// Where the stream goes.
    pub(crate) stream: Stream,
    /// What waits for the stream, and the records whose room is not given back yet.
    delivery: Delivery,
    /// Where the recording goes, if one is made.
    recording: Option<Record>,
    /// The file with the engine's state, if there is a state directory.
    checkpoint: Option<Checkpoint>,
}

impl Outlets {
    /// Creates the outlets. `rings` are the rings that keep their records until the state is written.
    pub(crate) fn new(
        stream: Stream,
        recording: Option<Record>,
        checkpoint: Option<Checkpoint>,
        rings: Option<HeldRings>,
    ) -> Self {
        Self { stream, delivery: Delivery::new(rings), recording, checkpoint }
    }

    /// Writes what the session has done since the last call.
    pub(crate) fn write(&mut self, session: &mut Session, now: Timestamp) -> Result<(), AgentError> {
        if let Some(recording) = &mut self.recording {
            recording.write(session).map_err(AgentError::Recording)?;
        }
        let write = self.checkpoint.as_mut().and_then(|checkpoint| {
            if !self.delivery.keeps_rings() {
                // The stream then waits for no write. The successor of a killed agent must not use its last
                // numbers again.
                checkpoint.flush_soon();
                checkpoint.will_tell(session.last_seq());
            }
            let is_all_reported =
                session.output().is_empty() && self.delivery.is_empty() && self.stream.is_idle();
            checkpoint.update(now, session, is_all_reported)
        });
        if let (Some(checkpoint), None) = (&self.checkpoint, write) {
            self.delivery.expect_no_write_after(checkpoint.given());
        }
        self.delivery.take(session, write, now);
        let written = self.checkpoint.as_ref().map_or(0, Checkpoint::written);
        while let Some(lines) = self.delivery.next(written, now) {
            self.offer(session, lines)?;
        }
        self.stream.accept_after_read();
        Ok(())
    }

    /// Waits until all calls are in the state's file, and lets everything go.
    pub(crate) async fn settle(&mut self, session: &mut Session, grace: Duration) -> Result<(), AgentError> {
        self.store(session, grace).await?;
        while let Some(lines) = self.delivery.next(u64::MAX, clock::now()) {
            self.offer(session, lines)?;
        }
        Ok(())
    }

    /// Waits until all calls are in the state's file, or for `grace`. After that the rings have the room of
    /// these records again.
    pub(crate) async fn store(&mut self, session: &mut Session, grace: Duration) -> Result<(), AgentError> {
        let deadline = Instant::now() + grace;
        loop {
            if let Some(checkpoint) = &mut self.checkpoint {
                checkpoint.flush_soon();
            }
            self.write(session, clock::now())?;
            if self.delivery.is_empty() || time::timeout_at(deadline, self.written()).await.is_err() {
                return Ok(());
            }
        }
    }

    fn offer(&mut self, session: &mut Session, mut lines: StreamLines) -> Result<(), AgentError> {
        let offered = self.stream.offer(&mut lines.bytes, lines.seq, |count| session.missed(count));
        offered.map_err(|error| AgentError::Stream { to: self.stream.name().to_owned(), error })
    }

    /// Returns whether the next agent continues with what waits, in the state and in the rings.
    pub(super) fn has_successor(&self) -> bool {
        self.delivery.keeps_rings() && self.checkpoint.as_ref().is_some_and(Checkpoint::is_kept)
    }

    /// Returns when something stops waiting, for more of it or for the state's file.
    pub(super) fn due(&self) -> Option<Timestamp> {
        let gathered = self.checkpoint.as_ref().and_then(Checkpoint::due);
        self.delivery.due().into_iter().chain(gathered).min()
    }

    /// Returns when the state's file has been written once more; never if there is none.
    pub(super) async fn written(&self) {
        match &self.checkpoint {
            Some(checkpoint) => checkpoint.writes().await,
            None => future::pending().await,
        }
    }

    /// Ends all of them, even if one fails. The agent has seen what happened until `seen_until`.
    pub(super) async fn close(
        self,
        session: &mut Session,
        seen_until: Timestamp,
        grace: Duration,
    ) -> Result<(), AgentError> {
        let recorded = match self.recording {
            Some(recording) => recording.finish(session, grace).await,
            None => Ok(()),
        };
        let to = self.stream.name().to_owned();
        let streamed = match self.stream.finish(grace).await {
            Ok(Unwritten(0)) => Ok(()),
            Ok(Unwritten(count)) => Err(AgentError::Unread { to, count }),
            Err(error) => Err(AgentError::Stream { to, error }),
        };
        // The last state leaves nothing out only after everything was reported.
        if let Some(checkpoint) = self.checkpoint {
            time::timeout(grace, checkpoint.finish(seen_until, session)).await.ok();
        }
        recorded.and(streamed)
    }
}
