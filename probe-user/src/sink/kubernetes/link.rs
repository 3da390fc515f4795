//! When to ask the API server again after a failure. What is wrong is logged once, and so is that it works again.

use std::{mem, time::Duration};

use jiff::Timestamp as WallTime;
use tokio::time::Instant;
use tracing::warn;

use super::api_server::Failure;

/// How long to wait after the first failure; each further one doubles it.
const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(300);

/// One kind of request, and how it goes.
#[derive(Debug)]
pub(super) struct Link {
    what: &'static str,
    url: String,
    failing: Option<Failing>,
}

#[derive(Debug)]
struct Failing {
    kind: mem::Discriminant<Failure>,
    wait: Duration,
    until: Instant,
}

impl Link {
    pub(super) fn new(what: &'static str, url: String) -> Self {
        Self { what, url, failing: None }
    }

    pub(super) fn is_due(&self) -> bool {
        self.failing.as_ref().is_none_or(|it| Instant::now() >= it.until)
    }

    pub(super) fn works(&mut self) {
        if self.failing.take().is_some() {
            warn!("{} can be written to the API server {} again", self.what, self.url);
        }
    }

    /// It is tried again, later each time.
    pub(super) fn fails(&mut self, failure: &Failure) {
        let kind = mem::discriminant(failure);
        // The same in other words says nothing new.
        if self.failing.as_ref().is_none_or(|it| it.kind != kind) {
            self.warn(failure, "; it is tried again, later each time, at last every 5 minutes");
        }
        let wait = self.failing.as_ref().map_or(FIRST, |it| (it.wait * 2).min(LONGEST));
        let until = Instant::now() + wait.mul_f64(spread());
        self.failing = Some(Failing { kind, wait, until });
    }

    /// It is not tried again.
    pub(super) fn gives_up(&self, failure: &Failure) {
        self.warn(failure, "");
    }

    fn warn(&self, failure: &Failure, then: &str) {
        warn!("{} cannot be written to the API server {}: {failure}{then}", self.what, self.url);
    }
}

/// The agents of a cluster are not to come back in the same moment: 0.75 to 1.25, by the clock.
fn spread() -> f64 {
    0.75 + f64::from(WallTime::now().subsec_nanosecond()) / 2e9
}
