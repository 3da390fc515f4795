//! The systemd journal's files: which to read, and what they say within the time.

mod data;
mod entry;
mod file;

use std::path::Path;

use super::{Best, Message, Unreadable, Wanted, Window, extract};
use crate::source::host::{Folder, HostRoot, Miss};
use file::Journal;

/// On disk, and where nothing is kept beyond a boot.
const PLACES: [&str; 2] = ["/var/log/journal", "/run/log/journal"];
/// Files of one machine read at most: a window of minutes meets one or two.
const FILES: usize = 8;

/// Takes a message: when it was logged, what it is, and in which file it stands.
type Tell<'a> = &'a mut dyn FnMut(u64, &str, &Path);

pub(super) fn search(root: &HostRoot, wanted: Wanted<'_>, best: &mut Best, not: &mut Unreadable) {
    each(root, wanted.window, not, &mut |at, text, file| {
        if let Some((quality, text)) = extract::message(text, wanted) {
            best.offer(quality, at, Message { text, source: file.to_owned() });
        }
    });
}

/// Every message of the window.
pub(super) fn each(root: &HostRoot, window: Window, not: &mut Unreadable, tell: Tell<'_>) {
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
                Ok(folder) => files(&folder, window, not, tell),
                Err(why) => not.skipped.add(folder.path().join(&machine.name), why),
            }
        }
    }
}

fn files(folder: &Folder, window: Window, not: &mut Unreadable, tell: Tell<'_>) {
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
        if !journal.may_have(window) {
            continue;
        }
        read += 1;
        if read > FILES {
            not.skipped.add(folder.path(), Miss::TooMany(FILES));
            break;
        }
        if let Err(why) = journal.messages(window, |at, text| tell(at, text, &path)) {
            not.skipped.add(path, why);
        }
    }
    if looked {
        not.looked.push(folder.path().to_owned());
    }
}
