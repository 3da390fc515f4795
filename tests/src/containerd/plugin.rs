//! A directory with the installed CNI plugins and the tests' own ones, for runtimes that use one directory
//! only.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::{Network, beside_this_program, sweep::names};
use crate::keyed;

/// The `type` of the plugin that calls the plugins of two networks for each pod.
pub(super) const BROKER: &str = "multus";

/// Calls one plugin for each network of the pod, as Multus does. The networks' configurations are beside it.
/// ADD takes a second, as if it had to ask a controller.
const BROKER_SCRIPT: &str = r#"#!/bin/sh
set -e
cat > /dev/null
here=${0%/*}
call() { CNI_IFNAME=$1 "$here/$2" < "$here/$1.json"; }
case $CNI_COMMAND in
ADD)
    sleep 1
    result=$(call eth0 bridge)
    call net1 ptp > /dev/null
    printf '%s\n' "$result"
    ;;
DEL)
    call net1 ptp
    call eth0 bridge
    ;;
VERSION) printf '{"cniVersion":"0.4.0","supportedVersions":["0.3.1","0.4.0"]}\n' ;;
esac
"#;

/// Makes links to the installed plugins and to the tests' own one.
pub(super) fn gather(installed: &Path, into: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&into).with_context(|| format!("make {}", into.display()))?;
    for name in names(installed)? {
        link(&installed.join(&name), &into.join(&name))?;
    }
    link(&beside_this_program(keyed::TYPE)?, &into.join(keyed::TYPE))?;
    Ok(into)
}

/// Adds the broker to that directory.
pub(super) fn add_broker(directory: &Path, network: &Network, second_store: &Path) -> Result<()> {
    let [first, second] = network.brokered(second_store);
    fs::write(directory.join("eth0.json"), first.to_string())?;
    fs::write(directory.join("net1.json"), second.to_string())?;
    let script = directory.join(BROKER);
    fs::write(&script, BROKER_SCRIPT)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("make {} executable", script.display()))
}

fn link(to: &Path, at: &Path) -> Result<()> {
    symlink(to, at).with_context(|| format!("make {}", at.display()))
}
