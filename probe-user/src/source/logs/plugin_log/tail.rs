//! Searches the end of a text file to which a runtime or a kubelet logs, by itself or through syslog.
//!
//! **Invariant:** a line in syslog's files counts only if there is no journal, and only for a message that is
//! shown with the file's name: any user can write a line with any program's name.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
};

use probe_common::runtime::{self, SYSLOG};

use super::{
    Line, Message, Place, Report, Search, Unreadable, Wanted, Window, are_exact, extract, extract::Match,
    last_words_by, time, written_at,
};
use crate::source::{
    backfill::outputs,
    host::{HostRoot, ReadError, lines},
};

/// How much of each file's end is read, bytes.
const END_BYTES: u64 = 4 << 20;
/// The most other log files of daemons that are read.
const MAX_OUTPUTS: usize = 8;

pub(super) fn search(root: &HostRoot, batch: &mut [Search<'_>], not: &mut Unreadable) {
    // Lines that reach syslog are in the journal too, with their sender. Only journals were searched before.
    let has_journal = !not.searched.is_empty() || not.skipped.count > 0;
    let syslog = if has_journal { None } else { Some(SYSLOG) };
    for path in files().chain(syslog.into_iter().flatten()) {
        if search_file(root, Path::new(path), batch, not) {
            return;
        }
    }
    // This is done only if needed, because every process has to be examined.
    let others =
        outputs(root).into_iter().filter(|path| files().chain(SYSLOG).all(|it| path != Path::new(it)));
    for path in others.take(MAX_OUTPUTS) {
        if search_file(root, &path, batch, not) {
            return;
        }
    }
}

/// Returns the files to which runtimes and kubelets themselves write by default.
fn files() -> impl Iterator<Item = &'static str> {
    runtime::of_runtimes(|row| row.logs).chain(runtime::of_distributions(|row| row.logs)).copied()
}

/// Reports every line of the window that has a time, from the files to which runtimes and kubelets write by
/// default. If no wanted line was found yet, it also reports those of the files to which daemons of the node
/// write now.
pub(super) fn each(
    root: &HostRoot,
    window: Window,
    mut is_found: bool,
    not: &mut Unreadable,
    report: Report<'_>,
) {
    for path in files() {
        is_found |= each_of_file(root, Path::new(path), window, not, report);
    }
    if !is_found {
        let others = outputs(root).into_iter().filter(|path| files().all(|it| path != Path::new(it)));
        for path in others.take(MAX_OUTPUTS) {
            each_of_file(root, &path, window, not, report);
        }
    }
}

/// Reports the lines of one file. Returns whether one of them was wanted.
fn each_of_file(
    root: &HostRoot,
    path: &Path,
    window: Window,
    not: &mut Unreadable,
    report: Report<'_>,
) -> bool {
    // Most of the files do not exist.
    let read = root.plain(path).and_then(|file| Ok((file.metadata()?.modified()?, end(file, END_BYTES)?)));
    let (modified, end) = match read {
        Ok(read) => read,
        Err(why) => {
            not.skipped.add(path, why);
            return false;
        }
    };
    let klog = lines(&end).filter_map(|line| time::Klog::of(Some(line), modified)).last();
    not.searched.push(path.to_owned());
    let mut is_found = false;
    let mut before = None;
    let mut untimed = None;
    for line in lines(&end) {
        let mut at = written_at(&line).or_else(|| time::parse(&line)).or_else(|| klog.as_ref()?.parse(&line));
        before = at.or(before);
        if at.is_none() && last_words_by(&line).is_some() {
            at = before;
            untimed = Some(line.clone());
        }
        if let Some(at) = at.filter(|at| window.has(*at)) {
            let line = Line { place: Place::File, at, text: &line, is_from_kubelet: false };
            is_found |= report(line, path);
        }
    }
    // No line of the file has a time, so only its last words are known to be as old as the file.
    if before.is_none()
        && let Some(text) = untimed
        && let Some(at) = time::microseconds(modified).filter(|at| window.has(*at))
    {
        is_found |= report(Line { place: Place::File, at, text: &text, is_from_kubelet: false }, path);
    }
    is_found
}

/// Searches one file; true once every wanted message is found.
fn search_file(root: &HostRoot, path: &Path, batch: &mut [Search<'_>], not: &mut Unreadable) -> bool {
    let end = match root.plain(path).and_then(|file| end(file, END_BYTES)) {
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
        not.searched.push(path.to_owned());
    }
    is_over
}

/// Reads one line. A line without a time counts only if it has the sandbox's id.
fn read(line: &str, wanted: Wanted<'_>) -> Option<(Match, u64, String)> {
    let (quality, text) = extract::message(line, wanted)?;
    let at = line.split_once("time=\"").map_or(line, |(_, rest)| rest);
    match (time::parse(at), quality) {
        (Some(at), _) => wanted.window.has(at).then_some((quality, at, text)),
        (None, Match::Sandbox) => Some((quality, 0, text)),
        (None, Match::Pod) => None,
    }
}

/// Reads the last bytes of a file, from the beginning of a line.
pub(super) fn end(mut file: File, limit: u64) -> Result<Vec<u8>, ReadError> {
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
