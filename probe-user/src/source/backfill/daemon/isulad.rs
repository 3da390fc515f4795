//! iSulad: an option or the configuration may name another root, another socket, and another folder of
//! networks.

use std::path::{Path, PathBuf};

use probe_common::runtime::ISULAD;
use serde::Deserialize;

use super::{Daemon, Kind, Process, settings};
use crate::{model::fact::RuntimeKind, source::host::ReadError};

#[derive(Debug, Default, Deserialize)]
struct Configuration {
    graph: Option<String>,
    #[serde(default)]
    hosts: Vec<String>,
    #[serde(rename = "cni-conf-dir")]
    networks: Option<String>,
}

pub(super) fn find(process: &Process<'_>) -> Daemon {
    let (config, unread) = match configuration(process) {
        Ok(config) => (config, None),
        Err(unread) => (Configuration::default(), Some(unread)),
    };
    let root = process
        .option(&["--graph", "-g"])
        .or_else(|| path(process, config.graph.as_deref()))
        .or_else(|| if unread.is_none() { ISULAD.roots.first().map(PathBuf::from) } else { None });
    let hosts = process.arguments.iter().chain(&config.hosts);
    let socket = hosts.filter_map(|host| host.strip_prefix("unix://")).map(PathBuf::from).next();
    let networks = process.option(&["--cni-conf-dir"]).or_else(|| path(process, config.networks.as_deref()));
    Daemon {
        root,
        networks,
        socket: socket.or_else(|| ISULAD.sockets.first().map(PathBuf::from)),
        unread,
        ..Daemon::new(Kind::Runtime(RuntimeKind::Isulad))
    }
}

/// Makes the value of a setting an absolute path. An empty text counts as unset.
fn path(process: &Process<'_>, value: Option<&str>) -> Option<PathBuf> {
    value.filter(|path| !path.is_empty()).map(|path| process.absolute(path))
}

fn configuration(process: &Process<'_>) -> Result<Configuration, settings::UnreadSetting> {
    let Some(path) = ISULAD.configuration.first().map(Path::new) else { return Ok(Configuration::default()) };
    match settings::read(process.files(), path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|_not_json| settings::UnreadSetting {
            path: path.to_owned(),
            why: ReadError::Malformed,
        }),
        Err(settings::UnreadSetting { why: ReadError::Absent, .. }) => Ok(Configuration::default()),
        Err(unread) => Err(unread),
    }
}
