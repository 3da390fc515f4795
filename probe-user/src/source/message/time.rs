//! The time in a line of a log.

/// Microseconds since 1970 of `2026-11-21T08:15:03.98Z`, as logrus and syslog's RFC 5424 write it, CRI-O with a blank
/// for the `T`.
pub(super) fn parse(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let number = |range: std::ops::Range<usize>| -> Option<u64> {
        let digits = text.get(range)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let is = |at: usize, any: &[u8]| bytes.get(at).is_some_and(|byte| any.contains(byte));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"T ") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if year < 1970
        || !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut micros = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        micros = format!("{:0<6.6}", &fraction[..digits]).parse().ok()?;
        rest = &fraction[digits..];
    }
    let since = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    // East of Greenwich the clock is ahead.
    let ahead = |offset: &str| {
        let (hours, minutes) = offset.get(..5)?.split_once(':')?;
        Some(hours.parse::<u64>().ok()? * 3600 + minutes.parse::<u64>().ok()? * 60)
    };
    let seconds = match rest.split_at_checked(1)? {
        ("Z", _) => since,
        ("+", offset) => since.checked_sub(ahead(offset)?)?,
        ("-", offset) => since.checked_add(ahead(offset)?)?,
        _ => return None,
    };
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

/// Days since 1970-01-01. The year begins in March, so that the leap day is its last.
fn days(year: u64, month: u64, day: u64) -> u64 {
    const BEFORE_1970: u64 = 719_468;
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year / 4 - year / 100 + year / 400 + of_year - BEFORE_1970
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::parse;

    #[test]
    fn every_way_of_writing_it_is_one_time() {
        // `date -u -d 2026-11-21T08:15:03.988990Z +%s`
        const AT: u64 = 1_795_248_903_988_990;
        for text in [
            "2026-11-21T08:15:03.988990154Z\" level=error",
            "2026-11-21 08:15:03.988990154Z",
            "2026-11-21T09:15:03.98899+01:00",
            "2026-11-21T02:45:03.98899-05:30 node containerd[1]:",
        ] {
            assert_eq!(parse(text), Some(AT), "{text}");
        }
        assert_eq!(parse("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse("2024-02-29T00:00:00Z"), Some(1_709_164_800_000_000));
        assert_eq!(parse("2024-03-01T00:00:00Z"), Some(1_709_251_200_000_000));
        for bad in [
            "",
            "2026-11-21T08:15:03",
            "2026-13-21T08:15:03Z",
            "Nov 21 08:15:03",
            "1970-01-01T00:00:00+01:00",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(any: String, near in "[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:]{8}[.Z+é0-9:-]{0,12}") {
            parse(&any);
            parse(&near);
        }
    }
}
