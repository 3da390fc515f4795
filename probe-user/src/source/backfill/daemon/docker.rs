//! Docker: its root is where its networks' database is, and it can be told of another by option or configuration.

use std::path::PathBuf;

use serde::Deserialize;

use super::{
    Daemon, Kind, Process, opened,
    settings::{self, Unread},
};
use crate::source::host::ReadError;

const CONFIGURATION: &str = "/etc/docker/daemon.json";
const ROOT: &str = "/var/lib/docker";
/// What it keeps open below its root as long as it runs.
const DATABASE: &str = "network/files/local-kv.db";

#[derive(Debug, Default, Deserialize)]
struct Configuration {
    #[serde(rename = "data-root", alias = "graph")]
    root: Option<String>,
}

pub(super) fn look(process: &Process<'_>) -> Daemon {
    let read = configuration(process);
    let (said, unread) = read.map_or_else(|unread| (None, Some(unread)), |said| (Some(said), None));
    let at = || Some(process.absolute(said.as_ref()?.root.as_deref().filter(|root| !root.is_empty())?));
    let root = opened::folder_of(process.folder, DATABASE)
        .or_else(|| process.option(&["--data-root", "--graph", "-g"]))
        .or_else(at)
        .or_else(|| said.is_some().then(|| PathBuf::from(ROOT)));
    Daemon { root, unread, ..Daemon::new(Kind::Docker) }
}

fn configuration(process: &Process<'_>) -> Result<Configuration, Unread> {
    let named = process.option(&["--config-file"]);
    let path = named.as_deref().unwrap_or(CONFIGURATION.as_ref());
    match settings::read(process.files(), path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map_err(|_not_json| Unread { path: path.to_owned(), why: ReadError::Malformed }),
        Err(Unread { why: ReadError::Absent, .. }) if named.is_none() => Ok(Configuration::default()),
        Err(unread) => Err(unread),
    }
}
