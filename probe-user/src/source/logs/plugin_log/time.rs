//! Parses the time in a log line.

use jiff::Timestamp;

/// The position of the `T` or blank between date and time.
const DATE: usize = "2026-11-21".len();
const OFFSET: usize = "+01:00".len();

/// Parses `2026-11-21T08:15:03.98Z`, as logrus and syslog's RFC 5424 write it, to microseconds since 1970;
/// CRI-O writes a blank for the `T`. The text after the time is ignored.
pub(super) fn parse(line: &str) -> Option<u64> {
    let zone = DATE + line.get(DATE..)?.find(['Z', '+', '-'])?;
    let end = zone + if line.get(zone..)?.starts_with('Z') { 1 } else { OFFSET };
    let time: Timestamp = line.get(..end)?.parse().ok()?;
    u64::try_from(time.as_microsecond()).ok()
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
            "2026-02-30T08:15:03Z",
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
