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
        Ok((Entries { entries, left_out }, folder)) => {
            let mut files = memo.of(&folder);
            let read = entries.iter().filter_map(|entry| one(node, list, &folder, &mut files, entry, parse));
            reservations.extend(read);
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
