//! containerd. Its database is in its root directory; an option or the configuration may name another root.
//!
//! Its records are a directory for each sandbox, `ROOT/io.containerd.grpc.v1.cri/sandboxes/ID`, in every
//! version since 1.1. It is made with the sandbox's container, and `RemovePodSandbox` removes it.

mod imports;

use std::path::{Path, PathBuf};

use probe_common::runtime::{CONTAINERD, CRI_PLUGINS};
use toml::Table;

use super::{
    Place, Reader, Records, Sandboxes,
    daemon::{
        Daemon, Kind, Process, opened,
        settings::{self, UnreadSetting},
    },
};
use crate::{
    model::{
        fact::{RuntimeKind, RuntimeSandbox},
        id::ContainerId,
    },
    source::host::{HostRoot, ReadError},
};

pub(super) const READER: Reader = Reader { daemon, records: |place, _, _| vec![records(&place)] };

const SANDBOXES: &str = "sandboxes";

fn daemon(process: &Process<'_>) -> Daemon {
    let read = configuration(process);
    let (config, unread) = read.map_or_else(|unread| (None, Some(unread)), |config| (Some(config), None));
    let root = CONTAINERD
        .database
        .and_then(|database| opened::folder_of(process.folder, database))
        .or_else(|| process.option(&["--root", "-root"]))
        .or_else(|| path(process, config.as_ref(), &["root"]))
        .or_else(|| usual(config.as_ref(), CONTAINERD.roots));
    let socket = process
        .option(&["--address", "-address", "-a"])
        .or_else(|| path(process, config.as_ref(), &["plugins", "io.containerd.server.v1.grpc", "address"]))
        .or_else(|| path(process, config.as_ref(), &["grpc", "address"]))
        .or_else(|| usual(config.as_ref(), CONTAINERD.sockets));
    let networks = config.as_ref().and_then(networks).map(|path| process.absolute(path));
    Daemon { root, networks, socket, unread, ..Daemon::new(Kind::Runtime(RuntimeKind::Containerd)) }
}

/// Returns the path that the configuration has for these keys.
fn path(process: &Process<'_>, config: Option<&Table>, keys: &[&str]) -> Option<PathBuf> {
    Some(process.absolute(settings::text(config?, keys)?))
}

/// Returns the default path, if the configuration could be read.
fn usual(config: Option<&Table>, paths: &[&str]) -> Option<PathBuf> {
    config?;
    paths.first().map(PathBuf::from)
}

/// Reads the configuration with all files that it imports. It is empty if the default file does not exist.
fn configuration(process: &Process<'_>) -> Result<Table, UnreadSetting> {
    let named = process.option(&["--config", "-config", "-c"]);
    let usual = CONTAINERD.configuration.first().map(Path::new);
    let Some(path) = named.as_deref().or(usual) else { return Ok(Table::default()) };
    match imports::table(process.files(), path)? {
        None if named.is_some() => Err(UnreadSetting { path: path.to_owned(), why: ReadError::Absent }),
        config => Ok(config.unwrap_or_default()),
    }
}

/// Returns the folder of network configurations. In version 3 of the configuration the key belongs to another
/// plugin than in version 2.
fn networks(config: &Table) -> Option<&str> {
    CRI_PLUGINS.iter().find_map(|plugin| settings::text(config, &["plugins", plugin, "cni", "conf_dir"]))
}

fn records(place: &Place<'_>) -> Records {
    let [plugin, _] = CRI_PLUGINS;
    let plugin = place.root.join(plugin);
    let sandboxes = match sandboxes(place.host, &plugin) {
        // The plugin makes its directory with its first sandbox. It may be unused.
        Err(ReadError::Absent) if place.runs && place.is_alone => {
            let database = CONTAINERD.database.map(|database| place.root.join(database));
            let folder = database.as_deref().and_then(Path::parent).ok_or(ReadError::Absent);
            folder.and_then(|folder| place.host.folder(folder)).map(|_is_there| (Vec::new(), true))
        }
        read => read,
    };
    Records::new(plugin.join(SANDBOXES), Some(RuntimeKind::Containerd), sandboxes)
}

fn sandboxes(host: &HostRoot, plugin: &Path) -> Sandboxes {
    let entries = match host.folder(plugin)?.folder(SANDBOXES) {
        Ok(folder) => folder.entries()?,
        Err(ReadError::Absent) => return Ok((Vec::new(), true)),
        Err(why) => return Err(why),
    };
    // Entries with other names are not sandboxes.
    let ids = entries.entries.iter().filter_map(|entry| ContainerId::parse(&entry.name));
    Ok((ids.map(|id| RuntimeSandbox { id, pod: None }).collect(), entries.left_out == 0))
}

#[cfg(test)]
mod tests {
    use toml::Table;

    use super::networks;

    #[test]
    fn the_networks_folder_is_found_in_either_version() {
        let old: Table = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nconf_dir = \"/n\"\n"
            .parse()
            .expect("TOML");
        assert_eq!(networks(&old), Some("/n"));
        let new: Table =
            "[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/n'\n".parse().expect("TOML");
        assert_eq!(networks(&new), Some("/n"));
        let odd: Table = "root = 7\nplugins = []\n".parse().expect("TOML");
        assert_eq!(networks(&odd), None);
    }
}
