//! Counters of the requests to the API server, for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use strum::{IntoStaticStr, VariantArray};

/// What is written to the API server, or read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub(crate) enum Resource {
    Event,
    Condition,
    /// Whose an address is.
    Address,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub(crate) enum Outcome {
    Done,
    /// The object of the request is gone.
    Gone,
    /// The request is not allowed, or its object is not accepted.
    Refused,
    /// The API server was not reached, or had an internal problem.
    Failed,
}

#[derive(Debug, Default)]
pub(crate) struct KubernetesStats {
    requests: [[AtomicU64; Outcome::VARIANTS.len()]; Resource::VARIANTS.len()],
    waiting: AtomicU64,
}

impl KubernetesStats {
    pub(super) fn count(&self, resource: Resource, outcome: Outcome) {
        self.requests[resource as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wait(&self, events: usize) {
        self.waiting.store(u64::try_from(events).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The number of requests so far, by resource and outcome.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (Resource, Outcome, u64)> {
        Resource::VARIANTS.iter().zip(&self.requests).flat_map(|(resource, counts)| {
            let counts = Outcome::VARIANTS.iter().zip(counts);
            counts.map(|(outcome, count)| (*resource, *outcome, count.load(Ordering::Relaxed)))
        })
    }

    /// The number of findings that have no Event yet, because there are too many.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }
}
