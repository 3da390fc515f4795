//! Spans of time as people write them.

use std::time::Duration;

/// Parses `250ms`, `2s`, `2m` or `1h`.
///
/// No library is used: the general parsers also accept `1 hour ago`, and their errors do not name the four
/// units.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = &text[..text.len() - unit.len()];
    let number: u64 = digits.parse().map_err(|error| format!("{text:?} is not a duration: {error}"))?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 3600 * 1000,
        _ => return Err(format!("{text:?} is not a duration: use ms, s, m or h")),
    };
    let span = number.checked_mul(milliseconds).ok_or_else(|| format!("{text:?} is too long"))?;
    Ok(Duration::from_millis(span))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::duration;

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert_eq!(duration("90m"), Ok(Duration::from_secs(5400)));
        for bad in
            ["", "2", "m", "-1s", "1.5s", "2 m", "2d", "99999999999999999999s", "18446744073709551615h", "é"]
        {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
