//! Sizes and times of sending.

use std::time::Duration;

/// The size of a queue and of a batch, and the times of requests and tries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// How many bytes may wait.
    pub(super) room: usize,
    /// How many bytes go into a request, unless one trace has more.
    pub(super) batch: usize,
    /// The largest request that a receiver accepts, bytes. The default of gRPC is 4 MiB.
    pub(super) longest: usize,
    /// How long the first entry of a batch waits for others.
    pub(super) gather: Duration,
    /// How long a request may take, from the connection to the answer.
    pub(super) deadline: Duration,
    /// The wait after the first failure. It doubles with each further failure, up to the longest.
    pub(super) first_wait: Duration,
    pub(super) longest_wait: Duration,
    /// How long a batch is tried.
    pub(super) patience: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            room: 4 << 20,
            batch: 256 << 10,
            longest: 3 << 20,
            gather: Duration::from_secs(1),
            deadline: Duration::from_secs(10),
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_secs(30),
            patience: Duration::from_secs(10 * 60),
        }
    }
}

/// The waits between tries.
#[derive(Debug)]
pub(super) struct BackOff {
    next: Duration,
    longest: Duration,
}

impl BackOff {
    pub(super) fn new(pace: &Pace) -> Self {
        Self { next: pace.first_wait, longest: pace.longest_wait }
    }

    /// The next wait. It is at least as long as the receiver asked for; without that, between half of the
    /// time and all of it, by `random`, so that the nodes of a cluster do not come back together.
    pub(super) fn wait(&mut self, asked: Option<Duration>, random: u8) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(self.longest);
        let wait = whole / 2 + whole / 2 * u32::from(random) / u32::from(u8::MAX);
        asked.map_or(wait, |asked| asked.saturating_add(wait / 2))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BackOff, Pace};

    #[test]
    fn waits_double_up_to_a_bound_and_are_spread() {
        let pace = Pace::default();
        for (random, first, last) in [(0, 500, 15_000), (u8::MAX, 1000, 30_000)] {
            let mut waits = BackOff::new(&pace);
            let all: Vec<Duration> = (0..10).map(|_| waits.wait(None, random)).collect();
            assert_eq!(all[0], Duration::from_millis(first));
            assert_eq!(all[9], Duration::from_millis(last));
            assert!(all.is_sorted());
        }
        let mut waits = BackOff::new(&pace);
        assert_eq!(waits.wait(Some(Duration::from_secs(60)), 0), Duration::from_millis(60_250));
        assert_eq!(waits.wait(Some(Duration::MAX), u8::MAX), Duration::MAX, "a receiver may say any number");
    }
}
