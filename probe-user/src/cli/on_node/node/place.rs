//! The node's root, and the cgroup hierarchy that identifies its containers.

use std::{thread, time::Duration};

use anyhow::Context;

use crate::source::{
    backfill::has_container,
    host::HostRoot,
    node::cgroup::{Hierarchy, Layout},
};

/// A runtime makes or removes the cgroups of a container within this time.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

pub(in crate::cli) struct Place {
    pub(in crate::cli) root: HostRoot,
    pub(in crate::cli) layout: Layout,
    pub(in crate::cli) hierarchy: Hierarchy,
}

impl Place {
    pub(in crate::cli) fn find(root: HostRoot) -> anyhow::Result<Self> {
        let layout = Layout::read(&root).context(
            "cannot read the node's cgroup mounts in /proc/1 (does --host-root hold the node's /proc?)",
        )?;
        let hierarchy = layout
            .choose(|hierarchy| has_container(&root, hierarchy), || thread::sleep(RETRY_INTERVAL))
            .context("no cgroup hierarchy is mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup")?
            .clone();
        Ok(Self { root, layout, hierarchy })
    }
}
