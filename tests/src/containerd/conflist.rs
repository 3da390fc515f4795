//! Changes the network of a running runtime, which watches the directory of network configurations.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::Network;
use crate::{clock, cri::Cri};

/// The runtime needs a second under emulation.
const LIMIT: Duration = Duration::from_secs(30);

/// A configuration file in that directory.
#[derive(Debug)]
pub(crate) struct Conflist {
    file: PathBuf,
    socket: PathBuf,
}

impl Conflist {
    pub(crate) fn new(file: PathBuf, socket: &Path) -> Self {
        Self { file, socket: socket.to_owned() }
    }

    /// Writes the network and waits until the runtime uses it.
    pub(crate) fn put(&self, network: &Network) -> Result<()> {
        self.write(network)?;
        let text = network.conflist().to_string();
        self.wait("the new network", |loaded| loaded.contains(&text))
    }

    /// Writes the network for a runtime that has not started yet.
    pub(crate) fn write(&self, network: &Network) -> Result<()> {
        // The new file has another extension, so that the runtime does not read it before it is complete.
        let fresh = self.file.with_extension("new");
        fs::write(&fresh, network.conflist().to_string())
            .and_then(|()| fs::rename(&fresh, &self.file))
            .with_context(|| format!("write {}", self.file.display()))
    }

    /// Removes the network and waits until the runtime no longer uses it.
    pub(crate) fn withdraw(&self, network: &Network) -> Result<()> {
        fs::remove_file(&self.file).with_context(|| format!("remove {}", self.file.display()))?;
        let text = network.conflist().to_string();
        self.wait("the end of a network", |loaded| !loaded.is_empty() && !loaded.contains(&text))
    }

    fn wait(&self, what: &str, reached: impl Fn(&[String]) -> bool) -> Result<()> {
        let mut cri = Cri::connect(&self.socket)?;
        clock::poll(what, LIMIT, || Ok(reached(&cri.network_configurations()?).then_some(())))
    }
}
