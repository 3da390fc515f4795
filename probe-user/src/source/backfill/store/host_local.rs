//! Reads host-local's store: one folder for each network, with one file for each address in use, named after
//! the address.
//!
//! The store survives a reboot, unless a network's `dataDir` is in memory.

use std::{
    collections::BTreeSet,
    mem,
    path::{Path, PathBuf},
};

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

/// A folder of networks, and the name of a network.
pub(crate) type Elsewhere = (PathBuf, String);

/// At most this many networks that are not in the usual places are remembered.
const REMEMBERED: usize = 64;

pub(super) struct HostLocal;

impl Kind for HostLocal {
    /// Reports the stores in the usual places, then those that networks keep elsewhere.
    fn report(&self, given: Given<'_>, memory: &mut Memory, list: &mut Listing<'_>) {
        let Given { node, daemons, networks } = given;
        let Memory { host_local: memo, elsewhere, .. } = memory;
        for names in FOLDERS {
            for folder in names {
                if report_folder(node, folder, memo, list) {
                    break;
                }
            }
        }
        let configured: BTreeSet<Elsewhere> = networks.iter().filter_map(elsewhere_of).collect();
        let before = mem::take(elsewhere);
        // Two spellings of one folder are one store.
        let mut read = BTreeSet::new();
        for place in before.difference(&configured).chain(&configured) {
            let (data_dir, network) = place;
            let folder = daemon::folder(node.root, daemons, &data_dir.join(network));
            if let Ok(folder) = &folder
                && let Ok(inode) = folder.inode()
                && !read.insert(inode)
            {
                continue;
            }
            let may_hold = directory::report(node, list, store(data_dir, network), folder, memo, parse);
            // The configuration of a network that was renamed no longer names its folder.
            if (may_hold || configured.contains(place)) && elsewhere.len() < REMEMBERED {
                elsewhere.insert(place.clone());
            }
        }
    }
}

/// Returns where a network's addresses are, if not in a usual place.
fn elsewhere_of(Configured { network, data_dir }: &Configured) -> Option<Elsewhere> {
    let data_dir = data_dir.as_ref()?;
    is_elsewhere(data_dir).then(|| (data_dir.clone(), network.name.clone()))
}

/// Returns where this store is, if it is one of host-local and not in a usual place.
pub(crate) fn elsewhere_in(Store { kind, path, network, .. }: &Store) -> Option<Elsewhere> {
    let data_dir = Path::new(path).parent()?;
    let place = (data_dir.to_owned(), network.clone()?);
    (*kind == StoreKind::HostLocal && is_elsewhere(data_dir)).then_some(place)
}

fn is_elsewhere(data_dir: &Path) -> bool {
    !FOLDERS.iter().flat_map(|names| *names).any(|folder| data_dir == Path::new(folder))
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
    use std::{fs, os::unix::fs::symlink};

    use proptest::prelude::*;

    use super::{
        super::reading::{id, read_with, told, write},
        Configured, HOST_LOCAL, HostLocal, Memory, Path, PathBuf, Store, StoreKind, elsewhere_in, parse,
        store,
    };
    use crate::model::fact::Network;

    fn network(name: &str, data_dir: Option<&str>) -> Configured {
        let network = Network {
            name: name.to_owned(),
            plugins: vec!["bridge".to_owned()],
            delegates: Vec::new(),
            ipam: Some("host-local".to_owned()),
            pools: Vec::new(),
        };
        Configured { network, data_dir: data_dir.map(PathBuf::from) }
    }

    /// The pods of before still have their addresses there.
    #[test]
    fn a_store_of_a_renamed_network_is_read_until_it_is_empty() {
        let root = tempfile::tempdir().expect("a folder");
        let mut memory = Memory::default();
        write(root.path(), "srv/ipam/old/10.8.0.2", &format!("{}\r\neth0", id('a')), 7);
        let mut read = |networks: &[Configured]| {
            read_with(&HostLocal, root.path(), &mut memory, networks, 0).0.map(|it| told(&it))
        };
        let new = [network("new", None)];
        assert_eq!(read(&new), None, "nobody has named it");
        let held = Some(vec!["10.8.0.2 a \"eth0\" - 7".to_owned()]);
        assert_eq!(read(&[network("old", Some("/srv/ipam"))]), held);
        assert_eq!([read(&new), read(&new)], [held.clone(), held]);
        fs::remove_file(root.path().join("srv/ipam/old/10.8.0.2")).expect("a file");
        assert_eq!([read(&new), read(&new)], [Some(Vec::new()), None]);
    }

    /// The agent was replaced, or the reader that hangs.
    #[test]
    fn the_next_reader_knows_the_store_of_a_renamed_network() {
        let root = tempfile::tempdir().expect("a folder");
        write(root.path(), "srv/ipam/old/10.8.0.2", &format!("{}\r\neth0", id('a')), 7);
        let known = store(Path::new("/srv/ipam"), "old");
        let elsewhere = elsewhere_in(&known).into_iter().collect();
        let mut memory = Memory { elsewhere, ..Memory::default() };
        let read = read_with(&HostLocal, root.path(), &mut memory, &[network("new", None)], 0).0;
        assert_eq!(read.map(|it| told(&it)), Some(vec!["10.8.0.2 a \"eth0\" - 7".to_owned()]));
        for other in [store(Path::new(HOST_LOCAL), "old"), Store { kind: StoreKind::Declared, ..known }] {
            assert_eq!(elsewhere_in(&other), None, "{other:?}");
        }
    }

    /// An old spelling would otherwise make each reservation one of two stores.
    #[test]
    fn a_folder_under_two_names_is_one_store() {
        let root = tempfile::tempdir().expect("a folder");
        write(root.path(), "srv/ipam/old/10.8.0.2", &format!("{}\r\neth0", id('a')), 7);
        symlink("ipam", root.path().join("srv/same")).expect("a link");
        let mut memory = Memory::default();
        for data_dir in ["/srv/ipam", "/srv/same"] {
            let read =
                read_with(&HostLocal, root.path(), &mut memory, &[network("old", Some(data_dir))], 0).0;
            assert_eq!(read.map(|it| it.store.path).as_deref(), Some("/srv/ipam/old"));
            assert_eq!(Vec::from_iter(&memory.elsewhere), [&("/srv/ipam".into(), "old".to_owned())]);
        }
    }

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
