//! Finds the systemd journal's files, and reads the entries of the window.

mod boots;
mod data;
mod entry;
mod file;
mod object;
mod sender;

use std::{collections::BTreeMap, path::Path};

use super::{Line, Message, Search, Unreadable, Window, extract};
use crate::source::{
    host::{Folder, HostRoot, ReadError},
    node::machine_id,
};
use file::Journal;
pub(crate) use sender::Sender;

/// The journal on disk, and the one in memory, which does not survive a boot.
const PLACES: [&str; 2] = ["/var/log/journal", "/run/log/journal"];
/// The most files of one machine that are read. A window of minutes is in one or two files.
const MAX_FILES: usize = 8;

/// The most files that are read for the list of boots, which is small in each file.
const MAX_ALL_FILES: usize = 128;

/// Reads something from one file.
type ReadFile<'a> = &'a mut dyn FnMut(&Journal, &Path) -> Result<(), ReadError>;

/// Receives a message, and its file.
type Report<'a> = &'a mut dyn FnMut(Line<'_>, &Path);

pub(super) fn search(root: &HostRoot, batch: &mut [Search<'_>], not: &mut Unreadable) {
    let windows = batch.iter().map(|it| it.wanted.window);
    let whole =
        windows.reduce(|all, it| Window { from: all.from.min(it.from), until: all.until.max(it.until) });
    let Some(window) = whole else { return };
    each(root, window, Sender::Daemon, not, &mut |Line { at, text, .. }, file| {
        if !extract::may_be(text) {
            return;
        }
        for Search { wanted, best } in batch.iter_mut().filter(|it| it.wanted.window.has(at)) {
            if let Some((quality, text)) = extract::message(text, *wanted) {
                best.offer(quality, at, Message { text, source: file.to_owned() });
            }
        }
    });
}

/// Reads every message of the window that such a program of the node sent.
pub(super) fn each(
    root: &HostRoot,
    window: Window,
    sender: Sender,
    not: &mut Unreadable,
    report: Report<'_>,
) {
    for place in PLACES {
        let folder = match root.folder(place) {
            Ok(folder) => folder,
            Err(why) => {
                not.skipped.add(place, why);
                continue;
            }
        };
        let (machines, left_out) = match folder.entries() {
            Ok(found) => (found.entries, found.left_out),
            Err(why) => {
                not.skipped.add(place, why);
                continue;
            }
        };
        if left_out > 0 {
            not.skipped.add(place, ReadError::TooMany(crate::source::host::ENTRIES));
        }
        // Other folders belong to other machines (`remote`) or other services (`ID.NAMESPACE`).
        for machine in machines.iter().filter(|entry| entry.directory && machine_id::is_one(&entry.name)) {
            match folder.folder(&machine.name) {
                Ok(folder) => files(&folder, window, MAX_FILES, not, &mut |journal, path| {
                    journal.messages(window, sender, |line| report(line, path))
                }),
                Err(why) => not.skipped.add(folder.path().join(&machine.name), why),
            }
        }
    }
}

/// Returns the boots of this machine that began to log within the window, each with its time. Containers may
/// have journals here too, with invented boot ids; those are in folders of their own.
pub(super) fn boots(root: &HostRoot, window: Window) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let Some(id) = machine_id::read(root) else { return found };
    for place in PLACES {
        let Ok(folder) = root.folder(Path::new(place).join(&id)) else { continue };
        // Files that cannot be read are skipped.
        let mut not = Unreadable::default();
        files(&folder, window, MAX_ALL_FILES, &mut not, &mut |journal, _| {
            for (boot, at) in journal.boots()? {
                let first = found.entry(boot).or_insert(at);
                *first = at.min(*first);
            }
            Ok(())
        });
    }
    found.retain(|_, at| window.has(*at));
    found
}

/// Reads the files of the window, up to `limit`.
fn files(folder: &Folder, window: Window, limit: usize, not: &mut Unreadable, read_file: ReadFile<'_>) {
    let entries = match folder.entries() {
        Ok(found) => found.entries,
        Err(why) => return not.skipped.add(folder.path(), why),
    };
    let mut found = false;
    let mut read = 0;
    for entry in entries.iter().filter(|entry| is_system(&entry.name)) {
        let path = folder.path().join(&entry.name);
        let journal = match folder.plain(&entry.name).and_then(Journal::open) {
            Ok(journal) => journal,
            Err(why) => {
                not.skipped.add(path, why);
                continue;
            }
        };
        found = true;
        if !journal.may_have(window) {
            continue;
        }
        read += 1;
        if read > limit {
            not.skipped.add(folder.path(), ReadError::TooMany(limit));
            break;
        }
        if let Err(why) = read_file(&journal, &path) {
            not.skipped.add(path, why);
        }
    }
    if found {
        not.searched.push(folder.path().to_owned());
    }
}

/// Returns whether a file is `system.journal` or `system@….journal`. journald appends `~` to the name of a
/// file that it found broken.
fn is_system(name: &str) -> bool {
    name.starts_with("system") && (name.ends_with(".journal") || name.ends_with(".journal~"))
}
