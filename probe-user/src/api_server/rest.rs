//! How long the API server is left alone.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{Response, StatusCode};
use jiff::Timestamp as WallTime;
use tokio::time::Instant;

use crate::retry_after::retry_after;

/// The longest wait before the API server is asked again.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(300);

/// The time until which the API server, or a proxy in front of it, asked to be left alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Rest(Arc<Mutex<Option<Instant>>>);

impl Rest {
    /// Obeys the `Retry-After` of an answer, up to [`MAX_WAIT`]. The agents of a cluster do not come back
    /// together.
    pub(super) fn heed<B>(&self, answer: &Response<B>) {
        if !matches!(answer.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            return;
        }
        if let Some(asked) = retry_after(answer.headers()) {
            let until = Instant::now() + asked.min(MAX_WAIT).mul_f64(1.0 + random() / 4.0);
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|until| until <= Instant::now())
    }
}

/// A number from 0 to 1, from the clock.
pub(crate) fn random() -> f64 {
    f64::from(WallTime::now().subsec_nanosecond()) / 1e9
}
