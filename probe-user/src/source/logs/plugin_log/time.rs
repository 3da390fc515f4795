//! Parses the time in a log line.

use std::time::SystemTime;

use jiff::{
    SignedDuration, Timestamp,
    civil::{Date, DateTime, Time},
    tz::Offset,
};

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

/// Parses `1795668067906.4,`, milliseconds since 1970 as klog's JSON has them, to microseconds.
pub(super) fn parse_number(text: &str) -> Option<u64> {
    let (number, _) = text.split_once(',')?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(part.parse().ok()?)
}

/// The times in a file that klog writes: `E1125 09:29:07.123456`, without a year, by the local time of the
/// node. The last line was written when the file was last modified, which shows both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Klog {
    year: i16,
    offset: SignedDuration,
}

impl Klog {
    /// Makes it from the last line of a file.
    pub(super) fn of(last: Option<impl AsRef<str>>, modified: SystemTime) -> Option<Self> {
        let modified = Timestamp::try_from(modified).ok()?;
        let year = Offset::UTC.to_datetime(modified).year();
        let written = Offset::UTC.to_timestamp(civil(last?.as_ref(), year)?).ok()?;
        // The local time may be in another year.
        let ahead = written.duration_since(modified);
        let quarters = ((ahead.as_secs() + QUARTER / 2).div_euclid(QUARTER)) * QUARTER;
        let offset = SignedDuration::from_secs(quarters);
        (offset.abs() <= MAX_OFFSET).then_some(Self { year, offset })
    }

    /// Parses the time at the beginning of a line to microseconds since 1970.
    pub(super) fn parse(self, line: &str) -> Option<u64> {
        let written = Offset::UTC.to_timestamp(civil(line, self.year)?).ok()?;
        u64::try_from(written.checked_sub(self.offset).ok()?.as_microsecond()).ok()
    }
}

/// Converts a file's time to microseconds since 1970.
pub(super) fn microseconds(at: SystemTime) -> Option<u64> {
    u64::try_from(Timestamp::try_from(at).ok()?.as_microsecond()).ok()
}

/// The unit of offsets from UTC, seconds.
const QUARTER: i64 = 15 * 60;
/// No local time is further from UTC.
const MAX_OFFSET: SignedDuration = SignedDuration::from_hours(14);

fn civil(line: &str, year: i16) -> Option<DateTime> {
    let rest = line.strip_prefix(['I', 'W', 'E', 'F'])?;
    let (month, day) = (rest.get(..2)?.parse().ok()?, rest.get(2..4)?.parse().ok()?);
    let time: Time = rest.get(4..)?.strip_prefix(' ')?.split(' ').next()?.parse().ok()?;
    Some(Date::new(year, month, day).ok()?.to_datetime(time))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Klog, SystemTime, Timestamp, parse, parse_number};

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

    #[test]
    fn klog_writes_local_time_without_a_year() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        for (last, modified, line, expected) in [
            (
                "E1125 09:29:07.123456 1 a.go:1] x",
                "2026-11-25T09:29:08Z",
                "E1125 09:28:00.5 1 a.go:1] y",
                "2026-11-25T09:28:00.5Z",
            ),
            // In India, and in Chile on the evening before.
            (
                "I1126 00:29:07.1 1 a.go:1] x",
                "2026-11-25T18:59:07Z",
                "E1126 00:00:01.0 1 a.go:1] y",
                "2026-11-25T18:30:01Z",
            ),
            (
                "I1124 22:29:07.1 1 a.go:1] x",
                "2026-11-25T01:29:07Z",
                "E1124 22:00:00.0 1 a.go:1] y",
                "2026-11-25T01:00:00Z",
            ),
        ] {
            let modified = SystemTime::from(at(modified));
            let klog = Klog::of(Some(last), modified).expect("klog's form");
            let micros = u64::try_from(at(expected).as_microsecond()).expect("after 1970");
            assert_eq!(klog.parse(line), Some(micros), "{line}");
        }
        let now = SystemTime::from(at("2026-11-25T09:29:08Z"));
        assert!(Klog::of(Some("time=\"2026\""), now).is_none());
        assert!(Klog::of(Some("E0101 09:29:07.1 1 a.go:1] x"), now).is_none(), "it is of another day");
        assert!(Klog::of(None::<&str>, now).is_none());
    }

    #[test]
    fn klogs_json_has_milliseconds() {
        assert_eq!(parse_number("1795668067906.4,\"caller\""), Some(1_795_668_067_906_400));
        assert_eq!(parse_number("1795668067906,"), Some(1_795_668_067_906_000));
        assert_eq!(parse_number("18446744073709551615.9,"), None);
        assert_eq!(parse_number("x"), None);
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(any: String, near in "[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:]{8}[.Z+é0-9:-]{0,12}") {
            parse(&any);
            parse(&near);
            parse_number(&any);
            let now = SystemTime::UNIX_EPOCH;
            Klog::of(Some(&any), now).and_then(|klog| klog.parse(&near));
            super::civil(&format!("E{any}"), 2026);
        }
    }
}
