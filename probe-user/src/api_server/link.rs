//! When to ask the API server again after a failure. A failure is logged once, and so is its end.

use std::{mem, time::Duration};

use tokio::time::Instant;
use tracing::warn;

use super::{
    Failure,
    rest::{MAX_WAIT, random},
};

/// How long to wait after the first failure. Each further failure doubles the wait.
const FIRST_WAIT: Duration = Duration::from_secs(5);

/// One kind of request, and whether it fails.
#[derive(Debug)]
pub(crate) struct Link {
    /// What is requested, and how.
    what: &'static str,
    done: &'static str,
    url: String,
    failing: Option<Failing>,
    /// It was logged that some requests are not tried again.
    gave_up: bool,
}

#[derive(Debug)]
struct Failing {
    kind: mem::Discriminant<Failure>,
    text: String,
    /// When the failure was logged.
    said: Instant,
    wait: Duration,
    until: Instant,
}

impl Link {
    /// `done`: what the requests do at the API server, such as `written to`.
    pub(crate) fn new(what: &'static str, done: &'static str, url: String) -> Self {
        Self { what, done, url, failing: None, gave_up: false }
    }

    pub(crate) fn is_due(&self) -> bool {
        self.failing.as_ref().is_none_or(|it| Instant::now() >= it.until)
    }

    pub(crate) fn works(&mut self) {
        if self.failing.take().is_some() {
            warn!("{} can be {} the API server {} again", self.what, self.done, self.url);
        }
    }

    /// Records a failure. The request is tried again, after a longer wait each time.
    pub(crate) fn fails(&mut self, failure: &Failure) {
        self.fails_with(failure, "");
    }

    /// Records a failure, as [`Self::fails`] does. `hint`: what more is said about it.
    pub(crate) fn fails_with(&mut self, failure: &Failure, hint: &str) {
        let kind = mem::discriminant(failure);
        let text = failure.to_string();
        let now = Instant::now();
        let before = self.failing.as_ref();
        // A text is logged once. Another text for the same kind of failure is logged after some time.
        let said = before.filter(|it| it.kind == kind && (it.text == text || now < it.said + MAX_WAIT));
        let said = said.map(|it| it.said);
        let wait = before.map_or(FIRST_WAIT, |it| (it.wait * 2).min(MAX_WAIT));
        if said.is_none() {
            self.warn(
                failure,
                &format!("{hint}; it is tried again, later each time, at last every 5 minutes"),
            );
        }
        // The agents of a cluster should not all come back at the same moment.
        let until = now + wait.mul_f64(0.75 + random() / 2.0);
        self.failing = Some(Failing { kind, text, said: said.unwrap_or(now), wait, until });
    }

    /// Records a failure whose request is not tried again. Only the first one is logged.
    pub(crate) fn gives_up(&mut self, failure: &Failure) {
        if !mem::replace(&mut self.gave_up, true) {
            self.warn(failure, "; such Events are left out");
        }
    }

    fn warn(&self, failure: &Failure, then: &str) {
        warn!("{} cannot be {} the API server {}: {failure}{then}", self.what, self.done, self.url);
    }
}
