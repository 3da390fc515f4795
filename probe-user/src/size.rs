//! Numbers of bytes as people write them.

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

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn a_size_has_a_unit() {
        assert_eq!(size("1KiB"), Ok(1024));
        assert_eq!(size("10MiB"), Ok(10 << 20));
        for bad in ["", "2", "MiB", "-1MiB", "1.5MiB", "2 MiB", "2MB", "0KiB", "99999999999GiB", "é"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
