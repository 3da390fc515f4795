//! Wall time as text, in UTC.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde_with::SerializeDisplay;

/// Nanoseconds since the epoch, as RFC 3339 with nine decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SerializeDisplay, JsonSchema)]
#[schemars(with = "String", inline, description = "", extend("format" = "date-time"))]
pub(crate) struct Rfc3339(pub(crate) i128);

/// Nanoseconds since the epoch, as the time of the day with microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeOfDay(pub(crate) i128);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.9}", timestamp(self.0))
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", timestamp(self.0).strftime("%H:%M:%S%.6f"))
    }
}

/// Converts the time. One outside of the years -9999 to 9999 becomes the nearest one inside.
fn timestamp(nanos: i128) -> Timestamp {
    let nearest = if nanos < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_nanosecond(nanos).unwrap_or(nearest)
}

#[cfg(test)]
mod tests {
    use super::{Rfc3339, TimeOfDay};

    #[test]
    fn times_are_those_of_date() {
        // date -u -d @N +%FT%T.%NZ
        for (seconds, expect) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (-1, "1969-12-31T23:59:59.000000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
            (1_795_237_053, "2026-11-21T04:57:33.000000000Z"),
        ] {
            assert_eq!(Rfc3339(seconds * 1_000_000_000).to_string(), expect);
        }
        assert_eq!(Rfc3339(1).to_string(), "1970-01-01T00:00:00.000000001Z");
        assert_eq!(TimeOfDay(86_399_999_999_999).to_string(), "23:59:59.999999");
        assert_eq!(TimeOfDay(-1).to_string(), "23:59:59.999999");
        // A boot time and an offset from a broken recording.
        let latest = i128::from(u64::MAX) + i128::from(i64::MAX);
        assert_eq!(Rfc3339(latest).to_string(), "2846-10-30T23:21:50.564327422Z");
        assert_eq!(Rfc3339(i128::MAX).to_string(), "9999-12-30T22:00:00.999999999Z");
    }
}
