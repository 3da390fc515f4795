//! The engine's timer. It fires late if the agent did not run for a while: it was stopped, frozen, swapped
//! out or held back by its CPU limit. What happened meanwhile must be read then, before time passes:
//! otherwise a call that ended seconds ago would seem to run on.
//!
//! **Invariant:** the engine does not advance to a time for which a source may still send records, unless
//! that source did not answer for [`MAX_ANSWER_WAIT`]. A pause of the agent counts as one turn of that wait,
//! however long it was.

use std::{future, time::Duration};

use tokio::time::{self, Instant};

use crate::{
    model::time::Timestamp,
    session::Session,
    source::{node::clock, task::records_first::RecordsFirst},
};

/// How long a source may take to answer.
const MAX_ANSWER_WAIT: Duration = Duration::from_secs(1);

/// A turn of waiting.
const TURN: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct Timer {
    /// The sources that report what happens, and not what is found.
    sources: Vec<RecordsFirst>,
    /// When the present turn ends.
    turn_ends: Option<Instant>,
    /// How long the sources were waited for.
    waited: Duration,
}

impl Timer {
    pub(crate) fn new(sources: Vec<RecordsFirst>) -> Self {
        Self { sources, ..Self::default() }
    }

    /// Waits until the engine wants to be called with the time, and until the sources have sent what it must
    /// know by then. Returns the time for the call. May be dropped and called again.
    pub(super) async fn due(&mut self, session: &Session) -> Timestamp {
        until(session.deadline()).await;
        loop {
            let now = clock::now();
            let judged = session.engine().settled(now);
            let behind = if self.waited < MAX_ANSWER_WAIT {
                self.sources.iter_mut().find(|source| !source.has_told(judged))
            } else {
                None
            };
            let Some(behind) = behind else {
                self.turn_ends = None;
                self.waited = Duration::ZERO;
                return now;
            };
            let ends = *self.turn_ends.get_or_insert_with(|| Instant::now() + TURN);
            if time::timeout_at(ends, behind.tells_more()).await.is_err() {
                self.turn_ends = None;
                self.waited += TURN;
            }
        }
    }
}

/// Waits until this time since boot; forever if there is none. The timer stops while the machine is
/// suspended: after a resume it is late by the rest of its wait, which is short.
pub(super) async fn until(deadline: Option<Timestamp>) {
    match deadline {
        Some(deadline) => time::sleep(deadline.since(clock::now())).await,
        None => future::pending().await,
    }
}
