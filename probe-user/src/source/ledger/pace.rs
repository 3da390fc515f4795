//! How often the API server is asked.

use std::time::Duration;

use tokio::time::{self, Instant};

/// The time between two requests, when many wait.
const INTERVAL: Duration = Duration::from_secs(10);
/// How many requests may be made at once, when none was made for a while.
const BURST: u32 = 5;

/// Delays requests, so that all nodes of a large cluster together load the API server little.
#[derive(Debug)]
pub(super) struct Pace {
    /// When a whole burst may be made again.
    full_at: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Self { full_at: Instant::now() }
    }
}

impl Pace {
    /// Waits until the next request may be made.
    pub(super) async fn wait(&mut self) {
        let missing = self.full_at.saturating_duration_since(Instant::now());
        time::sleep(missing.saturating_sub(INTERVAL * (BURST - 1))).await;
        self.full_at = self.full_at.max(Instant::now()) + INTERVAL;
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, Pace, time};

    #[tokio::test(start_paused = true)]
    async fn after_a_burst_there_is_one_request_in_ten_seconds() {
        let began = Instant::now();
        let mut pace = Pace::default();
        let mut waited = Vec::new();
        for _ in 0..8 {
            pace.wait().await;
            waited.push(began.elapsed().as_secs());
        }
        assert_eq!(waited, [0, 0, 0, 0, 0, 10, 20, 30]);
        time::sleep(Duration::from_secs(25)).await;
        let again = Instant::now();
        pace.wait().await;
        pace.wait().await;
        assert_eq!(again.elapsed(), Duration::ZERO, "two may be made at once again");
        pace.wait().await;
        assert_eq!(again.elapsed(), Duration::from_secs(5));
    }
}
