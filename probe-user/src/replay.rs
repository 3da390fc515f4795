//! A recording as a source: the calls into the engine as they were made, flat out or at the pace of then.

use std::{
    io::BufRead,
    thread,
    time::{Duration, Instant},
};

use crate::{
    engine::Call,
    model::time::Timestamp,
    recording::{ReadError, Reader},
};

/// Calls `make` with each call of the recording, in order, until it says that it has enough.
pub fn replay<E>(
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
pub enum Pace {
    FlatOut,
    Then,
}

/// What ended a replay before the recording's end.
#[derive(Debug)]
pub enum ReplayError<E> {
    Read(ReadError),
    Make(E),
}

/// Where the replay is in its own time and in the recording's.
#[derive(Debug, Default)]
struct Metronome {
    start: Option<(Timestamp, Instant)>,
}

impl Metronome {
    /// How long the call made at `at` must wait. Calls are not in the order of their times: what is due already,
    /// waits not at all.
    fn wait(&mut self, at: Timestamp, now: Instant) -> Duration {
        // Until the first call that has a time.
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
