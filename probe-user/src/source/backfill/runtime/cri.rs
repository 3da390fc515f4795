//! Asks runtimes for their sandboxes over CRI, with the call that the kubelet uses too: `ListPodSandbox`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use probe_common::runtime::{self, RUNTIMES};

use super::{super::daemon::Daemon, Records};
use crate::{
    model::{
        fact::{PodName, RuntimeKind, RuntimeSandbox},
        id::{ContainerId, PodUid},
    },
    source::{
        cri::{self, ListError, Sandbox},
        host::{HostRoot, ReadError},
        name::named,
    },
};

/// The most sandboxes that are taken.
const MOST: usize = 1 << 14;

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
    pub(super) fn read(self, node: &HostRoot, socket: PathBuf) -> Records {
        let files = self.daemon.map_or(node, |daemon| daemon.files(node));
        let sandboxes = sandboxes(files, &socket);
        Records::new(socket, self.kind, sandboxes)
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
    let complete = answer.len() <= MOST;
    Ok((answer.into_iter().take(MOST).filter_map(sandbox).collect(), complete))
}

fn sandbox(Sandbox { id, metadata, .. }: Sandbox) -> Option<RuntimeSandbox> {
    let pod = metadata.and_then(|of| {
        let uid = PodUid::parse(&of.uid);
        named(PodName { namespace: Some(of.namespace), name: Some(of.name), uid })
    });
    Some(RuntimeSandbox { id: ContainerId::parse(&id)?, pod })
}
