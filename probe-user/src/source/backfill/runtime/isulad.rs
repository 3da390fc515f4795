//! iSulad's sandboxes, found by the bundles that it keeps for all containers until they are removed:
//! `ROOT/engines/RUNTIME/ID`. The bundles have the annotations of containerd's CRI plugin.
//!
//! A bundle that cannot be read may be a sandbox's. It is reported by its id, as with Docker.

use std::path::{Path, PathBuf};

use super::{
    super::{Listing, spec},
    Records, sandbox,
};
use crate::{
    model::{
        fact::{RuntimeKind, RuntimeSandbox},
        id::ContainerId,
    },
    source::host::{FILE, HostRoot, ReadError, memo::Memo},
};

/// The folder in iSulad's root. It has a folder for each OCI runtime.
pub(in crate::source::backfill) const ENGINES: &str = "engines";
/// The file in each bundle.
const CONFIG: &str = "config.json";
/// Further containers are left out.
const MAX_CONTAINERS: usize = 1 << 14;

/// Returns the folders that hold the bundles, one for each OCI runtime.
pub(in crate::source::backfill) fn engines<'a>(
    host: &HostRoot,
    roots: impl Iterator<Item = &'a Path>,
) -> Vec<PathBuf> {
    let places = roots.map(|root| root.join(ENGINES));
    let folders =
        places.filter_map(|place| host.folder(&place).and_then(|it| Ok((it.entries()?, place))).ok());
    let of_engines = folders.flat_map(|(found, place)| {
        let names = found.entries.into_iter().filter(|entry| entry.directory);
        names.map(move |entry| place.join(entry.name)).collect::<Vec<_>>()
    });
    of_engines.collect()
}

pub(super) fn read(
    host: &HostRoot,
    root: &Path,
    memo: &mut Memo<Option<RuntimeSandbox>>,
    list: &mut Listing<'_>,
) -> Records {
    let place = root.join(ENGINES);
    let mut unread = 0;
    let sandboxes = sandboxes(host, root, &place, memo, &mut unread, list);
    Records { unread, ..Records::new(place, Some(RuntimeKind::Isulad), sandboxes) }
}

fn sandboxes(
    host: &HostRoot,
    root: &Path,
    place: &Path,
    memo: &mut Memo<Option<RuntimeSandbox>>,
    unread: &mut u64,
    list: &mut Listing<'_>,
) -> Result<(Vec<RuntimeSandbox>, bool), ReadError> {
    let mut complete = host.folder(place)?.entries()?.left_out == 0;
    let mut found = Vec::new();
    for engine in engines(host, [root].into_iter()) {
        let folder = host.folder(&engine)?;
        let entries = folder.entries()?;
        complete &= entries.left_out == 0 && entries.entries.len() <= MAX_CONTAINERS;
        for entry in entries.entries.iter().take(MAX_CONTAINERS) {
            let Some(id) = ContainerId::parse(&entry.name) else { continue };
            let read = folder.folder(&entry.name).and_then(|bundle| {
                memo.of(&bundle).read(CONFIG, FILE, |bytes, _| Some(sandbox(spec::parse(bytes, &id)?)))
            });
            match read {
                Ok(sandbox) => found.extend(sandbox),
                Err(ReadError::Absent) => {}
                Err(why) => {
                    list.set_aside(engine.join(&entry.name).join(CONFIG), why);
                    found.push(RuntimeSandbox { id, pod: None });
                    *unread += 1;
                }
            }
        }
    }
    Ok((found, complete))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{CONFIG, FILE, HostRoot, Listing, Memo, read};
    use crate::{
        model::{fact::List, time::Timestamp},
        source::{backfill::Node, cgroup::Hierarchy},
    };

    #[test]
    fn a_bundle_that_has_not_changed_is_read_once() {
        let node = tempfile::tempdir().expect("a directory");
        let engine = node.path().join("lib/engines/runc");
        let bundle = |id: &str, kind: &str| {
            let text = format!(
                "{{\"annotations\":{{\"io.kubernetes.cri.container-type\":\"{kind}\",\"io.kubernetes.cri.sandbox-id\":\
                 \"aa11\"}}}}"
            );
            fs::create_dir_all(engine.join(id)).expect("a directory");
            fs::write(engine.join(id).join(CONFIG), text).expect("a bundle");
        };
        bundle("aa11", "sandbox");
        bundle("bb22", "container");
        let host = HostRoot::open(node.path()).expect("the root");
        let hierarchy = Hierarchy { id: 0, controllers: Vec::new(), mount: "/sys/fs/cgroup".to_owned() };
        let clock = || Timestamp(1);
        let at = Node { root: &host, hierarchy: &hierarchy, clock: &clock, boot_wall_ns: 0, stores: &[] };
        let mut memo = Memo::default();
        // Far in the future, so that the files are old.
        let mut sandboxes = || {
            memo.begin(i64::MAX / 2);
            let records = read(&host, "/lib".as_ref(), &mut memo, &mut Listing::begin(List::Runtimes, at));
            let (sandboxes, complete) = records.sandboxes.expect("the folder");
            assert!(complete && records.unread == 0);
            sandboxes.iter().map(|it| it.id.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(sandboxes(), ["aa11"]);
        assert_eq!(sandboxes(), ["aa11"]);
        for id in ["aa11", "bb22"] {
            let folder = host.folder(format!("/lib/engines/runc/{id}")).expect("the bundle");
            let known = memo.of(&folder).read(CONFIG, FILE, |_, _| panic!("{id} is read once more"));
            assert_eq!(known.expect("what it said").is_some(), id == "aa11");
        }
    }
}
