//! The node's clocks. Events are ordered by boot time; the wall clock only labels them.

use std::{fs, time::Duration};

use nix::time::{ClockId, clock_gettime};

use crate::model::time::Timestamp;

/// Returns the time now, on the clock of the hooks (`bpf_ktime_get_boot_ns`).
#[must_use]
pub(crate) fn now() -> Timestamp {
    Timestamp(u64::try_from(read(ClockId::CLOCK_BOOTTIME)).unwrap_or(0))
}

/// Returns the wall clock's time at boot, nanoseconds since the epoch: `wall = boot_wall_ns + boot time`.
///
/// The wall clock is read between two readings of the other clock. The closest pair of a few tries is used,
/// so that an interruption does not look like a step of the clock.
#[must_use]
pub(crate) fn boot_wall_ns() -> i64 {
    let offsets = (0..3).map(|_| {
        let before = read(ClockId::CLOCK_BOOTTIME);
        let wall = read(ClockId::CLOCK_REALTIME);
        let after = read(ClockId::CLOCK_BOOTTIME);
        (after - before, wall - (before + (after - before) / 2))
    });
    offsets.min().map_or(0, |(_, offset)| offset)
}

/// Returns the total time that the node has been suspended since boot.
///
/// `CLOCK_MONOTONIC` stops during a suspend and `CLOCK_BOOTTIME` does not; otherwise they run alike
/// (clock_gettime(2)).
#[must_use]
pub(crate) fn asleep() -> Duration {
    // An interruption between the two readings makes the difference smaller.
    let differences = (0..3).map(|_| read(ClockId::CLOCK_BOOTTIME) - read(ClockId::CLOCK_MONOTONIC));
    Duration::from_nanos(differences.max().and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0))
}

/// Converts nanoseconds since the epoch to microseconds, as logs count time. Earlier times become 0.
#[must_use]
pub(crate) fn micros(wall_ns: i64) -> u64 {
    wall_ns.max(0).unsigned_abs() / 1000
}

/// Converts boot time to microseconds since the epoch.
#[must_use]
pub(crate) fn wall_us(at: Timestamp, boot_wall_ns: i64) -> u64 {
    micros(boot_wall_ns.saturating_add_unsigned(at.0))
}

/// Returns the seconds by which [`now`] differs from the kernel's own boot time. They differ in a time
/// namespace.
#[must_use]
pub(crate) fn namespace_offset() -> Option<String> {
    // Linux without time namespaces has no such file.
    offset(&fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default())
}

/// Parses the lines of `/proc/PID/timens_offsets`, `CLOCK SECONDS NANOSECONDS` (time_namespaces(7)).
fn offset(lines: &str) -> Option<String> {
    let words = lines.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.into_iter().find_map(|words| match *words {
        ["boottime", "0", "0"] => None,
        ["boottime", seconds, "0"] => Some(seconds.to_owned()),
        // The nanoseconds are never negative: -1 s and 250000000 ns are -0.75 s.
        ["boottime", seconds, ns] => {
            let seconds = i128::from(seconds.parse::<i64>().ok()?);
            let whole = seconds * 1_000_000_000 + i128::from(ns.parse::<i64>().ok()?);
            let sign = if whole < 0 { "-" } else { "" };
            let size = whole.unsigned_abs();
            Some(format!("{sign}{}.{:09}", size / 1_000_000_000, size % 1_000_000_000))
        }
        _ => None,
    })
}

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock).expect("all three exist since Linux 2.6.39");
    time.tv_sec().saturating_mul(1_000_000_000).saturating_add(time.tv_nsec())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{asleep, boot_wall_ns, namespace_offset, now, offset};

    #[test]
    fn boot_time_goes_on_and_the_offset_stays() {
        let (first, offset) = (now(), boot_wall_ns());
        assert!(now() >= first);
        assert!((boot_wall_ns() - offset).abs() < 1_000_000_000);
        assert!(asleep().abs_diff(asleep()) < Duration::from_millis(100));
        // Between 2020 and 2100, once boot time is added.
        let wall = offset + i64::try_from(first.0).expect("boot time fits");
        assert!((1_577_836_800_000_000_000..4_102_444_800_000_000_000).contains(&wall));
    }

    #[test]
    fn a_time_namespace_shows_by_its_boot_time() {
        let of = |seconds: &str, ns: &str| {
            offset(&format!("monotonic  {seconds:>10} 7\nboottime   {seconds:>10} {ns:>9}\n"))
        };
        assert_eq!(of("0", "0"), None);
        assert_eq!(of("1000000", "0").as_deref(), Some("1000000"));
        assert_eq!(of("-1", "250000000").as_deref(), Some("-0.750000000"));
        assert_eq!(of("0", "5").as_deref(), Some("0.000000005"));
        assert_eq!(offset("monotonic 5 0\n"), None);
        assert_eq!(offset(""), None, "a kernel without time namespaces");
        assert_eq!(namespace_offset(), None, "the tests run outside");
    }
}
