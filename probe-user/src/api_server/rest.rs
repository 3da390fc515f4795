//! How long the API server is left alone.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{HeaderMap, StatusCode};
use jiff::Timestamp as WallTime;
use tokio::time::Instant;

use crate::endpoint::retry_after::retry_after;

/// The longest wait before the API server is asked again.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(300);

/// The time until which the API server, or a proxy in front of it, asked to be left alone. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rest(Arc<Mutex<Option<Instant>>>);

impl Rest {
    /// Obeys the `Retry-After` of an answer, up to [`MAX_WAIT`]. The agents of a cluster do not come back
    /// together.
    pub(super) fn heed(&self, status: StatusCode, headers: &HeaderMap) {
        if !matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            return;
        }
        if let Some(asked) = retry_after(headers) {
            let until = Instant::now() + asked.min(MAX_WAIT).mul_f64(1.0 + random() / 4.0);
            // Another request may have been told to wait for longer.
            let mut rest = self.until();
            *rest = rest.max(Some(until));
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.until().is_none_or(|until| until <= Instant::now())
    }

    fn until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number from 0 to 1, from the clock.
pub(crate) fn random() -> f64 {
    f64::from(WallTime::now().subsec_nanosecond()) / 1e9
}
