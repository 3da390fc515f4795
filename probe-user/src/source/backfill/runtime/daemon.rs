//! Finds the runtimes and kubelets that run now, and where each keeps its files. The best source is what the
//! daemon has open, then its arguments, then the configuration that it was started with.
//!
//! A path is resolved as the daemon resolves it: a relative one from its working directory, and all below its
//! own root, because it may have mounts that this program does not see.

mod known;
pub(super) mod opened;
pub(in crate::source::backfill) mod settings;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use probe_common::runtime::{self, RUNTIMES, Runtime};

use crate::{
    engine::world::path::may_be_of_node,
    model::{fact::RuntimeKind, time::Timestamp},
    source::{
        backfill::{cgroupfs, proc, process::is_root_by_itself},
        host::{Folder, HostRoot, ReadError, lines},
        node::cgroup::{path_in, paths},
    },
};
pub(crate) use known::Known;
use settings::UnreadSetting;

/// The paths of one daemon, as far as they are known.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) kind: Kind,
    /// The root directory, which survives a reboot. `None` if it is known only from a file that is `unread`.
    pub(crate) root: Option<PathBuf>,
    /// CRI-O's run root, which a reboot empties.
    pub(crate) run_root: Option<PathBuf>,
    /// The folder of the network configurations.
    pub(crate) networks: Option<PathBuf>,
    /// How it loads the network of pods. `None`: it serves no pods, or that is not known.
    pub(crate) loads: Option<NetworkSettings>,
    /// The socket for requests, if it is known.
    pub(crate) socket: Option<PathBuf>,
    /// The configuration file that could not be read.
    pub(crate) unread: Option<UnreadSetting>,
    pub(super) files: Option<HostRoot>,
}

/// How a runtime loads the network of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkSettings {
    pub(crate) folder: PathBuf,
    /// The folders in which it looks for plugins. Empty: they are not known.
    pub(crate) plugins: Vec<PathBuf>,
    pub(crate) strictness: Strictness,
}

/// What a runtime does with a file that it cannot load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// It loads the first files by name, at most so many, and fails at a bad one. It may call the plugin
    /// `loopback` too.
    Stops { files: usize, needs_loopback: bool },
    /// It takes the first file that it can load, if its plugins are there.
    PassesOver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Runtime(RuntimeKind),
    /// A kubelet, or a program that starts and supervises one.
    Kubelet,
}

/// The process of a daemon.
#[derive(Debug)]
pub(super) struct Process<'a> {
    pub(super) folder: &'a Folder,
    pub(super) arguments: Vec<String>,
    /// The node's files as this program sees them.
    node: &'a HostRoot,
    /// The node's files as the process sees them, if that may be read.
    own: Option<HostRoot>,
}

impl Kind {
    /// Returns the kind of daemon that has this process name.
    fn of(comm: &[u8]) -> Option<Self> {
        let supervisors = runtime::of_distributions(|row| row.supervisors).copied();
        if runtime::kubelets().chain(supervisors).any(|name| name.as_bytes() == comm) {
            return Some(Self::Kubelet);
        }
        RUNTIMES.iter().find(|row| row.daemon.as_bytes() == comm)?.kind.map(Self::Runtime)
    }

    /// Returns the kind of runtime; `None` for a kubelet.
    pub(crate) fn runtime(self) -> Option<RuntimeKind> {
        match self {
            Self::Runtime(kind) => Some(kind),
            Self::Kubelet => None,
        }
    }
}

impl Daemon {
    /// Returns the root below which the daemon's paths are resolved.
    pub(crate) fn files<'a>(&'a self, node: &'a HostRoot) -> &'a HostRoot {
        self.files.as_ref().unwrap_or(node)
    }

    /// Whether the node's files are known as the daemon sees them.
    pub(crate) fn shows_its_files(&self) -> bool {
        self.files.is_some()
    }

    /// Copies the daemon, with other `files`.
    fn with(&self, files: Option<HostRoot>) -> Self {
        Self {
            kind: self.kind,
            root: self.root.clone(),
            run_root: self.run_root.clone(),
            networks: self.networks.clone(),
            loads: self.loads.clone(),
            socket: self.socket.clone(),
            unread: self.unread.clone(),
            files,
        }
    }
}

/// Finds all daemons that run on the node itself.
pub(crate) fn find(root: &HostRoot) -> Vec<Daemon> {
    Known::default().find(root, Timestamp::ZERO)
}

/// Opens a folder of the node. If this program does not see it, as in a container with only a part of the
/// node's files, the folder is opened as a daemon sees it.
pub(crate) fn folder(node: &HostRoot, daemons: &[Daemon], path: &Path) -> Result<Folder, ReadError> {
    match node.folder(path) {
        Err(ReadError::Absent) => {
            let mut others = daemons.iter().filter_map(|daemon| daemon.files.as_ref()?.folder(path).ok());
            others.next().ok_or(ReadError::Absent)
        }
        read => read,
    }
}

/// Returns the files to which daemons of the node write their output. There are such files if a unit or an
/// init script redirects the output, or if the daemon was started by hand. Most daemons write to the journal
/// through a socket instead.
pub(crate) fn outputs(root: &HostRoot) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for (comm, process) in processes(root) {
        let Some(kind) = Kind::of(&comm) else { continue };
        if !is_node_s(root, kind, &process).unwrap_or(false) {
            continue;
        }
        let Ok(descriptors) = process.folder("fd") else { continue };
        let links = ["1", "2"].iter().filter_map(|number| descriptors.link(number).ok());
        // Other links are `socket:[1]`, `pipe:[1]` and terminals.
        let files = links.filter(|link| link.starts_with('/') && !link.starts_with("/dev/"));
        found.extend(files.map(PathBuf::from));
    }
    found
}

/// Returns the cgroup of the node's runtime in a hierarchy. `None` if there is no runtime, or if there are
/// several in different cgroups: then it is unknown which of them pulls a pod's image.
pub(crate) fn runtime_cgroup(root: &HostRoot, hierarchy: u32) -> Option<String> {
    let mut cgroups = processes(root).filter_map(|(comm, process)| {
        let kind = Kind::of(&comm).filter(|kind| kind.runtime().is_some())?;
        let arguments = proc::arguments(&process.head("cmdline", 4096).ok()?);
        if !serves(kind, &arguments) || !is_of_node(&process).ok()? {
            return None;
        }
        path_in(hierarchy, &process.head("cgroup", 1 << 16).ok()?)
    });
    let first = cgroups.next()?;
    // A child of the runtime has its name until it executes its own program.
    cgroups.all(|other| other == first).then_some(first)
}

/// Returns every process with its name.
pub(crate) fn processes(root: &HostRoot) -> impl Iterator<Item = (Vec<u8>, Folder)> {
    let found = root.folder("/proc").and_then(|proc| Ok((proc.entries()?, proc))).ok();
    let (entries, proc) = found.map_or((Vec::new(), None), |(found, proc)| (found.entries, Some(proc)));
    let pids = entries.into_iter().filter(|entry| entry.name.bytes().all(|byte| byte.is_ascii_digit()));
    pids.filter_map(move |entry| {
        let process = proc.as_ref()?.folder(&entry.name).ok()?;
        Some((comm(&process).ok()?, process))
    })
}

/// Returns the name of a process.
fn comm(process: &Folder) -> Result<Vec<u8>, ReadError> {
    Ok(process.head("comm", 64)?.trim_ascii_end().to_owned())
}

/// Returns whether a process was started by root and runs outside of containers. Other users can give a
/// process any name, and paths in a container lead to other files.
pub(crate) fn is_of_node(process: &Folder) -> Result<bool, ReadError> {
    let cgroup = process.head("cgroup", 1 << 16)?;
    let contained = lines(&cgroup).any(|line| cgroupfs::container(&line).is_some());
    Ok(!contained && is_root_by_itself(process)?)
}

/// Returns whether a process is root's and outside of containers, or is a kubelet in a container of the node,
/// as with RKE1.
fn is_node_s(root: &HostRoot, kind: Kind, process: &Folder) -> Result<bool, ReadError> {
    Ok(is_of_node(process)? || kind == Kind::Kubelet && is_contained_kubelet(root, process)?)
}

/// Returns whether a process is root's, in a container that belongs to no pod and no user session, and in the
/// node's own pid and network namespaces.
fn is_contained_kubelet(root: &HostRoot, process: &Folder) -> Result<bool, ReadError> {
    let status = process.head("status", 1 << 16)?;
    let cgroup = process.head("cgroup", 1 << 16)?;
    if !is_root_by_itself(process)? || !paths(&cgroup).all(|(_, path)| may_be_of_node(&path)) {
        return Ok(false);
    }
    let pid = process.path().file_name().and_then(|name| name.to_str()?.parse().ok());
    let init = root.folder("/proc/1")?;
    Ok(proc::ns_pid(&status) == pid && process.link("ns/net")? == init.link("ns/net")?)
}

/// Returns the daemon that a process is, if it is one.
fn daemon(root: &HostRoot, folder: &Folder) -> Result<Option<Daemon>, ReadError> {
    let comm = comm(folder)?;
    let Some(kind) = Kind::of(&comm) else { return Ok(None) };
    if !is_node_s(root, kind, folder)? {
        return Ok(None);
    }
    let arguments = proc::arguments(&folder.head("cmdline", 4096)?);
    if !serves(kind, &arguments) {
        return Ok(None);
    }
    let process = Process { folder, arguments, node: root, own: HostRoot::of_process(folder).ok() };
    let mut daemon = match kind {
        Kind::Runtime(runtime) => (super::reader(runtime).daemon)(&process),
        Kind::Kubelet => {
            let root = process
                .option(&["--root-dir"])
                .or_else(|| runtime::of_distributions(|row| row.kubelet_roots).next().map(PathBuf::from));
            Daemon { root, ..Daemon::new(kind) }
        }
    };
    if daemon.socket.is_none() && daemon.unread.is_some() {
        daemon.socket = opened::socket(folder);
    }
    daemon.socket = daemon.socket.map(|path| normalized_socket(&path));
    // A daemon's child has the daemon's name until it executes its own program. If it did so meanwhile, what
    // was read is that program's.
    if self::comm(folder)? != comm {
        return Ok(None);
    }
    Ok(Some(Daemon { files: process.own, ..daemon }))
}

/// Normalizes a socket's path: `/var/run` is a link to `/run`.
fn normalized_socket(socket: &Path) -> PathBuf {
    socket
        .strip_prefix("/var/run")
        .map_or_else(|_other| socket.to_owned(), |rest| Path::new("/run").join(rest))
}

/// Returns whether a process is the daemon itself. A zombie no longer has arguments, and a process just
/// before exec has none yet.
fn serves(kind: Kind, arguments: &[String]) -> bool {
    let Some((_program, given)) = arguments.split_first() else { return false };
    let runtime = kind.runtime().map(Runtime::of);
    !runtime.is_some_and(|runtime| runtime.is_command(given.iter().map(String::as_str)))
}

impl Daemon {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            root: None,
            run_root: None,
            networks: None,
            loads: None,
            socket: None,
            unread: None,
            files: None,
        }
    }
}

impl Process<'_> {
    pub(super) fn files(&self) -> &HostRoot {
        self.own.as_ref().unwrap_or(self.node)
    }

    /// Returns the path that an option gives, as `--name VALUE` or `--name=VALUE`.
    pub(super) fn option(&self, names: &[&str]) -> Option<PathBuf> {
        Some(self.absolute(option(&self.arguments, names)?))
    }

    /// Returns the path that an environment variable gives.
    pub(super) fn variable(&self, name: &str) -> Option<PathBuf> {
        let environ = self.folder.head("environ", 1 << 20).ok()?;
        let mut values = environ.split(|byte| *byte == 0).filter_map(|it| {
            let value = it.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            str::from_utf8(value).ok().filter(|value| !value.is_empty())
        });
        Some(self.absolute(values.next()?))
    }

    /// Makes a path absolute, from the working directory of the process. If that is unknown the path stays as
    /// it is, and is not found.
    pub(super) fn absolute(&self, path: &str) -> PathBuf {
        if path.starts_with('/') {
            return path.into();
        }
        self.folder.link("cwd").map_or_else(|_hidden| path.into(), |cwd| Path::new(&cwd).join(path))
    }
}

fn option<'a>(arguments: &'a [String], names: &[&str]) -> Option<&'a str> {
    let value = proc::option(arguments, names).or_else(|| {
        arguments.iter().find_map(|argument| {
            let (name, value) = argument.split_once('=')?;
            names.contains(&name).then_some(value)
        })
    });
    value.filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use proptest::prelude::*;

    use super::{HostRoot, Kind, Path, RuntimeKind, find, normalized_socket, option, serves};

    fn arguments(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn an_option_is_told_in_either_form() {
        let root = |text: &str| option(&arguments(text), &["--root", "-root"]).map(str::to_owned);
        assert_eq!(root("containerd --root /x").as_deref(), Some("/x"));
        assert_eq!(root("containerd --log-level info --root=x/y").as_deref(), Some("x/y"));
        for none in ["containerd", "containerd --root", "containerd --root=", "containerd --rootless=/x"] {
            assert_eq!(root(none), None, "{none}");
        }
    }

    #[test]
    fn a_socket_has_one_name() {
        for (path, name) in [
            ("/run/crio/crio.sock", "/run/crio/crio.sock"),
            ("/var/run/crio/crio.sock", "/run/crio/crio.sock"),
            ("/var/lib/x.sock", "/var/lib/x.sock"),
        ] {
            assert_eq!(normalized_socket(Path::new(path)), Path::new(name), "{path}");
        }
    }

    #[test]
    fn a_kubelet_in_a_container_of_its_own_is_the_node_s() {
        let id = "e".repeat(64);
        let own = format!("/docker/{id}");
        let ours = "net:[4026531840]";
        for (cgroup, ns_pid, uid, netns, is_node_s) in [
            ("/system.slice/kubelet.service".to_owned(), 500, 0, ours, true),
            (own.clone(), 500, 0, ours, true),
            (format!("/podruntime/kubelet/{id}"), 500, 0, ours, true),
            // In turn: on a node that is itself a container, of another user, in another network, in another
            // place.
            (own.clone(), 1, 0, ours, false),
            (own.clone(), 500, 1000, ours, false),
            (own, 500, 0, "net:[4026532000]", false),
            (format!("/user.slice/user-0.slice/{id}"), 500, 0, ours, false),
        ] {
            let node = tempfile::tempdir().expect("a directory");
            for (pid, netns) in [("1", ours), ("500", netns)] {
                fs::create_dir_all(node.path().join(format!("proc/{pid}/ns"))).expect("directories");
                symlink(netns, node.path().join(format!("proc/{pid}/ns/net"))).expect("a link");
            }
            let write = |name: &str, text: String| {
                fs::write(node.path().join("proc/500").join(name), text).expect("a file");
            };
            write("comm", "kubelet\n".to_owned());
            write("cmdline", "kubelet\0--root-dir=/opt/kubelet\0".to_owned());
            write("cgroup", format!("0::{cgroup}\n"));
            write("status", format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t500\t{ns_pid}\n"));
            let daemons = find(&HostRoot::open(node.path()).expect("the root"));
            let found: Vec<_> = daemons.iter().filter_map(|it| it.root.as_deref()).collect();
            let expected = is_node_s.then_some(Path::new("/opt/kubelet"));
            assert_eq!(found, expected.as_slice(), "{cgroup} {ns_pid} {uid} {netns}");
        }
    }

    #[test]
    fn who_runs_for_a_moment_is_no_daemon() {
        let serves = |kind, text: &str| serves(kind, &arguments(text));
        for daemon in ["containerd", "/usr/bin/containerd --config /etc/x -l debug"] {
            assert!(serves(Kind::Runtime(RuntimeKind::Containerd), daemon), "{daemon}");
        }
        let publish = "containerd --address /run/containerd/containerd.sock publish --topic /tasks/exit";
        for other in ["", publish, "containerd config dump", "containerd -v"] {
            assert!(!serves(Kind::Runtime(RuntimeKind::Containerd), other), "{other}");
        }
        assert!(serves(Kind::Runtime(RuntimeKind::Crio), "/usr/bin/crio --config-dir /etc/x"));
        assert!(!serves(Kind::Runtime(RuntimeKind::Crio), "crio status config"));
        assert!(serves(Kind::Kubelet, "kubelet -v 4"));
        assert!(!serves(Kind::Kubelet, ""));
    }

    proptest! {
        #[test]
        fn nothing_is_too_strange(text: String, key: String) {
            option(&[text.clone(), key.clone()], &[&key]);
        }
    }
}
