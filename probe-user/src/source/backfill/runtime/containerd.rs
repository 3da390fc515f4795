//! containerd. Its database is in its root directory; an option or the configuration may name another root.
//!
//! Its records are a directory for each sandbox, `ROOT/io.containerd.grpc.v1.cri/sandboxes/ID`, in every
//! version since 1.1. It is made with the sandbox's container, and `RemovePodSandbox` removes it.

mod imports;

use std::path::{Path, PathBuf};

use probe_common::runtime::{CONTAINERD, CRI_PLUGINS, of_distributions};
use toml::{Table, Value};

use super::{
    Place, Reader, Records, Sandboxes,
    daemon::{
        Daemon, Kind, NetworkSettings, Process, Strictness, opened,
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
/// The names of the CRI plugin in configurations of version 1 to 3.
const NAMES: [&str; 3] = ["cri", CRI_PLUGINS[0], CRI_PLUGINS[1]];
/// Where the CRI plugin looks for CNI plugins, and how many configurations it loads, if it is not told.
const PLUGINS: &str = "/opt/cni/bin";
const DEFAULT_FILES: usize = 1;

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
    let loads = config.as_ref().and_then(|config| loads(process, config));
    Daemon { root, networks, loads, socket, unread, ..Daemon::new(Kind::Runtime(RuntimeKind::Containerd)) }
}

/// Returns how the CRI plugin loads the network of pods (`pkg/cri/config`, go-cni's `loadFromConfDir`);
/// `None` if the plugin is disabled.
fn loads(process: &Process<'_>, config: &Table) -> Option<NetworkSettings> {
    let disabled = settings::texts(config, &["disabled_plugins"]);
    if disabled.iter().any(|name| NAMES.contains(name)) {
        return None;
    }
    let folder = networks(config).or_else(|| of_distributions(|row| row.networks).next().copied())?;
    let mut plugins = Vec::new();
    let mut files = DEFAULT_FILES;
    let mut needs_loopback = true;
    for plugin in NAMES {
        plugins.extend(settings::texts(config, &["plugins", plugin, "cni", "bin_dirs"]));
        plugins.extend(settings::text(config, &["plugins", plugin, "cni", "bin_dir"]));
        if let Some(most) =
            settings::value(config, &["plugins", plugin, "cni", "max_conf_num"]).and_then(Value::as_integer)
        {
            // 0: all.
            files = usize::try_from(most).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
        }
        let is_internal = settings::value(config, &["plugins", plugin, "cni", "use_internal_loopback"]);
        needs_loopback &= is_internal.and_then(Value::as_bool) != Some(true);
    }
    if plugins.is_empty() {
        plugins.push(PLUGINS);
    }
    Some(NetworkSettings {
        folder: process.absolute(folder),
        plugins: plugins.into_iter().map(|path| process.absolute(path)).collect(),
        strictness: Strictness::Stops { files, needs_loopback },
    })
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
    NAMES.iter().find_map(|plugin| settings::text(config, &["plugins", plugin, "cni", "conf_dir"]))
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
    use std::{fs, os::unix::fs::symlink, path::PathBuf};

    use toml::Table;

    use super::{NetworkSettings, Strictness, networks};
    use crate::source::{backfill::runtime::daemon::find, host::HostRoot};

    /// Returns how a containerd with this configuration loads the network of pods.
    fn loads(configuration: &str) -> Option<NetworkSettings> {
        let node = tempfile::tempdir().expect("a directory");
        let process = node.path().join("proc/20");
        fs::create_dir_all(process.join("ns")).expect("directories");
        fs::create_dir_all(node.path().join("etc/containerd")).expect("directories");
        symlink("net:[4026531840]", process.join("ns/net")).expect("a link");
        for (path, text) in [
            ("proc/20/comm", "containerd\n"),
            ("proc/20/cmdline", "/usr/bin/containerd\0"),
            ("proc/20/cgroup", "0::/system.slice/containerd.service\n"),
            ("proc/20/status", "Uid:\t0\t0\t0\t0\n"),
            ("etc/containerd/config.toml", configuration),
        ] {
            fs::write(node.path().join(path), text).expect("a file");
        }
        find(&HostRoot::open(node.path()).expect("the root")).pop().expect("containerd").loads
    }

    #[test]
    fn how_it_loads_the_network_of_pods_is_configured() {
        let settings = |folder: &str, plugins: &[&str], files, needs_loopback| NetworkSettings {
            folder: PathBuf::from(folder),
            plugins: plugins.iter().map(PathBuf::from).collect(),
            strictness: Strictness::Stops { files, needs_loopback },
        };
        assert_eq!(loads(""), Some(settings("/etc/cni/net.d", &["/opt/cni/bin"], 1, true)));
        let old =
            "[plugins.'io.containerd.grpc.v1.cri'.cni]\nconf_dir = '/n'\nbin_dir = '/b'\nmax_conf_num = 0\n";
        assert_eq!(loads(old), Some(settings("/n", &["/b"], usize::MAX, true)));
        let new = "[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/a', '/b']\nmax_conf_num = 2\n\
                   use_internal_loopback = true\n";
        assert_eq!(loads(new), Some(settings("/etc/cni/net.d", &["/a", "/b"], 2, false)));
        let first = "[plugins.cri.cni]\nconf_dir = '/n'\nbin_dir = '/home/kubernetes/bin'\n";
        assert_eq!(loads(first), Some(settings("/n", &["/home/kubernetes/bin"], 1, true)));
        assert_eq!(loads("disabled_plugins = ['cri']"), None, "Docker's containerd serves no pods");
        assert_eq!(loads("root = "), None, "it cannot be read");
    }

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
