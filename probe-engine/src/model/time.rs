//! The engine's only clock: nanoseconds of `CLOCK_BOOTTIME`, as the hooks stamp them. Sinks add the wall
//! time.

use std::{ops::Add, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_with::{DeserializeAs, DisplayFromStr, SerializeAs, serde_as};

use crate::model::scalar::Decimal;

/// A point in time since the node's boot. In JSON, a decimal string of nanoseconds.
#[serde_as]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[schemars(with = "Decimal<u64>", inline, description = "")]
pub struct Timestamp(#[serde_as(as = "DisplayFromStr")] pub u64);

impl Timestamp {
    pub const ZERO: Self = Self(0);
    /// The latest time that a clock shows: the kernel counts signed nanoseconds (`KTIME_MAX`,
    /// include/linux/ktime.h). Up to here a deadline is later than the time at which it was set; beyond, time
    /// would stand still.
    pub const LATEST: Self = Self(i64::MAX.cast_unsigned());

    /// Returns the time since `earlier`; zero if `earlier` is later.
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

/// A duration in JSON: a decimal string of nanoseconds, at most `u64::MAX` (584 years).
#[derive(Debug, JsonSchema)]
#[schemars(with = "Decimal<u64>", inline, description = "")]
pub(crate) struct Nanoseconds;

impl SerializeAs<Duration> for Nanoseconds {
    fn serialize_as<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl<'de> DeserializeAs<'de, Duration> for Nanoseconds {
    fn deserialize_as<D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        DisplayFromStr::deserialize_as(from).map(Duration::from_nanos)
    }
}

/// Reads the time of a call. The engine's clock follows it, so a time that no clock can show is refused.
/// Times within facts are not restricted.
pub(crate) fn on_the_clock<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    let at = Timestamp::deserialize(from)?;
    if at > Timestamp::LATEST {
        let Timestamp(at) = at;
        let Timestamp(latest) = Timestamp::LATEST;
        return Err(de::Error::custom(format_args!(
            "{at} is no time: a clock shows {latest} nanoseconds at most"
        )));
    }
    Ok(at)
}
/// A time that something took, in the clock of [`Timestamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Span {
    pub began: Timestamp,
    pub ended: Timestamp,
}
