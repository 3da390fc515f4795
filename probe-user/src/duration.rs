//! Spans of time as people write them.

use std::time::Duration;

/// A year. Who gives more has mistaken the unit.
const MAX_HOURS: u64 = 8760;

/// Parses `250ms`, `2s`, `2m` or `1h`, up to [`MAX_HOURS`]; 0 needs no unit.
///
/// No library is used: the general parsers also accept `1 hour ago`, and their errors do not name the four
/// units.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = &text[..text.len() - unit.len()];
    // Digits fail to be parsed only if they are none or too many.
    let number: u64 = digits.parse().unwrap_or(u64::MAX);
    let unit = if digits.is_empty() { "" } else { unit };
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 3600 * 1000,
        _ => return Err(format!("{text:?} is not a duration: give a whole number with ms, s, m or h")),
    };
    let span = Duration::from_millis(number.saturating_mul(milliseconds));
    if span > Duration::from_secs(MAX_HOURS * 3600) {
        return Err(format!("{text:?} is too long: give {MAX_HOURS}h at most"));
    }
    Ok(span)
}

/// Parses a duration as [`duration`] does, but refuses 0, with which everything would count as too late.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    let span = duration(text)?;
    if span.is_zero() { Err(format!("{text:?} is too short: give 1ms at least")) } else { Ok(span) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{duration, positive_duration};

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!([duration("0s"), duration("0")], [const { Ok(Duration::ZERO) }; 2]);
        assert_eq!(duration("90m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("8760h"), Ok(Duration::from_secs(8760 * 3600)));
        for bad in [
            "",
            "2",
            "00",
            "m",
            "-1s",
            "1.5s",
            "2 m",
            "2d",
            "99999999999999999999s",
            "18446744073709551615h",
            "é",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        for bad in ["2", "-5m", "m", "", "1.5s"] {
            assert_eq!(
                duration(bad),
                Err(format!("{bad:?} is not a duration: give a whole number with ms, s, m or h"))
            );
        }
        for long in ["8761h", "99999999999999999999s"] {
            assert_eq!(duration(long), Err(format!("{long:?} is too long: give 8760h at most")));
        }
    }

    #[test]
    fn a_limit_is_not_0() {
        assert_eq!(positive_duration("1ms"), Ok(Duration::from_millis(1)));
        assert_eq!(positive_duration("0h"), Err("\"0h\" is too short: give 1ms at least".to_owned()));
        assert_eq!(positive_duration("0"), Err("\"0\" is too short: give 1ms at least".to_owned()));
        assert!(positive_duration("1").is_err() && positive_duration("8761h").is_err());
    }
}
