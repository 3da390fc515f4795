//! Why a plugin could not: what it said when an ADD failed, as the runtime or the kubelet logged it.
//!
//! A plugin answers on its standard output, to the runtime alone, so only the logs of those two still have it. They
//! are in the journal on most nodes, else in a text file. The journal's files are read here and not by `journalctl`:
//! that is not in our image, its version need not be the one that wrote the node's files, and a program would have to
//! be started, waited for and bounded. The format is documented as stable (systemd's `JOURNAL_FILE_FORMAT`), and the
//! few objects on the way to a message are simple; its compressions but xz are read too.
//!
//! **Invariant:** of logs however large only so much is read; what was not found is said with where it was looked for.

mod extract;
mod journal;
mod tail;
mod time;

use std::{collections::BTreeMap, fmt, path::PathBuf};

use super::host::{HostRoot, skipped::Skipped};
use extract::Match;

/// Whose failed ADD.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// The runtime's id of the sandbox.
    pub(crate) sandbox: &'a str,
    /// Namespace and name, for logs that do not give the id (CRI-O's own).
    pub(crate) pod: Option<(&'a str, &'a str)>,
    pub(crate) window: Window,
}

/// From when to when it was logged, by the node's clock, in microseconds since 1970, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) from: u64,
    pub(crate) until: u64,
}

/// What the plugin said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// One line of at most [`TEXT`] bytes.
    pub(crate) text: String,
    /// The file in which it stood.
    pub(crate) source: PathBuf,
}

/// It was nowhere to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// Where there was something to read.
    pub(crate) looked: Vec<PathBuf>,
    /// What could not be read, or not to its end.
    pub(crate) skipped: Skipped,
}

/// Longest message told, bytes.
pub(crate) const TEXT: usize = 512;

/// The best match first: one that names the sandbox, and the later of two.
#[derive(Debug, Default)]
struct Best(Option<(Match, u64, Message)>);

impl Window {
    fn has(self, at: u64) -> bool {
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

/// Looks in the journal, then in the text files that there are: once for all of them. The answers are in their order.
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

/// One of those that are looked for together, and the best that was found for it.
#[derive(Debug)]
struct Search<'a> {
    wanted: Wanted<'a>,
    best: Best,
}

/// Whether nothing better can be found for any of them.
fn are_exact(batch: &[Search<'_>]) -> bool {
    batch.iter().all(|it| it.best.is_exact())
}

/// Every message of that time that a process of root's wrote to the journal: when, in microseconds since 1970, and what;
/// of each file the newest first.
pub(crate) fn each(root: &HostRoot, window: Window, tell: &mut dyn FnMut(u64, &str)) -> Unreadable {
    let mut not = Unreadable::default();
    journal::each(root, window, &mut not, &mut |at, text, _| tell(at, text));
    not
}

/// The boots that began to log to this machine's journal in that time: the id of each, in hex digits alone, and when it
/// did, in microseconds since 1970.
#[must_use]
pub(crate) fn boots(root: &HostRoot, window: Window) -> BTreeMap<String, u64> {
    journal::boots(root, window)
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.looked.is_empty() {
            f.write_str("there is no journal and no log file to read it from")?;
        } else {
            f.write_str("it is not in ")?;
            for (n, path) in self.looked.iter().enumerate() {
                write!(f, "{}{}", if n == 0 { "" } else { ", " }, path.display())?;
            }
        }
        if let Some((path, why)) = &self.skipped.first {
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
