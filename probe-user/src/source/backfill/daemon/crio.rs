//! CRI-O: its storage directory is given by (strongest first) its options, its environment, the files of its
//! drop-in folder (the last one wins), its configuration, and the configuration of containers/storage, which
//! it shares with podman.

use std::path::PathBuf;

use probe_common::runtime::CRIO;
use toml::Table;

use super::{
    Daemon, Kind, Process,
    settings::{self, UnreadSetting},
};
use crate::{
    model::fact::RuntimeKind,
    source::host::{Folder, ReadError},
};

/// The configuration of containers/storage. The first file that exists is used.
const STORAGE: [&str; 2] = ["/etc/containers/storage.conf", "/usr/share/containers/storage.conf"];
/// Deeper drop-in folders are skipped.
const MAX_DEPTH: u32 = 4;

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

pub(super) fn find(process: &Process<'_>) -> Daemon {
    let read = settings_of(process);
    let (said, unread) = read.map_or_else(|unread| (None, Some(unread)), |said| (Some(said), None));
    Daemon {
        root: path(process, said.as_ref(), &ROOT_SETTING),
        run_root: path(process, said.as_ref(), &RUN_ROOT_SETTING),
        networks: said
            .as_ref()
            .and_then(|said| said.own(&["crio", "network", "network_dir"]))
            .map(PathBuf::from),
        socket: path(process, said.as_ref(), &SOCKET_SETTING),
        unread,
        ..Daemon::new(Kind::Runtime(RuntimeKind::Crio))
    }
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
