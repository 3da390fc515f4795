//! Reads host-local's store: one folder for each network, with one file for each address in use, named after
//! the address.
//!
//! The store survives a reboot, unless a network's `dataDir` is in memory.

use std::path::Path;

use probe_common::runtime::HOST_LOCAL;

use super::{
    super::{Listing, Node, network::Configured, runtime::daemon},
    Given, Kind, Memory,
    directory::{self, Reserved},
    holder,
};
use crate::{
    model::fact::{Bound, Fact, Holder, Store, StoreKind, StoreRead},
    source::host::{ENTRIES, Folder, ReadError, memo::Memo},
};

/// The folders of networks that no configuration has to name, each by its names: host-local's default, and
/// the folder of the node that Antrea's agent has in its place. `/var/run` may be no link on a copy of files.
const FOLDERS: [&[&str]; 2] = [&[HOST_LOCAL], &["/var/run/antrea/cni/networks", "/run/antrea/cni/networks"]];

pub(super) struct HostLocal;

impl Kind for HostLocal {
    /// Reports the stores in the usual places, then those that networks keep elsewhere.
    fn report(&self, given: Given<'_>, memory: &mut Memory, list: &mut Listing<'_>) {
        let Given { node, daemons, networks } = given;
        let memo = &mut memory.host_local;
        for names in FOLDERS {
            for folder in names {
                if report_folder(node, folder, memo, list) {
                    break;
                }
            }
        }
        for Configured { network, data_dir } in networks {
            let Some(data_dir) = data_dir.as_deref() else { continue };
            if FOLDERS.iter().flat_map(|names| *names).any(|folder| data_dir == Path::new(folder)) {
                continue;
            }
            let store = store(data_dir, &network.name);
            let folder = daemon::folder(node.root, daemons, &data_dir.join(&network.name));
            directory::report(node, list, store, folder, memo, parse);
        }
    }
}

/// Whether this folder is one of a network in the usual places.
pub(super) fn is_usual(node: Node<'_>, folder: &Folder) -> bool {
    let Some(name) = folder.path().file_name() else { return false };
    FOLDERS.iter().any(|names| {
        let networks = names.iter().find_map(|name| node.root.folder(name).ok());
        let usual = networks.and_then(|networks| networks.folder(name.to_str()?).ok());
        usual.is_some_and(|usual| usual.inode().is_ok() && usual.inode().ok() == folder.inode().ok())
    })
}

/// Reports the stores in a folder of networks; `false` if there is no such folder.
fn report_folder(node: Node<'_>, place: &str, memo: &mut Memo<Reserved>, list: &mut Listing<'_>) -> bool {
    let at = list.now();
    match node.root.folder(place).and_then(|folder| Ok((folder.entries()?, folder))) {
        Ok((entries, folder)) => {
            for entry in &entries.entries {
                let store = store(place.as_ref(), &entry.name);
                directory::report(node, list, store, folder.folder(&entry.name), memo, parse);
            }
            // A network's name comes from a configuration in JSON, which is UTF-8.
            for name in entries.not_utf8 {
                list.set_aside(Path::new(place).join(name), ReadError::NotUtf8);
            }
            if entries.left_out > 0 {
                list.skip(place, ReadError::TooMany(ENTRIES));
            }
        }
        Err(ReadError::Absent) => return false,
        Err(why) => {
            list.skip(place, why);
            let store = Store { network: None, path: place.to_owned(), ..store(Path::new(place), "") };
            let read = StoreRead { store, reservations: Vec::new(), complete: false };
            list.found(at, Fact::StoreRead(read));
        }
    }
    true
}

fn store(data_dir: &Path, network: &str) -> Store {
    let path = data_dir.join(network).display().to_string();
    Store { kind: StoreKind::HostLocal, path, network: Some(network.to_owned()), bound: Bound::Sandbox }
}

/// Parses `ID\r\nIFNAME`. Files of older versions have no interface. A file that ends within the id is cut
/// off, and names no holder.
fn parse(bytes: &[u8]) -> Option<Holder> {
    let text = str::from_utf8(bytes).ok()?;
    let mut lines = text.lines().map(str::trim);
    let id = lines.next()?;
    let ifname = lines.next();
    let is_of_runtime = id.bytes().all(|byte| byte.is_ascii_hexdigit());
    holder(id, ifname.unwrap_or_default())
        .filter(|it| ifname.is_some() || !is_of_runtime || it.container.is_full())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::parse;

    #[test]
    fn a_reservation_names_who_holds_it() {
        let found = |bytes: &[u8]| parse(bytes).map(|it| format!("{} {}", it.container, it.ifname));
        assert_eq!(found(b"c1\r\neth0").as_deref(), Some("c1 eth0"));
        assert_eq!(found(b"c1\neth0\n").as_deref(), Some("c1 eth0"));
        assert_eq!(found(b"cnitool-1").as_deref(), Some("cnitool-1 "));
        let id = "a1".repeat(32);
        assert_eq!(found(id.as_bytes()), Some(format!("{id} ")));
        // The file was made but is not yet written, or host-local did not write it.
        assert_eq!(found(b""), None);
        // The disk was full, or the power was lost.
        assert_eq!([found(&id.as_bytes()[..63]), found(b"a")], [None, None]);
        assert_eq!(found(b"../../x\r\neth0"), None);
        assert_eq!(found(b"c1\r\nan_interface_of_16"), None);
        assert_eq!(found(b"\xff\xfe"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>) {
            parse(&bytes);
        }
    }
}
