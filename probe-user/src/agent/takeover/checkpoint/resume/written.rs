//! Finds in which boot a state was written, and until when, where it cannot be read to its end.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    time::SystemTime,
};

use serde::Deserialize;
use serde_with::{DisplayFromStr, serde_as};

use crate::{model::time::Timestamp, recording::Header};

/// No first line is longer. It has the settings and a few short strings.
const MAX_FIRST_LINE_BYTES: u64 = 1 << 20;

/// When the file was last written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    InEarlierBoot,
    /// At this time, as far as it is known.
    InThisBoot(Option<Timestamp>),
}

/// What is needed of the first line, also if it is of a newer format.
#[serde_as]
#[derive(Deserialize)]
struct FirstLine {
    boot_id: String,
    #[serde_as(as = "DisplayFromStr")]
    boot_wall_ns: i64,
}

impl Written {
    /// Reads when the file was written. The first line names the boot. Only without that line the time of the
    /// last write decides: if the clock of a node was set in this boot, files of this boot may seem older
    /// than it.
    pub(super) fn of(path: &Path, header: &Header) -> Self {
        match first_line(path) {
            Some(first) if first.boot_id != header.boot_id => Self::InEarlierBoot,
            Some(first) => Self::InThisBoot(last_write(path, [first.boot_wall_ns, header.boot_wall_ns])),
            None => match wall_of_last_write(path) {
                None => Self::InThisBoot(None),
                Some(wall) => since(wall, header.boot_wall_ns)
                    .map_or(Self::InEarlierBoot, |at| Self::InThisBoot(Some(at))),
            },
        }
    }
}

/// Returns when a file of this boot was last written. The clock may have been set since the file began, so
/// the boot's begin is given by the clock of that time and by the present one. The last write was not before
/// the earlier of both times.
pub(super) fn last_write(path: &Path, boot_wall_ns: [i64; 2]) -> Option<Timestamp> {
    let wall = wall_of_last_write(path)?;
    boot_wall_ns.into_iter().filter_map(|boot| since(wall, boot)).min()
}

fn since(wall: i64, boot_wall_ns: i64) -> Option<Timestamp> {
    u64::try_from(wall.checked_sub(boot_wall_ns)?).ok().map(Timestamp)
}

/// Returns nanoseconds since the epoch.
fn wall_of_last_write(path: &Path) -> Option<i64> {
    let written = fs::metadata(path).and_then(|about| about.modified()).ok()?;
    i64::try_from(written.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_nanos()).ok()
}

fn first_line(path: &Path) -> Option<FirstLine> {
    let mut line = Vec::new();
    let file = File::open(path).ok()?;
    BufReader::new(file).take(MAX_FIRST_LINE_BYTES).read_until(b'\n', &mut line).ok()?;
    serde_json::from_slice(&line).ok()
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        time::{Duration, SystemTime},
    };

    use super::Written;
    use crate::{
        agent::takeover::checkpoint::tests::header,
        model::time::Timestamp,
        recording::{Header, Writer},
    };

    const SECOND: u64 = 1_000_000_000;

    fn of_boot(boot: &str, boot_wall: u64) -> Header {
        Header { boot_wall_ns: i64::try_from(boot_wall * SECOND).expect("it fits"), ..header(boot) }
    }

    /// Returns what an agent finds whose boot, b, began at `boot_wall` by the present clock.
    fn found(text: &[u8], written_wall: u64, boot_wall: u64) -> Written {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("engine.jsonl");
        fs::write(&path, text).expect("writable");
        let file = File::options().write(true).open(&path).expect("a file");
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(written_wall))
            .expect("it is its owner's");
        Written::of(&path, &of_boot("b", boot_wall))
    }

    fn begun(boot: &str, boot_wall: u64) -> Vec<u8> {
        Writer::start(&of_boot(boot, boot_wall)).expect("a header").bytes().clone()
    }

    fn at(second: u64) -> Written {
        Written::InThisBoot(Some(Timestamp(second * SECOND)))
    }

    #[test]
    fn the_first_line_tells_the_boot() {
        assert_eq!(found(&begun("b", 1000), 1030, 1000), at(30));
        assert_eq!(found(&begun("a", 1000), 1030, 1000), Written::InEarlierBoot);
    }

    /// A node without a battery begins at an old time, and gets the right one from a server.
    #[test]
    fn a_clock_that_was_set_makes_no_file_one_of_an_earlier_boot() {
        assert_eq!(found(&begun("b", 1000), 1030, 90_000), at(30), "written before that");
        assert_eq!(found(&begun("b", 1000), 90_040, 90_000), at(40), "begun before and written after that");
        assert_eq!(found(&begun("b", 90_000), 90_050, 90_000), at(50), "begun after that");
        assert_eq!(found(&begun("b", 90_000), 90_030, 1000), at(30), "set back, and written before that");
        assert_eq!(found(&begun("b", 90_000), 500, 1000), Written::InThisBoot(None));
    }

    #[test]
    fn without_a_first_line_the_time_of_the_last_write_decides() {
        for text in [&b""[..], b"{\"x\":\0}\n", b"{\"sandprobe_recording\":999}\n"] {
            assert_eq!(found(text, 1030, 1000), at(30));
            assert_eq!(found(text, 1030, 2000), Written::InEarlierBoot);
        }
    }

    #[test]
    fn the_first_line_of_a_newer_format_tells_the_boot_too() {
        let newer = b"{\"sandprobe_recording\":999,\"boot_id\":\"b\",\"boot_wall_ns\":\"1000\",\"x\":1}\n";
        assert_eq!(found(newer, 30, 90_000), Written::InThisBoot(Some(Timestamp(30 * SECOND - 1000))));
    }

    #[test]
    fn a_file_that_says_nothing_of_itself_may_be_of_this_boot() {
        let path = tempfile::tempdir().expect("a folder").path().join("gone");
        assert_eq!(Written::of(&path, &of_boot("b", 1)), Written::InThisBoot(None));
    }
}
