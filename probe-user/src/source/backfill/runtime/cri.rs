//! Asks runtimes for their sandboxes over CRI, with the call that the kubelet uses too: `ListPodSandbox`.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

use probe_common::runtime::{self, RUNTIMES};

use super::{Records, daemon::Daemon};
use crate::{
    model::{
        fact::{PodName, RuntimeKind, RuntimeSandbox},
        id::{ContainerId, PodUid},
    },
    source::{
        cri::{self, ListError, Sandbox, name::named},
        host::{HostRoot, ReadError},
    },
};

/// Further sandboxes are left out.
const MAX_SANDBOXES: usize = 1 << 14;

/// The runtime that answers at a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    kind: Option<RuntimeKind>,
    daemon: Option<&'a Daemon>,
}

pub(super) fn sockets(daemons: &[Daemon]) -> BTreeMap<PathBuf, Asked<'_>> {
    let of_runtimes = RUNTIMES.iter().flat_map(|row| row.sockets.iter().map(|socket| (socket, row.kind)));
    let of_distributions = runtime::of_distributions(|row| row.sockets);
    let of_distributions = of_distributions.map(|socket| (socket, Some(RuntimeKind::Containerd)));
    let usual = of_runtimes
        .chain(of_distributions)
        .map(|(socket, kind)| (PathBuf::from(socket), Asked { kind, daemon: None }));
    let own = daemons
        .iter()
        .filter_map(|it| Some((it.socket.clone()?, Asked { kind: it.kind.runtime(), daemon: Some(it) })));
    usual.chain(own).collect()
}

impl Asked<'_> {
    /// Asks one socket. `all` are the sockets that are asked.
    pub(super) fn read(self, node: &HostRoot, socket: PathBuf, all: &BTreeMap<PathBuf, Self>) -> Records {
        let files = self.daemon.map_or(node, |daemon| daemon.files(node));
        let read = sandboxes(files, &socket);
        if read != Err(ReadError::NotPlain) {
            return Records::new(socket, self.kind, read);
        }
        let resolved =
            files.behind_links(&socket).map(|(folder, name)| normalized(&folder.path().join(name)));
        match resolved {
            // If no daemon names this as its socket, no runtime answers here: a container engine makes a
            // directory when it mounts a path that does not exist.
            Ok(path) if path == socket && self.daemon.is_none() => {
                Records::new(socket, self.kind, Err(ReadError::Absent))
            }
            Ok(path) if path == socket => Records::new(socket, self.kind, read),
            // That socket is asked by its own path.
            Ok(path) if all.contains_key(&path) => Records::new(socket, self.kind, Err(ReadError::Absent)),
            Ok(path) => match sandboxes(files, &path) {
                Err(ReadError::NotPlain) if self.daemon.is_none() => {
                    Records::new(socket, self.kind, Err(ReadError::Absent))
                }
                read => Records::new(path, self.kind, read),
            },
            Err(why) => Records::new(socket, self.kind, Err(why)),
        }
    }
}

/// Returns the path without `..`, spelled as the usual paths are: `/var/run` is a link to `/run`.
fn normalized(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normalized.pop()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => normalized.push(part),
        }
    }
    match normalized.strip_prefix("/var/run") {
        Ok(rest) => Path::new("/run").join(rest),
        Err(_) => normalized,
    }
}

fn sandboxes(host: &HostRoot, socket: &Path) -> Result<(Vec<RuntimeSandbox>, bool), ReadError> {
    let name = socket.file_name().and_then(|name| name.to_str()).ok_or(ReadError::NotPlain)?;
    let folder = host.folder(socket.parent().ok_or(ReadError::NotPlain)?)?;
    let answer = cri::list(&folder.socket(name)?).map_err(|refusal| match refusal {
        // The socket was left behind by a runtime that ended, or is not a CRI runtime's.
        ListError::Nobody | ListError::OtherService => ReadError::Absent,
        ListError::Unreachable(why) => ReadError::Unreadable(why),
        ListError::Unanswered => ReadError::Unanswered,
    })?;
    let complete = answer.len() <= MAX_SANDBOXES;
    Ok((answer.into_iter().take(MAX_SANDBOXES).filter_map(sandbox).collect(), complete))
}

fn sandbox(Sandbox { id, metadata, .. }: Sandbox) -> Option<RuntimeSandbox> {
    let pod = metadata.and_then(|of| {
        let uid = PodUid::parse(&of.uid);
        named(PodName { namespace: Some(of.namespace), name: Some(of.name), uid })
    });
    Some(RuntimeSandbox { id: ContainerId::parse(&id)?, pod })
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::{fs::symlink, net::UnixListener},
        path::PathBuf,
    };

    use super::{HostRoot, ReadError, sockets};

    /// There is a link at containerd's usual path for a tool that knows only this path. A pod mounts CRI-O's
    /// socket, so a directory was made there. Another link leads to a runtime that is gone.
    #[test]
    fn a_usual_path_that_is_no_socket_is_no_runtime() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |path: &str| root.path().join(&path[1..]);
        for folder in ["/run/containerd", "/run/crio/crio.sock", "/run/k3s/containerd", "/run/k0s"] {
            fs::create_dir_all(at(folder)).expect("a folder");
        }
        symlink("../k3s/containerd/containerd.sock", at("/run/containerd/containerd.sock")).expect("a link");
        symlink("/run/none.sock", at("/run/k0s/containerd.sock")).expect("a link");
        fs::create_dir_all(at("/opt/isulad.sock")).expect("a folder");
        symlink("/opt/isulad.sock", at("/run/isulad.sock")).expect("a link");
        fs::write(at("/run/cri-dockerd.sock"), "").expect("a file");
        let listener = UnixListener::bind(at("/run/k3s/containerd/containerd.sock")).expect("a socket");
        drop(listener);
        let host = HostRoot::open(root.path()).expect("the root");
        let all = sockets(&[]);
        for (socket, asked) in &all {
            let read = asked.read(&host, socket.clone(), &all);
            assert_eq!(read.sandboxes, Err(ReadError::Absent), "{}", socket.display());
        }
    }

    /// The runtime may have sandboxes, so its answer counts: here, that it does not answer.
    #[test]
    fn a_link_to_a_socket_that_is_not_asked_otherwise_is_followed() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |path: &str| root.path().join(&path[1..]);
        fs::create_dir_all(at("/run/containerd")).expect("a folder");
        fs::create_dir_all(at("/opt")).expect("a folder");
        symlink("/opt/own.sock", at("/run/containerd/containerd.sock")).expect("a link");
        let _listener = UnixListener::bind(at("/opt/own.sock")).expect("a socket");
        let host = HostRoot::open(root.path()).expect("the root");
        let all = sockets(&[]);
        let socket = PathBuf::from("/run/containerd/containerd.sock");
        let read = all[&socket].read(&host, socket, &all);
        let expected = (PathBuf::from("/opt/own.sock"), Err(ReadError::Unanswered));
        assert_eq!((read.place, read.sandboxes), expected);
    }
}
