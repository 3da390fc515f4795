//! Finds a plugin's message about a failed ADD or DEL, in the log of the runtime or the kubelet.
//!
//! A plugin writes its error to its standard output, which only the runtime reads. So only the logs of the
//! runtime and the kubelet have it: the journal on most nodes, a text file on others. The journal's files are
//! read here without `journalctl`. Our image does not have it, its version may not fit the node's files, and
//! it would have to be started, waited for and bounded. The format is documented as stable (systemd's
//! `JOURNAL_FILE_FORMAT`), and the few objects that lead to a message are simple. All compressions except xz
//! are read.
//!
//! **Invariant:** a bounded part of the logs is read, whatever their size; an answer of "not found" names the
//! places that were searched.

pub(super) mod container_log;
mod extract;
mod journal;
mod tail;
mod time;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use crate::{
    model::fact::CniCommand,
    source::host::{HostRoot, skipped::Skipped},
};
use extract::Match;
pub(super) use extract::{plain, unquote};
pub(crate) use journal::Sender;

/// The failed call whose message is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// The runtime's id of the sandbox.
    pub(crate) sandbox: &'a str,
    /// The pod's namespace and name, for logs without the id (CRI-O's own).
    pub(crate) pod: Option<(&'a str, &'a str)>,
    pub(crate) command: CniCommand,
    pub(crate) window: Window,
}

/// The time window of the log entries, in microseconds since 1970 by the node's clock. Both ends are
/// included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) from: u64,
    pub(crate) until: u64,
}

/// A plugin's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// One line of at most [`TEXT`] bytes.
    pub(crate) text: String,
    /// The file that has it.
    pub(crate) source: PathBuf,
}

/// The message was not found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// The places that were searched.
    pub(crate) searched: Vec<PathBuf>,
    /// The files that could not be read, or not completely.
    pub(crate) skipped: Skipped,
}

/// The longest message, bytes.
pub(crate) const TEXT: usize = 512;

/// The best match so far: a match that names the sandbox is better, then a later one.
#[derive(Debug, Default)]
struct Best(Option<(Match, u64, Message)>);

impl Window {
    pub(crate) fn has(self, at: u64) -> bool {
        self.from <= at && at <= self.until
    }
}

impl Best {
    fn offer(&mut self, quality: Match, at: u64, message: Message) {
        if self.0.as_ref().is_none_or(|(than, before, _)| (*than, *before) <= (quality, at)) {
            self.0 = Some((quality, at, message));
        }
    }

    fn is_exact(&self) -> bool {
        matches!(self.0, Some((Match::Sandbox, ..)))
    }
}

/// Searches the journal, then the text files that exist, once for all wanted messages. The answers are in
/// their order.
pub(crate) fn find(root: &HostRoot, wanted: &[Wanted<'_>]) -> Vec<Result<Message, Unreadable>> {
    let mut batch: Vec<Search<'_>> =
        wanted.iter().map(|wanted| Search { wanted: *wanted, best: Best::default() }).collect();
    let mut not = Unreadable::default();
    journal::search(root, &mut batch, &mut not);
    if !are_exact(&batch) {
        tail::search(root, &mut batch, &mut not);
    }
    let answers = batch.into_iter().map(|it| it.best.0.map(|(_, _, message)| message));
    answers.map(|found| found.ok_or_else(|| not.clone())).collect()
}

/// A wanted message, and the best match so far.
#[derive(Debug)]
struct Search<'a> {
    wanted: Wanted<'a>,
    best: Best,
}

/// Returns whether no better match is possible for any of them.
fn are_exact(batch: &[Search<'_>]) -> bool {
    batch.iter().all(|it| it.best.is_exact())
}

/// Reports every message in the window that such a program of the node wrote to the journal: its time in
/// microseconds since 1970, and its text; from each file the newest first.
pub(crate) fn each(
    root: &HostRoot,
    window: Window,
    sender: Sender,
    report: &mut dyn FnMut(u64, &str),
) -> Unreadable {
    let mut not = Unreadable::default();
    journal::each(root, window, sender, &mut not, &mut |line, _| report(line.at, line.text));
    not
}

/// The beginnings of lines that a daemon writes when it ends, outside of its log, and which daemon does: the
/// panics of Go, and those of containerd (`cmd/containerd/main.go`) and Docker (`cmd/dockerd/docker.go`).
const LAST_WORDS: [(&str, Option<&str>); 4] = [
    ("panic: ", None),
    ("fatal error: ", None),
    ("containerd: ", Some("containerd")),
    ("failed to start daemon: ", Some("dockerd")),
];

/// Returns which daemon writes such a line when it ends: `Some(None)` if any may. The line has no time.
pub(super) fn last_words_by(line: &str) -> Option<Option<&'static str>> {
    LAST_WORDS.iter().find(|(words, _)| line.starts_with(words)).map(|(_, by)| *by)
}

/// Where a line was read. Runtimes of one kind that log to different places are different runtimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Journal,
    File,
}

/// A line of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) place: Place,
    /// When the journal received it, or the time at the beginning of the line; microseconds since 1970.
    pub(crate) at: u64,
    pub(crate) text: &'a str,
    /// A kubelet that is a process of its own sent it to the journal, according to the kernel. The times in a
    /// kubelet's own files have no year.
    pub(crate) is_from_kubelet: bool,
}

/// Receives a line and its file. Returns whether the line is about what is searched for.
pub(crate) type Report<'a> = &'a mut dyn FnMut(Line<'_>, &Path) -> bool;

/// Reports every line of the window that a runtime or a kubelet wrote: those in the journal, then those in
/// the text files to which they log by themselves. A runtime may log to a file of its own while its kubelet,
/// or another runtime, logs to the journal. Syslog's files are not read, because any program may have written
/// their lines. Returns the places that were searched.
pub(crate) fn lines(root: &HostRoot, window: Window, report: Report<'_>) -> Unreadable {
    let mut is_found = false;
    let mut not = Unreadable::default();
    journal::each(root, window, Sender::Daemon, &mut not, &mut |line, file| {
        is_found |= report(line, file);
    });
    tail::each(root, window, is_found, &mut not, report);
    not
}

/// Returns the time in a line that a runtime wrote. It is nearer to the event than the time of the line's log
/// entry.
pub(crate) fn written_at(line: &str) -> Option<u64> {
    let marks = ["time=\"", "\"time\":\""];
    let text = marks.iter().find_map(|mark| time::parse(line.split_once(mark)?.1));
    text.or_else(|| time::parse_number(line.split_once("{\"ts\":")?.1))
}

/// Returns the boots that began to log to this machine's journal within the window: the id of each in hex
/// digits, and when it began, in microseconds since 1970.
#[must_use]
pub(crate) fn boots(root: &HostRoot, window: Window) -> BTreeMap<String, u64> {
    journal::boots(root, window)
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.searched.is_empty() {
            f.write_str("there is no journal and no log file to read it from")?;
        } else {
            f.write_str("it is not in ")?;
            for (n, path) in self.searched.iter().enumerate() {
                write!(f, "{}{}", if n == 0 { "" } else { ", " }, path.display())?;
            }
        }
        if let Some((path, why)) = self.skipped.first.as_deref() {
            write!(f, "; {} could not be read: {why}", path.display())?;
            if self.skipped.count > 1 {
                write!(f, ", and {} more", self.skipped.count - 1)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Unreadable {}

#[cfg(test)]
mod tests;
