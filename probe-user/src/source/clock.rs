//! The node's clocks. Boot time orders everything; the wall clock only labels it.

use nix::time::{ClockId, clock_gettime};

use crate::engine::time::Timestamp;

/// Now, on the clock of the hooks (`bpf_ktime_get_boot_ns`).
#[must_use]
pub fn now() -> Timestamp {
    Timestamp(u64::try_from(read(ClockId::CLOCK_BOOTTIME)).unwrap_or(0))
}

/// What the wall clock showed at boot, nanoseconds since the epoch: `wall = boot_wall_ns + boot time`.
///
/// The wall clock is read between two readings of the other, and the nearest of a few such tries is taken, so that
/// being interrupted here does not look like a step of the clock.
#[must_use]
pub fn boot_wall_ns() -> i64 {
    let offset = || {
        let before = read(ClockId::CLOCK_BOOTTIME);
        let wall = read(ClockId::CLOCK_REALTIME);
        let after = read(ClockId::CLOCK_BOOTTIME);
        (after - before, wall - (before + (after - before) / 2))
    };
    (0..3).map(|_| offset()).min().map_or(0, |(_, offset)| offset)
}

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock).expect("both clocks exist since Linux 2.6.39");
    time.tv_sec().saturating_mul(1_000_000_000).saturating_add(time.tv_nsec())
}

#[cfg(test)]
mod tests {
    use super::{boot_wall_ns, now};

    #[test]
    fn boot_time_goes_on_and_the_offset_stays() {
        let (first, offset) = (now(), boot_wall_ns());
        assert!(now() >= first);
        assert!((boot_wall_ns() - offset).abs() < 1_000_000_000);
        // After 2020 and before 2100, as the sum with boot time.
        let wall = offset + i64::try_from(first.0).expect("boot time fits");
        assert!((1_577_836_800_000_000_000..4_102_444_800_000_000_000).contains(&wall));
    }
}
