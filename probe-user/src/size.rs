//! Numbers of bytes and of things as people write them.

use std::num::NonZero;

/// No node has as many of anything that is counted.
const MAX_COUNT: u32 = 1_000_000;

/// Parses `512KiB`, `10MiB` or `1GiB`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = &text[..text.len() - unit.len()];
    let number: u64 = digits.parse().map_err(|error| format!("{text:?} is not a size: {error}"))?;
    let shift = match unit {
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return Err(format!("{text:?} is not a size: use KiB, MiB or GiB")),
    };
    let bytes = number.checked_mul(1 << shift).ok_or_else(|| format!("{text:?} is too large"))?;
    if bytes == 0 { Err("it must not be 0".to_owned()) } else { Ok(bytes) }
}

/// Parses a number from 1 to [`MAX_COUNT`].
pub(crate) fn count(text: &str) -> Result<NonZero<u32>, String> {
    let count = text.parse().ok().filter(|count: &NonZero<u32>| count.get() <= MAX_COUNT);
    count.ok_or_else(|| format!("{text:?} is not a whole number from 1 to {MAX_COUNT}"))
}

#[cfg(test)]
mod tests {
    use super::{count, size};

    #[test]
    fn a_count_is_not_0_and_not_absurd() {
        assert_eq!(["1", "20", "1000000"].map(|it| count(it).map(u32::from)), [Ok(1), Ok(20), Ok(1_000_000)]);
        for bad in ["0", "-1", "", "1.5", "1000001", "4294967296", "twenty"] {
            assert_eq!(count(bad), Err(format!("{bad:?} is not a whole number from 1 to 1000000")));
        }
    }

    #[test]
    fn a_size_has_a_unit() {
        assert_eq!(size("1KiB"), Ok(1024));
        assert_eq!(size("10MiB"), Ok(10 << 20));
        for bad in ["", "2", "MiB", "-1MiB", "1.5MiB", "2 MiB", "2MB", "0KiB", "99999999999GiB", "é"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
