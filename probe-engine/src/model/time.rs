//! The engine's only clock: nanoseconds of `CLOCK_BOOTTIME`, as the hooks stamp them. Wall time is a label
//! that sinks add.

use std::{borrow::Cow, ops::Add, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_with::{DeserializeAs, DisplayFromStr, SerializeAs, serde_as};

use crate::model::scalar::Decimal;

/// A point in time since the node's boot. As JSON a decimal string of nanoseconds.
#[serde_as]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(#[serde_as(as = "DisplayFromStr")] pub u64);

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

/// A length of time as JSON: a decimal string of nanoseconds. What is longer than 584 years is written as that.
#[derive(Debug)]
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

impl JsonSchema for Nanoseconds {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Nanoseconds".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Decimal::<u64>::json_schema(generator)
    }
}

/// Reads what the clock showed when a call was made. The engine goes by it, so a time that no clock can show is refused;
/// a time that a fact tells of may be any.
pub(crate) fn on_the_clock<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    let at = Timestamp::deserialize(from)?;
    if at > Timestamp::LATEST {
        let (Timestamp(at), Timestamp(latest)) = (at, Timestamp::LATEST);
        return Err(de::Error::custom(format_args!(
            "{at} is no time: a clock shows {latest} nanoseconds at most"
        )));
    }
    Ok(at)
}
