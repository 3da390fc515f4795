//! How long the reader has been at one file while this process could run.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Adds up the time between two looks, of which one was not long after the other. A process that was stopped, frozen or
/// swapped out looks late, and its reader did not read meanwhile either.
#[derive(Debug)]
pub(super) struct AtOneFile {
    looked_at: Instant,
    /// The file of the last look, since when the reader was at it, and how much of that counts.
    file: Option<(PathBuf, Instant, Duration)>,
}

impl AtOneFile {
    pub(super) fn new(now: Instant) -> Self {
        Self { looked_at: now, file: None }
    }

    /// Looks at the file that the reader is at, and since when. `longest` is the most that counts of the time between two
    /// looks. Gives the time that counts.
    pub(super) fn look(&mut self, at: Option<(&Path, Instant)>, now: Instant, longest: Duration) -> Duration {
        let ran = now.saturating_duration_since(self.looked_at).min(longest);
        self.looked_at = now;
        let Some((path, since)) = at else {
            self.file = None;
            return Duration::ZERO;
        };
        let mut counted = ran.min(now.saturating_duration_since(since));
        if let Some((before, since_before, counted_before)) = &self.file
            && before == path
            && *since_before == since
        {
            counted += *counted_before;
        }
        self.file = Some((path.to_owned(), since, counted));
        counted
    }
}

#[cfg(test)]
mod tests {
    use std::{
        path::Path,
        time::{Duration, Instant},
    };

    use super::AtOneFile;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn time_in_which_the_process_was_stopped_does_not_count() {
        let begun = Instant::now();
        let mut it = AtOneFile::new(begun);
        let file = Some((Path::new("/proc/7/comm"), begun));
        assert_eq!(it.look(file, begun + SECOND, 2 * SECOND), SECOND);
        assert_eq!(
            it.look(file, begun + 20 * SECOND, 2 * SECOND),
            3 * SECOND,
            "it was stopped for most of that"
        );
        for second in 21..28 {
            it.look(file, begun + second * SECOND, 2 * SECOND);
        }
        assert_eq!(it.look(file, begun + 28 * SECOND, 2 * SECOND), 11 * SECOND, "a file that hangs is found");
    }

    #[test]
    fn another_file_and_another_reading_of_the_same_one_count_anew() {
        let begun = Instant::now();
        let mut it = AtOneFile::new(begun);
        let at = |name, second: u32| Some((Path::new(name), begun + second * SECOND));
        it.look(at("/proc/7/comm", 0), begun + 5 * SECOND, 20 * SECOND);
        assert_eq!(it.look(at("/proc/8/comm", 6), begun + 7 * SECOND, 20 * SECOND), SECOND);
        assert_eq!(it.look(at("/proc/8/comm", 8), begun + 9 * SECOND, 20 * SECOND), SECOND);
        assert_eq!(it.look(None, begun + 10 * SECOND, 20 * SECOND), Duration::ZERO);
    }
}
