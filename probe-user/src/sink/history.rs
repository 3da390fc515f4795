//! Reads the history of the node's boots: two files in the state directory, which a thread of the agent writes.
//!
//! **Invariant:** a line that cannot be read is reported and does not affect the others.

#[cfg(feature = "live")]
mod append;
#[cfg(feature = "live")]
pub(crate) mod writer;

use std::{io, path::Path};

use super::file::read_bounded;
use crate::{
    model::recovery::{Alive, Last, PreviousBoot},
    recording::history::{Heartbeat, History, read_heartbeat},
};

/// One line for each change of a boot's record.
pub(crate) const BOOTS: &str = "boots.jsonl";
/// The last sign of life. The whole file is replaced.
pub(crate) const HEARTBEAT: &str = "heartbeat.json";

/// How many unreadable lines are named. A file of another kind may have a million of them.
const NAMED: usize = 10;

/// The whole history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    pub(crate) history: History,
    pub(crate) heartbeat: Option<Heartbeat>,
    /// What could not be read, a line each.
    pub(crate) troubles: Vec<String>,
}

/// Reads the history in `dir`. A missing file is empty.
#[must_use]
pub(crate) fn read(dir: &Path) -> Past {
    let mut past = Past::default();
    let path = dir.join(BOOTS);
    match read_bounded(&path) {
        Ok(bytes) => past.history = History::read(&bytes),
        Err(error) => past.troubled(&path, &error),
    }
    for (line, why) in past.history.skipped.iter().take(NAMED) {
        past.troubles.push(format!("{}: line {line} {why}: it is passed over", path.display()));
    }
    if let Some(more @ 1..) = past.history.skipped.len().checked_sub(NAMED) {
        past.troubles.push(format!("{}: {more} more lines are passed over", path.display()));
    }
    let path = dir.join(HEARTBEAT);
    match read_bounded(&path) {
        Ok(bytes) if bytes.is_empty() => {}
        Ok(bytes) => {
            past.heartbeat = read_heartbeat(&bytes);
            if past.heartbeat.is_none() {
                past.troubles.push(format!("{}: not a heartbeat of sandprobe", path.display()));
            }
        }
        Err(error) => past.troubled(&path, &error),
    }
    past
}

impl Past {
    /// What is known about the end of the boot before this one.
    #[must_use]
    pub(crate) fn before(&self, boot_id: &str) -> PreviousBoot {
        let last = self.history.before(boot_id).map(|record| &record.recovery);
        let alive = self.heartbeat.as_ref().filter(|beat| beat.boot_id != boot_id);
        let alive = alive.map(|beat| Alive {
            boot_id: beat.boot_id.clone(),
            wall_ns: beat.wall_ns(),
            standing: beat.standing.clone(),
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

    fn troubled(&mut self, path: &Path, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound {
            self.troubles.push(format!("{}: {error}", path.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{BOOTS, NAMED, read};

    #[test]
    fn of_many_bad_lines_a_few_are_named() {
        let dir = tempfile::tempdir().expect("a folder");
        for (bad, told) in [(0, 0), (1, 1), (NAMED, NAMED), (NAMED + 1, NAMED + 1), (5000, NAMED + 1)] {
            fs::write(dir.path().join(BOOTS), "x\n".repeat(bad)).expect("a file");
            assert_eq!(read(dir.path()).troubles.len(), told, "{bad}");
        }
    }
}
