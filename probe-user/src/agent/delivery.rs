//! Lets go of what the agent tells, and of the records that it has read, only when the calls that led to them are in the
//! state's file. An agent that is killed then leaves nothing out and tells nothing in two ways: what it had not told, its
//! successor tells with the same numbers, and what was not in the file is still in the rings.
//!
//! **Invariant:** nothing waits longer than [`PATIENCE`] for a disk.

use std::{collections::VecDeque, mem, time::Duration};

use crate::{
    model::{fact::RingsRead, time::Timestamp},
    session::Session,
    source::live::ring::HeldRings,
};

/// How long anything waits for the state's file. If an agent is killed while the disk hangs for longer, the time since the
/// last write is a gap.
const PATIENCE: Duration = Duration::from_secs(10);

/// What waits.
#[derive(Default)]
pub(crate) struct Delivery {
    /// `None`: the rings keep nothing for a next agent.
    rings: Option<HeldRings>,
    waiting: VecDeque<Portion>,
    /// How far the rings had been read when their room was last given back.
    read: Option<RingsRead>,
}

/// Lines of the stream, and the number of the last event before or in them.
pub(crate) struct Lines {
    pub(crate) bytes: Vec<u8>,
    pub(crate) seq: u64,
}

struct Portion {
    lines: Lines,
    read: Option<RingsRead>,
    /// The number of the write that it waits for.
    write: u64,
    since: Timestamp,
}

impl Delivery {
    pub(crate) fn new(rings: Option<HeldRings>) -> Self {
        Self { rings, ..Self::default() }
    }

    /// Whether the rings keep their records for a next agent.
    pub(crate) fn keeps_rings(&self) -> bool {
        self.rings.is_some()
    }

    /// Takes the session's lines. They wait for this write; without one they can go at once.
    pub(crate) fn take(&mut self, session: &mut Session, write: Option<u64>, now: Timestamp) {
        let read = session.engine().rings_read().filter(|_| self.rings.is_some());
        let lines = Lines { bytes: mem::take(session.output()), seq: session.last_seq() };
        let write = write.filter(|_| self.rings.is_some()).unwrap_or(0);
        match self.waiting.back_mut() {
            Some(last) if last.write >= write => {
                last.lines.bytes.extend(lines.bytes);
                (last.lines.seq, last.read) = (lines.seq, read);
            }
            Some(_) | None => {
                if !lines.bytes.is_empty() || read != self.read {
                    self.waiting.push_back(Portion { lines, read, write, since: now });
                }
            }
        }
    }

    /// The state is kept no longer: what waits for a write after this one waits for no other.
    pub(crate) fn expect_no_write_after(&mut self, given: u64) {
        self.waiting.iter_mut().for_each(|portion| portion.write = portion.write.min(given));
    }

    /// The next lines that can go, when the writes up to this number are done. The room of the records that led to them is
    /// given back.
    pub(crate) fn next(&mut self, written: u64, now: Timestamp) -> Option<Lines> {
        let may_go = |portion: &mut Portion| portion.write <= written || now >= portion.since + PATIENCE;
        let Portion { lines, read, .. } = self.waiting.pop_front_if(may_go)?;
        if let (Some(rings), Some(read)) = (&self.rings, read)
            && self.read != Some(read)
        {
            rings.give_back(&read);
            self.read = Some(read);
        }
        Some(lines)
    }

    /// When the first portion waits no longer.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.waiting.front().map(|portion| portion.since + PATIENCE)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
