//! Replays a recording: makes the same calls into the engine, as fast as possible or at the original pace.

use std::{
    convert::Infallible,
    io::BufRead,
    thread,
    time::{Duration, Instant},
};

use crate::{
    engine::{Call, Engine},
    model::{
        change::{Change, Output},
        fact::Fact,
        time::Timestamp,
    },
    recording::{Header, ReadError, Reader},
};

/// Calls `make` with each call of the recording, in order, until it asks to stop.
pub(crate) fn replay<E>(
    reader: &mut Reader<impl BufRead>,
    pace: Pace,
    mut make: impl FnMut(Call) -> Result<(), E>,
) -> Result<(), ReplayError<E>> {
    let mut metronome = Metronome::default();
    while let Some(call) = reader.next_call().map_err(ReplayError::Read)? {
        if pace == Pace::Then {
            thread::sleep(metronome.wait(call.at().unwrap_or_default(), Instant::now()));
        }
        make(call).map_err(ReplayError::Make)?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    FlatOut,
    Then,
}

/// Why a replay ended before the recording's end.
#[derive(Debug)]
pub(crate) enum ReplayError<E> {
    Read(ReadError),
    Make(E),
}

/// An engine after a whole recording, or after the complete part of one.
pub(crate) struct Replayed {
    pub(crate) header: Header,
    pub(crate) engine: Engine,
    /// The latest wall time of the boot in the recording.
    pub(crate) boot_wall_ns: i64,
    /// When the last observation was made.
    pub(crate) observed_until: Timestamp,
    /// The time of the last call. At the end of a whole recording that is later than the last observation, so
    /// that the engine holds nothing back.
    pub(crate) until: Timestamp,
    /// Where the recording was cut off, if it was.
    pub(crate) cut_off: Option<ReadError>,
}

/// What [`to_end`] passes on.
pub(crate) enum Step {
    /// The first call, made at this time. The engine has the state with which the recording begins.
    Begin(Timestamp),
    Event(Box<Change>),
}

/// Replays a recording to its end, for the engine's final state. Calls `take` once before the first call, and
/// with each event.
pub(crate) fn to_end(
    reader: &mut Reader<impl BufRead>,
    mut take: impl FnMut(&Engine, Step),
) -> Result<Replayed, ReadError> {
    let header = reader.header().clone();
    let mut engine = Engine::new(header.settings.clone());
    let mut boot_wall_ns = header.boot_wall_ns;
    let mut observed_until = Timestamp::ZERO;
    let mut until = Timestamp::ZERO;
    let mut has_begun = false;
    let ended = replay(reader, Pace::FlatOut, |call| {
        until = until.max(call.at().unwrap_or_default());
        if let Call::Observe(seen) = &call {
            observed_until = observed_until.max(seen.at);
            if let Fact::Clock { boot_wall_ns: changed } = seen.fact {
                boot_wall_ns = changed;
            }
        }
        if !has_begun && !matches!(call, Call::Restore(_)) {
            has_begun = true;
            take(&engine, Step::Begin(call.at().unwrap_or_default()));
        }
        engine.call(call);
        while let Some(output) = engine.poll() {
            if let Output::Change(change) = output {
                take(&engine, Step::Event(Box::new(change)));
            }
        }
        Ok::<(), Infallible>(())
    });
    let cut_off = match ended {
        Ok(()) => None,
        Err(ReplayError::Read(error @ ReadError::CutOff { .. })) => Some(error),
        Err(ReplayError::Read(error)) => return Err(error),
        Err(ReplayError::Make(never)) => match never {},
    };
    Ok(Replayed { header, engine, boot_wall_ns, observed_until, until, cut_off })
}

/// The position of the replay in its own time and in the recording's.
#[derive(Debug, Default)]
struct Metronome {
    start: Option<(Timestamp, Instant)>,
}

impl Metronome {
    /// Returns how long to wait before the call made at `at`. Calls are not sorted by time: one that is
    /// overdue does not wait.
    fn wait(&mut self, at: Timestamp, now: Instant) -> Duration {
        // No call with a time has come yet.
        if at == Timestamp::ZERO {
            return Duration::ZERO;
        }
        let (then, start) = *self.start.get_or_insert((at, now));
        at.since(then).saturating_sub(now.saturating_duration_since(start))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Metronome, Timestamp};

    #[test]
    fn calls_wait_for_their_time_and_no_longer() {
        let (mut metronome, start) = (Metronome::default(), Instant::now());
        let millis = Duration::from_millis;
        assert_eq!(metronome.wait(Timestamp::ZERO, start), Duration::ZERO);
        let first = Timestamp(5_000_000_000);
        assert_eq!(metronome.wait(first, start), Duration::ZERO);
        assert_eq!(metronome.wait(first + millis(300), start + millis(100)), millis(200));
        assert_eq!(metronome.wait(first + millis(300), start + millis(400)), Duration::ZERO);
        assert_eq!(metronome.wait(Timestamp(1), start), Duration::ZERO);
    }
}
