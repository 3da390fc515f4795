//! Docker: the database of its networks is in its root directory. An option or the configuration may name
//! another root.

use std::path::{Path, PathBuf};

use probe_common::runtime::DOCKER;
use serde::Deserialize;

use super::{
    Daemon, Kind, Process, opened,
    settings::{self, UnreadSetting},
};
use crate::{model::fact::RuntimeKind, source::host::ReadError};

#[derive(Debug, Default, Deserialize)]
struct Configuration {
    #[serde(rename = "data-root", alias = "graph")]
    root: Option<String>,
}

pub(super) fn find(process: &Process<'_>) -> Daemon {
    let read = configuration(process);
    let (config, unread) = read.map_or_else(|unread| (None, Some(unread)), |config| (Some(config), None));
    let root = DOCKER
        .database
        .and_then(|database| opened::folder_of(process.folder, database))
        .or_else(|| process.option(&["--data-root", "--graph", "-g"]))
        .or_else(|| Some(process.absolute(config.as_ref()?.root.as_deref().filter(|root| !root.is_empty())?)))
        .or_else(|| if config.is_some() { DOCKER.roots.first().map(PathBuf::from) } else { None });
    Daemon { root, unread, ..Daemon::new(Kind::Runtime(RuntimeKind::Docker)) }
}

fn configuration(process: &Process<'_>) -> Result<Configuration, UnreadSetting> {
    let named = process.option(&["--config-file"]);
    let usual = DOCKER.configuration.first().map(Path::new);
    let Some(path) = named.as_deref().or(usual) else { return Ok(Configuration::default()) };
    match settings::read(process.files(), path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map_err(|_not_json| UnreadSetting { path: path.to_owned(), why: ReadError::Malformed }),
        Err(UnreadSetting { why: ReadError::Absent, .. }) if named.is_none() => Ok(Configuration::default()),
        Err(unread) => Err(unread),
    }
}
