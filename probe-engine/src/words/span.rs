//! Formats durations for people.

use std::time::Duration;

/// Formats a duration with three or four digits, in a suitable unit.
#[must_use]
pub fn span(span: Duration) -> String {
    match (span.as_secs(), span.as_micros()) {
        (0, micros) if micros < 1_000 => format!("{micros} µs"),
        (0, micros) if micros < 100_000 => format!("{}.{} ms", micros / 1_000, micros / 100 % 10),
        (0, micros) => format!("{} ms", micros / 1_000),
        (seconds, _) if seconds < 60 => format!("{seconds}.{:02} s", span.subsec_millis() / 10),
        (seconds, _) if seconds < 3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        (seconds, _) if seconds < 86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        (seconds, _) => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::span;

    #[test]
    fn each_size_has_its_unit() {
        for (micros, text) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1_000, "1.0 ms"),
            (35_249, "35.2 ms"),
            (812_400, "812 ms"),
            (1_234_999, "1.23 s"),
            (62_000_000, "1m02s"),
            (3_720_000_000, "1h02m"),
            (90_000_000_000, "1d01h"),
        ] {
            assert_eq!(span(Duration::from_micros(micros)), text);
        }
    }
}
