//! containerd: its database is in its root directory. An option or the configuration may name another root.

use std::path::{Path, PathBuf};

use probe_common::runtime::{CONTAINERD, CRI_PLUGINS};
use toml::Table;

use super::{
    Daemon, Kind, Process, imports, opened,
    settings::{self, UnreadSetting},
};
use crate::{model::fact::RuntimeKind, source::host::ReadError};

pub(super) fn find(process: &Process<'_>) -> Daemon {
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
