//! CRI-O. Its storage directory is given by (strongest first) its options, its environment, the files of its
//! drop-in folder (the last one wins), its configuration, and the configuration of containers/storage, which
//! it shares with podman.
//!
//! Its records are in that storage. Files list all containers, and CRI-O adds the pod of each. A sandbox is
//! listed whether or not it has a process of its own. CRI-O's own containers are volatile. They are listed in
//! a file of their own, which is made with the first of them (`containers/storage`, `containers.go`). In a
//! transient storage that file is below the run root, so that a reboot removes it.

use std::path::{Path, PathBuf};

use probe_common::runtime::{CRIO, of_distributions};
use serde::Deserialize;
use toml::Table;

use super::{
    Place, Reader, Records,
    daemon::{
        Daemon, Kind, NetworkSettings, Process, Strictness,
        settings::{self, UnreadSetting},
    },
};
use crate::{
    model::{
        fact::{PodName, RuntimeKind, RuntimeSandbox},
        id::{ContainerId, PodUid},
    },
    source::{
        backfill::Listing,
        cri::name::named,
        host::{Folder, HostRoot, ReadError, memo::Memo},
    },
};

pub(super) const READER: Reader = Reader { daemon, records };

/// The configuration of containers/storage. The first file that exists is used.
const STORAGE: [&str; 2] = ["/etc/containers/storage.conf", "/usr/share/containers/storage.conf"];
/// Deeper drop-in folders are skipped.
const MAX_DEPTH: u32 = 4;
/// The end of the name of a storage driver's folder: `overlay-containers`.
const DRIVER: &str = "-containers";
const NAMES: [&str; 2] = ["containers.json", "volatile-containers.json"];
/// The longest file that is read, bytes. It has about a kilobyte for each container.
const MAX_BYTES: usize = 16 << 20;

/// One path, and the keys that may set it.
struct Setting<'a> {
    options: &'a [&'a str],
    variable: &'a str,
    keys: &'a [&'a str],
    /// Its key in the configuration of containers/storage.
    storage: &'a [&'a str],
    usual: &'a [&'a str],
}

const ROOT_SETTING: Setting<'_> = Setting {
    options: &["--root", "-r"],
    variable: "CONTAINER_ROOT",
    keys: &["crio", "root"],
    storage: &["storage", "graphroot"],
    usual: CRIO.roots,
};
const RUN_ROOT_SETTING: Setting<'_> = Setting {
    options: &["--runroot"],
    variable: "CONTAINER_RUNROOT",
    keys: &["crio", "runroot"],
    storage: &["storage", "runroot"],
    usual: CRIO.run_roots,
};
const SOCKET_SETTING: Setting<'_> = Setting {
    options: &["--listen"],
    variable: "CONTAINER_LISTEN",
    keys: &["crio", "api", "listen"],
    storage: &[],
    usual: CRIO.sockets,
};

/// The settings in its files, the weakest first.
struct Settings {
    own: Vec<Table>,
    storage: Table,
}

fn daemon(process: &Process<'_>) -> Daemon {
    let read = settings_of(process);
    let (said, unread) = read.map_or_else(|unread| (None, Some(unread)), |said| (Some(said), None));
    Daemon {
        root: path(process, said.as_ref(), &ROOT_SETTING),
        run_root: path(process, said.as_ref(), &RUN_ROOT_SETTING),
        networks: said
            .as_ref()
            .and_then(|said| said.own(&["crio", "network", "network_dir"]))
            .map(PathBuf::from),
        loads: said.as_ref().and_then(|said| loads(process, said)),
        socket: path(process, said.as_ref(), &SOCKET_SETTING),
        unread,
        ..Daemon::new(Kind::Runtime(RuntimeKind::Crio))
    }
}

/// Returns how it loads the network of pods (`pkg/config`, ocicni's `loadNetworks`); `None` if it is told
/// which network to take. Distributions build it with other folders of plugins, so the default is not known.
fn loads(process: &Process<'_>, said: &Settings) -> Option<NetworkSettings> {
    let network = ["crio", "network", "cni_default_network"];
    if process.option(&["--cni-default-network"]).is_some() || said.own(&network).is_some() {
        return None;
    }
    let folder =
        process.option(&["--cni-config-dir"]).or_else(|| process.variable("CONTAINER_CNI_CONFIG_DIR"));
    let folder = folder.or_else(|| Some(process.absolute(said.own(&["crio", "network", "network_dir"])?)));
    let lists =
        said.own.iter().rev().map(|table| settings::texts(table, &["crio", "network", "plugin_dirs"]));
    let mut plugins = lists.into_iter().find(|list| !list.is_empty()).unwrap_or_default();
    plugins.extend(said.own(&["crio", "network", "plugin_dir"]));
    let is_told =
        process.option(&["--cni-plugin-dir"]).or_else(|| process.variable("CONTAINER_CNI_PLUGIN_DIR"));
    if is_told.is_some() {
        plugins.clear();
    }
    Some(NetworkSettings {
        folder: folder.or_else(|| of_distributions(|row| row.networks).next().map(PathBuf::from))?,
        plugins: plugins.into_iter().map(|path| process.absolute(path)).collect(),
        strictness: Strictness::PassesOver,
    })
}

/// Returns the path that a setting has.
fn path(process: &Process<'_>, said: Option<&Settings>, setting: &Setting<'_>) -> Option<PathBuf> {
    let direct = process.option(setting.options).or_else(|| process.variable(setting.variable));
    direct.or_else(|| Some(process.absolute(said?.find(setting)?)))
}

impl Settings {
    fn own(&self, keys: &[&str]) -> Option<&str> {
        self.own.iter().rev().find_map(|table| settings::text(table, keys))
    }

    fn find<'a>(&'a self, setting: &Setting<'a>) -> Option<&'a str> {
        self.own(setting.keys)
            .or_else(|| settings::text(&self.storage, setting.storage))
            .or_else(|| setting.usual.first().copied())
    }
}

fn settings_of(process: &Process<'_>) -> Result<Settings, UnreadSetting> {
    let files = process.files();
    let named = process.option(&["--config", "-c"]).or_else(|| process.variable("CONTAINER_CONFIG"));
    let mut own = Vec::new();
    if let Some(main) = named.clone().or_else(|| CRIO.configuration.first().map(PathBuf::from)) {
        match settings::table(files, &main)? {
            None if named.is_some() => return Err(UnreadSetting { path: main, why: ReadError::Absent }),
            said => own.extend(said),
        }
    }
    let folder = process.option(&["--config-dir", "-d"]);
    let folder = folder.or_else(|| process.variable("CONTAINER_CONFIG_DIR"));
    let mut drop_ins = Vec::new();
    if let Some(folder) = folder.or_else(|| CRIO.drop_ins.first().map(PathBuf::from)) {
        match files.folder(&folder).and_then(|folder| walk(&folder, MAX_DEPTH, &mut drop_ins)) {
            Ok(()) | Err(ReadError::Absent) => {}
            Err(why) => return Err(UnreadSetting { path: folder, why }),
        }
    }
    for path in drop_ins {
        own.extend(settings::table(files, &path)?);
    }
    let elsewhere = process.variable("CONTAINERS_STORAGE_CONF");
    let places = elsewhere.map_or_else(|| STORAGE.map(PathBuf::from).to_vec(), |path| vec![path]);
    let mut storage = Table::default();
    for path in places {
        if let Some(table) = settings::table(files, &path)? {
            storage = table;
            break;
        }
    }
    Ok(Settings { own, storage })
}

/// Collects all files below a folder, sorted by name.
fn walk(folder: &Folder, deeper: u32, found: &mut Vec<PathBuf>) -> Result<(), ReadError> {
    for entry in folder.entries()?.entries {
        if !entry.directory {
            found.push(folder.path().join(&entry.name));
        } else if let Some(deeper) = deeper.checked_sub(1) {
            walk(&folder.folder(&entry.name)?, deeper, found)?;
        }
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
struct Container {
    id: String,
    /// The runtime's own metadata, as JSON in a string.
    #[serde(default)]
    metadata: String,
}

/// CRI-O's `RuntimeContainerMetadata`. podman's metadata has no pod.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Metadata {
    pod_id: String,
    /// For a sandbox: the name of the pod.
    metadata_name: Option<String>,
    uid: Option<String>,
    namespace: Option<String>,
}

/// Reads all files. If a runtime that runs keeps its containers here, a driver's folder without files means
/// that there are no containers.
fn records(place: Place<'_>, memo: &mut Memo<Vec<RuntimeSandbox>>, _list: &mut Listing<'_>) -> Vec<Records> {
    let folders = match drivers(place.host, place.root) {
        Ok(folders) => folders,
        Err(why) => return vec![records_at(place.root, Err(why))],
    };
    let files = folders.iter().flat_map(|folder| NAMES.map(|name| (folder, name)));
    let found: Vec<_> = files
        .filter_map(|(folder, name)| match memo.of(folder).read(name, MAX_BYTES, |bytes, _| parse(bytes)) {
            Err(ReadError::Absent) => None,
            sandboxes => Some(records_at(&folder.path().join(name), sandboxes)),
        })
        .collect();
    match folders.first() {
        Some(folder) if found.is_empty() && place.runs => vec![records_at(folder.path(), Ok(Vec::new()))],
        Some(_) => found,
        None => vec![records_at(place.root, Err(ReadError::Absent))],
    }
}

/// Returns the folders of the storage drivers. Usually there is one.
pub(in crate::source::backfill) fn drivers(host: &HostRoot, root: &Path) -> Result<Vec<Folder>, ReadError> {
    let folder = host.folder(root)?;
    let entries = folder.entries()?.entries;
    let drivers = entries.iter().filter(|entry| entry.directory && entry.name.ends_with(DRIVER));
    drivers.map(|entry| folder.folder(&entry.name)).collect()
}

fn records_at(path: &Path, sandboxes: Result<Vec<RuntimeSandbox>, ReadError>) -> Records {
    let sandboxes = sandboxes.map(|sandboxes| (sandboxes, true));
    Records::new(path.to_owned(), Some(RuntimeKind::Crio), sandboxes)
}

/// Parses a file. An empty file has no containers, as for containers/storage itself.
fn parse(bytes: &[u8]) -> Option<Vec<RuntimeSandbox>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let containers: Option<Vec<Container>> = serde_json::from_slice(bytes).ok()?;
    Some(containers.unwrap_or_default().iter().filter_map(sandbox).collect())
}

fn sandbox(container: &Container) -> Option<RuntimeSandbox> {
    let of: Metadata = serde_json::from_str(&container.metadata).ok()?;
    if of.pod_id != container.id {
        return None;
    }
    let uid = of.uid.as_deref().and_then(PodUid::parse);
    let pod = named(PodName { namespace: of.namespace, name: of.metadata_name, uid });
    Some(RuntimeSandbox { id: ContainerId::parse(&container.id)?, pod })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::parse;

    #[test]
    fn a_sandbox_is_the_container_with_the_pod_s_own_id() {
        let text = br#"[
            {"id":"s1","names":["k8s_POD_web-0_default_u_0"],"image":"i","layer":"l","created":"2026-01-01T00:00:00Z",
             "metadata":"{\"pod\":true,\"pod-name\":\"k8s_web-0\",\"pod-id\":\"s1\",\"name\":\"k8s_POD_web-0\",\"metadata-name\":\"web-0\",\"uid\":\"11111111-2222-3333-4444-555555555555\",\"namespace\":\"default\"}"},
            {"id":"c1","metadata":"{\"pod-name\":\"k8s_web-0\",\"pod-id\":\"s1\",\"metadata-name\":\"main\"}"},
            {"id":"p1","metadata":"{\"image-name\":\"docker.io/x\",\"name\":\"by podman\"}"},
            {"id":"p2"}]"#;
        let found = parse(text).expect("a storage");
        let told: Vec<_> = found.iter().map(|it| (it.id.as_str(), it.pod.as_ref())).collect();
        let [("s1", Some(pod))] = told[..] else { panic!("{told:?}") };
        assert_eq!((pod.namespace.as_deref(), pod.name.as_deref()), (Some("default"), Some("web-0")));
        assert!(pod.uid.is_some());
        assert_eq!(parse(b"[").map(|it| it.len()), None);
        for nothing in [&b""[..], b"[]", b"null"] {
            assert_eq!(parse(nothing).map(|it| it.len()), Some(0));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>) {
            parse(&bytes);
        }
    }
}
