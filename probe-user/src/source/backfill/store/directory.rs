//! Reads a store that is a directory with one file for each address in use, named by the address.

use std::net::IpAddr;

use super::super::{Listing, Node};
use crate::{
    model::{
        fact::{Fact, Holder, Reservation, ReservationState, Store, StoreRead},
        time::Timestamp,
    },
    source::host::{
        ENTRIES, Entries, Entry, Folder, ReadError,
        memo::{Files, Memo},
    },
};

/// How much of a file is read, bytes. An id and an interface's name are a tenth of it.
const MAX_BYTES: usize = 4096;

/// The contents of one file of the store.
#[derive(Clone, Debug)]
pub(super) struct Reserved {
    /// `None` if the file does not name one.
    holder: Option<Holder>,
    since: Timestamp,
    /// The file names no holder, and holds words that a person wrote.
    in_words: bool,
}

/// Reports the contents of `folder`; `parse` reads the holder from a file. A folder that does not exist is
/// empty. Returns whether it may have reservations.
pub(super) fn report(
    node: Node<'_>,
    list: &mut Listing<'_>,
    store: Store,
    folder: Result<Folder, ReadError>,
    memo: &mut Memo<Reserved>,
    parse: fn(&[u8]) -> Option<Holder>,
) -> bool {
    let at = list.now();
    let mut reservations = Vec::new();
    let mut complete = true;
    match folder.and_then(|folder| Ok((folder.entries()?, folder))) {
        Ok((Entries { entries, not_utf8, left_out }, folder)) => {
            let mut files = memo.of(&folder);
            for entry in &entries {
                match one(node, list, &folder, &mut files, entry, parse) {
                    Ok(read) => reservations.extend(read),
                    Err(why) => {
                        list.skip(folder.path().join(&entry.name), why);
                        complete = false;
                    }
                }
            }
            // Such a name is not an address.
            for name in not_utf8 {
                list.set_aside(folder.path().join(name), ReadError::NotUtf8);
            }
            if left_out > 0 {
                list.skip(folder.path(), ReadError::TooMany(ENTRIES));
                complete = false;
            }
        }
        Err(ReadError::Absent) => {}
        Err(why) => {
            list.skip(&store.path, why);
            complete = false;
        }
    }
    let may_hold = !complete || !reservations.is_empty();
    list.found(at, Fact::StoreRead(StoreRead { store, reservations, complete }));
    may_hold
}

/// Reads the reservation of one file; `None` if the file is not a reservation. The error says why its content
/// is unknown.
fn one(
    node: Node<'_>,
    list: &mut Listing<'_>,
    folder: &Folder,
    files: &mut Files<'_, Reserved>,
    entry: &Entry,
    parse: fn(&[u8]) -> Option<Holder>,
) -> Result<Option<Reservation>, ReadError> {
    let name = &*entry.name;
    // Files that are not addresses: locks, temporary files, and the position of the search for a free
    // address.
    if name == "lock" || name.starts_with('.') || name.starts_with("last_reserved_ip") {
        return Ok(None);
    }
    let path = folder.path().join(name);
    let Ok(address) = name.parse::<IpAddr>() else {
        list.set_aside(path, ReadError::Malformed);
        return Ok(None);
    };
    let read = files.read(name, MAX_BYTES, |bytes, written| {
        let holder = parse(bytes);
        let in_words = holder.is_none() && has_words(bytes);
        Some(Reserved { holder, since: node.boot_time(written), in_words })
    });
    // The address is reported even if its file names no holder: it is in use.
    Ok(match read {
        // The address was released since the folder was read.
        Err(ReadError::Absent) => None,
        // The file may name a holder.
        Err(why @ (ReadError::Unreadable(_) | ReadError::Unanswered)) => return Err(why),
        Err(why) => {
            list.set_aside(path, why);
            let since =
                folder.edition(name).map_or(Timestamp::ZERO, |it| node.boot_time(it.written_wall_ns()));
            Some(Reservation {
                address,
                holder: None,
                since,
                in_words: false,
                pod: None,
                state: ReservationState::Held,
            })
        }
        Ok(Reserved { holder, since, in_words }) => {
            if holder.is_none() && !in_words {
                list.set_aside(path, ReadError::Malformed);
            }
            Some(Reservation { address, holder, since, in_words, pod: None, state: ReservationState::Held })
        }
    })
}

/// The length of a runtime's id, in digits.
const ID_LEN: usize = 64;

/// Returns whether a person wrote this: it is text, and not the beginning of an id. A text with a line's end
/// is complete.
fn has_words(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else { return false };
    let is_text = text.chars().all(|letter| letter.is_whitespace() || !letter.is_control());
    let word = text.trim();
    let is_part_of_id = word.bytes().all(|byte| byte.is_ascii_hexdigit()) && word.len() <= ID_LEN;
    is_text && !word.is_empty() && (!is_part_of_id || text.ends_with('\n'))
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::OsStr,
        fs::{self, Permissions},
        os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
        path::Path,
        thread,
    };

    use nix::{
        errno::Errno,
        unistd::{Uid, setfsuid},
    };

    use super::{Fact, Listing, Memo, Node, ReadError, Store, StoreRead, Timestamp, has_words, report};
    use crate::{
        model::fact::{Bound, List, StoreKind},
        source::{
            host::{HostRoot, skipped::Skipped},
            node::cgroup::Hierarchy,
        },
    };

    /// Reports this folder as a store; no file names a holder.
    fn read(root: &Path) -> (StoreRead, Skipped) {
        let host = HostRoot::open(root).expect("the root");
        let hierarchy = Hierarchy { id: 0, controllers: Vec::new(), mount: "/sys/fs/cgroup".to_owned() };
        let clock = || Timestamp(1);
        let node = Node { root: &host, hierarchy: &hierarchy, clock: &clock, boot_wall_ns: 0, stores: &[] };
        let mut list = Listing::begin(List::Ipam, node);
        let store =
            Store { kind: StoreKind::HostLocal, path: "/".to_owned(), network: None, bound: Bound::Sandbox };
        report(node, &mut list, store, host.folder("/"), &mut Memo::default(), |_| None);
        let (told, skipped) = list.end();
        let read = told.into_iter().find_map(|it| match it.fact {
            Fact::StoreRead(read) => Some(read),
            _ => None,
        });
        (read.expect("a reading"), skipped)
    }

    #[test]
    fn a_name_that_is_not_utf8_is_no_address_and_the_reading_is_whole() {
        let root = tempfile::tempdir().expect("a directory");
        fs::write(root.path().join("10.88.0.2"), "").expect("a file");
        fs::write(root.path().join(OsStr::from_bytes(b"\xff\xfe")), "").expect("a file");
        let (read, skipped) = read(root.path());
        assert_eq!((read.reservations.len(), read.complete), (1, true));
        assert!(skipped.partial.is_empty(), "{skipped:?}");
        assert_eq!(skipped.named.get(Path::new("/\u{fffd}\u{fffd}")), Some(&ReadError::NotUtf8));
    }

    #[test]
    fn a_file_that_may_not_be_read_is_no_reservation_of_nobody_and_the_reading_is_not_whole() {
        let root = tempfile::tempdir().expect("a directory");
        fs::set_permissions(root.path(), Permissions::from_mode(0o755)).expect("a mode");
        for name in ["10.88.0.2", "10.88.0.3"] {
            fs::write(root.path().join(name), "").expect("a file");
        }
        fs::set_permissions(root.path().join("10.88.0.3"), Permissions::from_mode(0o0)).expect("a mode");
        // The tests may run as root, which may read everything. setfsuid changes only this thread.
        let as_nobody = || {
            setfsuid(Uid::from_raw(65534));
            read(root.path())
        };
        let (read, skipped) = thread::scope(|scope| scope.spawn(as_nobody).join()).expect("no panic");
        let addresses: Vec<_> = read.reservations.iter().map(|it| it.address.to_string()).collect();
        assert_eq!((addresses, read.complete), (vec!["10.88.0.2".to_owned()], false));
        let first = (Path::new("/10.88.0.3").to_owned(), ReadError::Unreadable(Errno::EACCES));
        assert_eq!(skipped.partial.get(&List::Ipam), Some(&first));
    }

    /// A power loss leaves nothing, zeros, or the beginning of an id.
    #[test]
    fn what_a_person_wrote_is_told_from_what_a_plugin_left() {
        for words in ["reserved for the gateway\n", "printer", "r\u{e9}serv\u{e9}", "do not use!"] {
            assert!(has_words(words.as_bytes()), "{words:?}");
        }
        for left in [&b""[..], b"\n", b"a1b2", b"\0\0\0", b"zz\0", b"\xff\xfe", b"0123456789"] {
            assert!(!has_words(left), "{left:?}");
        }
    }
}
