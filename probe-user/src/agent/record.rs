//! Writes the recording to its file. A recording never has a gap: it ends where it cannot continue.

use std::{io, time::Duration};

use tokio::time;
use tracing::warn;

use super::AgentError;
use crate::{session::Session, sink::stream::write_queue::WriteQueue};

/// The most bytes that wait for a slow disk. The list of a full node takes a tenth of it.
pub(crate) const ROOM: usize = 32 << 20;

#[derive(Debug)]
pub(crate) struct Record {
    outlet: WriteQueue,
    /// Whether the run ends when the recording does.
    is_purpose: bool,
    /// Why it has ended.
    ended: Option<io::Error>,
}

impl Record {
    #[must_use]
    pub(crate) fn new(outlet: WriteQueue, is_purpose: bool) -> Self {
        Self { outlet, is_purpose, ended: None }
    }

    /// Takes the recorded bytes. An error ends the run.
    pub(super) fn write(&mut self, session: &mut Session) -> io::Result<()> {
        let Some(recorded) = session.recorded() else { return Ok(()) };
        let why = match self.outlet.offer(recorded) {
            Ok(true) => return Ok(()),
            Ok(false) => {
                let room = ROOM >> 20;
                io::Error::new(io::ErrorKind::TimedOut, format!("{room} MiB wait, and nobody takes them"))
            }
            Err(why) => why,
        };
        session.stop_recording();
        if self.is_purpose {
            return Err(why);
        }
        warn!(%why, "the recording has ended; what was written until now can be replayed");
        self.ended = Some(why);
        Ok(())
    }

    /// Writes the rest, within `grace`.
    pub(super) async fn finish(self, session: &mut Session, grace: Duration) -> Result<(), AgentError> {
        let Self { mut outlet, ended, .. } = self;
        if let Some(why) = ended {
            return Err(AgentError::Recording(why));
        }
        let mut rest = session.end_recording()?;
        let finished = async {
            if !outlet.offer(&mut rest)? {
                return Err(late(grace));
            }
            outlet.finish().await
        };
        let finished = time::timeout(grace, finished).await;
        finished.unwrap_or_else(|_late| Err(late(grace))).map_err(AgentError::Recording)
    }
}

fn late(grace: Duration) -> io::Error {
    let why = format!("nobody took the rest within {} s", grace.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, why)
}
