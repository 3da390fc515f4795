//! When to ask the API server again after a failure. What is wrong is logged once, and so is that it works again.

use std::{mem, time::Duration};

use tokio::time::Instant;
use tracing::warn;

use super::{
    api_server::Failure,
    rest::{LONGEST, random},
};

/// How long to wait after the first failure; each further one doubles it.
const FIRST: Duration = Duration::from_secs(5);

/// One kind of request, and how it goes.
#[derive(Debug)]
pub(super) struct Link {
    what: &'static str,
    url: String,
    failing: Option<Failing>,
    /// It was logged that something is not tried again.
    gave_up: bool,
}

#[derive(Debug)]
struct Failing {
    kind: mem::Discriminant<Failure>,
    text: String,
    /// When that was logged.
    said: Instant,
    wait: Duration,
    until: Instant,
}

impl Link {
    pub(super) fn new(what: &'static str, url: String) -> Self {
        Self { what, url, failing: None, gave_up: false }
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
        let (kind, text, now) = (mem::discriminant(failure), failure.to_string(), Instant::now());
        let before = self.failing.as_ref();
        // The same says nothing new, and other words for it are soon said again.
        let said = before.filter(|it| it.kind == kind && (it.text == text || now < it.said + LONGEST));
        let said = said.map(|it| it.said);
        let wait = before.map_or(FIRST, |it| (it.wait * 2).min(LONGEST));
        if said.is_none() {
            self.warn(failure, "; it is tried again, later each time, at last every 5 minutes");
        }
        // The agents of a cluster are not to come back in the same moment.
        let until = now + wait.mul_f64(0.75 + random() / 2.0);
        self.failing = Some(Failing { kind, text, said: said.unwrap_or(now), wait, until });
    }

    /// It is not tried again. More of the kind would say nothing new.
    pub(super) fn gives_up(&mut self, failure: &Failure) {
        if !mem::replace(&mut self.gave_up, true) {
            self.warn(failure, "; such Events are left out");
        }
    }

    fn warn(&self, failure: &Failure, then: &str) {
        warn!("{} cannot be written to the API server {}: {failure}{then}", self.what, self.url);
    }
}
