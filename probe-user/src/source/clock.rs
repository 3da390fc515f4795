//! The node's clocks. Events are ordered by boot time; the wall clock only labels them.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::model::time::Timestamp;

/// The time now, on the clock of the hooks (`bpf_ktime_get_boot_ns`).
#[must_use]
pub(crate) fn now() -> Timestamp {
    Timestamp(u64::try_from(read(ClockId::CLOCK_BOOTTIME)).unwrap_or(0))
}

/// The wall clock's time at boot, nanoseconds since the epoch: `wall = boot_wall_ns + boot time`.
///
/// The wall clock is read between two readings of the other clock. The closest pair of a few tries is used, so that
/// an interruption does not look like a step of the clock.
#[must_use]
pub(crate) fn boot_wall_ns() -> i64 {
    let offset = || {
        let before = read(ClockId::CLOCK_BOOTTIME);
        let wall = read(ClockId::CLOCK_REALTIME);
        let after = read(ClockId::CLOCK_BOOTTIME);
        (after - before, wall - (before + (after - before) / 2))
    };
    (0..3).map(|_| offset()).min().map_or(0, |(_, offset)| offset)
}

/// How long the node has been suspended since boot, in sum.
///
/// `CLOCK_MONOTONIC` stops during a suspend and `CLOCK_BOOTTIME` does not; otherwise they run alike
/// (clock_gettime(2)).
#[must_use]
pub(crate) fn asleep() -> Duration {
    // An interruption between the two readings makes the difference smaller.
    let apart = || read(ClockId::CLOCK_BOOTTIME) - read(ClockId::CLOCK_MONOTONIC);
    let apart = (0..3).map(|_| apart()).max().and_then(|apart| u64::try_from(apart).ok());
    Duration::from_nanos(apart.unwrap_or(0))
}

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock).expect("all three exist since Linux 2.6.39");
    time.tv_sec().saturating_mul(1_000_000_000).saturating_add(time.tv_nsec())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{asleep, boot_wall_ns, now};

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
}
