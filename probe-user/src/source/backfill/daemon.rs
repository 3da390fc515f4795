//! The daemons of the node that run now: where each keeps its things is told by how it was started, and by the
//! configuration that it was started with.

use std::path::{Path, PathBuf};

use toml::Table;

use super::{cgroupfs, proc};
#[cfg(feature = "cri")]
use crate::engine::fact::RuntimeKind;
use crate::source::host::{Folder, HostRoot, Miss, lines};

/// Longest configuration taken, bytes.
const LONGEST: usize = 256 << 10;
const CONFIGURATION: &str = "/etc/containerd/config.toml";

/// The processes that are a kubelet or have one in them, as they name themselves.
const KUBELETS: [&[u8]; 7] = [b"kubelet", b"k3s", b"k3s-server", b"k3s-agent", b"k0s", b"rke2", b"kubelite"];

/// With these containerd does not serve.
const ELSE: [&str; 8] = ["config", "publish", "oci-hook", "help", "--help", "-h", "--version", "-v"];

/// What one of them keeps where, as far as that is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Daemon {
    pub(super) kind: Kind,
    /// Where it keeps what survives a reboot.
    pub(super) root: PathBuf,
    /// The networks' configuration.
    pub(super) networks: Option<PathBuf>,
    /// Where it can be asked, if that was said.
    pub(super) socket: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Containerd,
    Crio,
    Docker,
    Kubelet,
}

impl Kind {
    /// Which runtime it is, if it is one.
    #[cfg(feature = "cri")]
    pub(super) fn runtime(self) -> Option<RuntimeKind> {
        match self {
            Self::Containerd => Some(RuntimeKind::Containerd),
            Self::Crio => Some(RuntimeKind::Crio),
            Self::Docker => Some(RuntimeKind::Docker),
            Self::Kubelet => None,
        }
    }

    /// Where it does unless it is told otherwise.
    fn root(self) -> PathBuf {
        match self {
            Self::Containerd => "/var/lib/containerd",
            Self::Crio => "/var/lib/containers/storage",
            Self::Docker => "/var/lib/docker",
            Self::Kubelet => "/var/lib/kubelet",
        }
        .into()
    }
}

/// All that run on the node itself.
pub(super) fn look(root: &HostRoot) -> Vec<Daemon> {
    processes(root).filter_map(|(comm, process)| daemon(root, &comm, &process).ok()?).collect()
}

/// Every process with its name.
pub(super) fn processes(root: &HostRoot) -> impl Iterator<Item = (Vec<u8>, Folder)> {
    let found = root.folder("/proc").and_then(|proc| Ok((proc.entries()?, proc))).ok();
    let (entries, proc) = found.map_or((Vec::new(), None), |(found, proc)| (found.entries, Some(proc)));
    let pids = entries.into_iter().filter(|entry| entry.name.bytes().all(|byte| byte.is_ascii_digit()));
    pids.filter_map(move |entry| {
        let process = proc.as_ref()?.folder(&entry.name).ok()?;
        let comm = process.head("comm", 64).ok()?.trim_ascii_end().to_owned();
        Some((comm, process))
    })
}

/// What runs in a container may call itself anything, and means other files by the same names.
pub(super) fn in_container(process: &Folder) -> Result<bool, Miss> {
    let cgroup = process.head("cgroup", 1 << 16)?;
    Ok(lines(&cgroup).any(|line| cgroupfs::container(&line).is_some()))
}

fn daemon(root: &HostRoot, comm: &[u8], process: &Folder) -> Result<Option<Daemon>, Miss> {
    let kind = match comm {
        b"containerd" => Kind::Containerd,
        b"crio" => Kind::Crio,
        b"dockerd" => Kind::Docker,
        comm if KUBELETS.contains(&comm) => Kind::Kubelet,
        _ => return Ok(None),
    };
    if in_container(process)? {
        return Ok(None);
    }
    let arguments = proc::arguments(&process.head("cmdline", 4096)?);
    if !serves(kind, &arguments) {
        return Ok(None);
    }
    Ok(Some(match kind {
        Kind::Containerd => {
            let file = path(&arguments, &["--config", "-config", "-c"]);
            let said =
                configuration(root, file.as_deref().unwrap_or(CONFIGURATION.as_ref())).unwrap_or_default();
            let own = path(&arguments, &["--root", "-root"]).or_else(|| at(&said, &["root"]));
            let socket = path(&arguments, &["--address", "-address", "-a"]);
            Daemon {
                kind,
                root: own.unwrap_or_else(|| kind.root()),
                networks: networks(&said),
                socket: socket.or_else(|| at(&said, &["grpc", "address"])),
            }
        }
        Kind::Crio | Kind::Docker | Kind::Kubelet => {
            let own = path(&arguments, &["--root", "-r", "--data-root", "--root-dir"]);
            let socket = path(&arguments, &["--listen"]);
            Daemon { kind, root: own.unwrap_or_else(|| kind.root()), networks: None, socket }
        }
    }))
}

/// Whether it is the daemon itself. One that has ended and is waited for has no arguments any more, one that is about to
/// be executed has none yet; shims and administrators run containerd's program for a moment, to do something else.
fn serves(kind: Kind, arguments: &[String]) -> bool {
    let Some((_program, given)) = arguments.split_first() else { return false };
    kind != Kind::Containerd || !given.iter().any(|argument| ELSE.contains(&argument.as_str()))
}

/// What containerd was told; its imports are not followed.
fn configuration(root: &HostRoot, file: &Path) -> Option<Table> {
    let name = file.file_name()?.to_str()?;
    let bytes = root.folder(file.parent()?).ok()?.read(name, LONGEST).ok()?;
    str::from_utf8(&bytes).ok()?.parse().ok()
}

/// In configurations of version 2, and of version 3, in which the plugin is another.
fn networks(said: &Table) -> Option<PathBuf> {
    ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"]
        .iter()
        .find_map(|plugin| at(said, &["plugins", plugin, "cni", "conf_dir"]))
}

/// The absolute path at the end of these keys.
fn at(table: &Table, keys: &[&str]) -> Option<PathBuf> {
    let (last, before) = keys.split_last()?;
    let inner = before.iter().try_fold(table, |table, key| table.get(*key)?.as_table())?;
    absolute(inner.get(*last)?.as_str()?)
}

/// The absolute path that an option gives, as `--name VALUE` or `--name=VALUE`.
fn path(arguments: &[String], names: &[&str]) -> Option<PathBuf> {
    let joined = |argument: &String| {
        let (name, value) = argument.split_once('=')?;
        names.contains(&name).then(|| value.to_owned())
    };
    let apart = proc::option(arguments, names).map(str::to_owned);
    absolute(&apart.or_else(|| arguments.iter().find_map(joined))?)
}

fn absolute(path: &str) -> Option<PathBuf> {
    path.starts_with('/').then(|| path.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use toml::Table;

    use super::{Kind, at, networks, path, serves};

    #[test]
    fn an_option_is_told_in_either_form() {
        let arguments = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let root = |text: &str| path(&arguments(text), &["--root", "-root"]);
        assert_eq!(root("containerd --root /x"), Some("/x".into()));
        assert_eq!(root("containerd --log-level info --root=/x"), Some("/x".into()));
        for none in ["containerd", "containerd --root", "containerd --root x", "containerd --rootless=/x"] {
            assert_eq!(root(none), None, "{none}");
        }
    }

    #[test]
    fn who_runs_for_a_moment_is_no_daemon() {
        let serves =
            |kind, text: &str| serves(kind, &text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        for daemon in ["containerd", "/usr/bin/containerd --config /etc/x -l debug"] {
            assert!(serves(Kind::Containerd, daemon), "{daemon}");
        }
        let publish = "containerd --address /run/containerd/containerd.sock publish --topic /tasks/exit";
        for other in ["", publish, "containerd config dump", "containerd -v"] {
            assert!(!serves(Kind::Containerd, other), "{other}");
        }
        assert!(serves(Kind::Kubelet, "kubelet -v 4"));
        assert!(!serves(Kind::Kubelet, ""));
    }

    #[test]
    fn a_configuration_says_where_things_are() {
        let old: Table =
            "version = 2\nroot = \"/r\"\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nconf_dir = \"/n\"\n"
                .parse()
                .expect("TOML");
        assert_eq!((at(&old, &["root"]), networks(&old)), (Some("/r".into()), Some("/n".into())));
        let new: Table =
            "[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/n'\n".parse().expect("TOML");
        assert_eq!((at(&new, &["root"]), networks(&new)), (None, Some("/n".into())));
        let odd: Table = "root = 7\nplugins = []\n".parse().expect("TOML");
        assert_eq!((at(&odd, &["root"]), networks(&odd)), (None, None));
    }

    proptest! {
        #[test]
        fn nothing_is_too_strange(text: String, key: String) {
            path(&[text.clone(), key.clone()], &[&key]);
            text.parse::<Table>().ok().and_then(|table| at(&table, &[&key]));
        }
    }
}
