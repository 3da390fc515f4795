//! Holds back what the agent reports, and the records that it has read, until the calls that led to them are
//! in the state's file. So an agent that is killed leaves nothing out and reports nothing in two ways: what
//! it had not reported, its successor reports with the same numbers, and what was not in the file is still in
//! the rings.
//!
//! **Invariant:** nothing waits longer than [`MAX_DISK_WAIT`] for a disk.

use std::{collections::VecDeque, mem, time::Duration};

use crate::{
    model::{fact::RingsRead, time::Timestamp},
    session::Session,
    source::live::ring::HeldRings,
};

/// How long anything waits for the state's file. If an agent is killed while the disk hangs for longer, the
/// time since the last write is a gap.
const MAX_DISK_WAIT: Duration = Duration::from_secs(10);

/// The lines and the records that wait.
#[derive(Default)]
pub(crate) struct Delivery {
    /// `None`: the rings keep nothing for a next agent.
    rings: Option<HeldRings>,
    waiting: VecDeque<Portion>,
    /// How far the rings had been read when their room was last given back.
    read: Option<RingsRead>,
    /// The number of the last event that was taken. Its line may be one that no filter keeps.
    seq: u64,
}

/// Lines of the stream, and the number of the last event before or in them.
pub(crate) struct StreamLines {
    pub(crate) bytes: Vec<u8>,
    pub(crate) seq: u64,
}

struct Portion {
    lines: StreamLines,
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
        let is_held = self.rings.is_some();
        let read = if is_held { session.engine().rings_read() } else { None };
        let lines = StreamLines { bytes: mem::take(session.output()), seq: session.last_seq() };
        let write = if is_held { write.unwrap_or(0) } else { 0 };
        let has_events = mem::replace(&mut self.seq, lines.seq) != lines.seq;
        match self.waiting.back_mut() {
            Some(last) if last.write >= write => {
                last.lines.bytes.extend(lines.bytes);
                last.lines.seq = lines.seq;
                last.read = read;
            }
            Some(_) | None => {
                if has_events || !lines.bytes.is_empty() || read != self.read {
                    self.waiting.push_back(Portion { lines, read, write, since: now });
                }
            }
        }
    }

    /// Notes that the state is no longer kept: what waits for a write after this one waits no longer than for
    /// this one.
    pub(crate) fn expect_no_write_after(&mut self, given: u64) {
        self.waiting.iter_mut().for_each(|portion| portion.write = portion.write.min(given));
    }

    /// Returns the next lines that can go, when the writes up to this number are done. Gives back the room of
    /// the records that led to them.
    pub(crate) fn next(&mut self, written: u64, now: Timestamp) -> Option<StreamLines> {
        let Portion { lines, read, .. } = self
            .waiting
            .pop_front_if(|portion| portion.write <= written || now >= portion.since + MAX_DISK_WAIT)?;
        if let (Some(rings), Some(read)) = (&self.rings, read)
            && self.read != Some(read)
        {
            rings.give_back(&read);
            self.read = Some(read);
        }
        Some(lines)
    }

    /// Returns when the first portion stops waiting.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.waiting.front().map(|portion| portion.since + MAX_DISK_WAIT)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Delivery;
    use crate::{
        agent::takeover::checkpoint::tests::header,
        engine::Call,
        model::{
            fact::{Fact, Loss, Observation, Origin},
            time::Timestamp,
        },
        session::Session,
        sink::{render::jsonl::Jsonl, select::filter::Filter},
    };

    /// Otherwise the hooks would not learn that a server has reported the event, and the next agent could
    /// give its number to another one.
    #[test]
    fn the_number_of_an_event_that_no_line_shows_goes_on_to_the_stream() {
        let filter = Filter { events: vec!["finding".to_owned()], ..Filter::default() };
        let mut session = Session::new(&header("b"), filter, Box::new(Jsonl));
        let mut delivery = Delivery::new(None);
        let at = Timestamp(1_000);
        delivery.take(&mut session, None, at);
        while delivery.next(0, at).is_some() {}
        let fact = Fact::Lost { what: Loss::BulkRing, count: 3, since: None };
        session.call(Call::Observe(Observation { at, origin: Origin::Agent, fact })).expect("no recording");
        session.call(Call::Advance(Timestamp(20_000_000_000))).expect("no recording");
        assert!(session.last_seq() > 0 && session.output().is_empty());
        delivery.take(&mut session, None, at);
        let lines = delivery.next(0, at).expect("a portion");
        assert_eq!((lines.bytes.len(), lines.seq), (0, session.last_seq()));
        delivery.take(&mut session, None, at);
        assert!(delivery.next(0, at).is_none(), "nothing is new");
    }
}
