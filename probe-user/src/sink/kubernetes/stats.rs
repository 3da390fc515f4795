//! How the requests to the API server went, for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use strum::{IntoStaticStr, VariantArray};

/// What is written to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub(crate) enum Resource {
    Event,
    Condition,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub(crate) enum Outcome {
    Done,
    /// What it is about is gone.
    Gone,
    /// It is not allowed, or not taken.
    Refused,
    /// The API server was not reached, or had trouble of its own.
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

    pub(super) fn wait(&self, events: usize) {
        self.waiting.store(u64::try_from(events).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The requests so far: of what, how they ended, how many.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (Resource, Outcome, u64)> {
        Resource::VARIANTS.iter().zip(&self.requests).flat_map(|(resource, counts)| {
            let counts = Outcome::VARIANTS.iter().zip(counts);
            counts.map(|(outcome, count)| (*resource, *outcome, count.load(Ordering::Relaxed)))
        })
    }

    /// Findings that have no Event yet, because there are too many.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }
}
