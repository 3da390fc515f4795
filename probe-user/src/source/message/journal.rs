//! The systemd journal's files: which to read, and what they say within the time.

mod data;
mod entry;
mod file;

use std::path::{Path, PathBuf};

use super::{Best, Message, Unreadable, Wanted, extract};
use crate::source::host::{Folder, HostRoot, Miss};
use file::Journal;

/// On disk, and where nothing is kept beyond a boot.
const PLACES: [&str; 2] = ["/var/log/journal", "/run/log/journal"];
/// Files of one machine read at most: a window of minutes meets one or two.
const FILES: usize = 8;

pub(super) fn search(root: &HostRoot, wanted: Wanted<'_>, best: &mut Best, not: &mut Unreadable) {
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
            not.skipped.add(place, Miss::TooMany(crate::source::host::ENTRIES));
        }
        // Others beside these are other machines' (`remote`) or other services' (`ID.NAMESPACE`).
        let is_machine = |name: &str| name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        for machine in machines.iter().filter(|entry| entry.directory && is_machine(&entry.name)) {
            match folder.folder(&machine.name) {
                Ok(folder) => files(&folder, wanted, best, not),
                Err(why) => not.skipped.add(folder.path().join(&machine.name), why),
            }
        }
    }
}

fn files(folder: &Folder, wanted: Wanted<'_>, best: &mut Best, not: &mut Unreadable) {
    let entries = match folder.entries() {
        Ok(found) => found.entries,
        Err(why) => return not.skipped.add(folder.path(), why),
    };
    // `system.journal`, `system@….journal`; what journald found broken ends in `~`.
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
        if !journal.may_have(wanted.window) {
            continue;
        }
        read += 1;
        if read > FILES {
            not.skipped.add(folder.path(), Miss::TooMany(FILES));
            break;
        }
        one(journal, &path, wanted, best, not);
    }
    if looked {
        not.looked.push(folder.path().to_owned());
    }
}

fn one(journal: Journal, path: &Path, wanted: Wanted<'_>, best: &mut Best, not: &mut Unreadable) {
    let source: PathBuf = path.to_owned();
    let end = journal.messages(wanted.window, |at, text| {
        if let Some((quality, text)) = extract::message(text, wanted) {
            best.offer(quality, at, Message { text, source: source.clone() });
        }
    });
    if let Err(why) = end {
        not.skipped.add(path, why);
    }
}
