//! How long a runtime takes to report what the kernel has seen.

use std::{collections::VecDeque, time::Duration};

use strum::{IntoStaticStr, VariantNames};

/// One measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Counts up.
    pub number: u64,
    pub what: LagOf,
    pub by: LagBy,
    pub took: Duration,
}

/// What the kernel has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum LagOf {
    Started,
    Stopped,
}

/// How the runtime reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum LagBy {
    Event,
    /// By a list that was asked for soon after, so this is the longest that it can have taken.
    List,
}

/// The measured times wait for whoever takes them, at most this many.
const WAITING: usize = 1024;

#[derive(Clone, Debug, Default)]
pub(crate) struct Lags {
    pub(crate) next: u64,
    pub(crate) waiting: VecDeque<Lag>,
}

impl Lags {
    pub(in crate::engine::world) fn push(&mut self, what: LagOf, by: LagBy, took: Duration) {
        if self.waiting.len() >= WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Lag { number: self.next, what, by, took });
        self.next += 1;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lag> {
        self.waiting.iter()
    }
}
