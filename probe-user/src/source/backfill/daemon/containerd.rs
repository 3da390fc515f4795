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
    let (said, unread) = read.map_or_else(|unread| (None, Some(unread)), |said| (Some(said), None));
    let at = |keys: &[&str]| Some(process.absolute(settings::text(said.as_ref()?, keys)?));
    let usual = |paths: &[&str]| paths.first().filter(|_| said.is_some()).map(PathBuf::from);
    let root = CONTAINERD
        .database
        .and_then(|database| opened::folder_of(process.folder, database))
        .or_else(|| process.option(&["--root", "-root"]))
        .or_else(|| at(&["root"]))
        .or_else(|| usual(CONTAINERD.roots));
    let socket = process
        .option(&["--address", "-address", "-a"])
        .or_else(|| at(&["plugins", "io.containerd.server.v1.grpc", "address"]))
        .or_else(|| at(&["grpc", "address"]))
        .or_else(|| usual(CONTAINERD.sockets));
    let networks = said.as_ref().and_then(networks).map(|path| process.absolute(path));
    Daemon { root, networks, socket, unread, ..Daemon::new(Kind::Runtime(RuntimeKind::Containerd)) }
}

/// The configuration with all files that it imports. It is empty if the default file does not exist.
fn configuration(process: &Process<'_>) -> Result<Table, UnreadSetting> {
    let named = process.option(&["--config", "-config", "-c"]);
    let usual = CONTAINERD.configuration.first().map(Path::new);
    let Some(path) = named.as_deref().or(usual) else { return Ok(Table::default()) };
    match imports::table(process.files(), path)? {
        None if named.is_some() => Err(UnreadSetting { path: path.to_owned(), why: ReadError::Absent }),
        said => Ok(said.unwrap_or_default()),
    }
}

/// The key of configurations of version 2, and that of version 3, in which another plugin has it.
fn networks(said: &Table) -> Option<&str> {
    CRI_PLUGINS.iter().find_map(|plugin| settings::text(said, &["plugins", plugin, "cni", "conf_dir"]))
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
