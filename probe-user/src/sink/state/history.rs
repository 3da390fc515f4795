//! Reads the history of the node's boots: two files in the state directory, which a thread of the agent
//! writes.
//!
//! **Invariant:** a line that cannot be read is reported and does not affect the others.

#[cfg(feature = "live")]
mod append;
#[cfg(feature = "live")]
pub(crate) mod writer;

use std::{io, path::Path};

use super::file;
use crate::{
    model::recovery::{Alive, Last, PreviousBoot},
    recording::history::{Heartbeat, History, read_heartbeat},
};

/// One line for each change of a boot's record.
pub(crate) const BOOTS: &str = "boots.jsonl";
/// The last heartbeat. Each write replaces the whole file.
pub(crate) const HEARTBEAT: &str = "heartbeat.json";

/// The number of unreadable lines that are reported. A file of another kind may have a million of them.
const MAX_REPORTED: usize = 10;

/// The whole history.
#[derive(Clone, Debug, Default)]
pub(crate) struct SavedHistory {
    pub(crate) history: History,
    pub(crate) heartbeat: Option<Heartbeat>,
    /// A line for each part that could not be read.
    pub(crate) problems: Vec<String>,
}

/// Reads the history in `dir`. A missing file is empty.
#[must_use]
pub(crate) fn read(dir: &Path) -> SavedHistory {
    let mut past = SavedHistory::default();
    let path = dir.join(BOOTS);
    match file::read(&path) {
        Ok(bytes) => past.history = History::read(&bytes),
        Err(error) => past.add_problem(&path, &error),
    }
    for (line, why) in past.history.skipped.iter().take(MAX_REPORTED) {
        past.problems.push(format!("{}: line {line} {why}: it is passed over", path.display()));
    }
    if let Some(more @ 1..) = past.history.skipped.len().checked_sub(MAX_REPORTED) {
        past.problems.push(format!("{}: {more} more lines are passed over", path.display()));
    }
    let path = dir.join(HEARTBEAT);
    match file::read(&path) {
        Ok(bytes) if bytes.is_empty() => {}
        Ok(bytes) => {
            past.heartbeat = read_heartbeat(&bytes);
            if past.heartbeat.is_none() {
                past.problems.push(format!("{}: not a heartbeat of sandprobe", path.display()));
            }
        }
        Err(error) => past.add_problem(&path, &error),
    }
    past
}

impl SavedHistory {
    /// The end of the boot before this one, as far as it is known.
    #[must_use]
    pub(crate) fn before(&self, boot_id: &str) -> PreviousBoot {
        let last = self.history.before(boot_id).map(|record| &record.recovery);
        let alive = self.heartbeat.as_ref().filter(|beat| beat.boot_id != boot_id);
        let alive = alive.map(|beat| Alive {
            boot_id: beat.boot_id.clone(),
            wall_ns: beat.wall_ns(),
            running: beat.running.clone(),
        });
        PreviousBoot::of(last, alive)
    }

    /// The last recorded boot, and the ids of the boots that are known.
    #[must_use]
    pub(crate) fn last(&self, boot_id: &str) -> Option<Last> {
        let last = self.history.before(boot_id)?.recovery.boot.as_ref()?;
        let beat = self.heartbeat.as_ref().map(|beat| beat.boot_id.clone());
        let ids = self.history.records.iter().map(|record| record.boot_id().to_owned());
        Some(Last {
            began_wall_ns: last.boot_wall_ns,
            alive_wall_ns: self.before(boot_id).alive_wall_ns.unwrap_or(last.boot_wall_ns),
            known: ids.chain(beat).chain([boot_id.to_owned()]).collect(),
        })
    }

    fn add_problem(&mut self, path: &Path, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound {
            self.problems.push(format!("{}: {error}", path.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{BOOTS, MAX_REPORTED, read};

    #[test]
    fn of_many_bad_lines_a_few_are_reported() {
        let dir = tempfile::tempdir().expect("a folder");
        for (bad, reported) in [
            (0, 0),
            (1, 1),
            (MAX_REPORTED, MAX_REPORTED),
            (MAX_REPORTED + 1, MAX_REPORTED + 1),
            (5000, MAX_REPORTED + 1),
        ] {
            fs::write(dir.path().join(BOOTS), "x\n".repeat(bad)).expect("a file");
            assert_eq!(read(dir.path()).problems.len(), reported, "{bad}");
        }
    }
}
