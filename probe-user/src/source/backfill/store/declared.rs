//! Reads the stores that the agent's configuration names, of any plugin that keeps a directory with one file
//! for each address in use. The file is named after the address. Its first word is the container's id, and
//! its second (if any) the interface.

use std::path::{Path, PathBuf};

use super::{
    super::{Listing, runtime::daemon},
    Given, Kind, Memory, directory, holder, host_local,
};
use crate::{
    model::fact::{Bound, Holder, Store, StoreKind},
    source::host::{HostRoot, ReadError},
};

/// One directory that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    dir: PathBuf,
    network: Option<String>,
}

impl Declared {
    /// Makes a store; `None` if the path is not absolute.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, network: Option<String>) -> Option<Self> {
        let dir = dir.into();
        dir.is_absolute().then_some(Self { dir, network })
    }

    #[must_use]
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns whether nothing is at the path. A store that exists but cannot be read is not absent.
    #[must_use]
    pub(crate) fn is_absent(&self, root: &HostRoot) -> bool {
        matches!(root.folder(&self.dir), Err(ReadError::Absent))
    }
}

pub(super) struct Stores;

impl Kind for Stores {
    fn report(&self, given: Given<'_>, memory: &mut Memory, list: &mut Listing<'_>) {
        let Given { node, daemons, networks: _ } = given;
        for Declared { dir, network } in node.stores {
            let path = dir.display().to_string();
            let store =
                Store { kind: StoreKind::Declared, path, network: network.clone(), bound: Bound::Sandbox };
            let folder = daemon::folder(node.root, daemons, dir);
            if folder.as_ref().is_ok_and(|folder| host_local::is_usual(node, folder)) {
                continue;
            }
            directory::report(node, list, store, folder, &mut memory.declared, parse);
        }
    }
}

fn parse(bytes: &[u8]) -> Option<Holder> {
    let mut words = str::from_utf8(bytes).ok()?.split_whitespace();
    holder(words.next()?, words.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::fs;

    use super::{Declared, HostRoot, parse};

    #[test]
    fn the_first_word_holds_it() {
        let found = |bytes: &[u8]| parse(bytes).map(|it| format!("{} {}", it.container, it.ifname));
        assert_eq!(found(b"c1\n").as_deref(), Some("c1 "));
        assert_eq!(found(b"c1\neth0\nmore").as_deref(), Some("c1 eth0"));
        assert_eq!(found(b" c1 net1\n").as_deref(), Some("c1 net1"));
        for bad in [&b""[..], b"\n", b"/etc/passwd", b"\xff\xfe"] {
            assert_eq!(found(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_store_is_where_the_node_says() {
        assert!(Declared::new("/var/lib/x", None).is_some());
        assert!(Declared::new("var/lib/x", None).is_none());
    }

    #[test]
    fn what_cannot_be_read_is_not_absent() {
        let root = tempfile::tempdir().expect("a folder");
        fs::write(root.path().join("file"), "").expect("a file");
        let root = HostRoot::open(root.path()).expect("a root");
        let is_absent = |path: &str| Declared::new(path, None).expect("absolute").is_absent(&root);
        assert!(is_absent("/nothing") && !is_absent("/file") && !is_absent("/"));
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>) {
            parse(&bytes);
        }
    }
}
