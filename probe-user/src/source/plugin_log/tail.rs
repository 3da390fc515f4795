//! Searches the end of a text file to which a runtime or a kubelet logs, by itself or through syslog.
//!
//! **Invariant:** a line of syslog's counts only where there is no journal, and only for what is shown with the file's name:
//! any user can write one with any program's name.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use probe_common::runtime::{self, SYSLOG};

use super::{
    Line, Message, Place, Search, Tell, Unreadable, Wanted, Window, are_exact, extract, extract::Match, time,
    written_at,
};
use crate::source::{
    backfill::outputs,
    host::{HostRoot, ReadError, lines},
};

/// Bytes that are read of each file's end.
const END: u64 = 4 << 20;
/// The most other log files of daemons that are read.
const MORE: usize = 8;

pub(super) fn search(root: &HostRoot, batch: &mut [Search<'_>], not: &mut Unreadable) {
    // What reaches syslog is in the journal too, with its sender. Nothing but journals was searched before.
    let has_journal = !not.looked.is_empty() || not.skipped.count > 0;
    let syslog = SYSLOG.into_iter().filter(|_| !has_journal);
    for path in files().chain(syslog) {
        if look(root, Path::new(path), batch, not) {
            return;
        }
    }
    // Only if it is needed, because it has to look at every process.
    let known = |path: &PathBuf| files().chain(SYSLOG).any(|it| path == Path::new(it));
    let others = outputs(root).into_iter().filter(|path| !known(path));
    for path in others.take(MORE) {
        if look(root, &path, batch, not) {
            return;
        }
    }
}

/// The files to which runtimes and kubelets themselves write where nothing is configured.
fn files() -> impl Iterator<Item = &'static str> {
    runtime::of_runtimes(|row| row.logs).chain(runtime::of_distributions(|row| row.logs)).copied()
}

/// Gives every line of the window that says when it was written, of the files to which runtimes and kubelets write where nothing
/// is configured. If nobody wanted a line yet, it gives those of the files to which daemons of the node write now.
pub(super) fn each(root: &HostRoot, window: Window, mut is_told: bool, tell: Tell<'_>) {
    let mut look = |path: &Path, is_told: &mut bool| {
        // Most of them do not exist.
        let Ok(end) = root.plain(path).and_then(|file| end(file, END)) else { return };
        for line in lines(&end) {
            let at = written_at(&line).or_else(|| time::parse(&line));
            let line = |at| Line { place: Place::File, at, text: &line, is_kubelets: false };
            *is_told |= at.filter(|at| window.has(*at)).is_some_and(|at| tell(line(at)));
        }
    };
    files().for_each(|path| look(Path::new(path), &mut is_told));
    if !is_told {
        outputs(root).iter().take(MORE).for_each(|path| look(path, &mut is_told));
    }
}

/// Searches one file; true once every wanted message is found.
fn look(root: &HostRoot, path: &Path, batch: &mut [Search<'_>], not: &mut Unreadable) -> bool {
    let end = match root.plain(path).and_then(|file| end(file, END)) {
        Ok(end) => end,
        Err(why) => {
            not.skipped.add(path, why);
            return false;
        }
    };
    for line in lines(&end).filter(|line| extract::may_be(line)) {
        for Search { wanted, best } in &mut *batch {
            if let Some((quality, at, text)) = read(&line, *wanted) {
                best.offer(quality, at, Message { text, source: path.to_owned() });
            }
        }
    }
    let is_over = are_exact(batch);
    if !is_over {
        not.looked.push(path.to_owned());
    }
    is_over
}

/// A line without a time counts only if it names the sandbox's id.
fn read(line: &str, wanted: Wanted<'_>) -> Option<(Match, u64, String)> {
    let (quality, text) = extract::message(line, wanted)?;
    let at = line.split_once("time=\"").map_or(line, |(_, rest)| rest);
    match (time::parse(at), quality) {
        (Some(at), _) => wanted.window.has(at).then_some((quality, at, text)),
        (None, Match::Sandbox) => Some((quality, 0, text)),
        (None, Match::Pod) => None,
    }
}

/// The last bytes of a file, from the beginning of a line.
fn end(mut file: File, limit: u64) -> Result<Vec<u8>, ReadError> {
    let size = file.seek(SeekFrom::End(0))?;
    let from = size.saturating_sub(limit);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    if from > 0 {
        let first = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        bytes.drain(..first);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::end;

    #[test]
    fn the_end_begins_with_a_line() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"first\nsecond\nthird").expect("written");
        let end = |limit| end(file.try_clone().expect("the file"), limit).expect("read");
        assert_eq!(end(100), b"first\nsecond\nthird");
        assert_eq!(end(13), b"second\nthird");
        // It is unknown whether the first line is whole.
        assert_eq!(end(12), b"third");
        assert_eq!(end(3), b"");
    }
}
