//! Reads how long the runtime waits for input and output: the pressure of the cgroup in which its daemon
//! runs.
//!
//! The pressure is read only if the daemon has a cgroup of its own below the root of cgroup v2. The root's
//! pressure would be the whole node's, and v1 has none.

use std::time::Duration;

use super::{IO_PRESSURE, OPEN_TIME, open::OpenCgroup, stall};
use crate::{
    model::{fact::Stall, time::Timestamp},
    source::{backfill::runtime_cgroup, host::HostRoot, node::cgroup::Layout},
};

/// How often the runtime is searched for. A search examines every process.
const SEARCH_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Daemon {
    searched: Option<Timestamp>,
    path: Option<String>,
    cgroup: Option<OpenCgroup>,
    read: Timestamp,
}

impl Daemon {
    pub(super) fn io_stall(&mut self, root: &HostRoot, layout: &Layout, now: Timestamp) -> Option<Stall> {
        let unified = layout.unified()?;
        let is_gone = self.cgroup.as_ref().is_some_and(OpenCgroup::is_gone);
        if is_gone || self.searched.is_none_or(|searched| now >= searched + SEARCH_INTERVAL) {
            let path = runtime_cgroup(root, unified.id).filter(|path| path != "/");
            *self = Self { searched: Some(now), path, ..Self::default() };
        }
        if self.cgroup.is_none() {
            let below = self.path.as_ref()?.trim_start_matches('/');
            let folder = root.folder(format!("{}/{below}", unified.mount)).ok()?;
            self.cgroup = Some(OpenCgroup::new(folder));
        }
        self.read = now;
        stall(self.cgroup.as_mut()?, IO_PRESSURE)
    }

    pub(super) fn close(&mut self, now: Timestamp) {
        if now >= self.read + OPEN_TIME {
            self.cgroup = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, time::Duration};

    use super::{Daemon, HostRoot, Layout, OPEN_TIME, SEARCH_INTERVAL, Stall, Timestamp};
    use crate::source::node::cgroup::Hierarchy;

    const NOW: Timestamp = Timestamp(1_000_000_000_000);

    fn process(node: &Path, pid: u32, comm: &str, cgroup: &str) {
        let folder = node.join(format!("proc/{pid}"));
        fs::create_dir_all(&folder).expect("a directory");
        let files = [
            ("comm", format!("{comm}\n")),
            ("cmdline", format!("/usr/bin/{comm}\0")),
            ("cgroup", format!("1:name=systemd:/init\n0::{cgroup}\n")),
            ("status", "Uid:\t0\t0\t0\t0\n".to_owned()),
        ];
        files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).expect("a file"));
    }

    fn pressure(node: &Path, cgroup: &str, total: u64) {
        let folder = node.join("cg").join(cgroup.trim_start_matches('/'));
        fs::create_dir_all(&folder).expect("a directory");
        let text = format!("some avg10=1.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 total=1\n");
        fs::write(folder.join("io.pressure"), text).expect("a file");
    }

    fn layout(id: u32) -> Layout {
        Layout { hierarchies: vec![Hierarchy { id, controllers: Vec::new(), mount: "/cg".to_owned() }] }
    }

    fn waits(daemon: &mut Daemon, node: &Path, now: Timestamp) -> Option<u128> {
        let stall = daemon.io_stall(&HostRoot::open(node).expect("the root"), &layout(0), now)?;
        assert_eq!(stall, Stall { full: Duration::from_micros(1), ..stall });
        Some(stall.some.as_micros())
    }

    #[test]
    fn the_cgroup_of_the_only_runtime_is_read() {
        let root = tempfile::tempdir().expect("a directory");
        let node = root.path();
        process(node, 20, "containerd-shim", "/system.slice/containerd.service");
        process(node, 21, "containerd", "/system.slice/containerd.service");
        pressure(node, "/system.slice/containerd.service", 5);
        let mut daemon = Daemon::default();
        assert_eq!(waits(&mut daemon, node, NOW), Some(5));
        pressure(node, "/system.slice/containerd.service", 7);
        assert_eq!(waits(&mut daemon, node, NOW), Some(7));
        daemon.close(NOW + OPEN_TIME);
        assert!(daemon.cgroup.is_none());
        assert_eq!(waits(&mut daemon, node, NOW + OPEN_TIME), Some(7));
        // v1 has no pressure.
        let host = HostRoot::open(node).expect("the root");
        assert_eq!(Daemon::default().io_stall(&host, &layout(4), NOW), None);
        // It is unknown which of two runtimes pulls. The second one is seen after a while.
        process(node, 22, "crio", "/system.slice/crio.service");
        assert_eq!(waits(&mut daemon, node, NOW + OPEN_TIME), Some(7));
        assert_eq!(waits(&mut daemon, node, NOW + SEARCH_INTERVAL), None);
    }

    #[test]
    fn the_pressure_of_the_whole_node_is_not_the_runtimes() {
        let root = tempfile::tempdir().expect("a directory");
        let node = root.path();
        assert_eq!(waits(&mut Daemon::default(), node, NOW), None, "there is no runtime");
        process(node, 21, "containerd", "/");
        pressure(node, "/", 5);
        assert_eq!(waits(&mut Daemon::default(), node, NOW), None);
        // A runtime in a pod is not the node's.
        let id = "ab".repeat(32);
        let pod = format!("/kubepods.slice/cri-containerd-{id}.scope");
        process(node, 21, "containerd", &pod);
        pressure(node, &pod, 5);
        assert_eq!(waits(&mut Daemon::default(), node, NOW), None);
    }
}
