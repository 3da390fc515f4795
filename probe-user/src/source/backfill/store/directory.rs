//! A store that is a directory with one file for each address given out, named by it.

use std::net::IpAddr;

use super::super::{Listing, Node};
use crate::{
    model::fact::{Fact, Holder, Reservation, Store, StoreRead},
    source::host::{ENTRIES, Entries, Entry, Folder, ReadError},
};

/// An id and an interface's name are a tenth of it.
const RESERVATION: usize = 4096;

/// Tells what `folder` holds, `parse` giving the holder that a file names. A folder that is not there holds nothing.
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
    // Beside the addresses: locks, files in the making, and where the search for a free address goes on.
    if name == "lock" || name.starts_with('.') || name.starts_with("last_reserved_ip") {
        return None;
    }
    let path = folder.path().join(name);
    let Ok(address) = name.parse::<IpAddr>() else {
        list.set_aside(path, ReadError::Malformed);
        return None;
    };
    let read = folder.read_dated(name, RESERVATION);
    // Given back since the folder was read.
    if matches!(read, Err(ReadError::Absent)) {
        return None;
    }
    let since = read.as_ref().map_or(0, |(_, written)| *written);
    let holder = read.and_then(|(bytes, _)| parse(&bytes).ok_or(ReadError::Malformed));
    // It is told of all the same: the address is given out, and to whom is not known.
    let holder = holder.map_err(|why| list.set_aside(path, why)).ok();
    Some(Reservation { address, holder, since: node.boot_time(since) })
}
