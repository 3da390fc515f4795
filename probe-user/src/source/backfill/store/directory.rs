//! Reads a store that is a directory with one file for each address in use, named by the address.

use std::net::IpAddr;

use super::super::{Listing, Node};
use crate::{
    model::fact::{Fact, Holder, Reservation, Store, StoreRead},
    source::host::{ENTRIES, Entries, Entry, Folder, ReadError},
};

/// Bytes read of a file. An id and an interface's name are a tenth of it.
const RESERVATION: usize = 4096;

/// Tells the contents of `folder`; `parse` reads the holder from a file. A folder that does not exist is empty.
pub(super) fn tell(
    node: Node<'_>,
    list: &mut Listing<'_>,
    store: Store,
    folder: Result<Folder, ReadError>,
    parse: fn(&[u8]) -> Option<Holder>,
) {
    let at = list.now();
    let mut reservations = Vec::new();
    let mut complete = true;
    match folder.and_then(|folder| Ok((folder.entries()?, folder))) {
        Ok((Entries { entries, left_out }, folder)) => {
            reservations.extend(entries.iter().filter_map(|entry| one(node, list, &folder, entry, parse)));
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
    let read = folder.read_dated(name, RESERVATION);
    // The address was released since the folder was read.
    if matches!(read, Err(ReadError::Absent)) {
        return None;
    }
    let since = read.as_ref().map_or(0, |(_, written)| *written);
    let holder = read.and_then(|(bytes, _)| parse(&bytes).ok_or(ReadError::Malformed));
    // The address is told anyway: it is in use, and its holder is unknown.
    let holder = holder.map_err(|why| list.set_aside(path, why)).ok();
    Some(Reservation { address, holder, since: node.boot_time(since) })
}
