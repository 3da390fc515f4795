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
    machine_id,
};
use file::Journal;
pub(crate) use sender::Sender;

/// The journal on disk, and the one in memory, which does not survive a boot.
const PLACES: [&str; 2] = ["/var/log/journal", "/run/log/journal"];
/// The most files of one machine that are read. A window of minutes is in one or two.
const FILES: usize = 8;

/// The most files that are read for what each file has only once.
const ALL_FILES: usize = 128;

/// Reads something from one file.
type Look<'a> = &'a mut dyn FnMut(&Journal, &Path) -> Result<(), ReadError>;

/// Receives a message, and its file.
type Tell<'a> = &'a mut dyn FnMut(Line<'_>, &Path);

pub(super) fn search(root: &HostRoot, batch: &mut [Search<'_>], not: &mut Unreadable) {
    let windows = || batch.iter().map(|it| it.wanted.window);
    let ends = (windows().map(|it| it.from).min(), windows().map(|it| it.until).max());
    let (Some(from), Some(until)) = ends else { return };
    each(root, Window { from, until }, Sender::Daemon, not, &mut |Line { at, text, .. }, file| {
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
pub(super) fn each(root: &HostRoot, window: Window, sender: Sender, not: &mut Unreadable, tell: Tell<'_>) {
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
        // Other folders are those of other machines (`remote`) or other services (`ID.NAMESPACE`).
        for machine in machines.iter().filter(|entry| entry.directory && machine_id::is_one(&entry.name)) {
            match folder.folder(&machine.name) {
                Ok(folder) => files(&folder, window, FILES, not, &mut |journal, path| {
                    journal.messages(window, sender, |line| tell(line, path))
                }),
                Err(why) => not.skipped.add(folder.path().join(&machine.name), why),
            }
        }
    }
}

/// The boots of this machine that began to log within the window, each with its time. Containers may have journals
/// here too, with boot ids that they made up; those are in folders of their own.
pub(super) fn boots(root: &HostRoot, window: Window) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let Some(id) = machine_id::read(root) else { return found };
    for place in PLACES {
        let Ok(folder) = root.folder(Path::new(place).join(&id)) else { continue };
        // Files that cannot be read are skipped.
        let mut not = Unreadable::default();
        files(&folder, window, ALL_FILES, &mut not, &mut |journal, _| {
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
fn files(folder: &Folder, window: Window, limit: usize, not: &mut Unreadable, look: Look<'_>) {
    let entries = match folder.entries() {
        Ok(found) => found.entries,
        Err(why) => return not.skipped.add(folder.path(), why),
    };
    // `system.journal`, `system@….journal`; a name that ends in `~` is that of a file that journald found broken.
    let is_system = |name: &str| {
        name.starts_with("system") && (name.ends_with(".journal") || name.ends_with(".journal~"))
    };
    let mut looked = false;
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
        looked = true;
        if !journal.may_have(window) {
            continue;
        }
        read += 1;
        if read > limit {
            not.skipped.add(folder.path(), ReadError::TooMany(limit));
            break;
        }
        if let Err(why) = look(&journal, &path) {
            not.skipped.add(path, why);
        }
    }
    if looked {
        not.looked.push(folder.path().to_owned());
    }
}
