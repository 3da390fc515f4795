//! Sandboxes whose containers' programs are not processes of the node.

use probe_common::event::class;
use probe_user::model::{
    fact::{Exited, Fact, RuntimeEventKind, Task},
    id::{CgroupKey, ContainerId},
};

use super::{
    Sim,
    process::{cgroup, pod_path, task},
};

/// The programs under which a sandbox's containers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Under {
    /// The programs are processes of the node.
    Runc,
    /// gVisor, whose kernel is in the pod's own cgroup. The cgroups of the containers stay empty.
    Gvisor,
    /// An earlier gVisor, with its kernel in the sandbox's cgroup.
    GvisorAlone,
    /// Kata Containers: nothing of a container is on the node.
    Kata,
}

impl Under {
    pub(crate) fn read(word: &str) -> Option<Self> {
        match word {
            "gvisor" => Some(Self::Gvisor),
            "gvisor-alone" => Some(Self::GvisorAlone),
            "kata" => Some(Self::Kata),
            _ => None,
        }
    }

    /// Returns the name of its shim's program.
    pub(super) fn shim(self) -> &'static str {
        match self {
            Self::Runc => "containerd-shim-runc-v2",
            Self::Gvisor | Self::GvisorAlone => "containerd-shim-runsc-v1",
            Self::Kata => "containerd-shim-kata-v2",
        }
    }

    /// Whether a process of it is in the sandbox's own cgroup.
    pub(super) fn is_in_cgroup(self) -> bool {
        match self {
            Self::Runc | Self::GvisorAlone | Self::Kata => true,
            Self::Gvisor => false,
        }
    }
}

impl Sim {
    pub(crate) fn under(&mut self, name: &str, under: Under) {
        self.sandboxes.get_mut(name).expect("the sandbox is known").under = under;
    }

    /// The shim runs, and makes the virtual machine or the kernel.
    pub(super) fn hidden_sandbox_runs(&mut self, name: &str, shim: Task) {
        let row = &self.sandboxes[name];
        let (id, inode, under) = (row.id.clone(), row.inode, row.under);
        let path = format!("{}/{id}", pod_path(&self.pods[&row.pod]));
        let number = row.cgroup.expect("it has a number");
        let argv = [under.shim(), "-namespace", "k8s.io", "-id", id.as_str(), "-address", "/x"];
        self.executed(shim.clone(), class::RUNTIME, &argv);
        match under {
            Under::Gvisor | Under::GvisorAlone => {
                let runsc = self.task("runsc", shim.key.pid);
                self.executed(
                    runsc.clone(),
                    class::RUNTIME,
                    &["runsc", "create", "--bundle", "/b", id.as_str()],
                );
                self.kernel(Fact::CgroupCreated { cgroup: cgroup(number, &path), by: runsc.clone() });
                self.kernel(Fact::Exited(Exited { task: runsc, status: 0, class: class::RUNTIME }));
            }
            Under::Kata | Under::Runc => {
                self.kernel(Fact::CgroupCreated { cgroup: cgroup(number, &path), by: shim.clone() });
            }
        }
        let mut first = self.task(if under == Under::Kata { "qemu-system-x86" } else { "exe" }, shim.key.pid);
        first.netns = inode;
        first.cgroup = CgroupKey::new(0, number);
        let row = self.sandboxes.get_mut(name).expect("the sandbox is known");
        (row.pause, row.shim) = (Some(first.key.pid), Some(shim.key.pid));
        let argv = match under {
            Under::GvisorAlone => ["runsc-sandbox", "boot", id.as_str()],
            Under::Kata => ["/usr/bin/qemu-system-x86_64", "-name", "sandbox"],
            // The hooks report nothing of a process outside the cgroups of containers.
            Under::Gvisor | Under::Runc => return,
        };
        self.executed(first, class::CONTAINER_TOP | class::IN_CONTAINER, &argv);
        self.tells(&id, RuntimeEventKind::Started);
    }

    /// Makes the visible parts of a new container.
    pub(super) fn hidden_container_made(&mut self, under: Under, id: &ContainerId, number: u64, path: &str) {
        if under == Under::Kata {
            return;
        }
        let runsc = self.task("runsc", 1);
        self.executed(runsc.clone(), class::RUNTIME, &["runsc", "create", "--bundle", "/b", id.as_str()]);
        self.kernel(Fact::CgroupCreated { cgroup: cgroup(number, path), by: runsc.clone() });
        self.kernel(Fact::Exited(Exited { task: runsc, status: 0, class: class::RUNTIME }));
    }

    pub(super) fn hidden_container_ends(&mut self, name: &str, sandbox: &str, status: u32) {
        let pod = pod_path(&self.pods[&self.sandboxes[sandbox].pod]);
        for key in self.sandboxes[sandbox].containers.clone() {
            let row = self.containers.get_mut(&key).expect("a container of the sandbox");
            if row.name != name || row.pid.take().is_none() {
                continue;
            }
            row.status = status;
            let (id, number, under) = (row.id.clone(), row.cgroup, row.under);
            if under != Under::Kata {
                let runsc = self.task("runsc", 1);
                let path = format!("{pod}/{id}");
                self.executed(runsc.clone(), class::RUNTIME, &["runsc", "delete", id.as_str()]);
                self.kernel(Fact::CgroupRemoved { cgroup: cgroup(number, &path), by: runsc });
            }
            self.tells(&id, RuntimeEventKind::Stopped);
        }
    }

    /// The runtime ends everything in the sandbox. A virtual machine ends by itself when its shim tells it
    /// to.
    pub(super) fn hidden_sandbox_ends(&mut self, name: &str) {
        let names: Vec<String> =
            self.sandboxes[name].containers.iter().map(|key| self.containers[key].name.clone()).collect();
        for container in names {
            self.hidden_container_ends(&container, name, 9);
        }
        let row = self.sandboxes.get_mut(name).expect("the sandbox is known");
        let (Some(pid), Some(shim), Some(number)) = (row.pause.take(), row.shim.take(), row.cgroup.take())
        else {
            return;
        };
        let (id, under) = (row.id.clone(), row.under);
        let path = format!("{}/{id}", pod_path(&self.pods[&row.pod]));
        if under != Under::Kata {
            let runsc = self.task("runsc", shim);
            self.executed(runsc, class::RUNTIME, &["runsc", "kill", id.as_str(), "9"]);
        }
        if under != Under::Gvisor {
            let mut first = task(pid, shim, "exe");
            first.cgroup = CgroupKey::new(0, number);
            let bits = class::CONTAINER_TOP | class::IN_CONTAINER;
            self.kernel(Fact::Exited(Exited { task: first, status: 0, class: bits }));
            self.kernel(Fact::CgroupEmptied { cgroup: cgroup(number, &path) });
        }
        let shim = task(shim, 1, "containerd-shim");
        self.kernel(Fact::CgroupRemoved { cgroup: cgroup(number, &path), by: shim.clone() });
        self.kernel(Fact::Exited(Exited { task: shim, status: 0, class: class::RUNTIME }));
        self.tells(&id, RuntimeEventKind::Stopped);
    }

    /// Replaces a virtual machine's first process by another one, as when a jailer starts it.
    pub(crate) fn first_process_gives_way(&mut self, name: &str) {
        let row = &self.sandboxes[name];
        let (pid, number) = (row.pause.expect("it runs"), row.cgroup.expect("it has a cgroup"));
        let mut first = task(pid, 1, "jailer");
        first.cgroup = CgroupKey::new(0, number);
        let bits = class::CONTAINER_TOP | class::IN_CONTAINER;
        self.kernel(Fact::Exited(Exited { task: first, status: 0, class: bits }));
    }
}
