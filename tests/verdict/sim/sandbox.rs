//! The CRI calls for sandboxes, and the files that the runtime keeps of them.

use std::{collections::BTreeMap, net::IpAddr};

use probe_common::event::class;
use probe_user::model::{
    fact::{Fact, RuntimeEventKind},
    id::{CgroupKey, ContainerId, NetnsKey},
};

use super::{
    Del, HOST, Sandbox, Sim, Under,
    process::{cgroup, pod_path, task},
};

impl Sandbox {
    /// Returns a sandbox of runc in the network namespace with this inode, before it has a file or a process.
    fn new(number: u32, pod: &str, inode: u32) -> Self {
        Self {
            id: ContainerId::parse(&format!("{number:064x}")).expect("an id"),
            pod: pod.to_owned(),
            inode,
            path: None,
            netns_lives: false,
            pause: None,
            under: Under::Runc,
            shim: None,
            cgroup: None,
            addresses: BTreeMap::new(),
            containers: Vec::new(),
        }
    }
}

impl Sim {
    /// RunPodSandbox up to its CNI calls: the namespace.
    pub(crate) fn sandbox_begins(&mut self, name: &str, pod: &str) {
        self.pod(pod);
        let number = self.number();
        let inode = 4_026_532_000 + number;
        let by = self.by_runtime();
        self.kernel(Fact::NetnsCreated {
            netns: NetnsKey::new(inode, u64::from(number)),
            by,
            end_unseen: false,
        });
        let path = Some(format!("/var/run/netns/cni-{number:08x}"));
        let row = Sandbox { path, netns_lives: true, ..Sandbox::new(number, pod, inode) };
        self.sandboxes.insert(name.to_owned(), row);
    }

    /// A sandbox from before the node's boot: the runtime has it on record, and nothing else is left of it.
    pub(crate) fn sandbox_before_boot(&mut self, name: &str, pod: &str) {
        self.bound_pod(pod);
        let number = self.number();
        let row = Sandbox::new(number, pod, 0);
        self.recorded.insert(row.id.clone());
        self.sandboxes.insert(name.to_owned(), row);
    }

    /// RunPodSandbox of a host-network pod: no namespace and no CNI call.
    pub(crate) fn host_sandbox(&mut self, name: &str, pod: &str) {
        self.pod(pod);
        let number = self.number();
        self.sandboxes.insert(name.to_owned(), Sandbox::new(number, pod, HOST));
        self.sandbox_runs(name);
    }

    /// The runtime makes the sandbox's record before it sets up the network.
    pub(crate) fn record(&mut self, name: &str) {
        let id = self.sandboxes[name].id.clone();
        self.recorded.insert(id);
    }

    /// The rest of RunPodSandbox: the runtime's record, the sandbox's cgroup and pause.
    pub(crate) fn sandbox_runs(&mut self, name: &str) {
        let number = u64::from(self.number());
        let shim = self.task("containerd-shim", 1);
        let row = self.sandboxes.get_mut(name).expect("the sandbox is known");
        row.cgroup = Some(number);
        let (id, inode, pod) = (row.id.clone(), row.inode, row.pod.clone());
        self.recorded.insert(id.clone());
        if self.sandboxes[name].under != Under::Runc {
            self.hidden_sandbox_runs(name, shim);
            return;
        }
        let argv = ["containerd-shim-runc-v2", "-id", id.as_str(), "-address", "/x"];
        self.executed(shim.clone(), class::RUNTIME, &argv);
        let path = format!("{}/{id}", pod_path(&self.pods[&pod]));
        let by = task(shim.key.pid, 1, "runc");
        self.kernel(Fact::CgroupCreated { cgroup: cgroup(number, &path), by });
        let mut pause = self.task("pause", shim.key.pid);
        pause.cgroup = CgroupKey::new(0, number);
        pause.netns = inode;
        let row = self.sandboxes.get_mut(name).expect("the sandbox is known");
        (row.pause, row.shim) = (Some(pause.key.pid), Some(shim.key.pid));
        self.executed(pause, class::PAUSE | class::CONTAINER_TOP | class::IN_CONTAINER, &["/pause"]);
        self.tells(&id, RuntimeEventKind::Started);
    }

    /// The file that holds the namespace is removed. If nothing lives in the namespace, the namespace ends.
    pub(crate) fn netns_file_goes(&mut self, name: &str) {
        let by = self.by_runtime();
        let row = self.sandboxes.get_mut(name).expect("the sandbox is known");
        row.path = None;
        let (inode, lives) = (row.inode, std::mem::take(&mut row.netns_lives));
        if lives {
            self.kernel(Fact::NetnsDropped { netns: NetnsKey::new(inode, 0), by });
            self.kernel(Fact::NetnsFreed { netns: NetnsKey::new(inode, 0) });
        }
    }

    /// StopPodSandbox.
    pub(crate) fn stop(&mut self, name: &str, del: Del) {
        self.kill_all(name);
        self.del(name, del);
        if del != Del::Fails {
            self.netns_file_goes(name);
        }
    }

    /// RemovePodSandbox: containerd tears the network down once more, then forgets the sandbox.
    pub(crate) fn remove(&mut self, name: &str, del: Del) {
        self.del(name, del);
        self.netns_file_goes(name);
        self.forget(name);
    }

    /// The last step of RemovePodSandbox.
    pub(crate) fn forget(&mut self, name: &str) {
        let row = &self.sandboxes[name];
        let (id, has_ended) = (row.id.clone(), row.pause.is_none());
        self.recorded.remove(&id);
        if has_ended {
            self.shim_ends(name);
        }
        self.remove_ended_pods();
    }

    /// The store's record is removed by hand, or the address is allocated again.
    pub(crate) fn free(&mut self, address: IpAddr) {
        self.held.retain(|(_, held), _| *held != address);
        self.emptied.retain(|(_, emptied), _| *emptied != address);
    }

    /// Empties the file of an address, whether a sandbox holds the address or not.
    pub(crate) fn empty(&mut self, network: &str, address: IpAddr) {
        let key = (network.to_owned(), address);
        self.held.remove(&key);
        self.emptied.insert(key, self.now());
    }
}
