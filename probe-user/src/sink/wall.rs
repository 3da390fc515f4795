//! Wall time for reading: the proleptic Gregorian calendar, UTC.

use std::fmt;

/// Nanoseconds since the epoch, as RFC 3339 writes them with nine decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rfc3339(pub i128);

/// The same time's hour of the day, with microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOfDay(pub i128);

const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400;

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0.div_euclid(SECOND), self.0.rem_euclid(SECOND));
        let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.rem_euclid(SECOND) / 1_000;
        let second = self.0.div_euclid(SECOND).rem_euclid(DAY);
        write!(f, "{:02}:{:02}:{:02}.{micros:06}", second / 3600, second / 60 % 60, second % 60)
    }
}

/// Year, month and day of so many days after the epoch.
///
/// Counts in eras of 400 years that begin on 1 March, so that a leap day is always the last of its year
/// (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`).
fn date(days: i128) -> (i128, i128, i128) {
    // From 1 March of the year 0.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i128::from(month <= 2), month, day)
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
    }
}
