//! The machine's state before the run: what was absent, and whether it forwarded packets.
//!
//! The state is in a file, so that a later run can restore it if this one is killed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::{cgroupfs, command};

/// The directories that containerd, its shims, CNI or the kubelet make on first use, parents first.
const SHARED: [&str; 7] = [
    "/run/netns",
    "/run/containerd",
    "/run/containerd/s",
    "/var/lib/cni",
    "/var/lib/cni/results",
    "/var/lib/cni/networks",
    "/var/log/pods",
];

/// The directories that are made in every cgroup hierarchy.
const CGROUPS: [&str; 6] = [
    "kubepods",
    "kubepods/besteffort",
    "kubepods/burstable",
    "kubepods.slice",
    "kubepods.slice/kubepods-besteffort.slice",
    "kubepods.slice/kubepods-burstable.slice",
];

/// The switches that the bridge plugin turns on for a bridge that is a gateway.
const SWITCHES: [&str; 2] = ["/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"];

/// The programs that print the nat tables, and the names of the families in nftables.
const NAT: [(&str, &str); 2] = [("iptables-save", "ip"), ("ip6tables-save", "ip6")];

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Before {
    /// Directories that did not exist, parents first.
    absent: Vec<PathBuf>,
    /// Families without a nat table.
    without_nat: Vec<String>,
    /// Each switch with its value.
    switches: Vec<(PathBuf, String)>,
}

impl Before {
    pub(super) fn take() -> Result<Self> {
        let mut directories: Vec<_> = SHARED.iter().map(PathBuf::from).collect();
        for hierarchy in cgroupfs::hierarchies()? {
            directories.extend(CGROUPS.iter().map(|path| hierarchy.directory(path)));
        }
        directories.retain(|directory| !directory.exists());
        // A switch is absent if the kernel lacks the protocol.
        let read = |switch| fs::read_to_string(switch).ok().map(|value| (PathBuf::from(switch), value));
        Ok(Self {
            absent: directories,
            without_nat: NAT
                .iter()
                .filter(|(save, _)| nat(save).is_none())
                .map(|(_, name)| (*name).to_owned())
                .collect(),
            switches: SWITCHES.into_iter().filter_map(read).collect(),
        })
    }

    pub(super) fn save(&self, file: &Path) -> Result<()> {
        fs::write(file, serde_json::to_vec(self)?).with_context(|| format!("write {}", file.display()))
    }

    pub(super) fn load(file: &Path) -> Result<Self> {
        let bytes = fs::read(file).with_context(|| format!("read {}", file.display()))?;
        serde_json::from_slice(&bytes).with_context(|| format!("understand {}", file.display()))
    }

    /// Restores the switches, and removes directories and tables that are new and empty.
    pub(super) fn restore(&self) -> Result<()> {
        for directory in self.absent.iter().rev() {
            // The kernel refuses to remove a directory that others use by now, which is right.
            let _ = fs::remove_dir(directory);
        }
        for (save, family) in NAT {
            if nat(save).is_some_and(|table| is_empty(&table))
                && self.without_nat.iter().any(|name| name == family)
            {
                // iptables makes its table on first use and never removes it. Without nft the empty table
                // stays.
                let _ = command::run("nft", &["delete", "table", family, "nat"]);
            }
        }
        for (switch, value) in &self.switches {
            // Writing a switch resets the one of each interface, so only a changed switch is written.
            if fs::read_to_string(switch).ok().as_ref() != Some(value) {
                fs::write(switch, value).with_context(|| format!("write {}", switch.display()))?;
            }
        }
        Ok(())
    }
}

/// Returns the nat table as text. `None` if there is no table or no iptables.
///
/// This prints all tables, because printing a single one makes it.
fn nat(save: &str) -> Option<String> {
    let tables = command::output(save, &[]).ok()?;
    let table = tables.split_once("*nat\n")?.1;
    Some(table.split("COMMIT").next().unwrap_or_default().to_owned())
}

/// Whether a table has no rules and no chains of its own. Such chains have no policy: `:CNI-… - [0:0]`.
fn is_empty(table: &str) -> bool {
    !table.lines().any(|line| line.starts_with("-A ") || line.contains(" - ["))
}
