//! The engine's only clock: nanoseconds of `CLOCK_BOOTTIME`, as the hooks stamp them. Wall time is a label
//! that sinks add.

use std::{ops::Add, time::Duration};

/// A point in time since the node's boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    pub const ZERO: Self = Self(0);
    /// The kernel counts in signed nanoseconds (`KTIME_MAX`, include/linux/ktime.h): no clock shows more. Up to here a
    /// deadline of the engine's is later than the time at which it was set; beyond, time would stand still.
    pub const LATEST: Self = Self(i64::MAX.cast_unsigned());

    /// How long after `earlier` this is; zero if it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    #[must_use]
    pub fn saturating_sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}
