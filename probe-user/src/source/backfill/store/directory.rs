//! Reads a store that is a directory with one file for each address in use, named by the address.

use std::net::IpAddr;

use super::super::{Listing, Node};
use crate::{
    model::{
        fact::{Fact, Holder, Reservation, Store, StoreRead},
        time::Timestamp,
    },
    source::host::{
        ENTRIES, Entries, Entry, Folder, ReadError,
        memo::{Files, Memo},
    },
};

/// Bytes read of a file. An id and an interface's name are a tenth of it.
const RESERVATION: usize = 4096;

/// What a file in the store says.
#[derive(Clone, Debug)]
pub(super) struct Reserved {
    /// `None` if the file does not name one.
    holder: Option<Holder>,
    since: Timestamp,
}

/// Tells the contents of `folder`; `parse` reads the holder from a file. A folder that does not exist is empty.
pub(super) fn tell(
    node: Node<'_>,
    list: &mut Listing<'_>,
    store: Store,
    folder: Result<Folder, ReadError>,
    memo: &mut Memo<Reserved>,
    parse: fn(&[u8]) -> Option<Holder>,
) {
    let at = list.now();
    let mut reservations = Vec::new();
    let mut complete = true;
    match folder.and_then(|folder| Ok((folder.entries()?, folder))) {
        Ok((Entries { entries, not_utf8, left_out }, folder)) => {
            let mut files = memo.of(&folder);
            let read = entries.iter().filter_map(|entry| one(node, list, &folder, &mut files, entry, parse));
            reservations.extend(read);
            // No address is written so.
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
    list.found(at, Fact::StoreRead(StoreRead { store, reservations, complete }));
}

fn one(
    node: Node<'_>,
    list: &mut Listing<'_>,
    folder: &Folder,
    files: &mut Files<'_, Reserved>,
    entry: &Entry,
    parse: fn(&[u8]) -> Option<Holder>,
) -> Option<Reservation> {
    let name = &*entry.name;
    // Files that are not addresses: locks, temporary files, and the position of the search for a free address.
    if name == "lock" || name.starts_with('.') || name.starts_with("last_reserved_ip") {
        return None;
    }
    let path = folder.path().join(name);
    let Ok(address) = name.parse::<IpAddr>() else {
        list.set_aside(path, ReadError::Malformed);
        return None;
    };
    let read = files.read(name, RESERVATION, |bytes, written| {
        Some(Reserved { holder: parse(bytes), since: node.boot_time(written) })
    });
    // The address is told even if its holder is unknown: it is in use.
    match read {
        // The address was released since the folder was read.
        Err(ReadError::Absent) => None,
        Err(why) => {
            list.set_aside(path, why);
            let since =
                folder.edition(name).map_or(Timestamp::ZERO, |it| node.boot_time(it.written_wall_ns()));
            Some(Reservation { address, holder: None, since })
        }
        Ok(Reserved { holder, since }) => {
            if holder.is_none() {
                list.set_aside(path, ReadError::Malformed);
            }
            Some(Reservation { address, holder, since })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt as _, path::Path};

    use super::{Fact, Listing, Memo, Node, ReadError, Store, Timestamp, tell};
    use crate::{
        model::fact::{List, StoreKind},
        source::{cgroup::Hierarchy, host::HostRoot},
    };

    #[test]
    fn a_name_that_is_not_utf8_is_no_address_and_the_reading_is_whole() {
        let root = tempfile::tempdir().expect("a directory");
        fs::write(root.path().join("10.88.0.2"), "").expect("a file");
        fs::write(root.path().join(OsStr::from_bytes(b"\xff\xfe")), "").expect("a file");
        let host = HostRoot::open(root.path()).expect("the root");
        let hierarchy = Hierarchy { id: 0, controllers: Vec::new(), mount: "/sys/fs/cgroup".to_owned() };
        let clock = || Timestamp(1);
        let node = Node { root: &host, hierarchy: &hierarchy, clock: &clock, boot_wall_ns: 0, stores: &[] };
        let mut list = Listing::begin(List::Ipam, node);
        let store = Store { kind: StoreKind::HostLocal, path: "/".to_owned(), network: None };
        tell(node, &mut list, store, host.folder("/"), &mut Memo::default(), |_| None);
        let (told, skipped) = list.end();
        let read = told.iter().find_map(|it| match &it.fact {
            Fact::StoreRead(read) => Some((read.reservations.len(), read.complete)),
            _ => None,
        });
        assert_eq!(read, Some((1, true)));
        assert!(skipped.partial.is_empty(), "{skipped:?}");
        assert_eq!(skipped.named.get(Path::new("/\u{fffd}\u{fffd}")), Some(&ReadError::NotUtf8));
    }
}
