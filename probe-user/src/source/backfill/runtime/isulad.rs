//! iSulad. An option or the configuration may name another root, another socket, and another folder of
//! networks.
//!
//! Its sandboxes are found by the bundles that it keeps for all containers until they are removed:
//! `ROOT/engines/RUNTIME/ID`. The bundles have the annotations of containerd's CRI plugin.

use std::path::{Path, PathBuf};

use probe_common::runtime::ISULAD;
use serde::Deserialize;

use super::{
    Place, Reader, Records, Sandboxes,
    daemon::{
        Daemon, Kind, Process,
        settings::{self, UnreadSetting},
    },
    list_containers,
};
use crate::{
    model::fact::{RuntimeKind, RuntimeSandbox},
    source::{
        backfill::{Listing, spec},
        host::{HostRoot, ReadError, memo::Memo},
    },
};

pub(super) const READER: Reader = Reader { daemon, records };

/// The folder in iSulad's root. It has a folder for each OCI runtime.
pub(in crate::source::backfill) const ENGINES: &str = "engines";
/// The file in each bundle.
const CONFIG: &str = "config.json";

#[derive(Debug, Default, Deserialize)]
struct Configuration {
    graph: Option<String>,
    #[serde(default)]
    hosts: Vec<String>,
    #[serde(rename = "cni-conf-dir")]
    networks: Option<String>,
}

fn daemon(process: &Process<'_>) -> Daemon {
    let (config, unread) = match configuration(process) {
        Ok(config) => (config, None),
        Err(unread) => (Configuration::default(), Some(unread)),
    };
    let root = process
        .option(&["--graph", "-g"])
        .or_else(|| path(process, config.graph.as_deref()))
        .or_else(|| if unread.is_none() { ISULAD.roots.first().map(PathBuf::from) } else { None });
    let hosts = process.arguments.iter().chain(&config.hosts);
    let socket = hosts.filter_map(|host| host.strip_prefix("unix://")).map(PathBuf::from).next();
    let networks = process.option(&["--cni-conf-dir"]).or_else(|| path(process, config.networks.as_deref()));
    Daemon {
        root,
        networks,
        socket: socket.or_else(|| ISULAD.sockets.first().map(PathBuf::from)),
        unread,
        ..Daemon::new(Kind::Runtime(RuntimeKind::Isulad))
    }
}

/// Makes the value of a setting an absolute path. An empty text counts as unset.
fn path(process: &Process<'_>, value: Option<&str>) -> Option<PathBuf> {
    value.filter(|path| !path.is_empty()).map(|path| process.absolute(path))
}

fn configuration(process: &Process<'_>) -> Result<Configuration, UnreadSetting> {
    let Some(path) = ISULAD.configuration.first().map(Path::new) else { return Ok(Configuration::default()) };
    match settings::read(process.files(), path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map_err(|_not_json| UnreadSetting { path: path.to_owned(), why: ReadError::Malformed }),
        Err(UnreadSetting { why: ReadError::Absent, .. }) => Ok(Configuration::default()),
        Err(unread) => Err(unread),
    }
}

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

fn records(place: Place<'_>, memo: &mut Memo<Vec<RuntimeSandbox>>, list: &mut Listing<'_>) -> Vec<Records> {
    let mut unread = 0;
    let sandboxes = sandboxes(&place, memo, list, &mut unread);
    let folder = place.root.join(ENGINES);
    vec![Records { unread, ..Records::new(folder, Some(RuntimeKind::Isulad), sandboxes) }]
}

fn sandboxes(
    place: &Place<'_>,
    memo: &mut Memo<Vec<RuntimeSandbox>>,
    list: &mut Listing<'_>,
    unread: &mut u64,
) -> Sandboxes {
    let mut is_complete = place.host.folder(place.root.join(ENGINES))?.entries()?.left_out == 0;
    let mut all = Vec::new();
    for engine in engines(place.host, [place.root].into_iter()) {
        let folder = place.host.folder(engine)?;
        let (sandboxes, is_whole) = list_containers(&folder, CONFIG, spec::parse, memo, list, unread)?;
        all.extend(sandboxes);
        is_complete &= is_whole;
    }
    Ok((all, is_complete))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{CONFIG, Listing, Memo, Place, records};
    use crate::{
        model::{fact::List, time::Timestamp},
        source::{
            backfill::Node,
            host::{FILE, HostRoot},
            node::cgroup::Hierarchy,
        },
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
            let place = Place { host: &host, root: "/lib".as_ref(), runs: true, is_alone: false };
            let records = records(place, &mut memo, &mut Listing::begin(List::Runtimes, at)).remove(0);
            let (sandboxes, complete) = records.sandboxes.expect("the folder");
            assert!(complete && records.unread == 0);
            sandboxes.iter().map(|it| it.id.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(sandboxes(), ["aa11"]);
        assert_eq!(sandboxes(), ["aa11"]);
        for id in ["aa11", "bb22"] {
            let folder = host.folder(format!("/lib/engines/runc/{id}")).expect("the bundle");
            let known = memo.of(&folder).read(CONFIG, FILE, |_, _| panic!("{id} is read once more"));
            assert_eq!(known.expect("what it said").is_empty(), id != "aa11");
        }
    }
}
