//! What kubelet, runtime and plugins do, as the hooks tell of it.

use std::{collections::BTreeMap, net::IpAddr};

use probe_common::event::class;
use probe_user::model::{
    fact::{Cgroup, Executed, Exited, Fact, Loss, Observation, Origin, Signaled, Task},
    id::{CgroupKey, ContainerId, NetnsKey, PodUid, TaskKey},
    time::Timestamp,
};

use super::{Container, Del, Pod, STEP, Sandbox, Sim};

/// The node's own network namespace.
const HOST: u32 = 4_026_531_833;

/// Who ends a pause process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    Runtime,
    Kubelet,
    Stranger,
    OutOfMemory,
}

/// What runs in a cgroup of its own.
struct Program {
    pid: u32,
    number: u64,
    is_pause: bool,
}

impl Sim {
    pub(super) fn say(&mut self, origin: Origin, fact: Fact) {
        self.facts.push(Observation { at: self.now, origin, fact });
        self.now = self.now + STEP;
    }

    pub(super) fn kernel(&mut self, fact: Fact) {
        self.say(Origin::Kernel, fact);
    }

    /// A process that begins now.
    pub(super) fn task(&mut self, comm: &str, parent: u32) -> Task {
        let pid = self.number();
        task(pid, parent, comm)
    }

    fn executed(&mut self, task: Task, bits: u32, argv: &[&str]) {
        let argv: Vec<String> = argv.iter().map(|arg| (*arg).to_owned()).collect();
        let total: usize = argv.iter().map(|arg| arg.len() + 1).sum();
        self.kernel(Fact::Executed(Executed {
            ns_pid: task.key.pid,
            task,
            filename: argv.first().cloned().unwrap_or_default(),
            argv_total: u32::try_from(total).expect("short"),
            argv,
            class: bits,
            pid_ns: 1,
            mnt_ns: 1,
        }));
    }

    pub(crate) fn runtime_starts(&mut self) {
        let mut task = self.task("containerd", 1);
        task.key.start = self.now().0;
        self.runtime = Some(task.clone());
        self.executed(task, class::CALLER, &["/usr/bin/containerd"]);
    }

    pub(crate) fn kubelet_starts(&mut self) {
        let task = self.task("kubelet", 1);
        self.kubelet = Some(task.key.pid);
        self.executed(task, class::CALLER, &["/usr/bin/kubelet"]);
        self.say(Origin::Listed, Fact::KubeletExpected(true));
        self.tidy();
    }

    pub(crate) fn runtime_dies(&mut self) {
        if let Some(task) = self.runtime.take() {
            self.kernel(Fact::Exited(Exited { task, status: 9, class: class::CALLER }));
        }
    }

    pub(crate) fn kubelet_dies(&mut self) {
        if let Some(pid) = self.kubelet.take() {
            self.kernel(Fact::Exited(Exited {
                task: task(pid, 1, "kubelet"),
                status: 9,
                class: class::CALLER,
            }));
        }
    }

    /// A runtime that nobody uses.
    pub(crate) fn crio_starts(&mut self) {
        let mut task = self.task("crio", 1);
        task.key.start = self.now().0;
        (self.crio, self.crio_runs) = (Some(task.clone()), true);
        self.executed(task, class::CALLER, &["/usr/bin/crio"]);
    }

    pub(crate) fn crio_dies(&mut self) {
        let task = self.crio.clone().expect("it runs");
        self.crio_runs = false;
        self.kernel(Fact::Exited(Exited { task, status: 0x100, class: class::CALLER }));
    }

    /// The kubelet makes the pod's cgroup, if there is none.
    pub(crate) fn pod(&mut self, name: &str) {
        let number = u64::from(self.number());
        let pod = self.pods.entry(name.to_owned()).or_insert_with(|| Pod {
            name: name.to_owned(),
            uid: PodUid::parse(&format!("11111111-2222-3333-4444-{number:012}")).expect("a UID"),
            cgroup: None,
        });
        if pod.cgroup.is_none() {
            pod.cgroup = Some(number);
            let cgroup = cgroup(number, &pod_path(pod));
            let by = self.by_kubelet();
            self.kernel(Fact::CgroupCreated { cgroup, by });
        }
    }

    pub(crate) fn pod_goes(&mut self, name: &str) {
        let pod = self.pods.get_mut(name).expect("the pod is known");
        let path = pod_path(pod);
        if let Some(number) = pod.cgroup.take() {
            let by = self.by_kubelet();
            self.kernel(Fact::CgroupRemoved { cgroup: cgroup(number, &path), by });
        }
    }

    /// RunPodSandbox up to its CNI: a namespace, then each network's ADD.
    pub(crate) fn sandbox_begins(&mut self, name: &str, pod: &str) {
        self.pod(pod);
        let number = self.number();
        let id = ContainerId::parse(&format!("{number:064x}")).expect("an id");
        let inode = 4_026_532_000 + number;
        let by = self.by_runtime();
        self.kernel(Fact::NetnsCreated {
            netns: NetnsKey::new(inode, u64::from(number)),
            by,
            end_unseen: false,
        });
        let row = Sandbox {
            id,
            pod: pod.to_owned(),
            inode,
            path: Some(format!("/var/run/netns/cni-{number:08x}")),
            netns_lives: true,
            pause: None,
            cgroup: None,
            addresses: BTreeMap::new(),
            containers: Vec::new(),
        };
        self.sandboxes.insert(name.to_owned(), row);
    }

    /// RunPodSandbox of a pod on the node's own network: no namespace, no CNI.
    pub(crate) fn host_sandbox(&mut self, name: &str, pod: &str) {
        self.pod(pod);
        let number = self.number();
        let id = ContainerId::parse(&format!("{number:064x}")).expect("an id");
        let row = Sandbox {
            id,
            pod: pod.to_owned(),
            inode: HOST,
            path: None,
            netns_lives: false,
            pause: None,
            cgroup: None,
            addresses: BTreeMap::new(),
            containers: Vec::new(),
        };
        self.sandboxes.insert(name.to_owned(), row);
        self.sandbox_runs(name);
    }

    /// A runtime that has a sandbox on record before its network.
    pub(crate) fn record(&mut self, name: &str) {
        let id = self.sandboxes[name].id.clone();
        self.kept.insert(id);
    }

    /// The rest of RunPodSandbox: the runtime's record, the sandbox's cgroup and its pause.
    pub(crate) fn sandbox_runs(&mut self, name: &str) {
        let number = u64::from(self.number());
        let shim = self.task("containerd-shim", 1);
        let row = self.sandboxes.get_mut(name).expect("the sandbox is known");
        row.cgroup = Some(number);
        let (id, inode, pod) = (row.id.clone(), row.inode, row.pod.clone());
        self.kept.insert(id.clone());
        let argv = ["containerd-shim-runc-v2", "-id", id.as_str(), "-address", "/x"];
        self.executed(shim.clone(), class::RUNTIME, &argv);
        let path = format!("{}/{id}", pod_path(&self.pods[&pod]));
        let by = task(shim.key.pid, 1, "runc");
        self.kernel(Fact::CgroupCreated { cgroup: cgroup(number, &path), by });
        let mut pause = self.task("pause", shim.key.pid);
        pause.cgroup = CgroupKey::new(0, number);
        pause.netns = inode;
        self.sandboxes.get_mut(name).expect("the sandbox is known").pause = Some(pause.key.pid);
        self.executed(pause, class::PAUSE | class::CONTAINER_TOP | class::IN_CONTAINER, &["/pause"]);
    }

    pub(crate) fn container_starts(&mut self, name: &str, sandbox: &str) {
        let number = self.number();
        let id = ContainerId::parse(&format!("{number:064x}")).expect("an id");
        let row = self.sandboxes.get_mut(sandbox).expect("the sandbox is known");
        let key = format!("{sandbox}.{name}.{number}");
        row.containers.push(key.clone());
        let (inode, pod) = (row.inode, row.pod.clone());
        let path = format!("{}/{id}", pod_path(&self.pods[&pod]));
        let mut runc = self.task("runc", 1);
        runc.parent = TaskKey::new(1, 0);
        self.executed(runc.clone(), class::RUNTIME, &["runc", "create", "--bundle", "/b", id.as_str()]);
        let cgroup_number = u64::from(number);
        self.containers.insert(
            key.clone(),
            Container {
                id,
                name: name.to_owned(),
                sandbox: sandbox.to_owned(),
                pid: None,
                cgroup: cgroup_number,
            },
        );
        self.kernel(Fact::CgroupCreated { cgroup: cgroup(cgroup_number, &path), by: runc.clone() });
        let mut main = self.task("main", runc.key.pid);
        main.cgroup = CgroupKey::new(0, cgroup_number);
        main.netns = inode;
        self.containers.get_mut(&key).expect("just made").pid = Some(main.key.pid);
        self.executed(main, class::CONTAINER_TOP | class::IN_CONTAINER, &["/main"]);
        self.kernel(Fact::Exited(Exited { task: runc, status: 0, class: class::RUNTIME }));
    }

    /// All running containers of that name in a sandbox end.
    pub(crate) fn container_exits(&mut self, name: &str, sandbox: &str, code: u32) {
        let keys = self.sandboxes[sandbox].containers.clone();
        for key in keys {
            let row = self.containers.get_mut(&key).expect("a container of the sandbox");
            let (id, number) = (row.id.clone(), row.cgroup);
            if row.name == name
                && let Some(pid) = row.pid.take()
            {
                self.ends(Program { pid, number, is_pause: false }, &id, sandbox, code << 8);
            }
        }
    }

    /// StopContainer: all running containers of that name in a sandbox are told to end by the runtime, and do.
    pub(crate) fn container_stops(&mut self, name: &str, sandbox: &str) {
        let keys = self.sandboxes[sandbox].containers.clone();
        for key in keys {
            let row = self.containers.get_mut(&key).expect("a container of the sandbox");
            let (id, number) = (row.id.clone(), row.cgroup);
            if row.name == name
                && let Some(pid) = row.pid.take()
            {
                let runc = self.task("runc", 1);
                self.executed(runc.clone(), class::RUNTIME, &["runc", "kill", id.as_str(), "15"]);
                let target = task(pid, 1, "main");
                self.kernel(Fact::Signaled(Signaled { target, signal: 15, code: 0, sender: runc }));
                self.ends(Program { pid, number, is_pause: false }, &id, sandbox, 15);
            }
        }
    }

    /// The pause process ends, and its cgroup is emptied.
    pub(crate) fn pause_dies(&mut self, name: &str, death: Death) {
        let row = self.sandboxes.get_mut(name).expect("the sandbox is known");
        let (Some(pid), Some(number)) = (row.pause.take(), row.cgroup) else { return };
        let id = row.id.clone();
        let target = task(pid, 1, "pause");
        let sender = match death {
            Death::Runtime => {
                let runc = self.task("runc", 1);
                self.executed(runc.clone(), class::RUNTIME, &["runc", "kill", id.as_str(), "9"]);
                runc
            }
            Death::Kubelet => self.by_kubelet(),
            Death::Stranger | Death::OutOfMemory => self.task("chaos", 1),
        };
        let signaled = Signaled { target, signal: 9, code: 0, sender };
        self.kernel(match death {
            Death::OutOfMemory => Fact::OomKilled(signaled),
            Death::Runtime | Death::Kubelet | Death::Stranger => Fact::Signaled(signaled),
        });
        self.ends(Program { pid, number, is_pause: true }, &id, name, 9);
    }

    /// The runtime kills what runs in a sandbox and removes the cgroups.
    pub(crate) fn kill_all(&mut self, name: &str) {
        for key in self.sandboxes[name].containers.clone() {
            let row = self.containers.get_mut(&key).expect("a container of the sandbox");
            let (id, number) = (row.id.clone(), row.cgroup);
            if let Some(pid) = row.pid.take() {
                let runc = self.task("runc", 1);
                self.executed(runc.clone(), class::RUNTIME, &["runc", "kill", id.as_str(), "9"]);
                let target = task(pid, 1, "main");
                self.kernel(Fact::Signaled(Signaled { target, signal: 9, code: 0, sender: runc }));
                self.ends(Program { pid, number, is_pause: false }, &id, name, 9);
            }
        }
        self.pause_dies(name, Death::Runtime);
        let row = self.sandboxes.get_mut(name).expect("the sandbox is known");
        if let Some(number) = row.cgroup.take() {
            let path = format!("{}/{}", pod_path(&self.pods[&row.pod]), row.id);
            let by = self.task("runc", 1);
            self.kernel(Fact::CgroupRemoved { cgroup: cgroup(number, &path), by });
        }
    }

    /// The file that keeps the namespace goes; with it, if nothing lives in it, the namespace.
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

    /// The last of RemovePodSandbox.
    pub(crate) fn forget(&mut self, name: &str) {
        let id = self.sandboxes[name].id.clone();
        self.kept.remove(&id);
        self.tidy();
    }

    /// The kubelet removes the cgroup of a pod whose last sandbox its runtime has forgotten: it lets go of that only
    /// when the pod is done.
    fn tidy(&mut self) {
        let is_over = |pod: &Pod| {
            let mut all = self.sandboxes.values().filter(|row| row.pod == pod.name).peekable();
            let has_had = all.peek().is_some();
            has_had && all.all(|row| row.pause.is_none() && !self.kept.contains(&row.id))
        };
        let over = self.pods.values().filter(|pod| is_over(pod)).map(|pod| pod.name.clone());
        for pod in over.collect::<Vec<_>>() {
            if self.kubelet.is_some() {
                self.pod_goes(&pod);
            }
        }
    }

    /// Somebody removes a store's record by hand, or it is handed out again by itself.
    pub(crate) fn free(&mut self, address: IpAddr) {
        self.held.retain(|(_, held), _| *held != address);
    }

    pub(crate) fn lost(&mut self, what: Loss, count: u64) {
        self.say(Origin::Agent, Fact::Lost { what, count });
    }

    /// Since whatever happened last the node was suspended.
    pub(crate) fn wakes(&mut self, at: Timestamp) {
        let slept = at.since(self.now());
        self.pass_to(at);
        self.say(Origin::Agent, Fact::Resumed { slept });
    }

    /// StopPodSandbox.
    pub(crate) fn stop(&mut self, name: &str, del: Del) {
        self.kill_all(name);
        self.del(name, del);
        if del != Del::Fails {
            self.netns_file_goes(name);
        }
    }

    /// RemovePodSandbox: containerd tears down once more, then forgets.
    pub(crate) fn remove(&mut self, name: &str, del: Del) {
        self.del(name, del);
        self.netns_file_goes(name);
        self.forget(name);
    }

    /// A process of a sandbox ends, and its cgroup is emptied.
    fn ends(&mut self, it: Program, id: &ContainerId, sandbox: &str, status: u32) {
        let Program { pid, number, is_pause } = it;
        let (comm, bits) = if is_pause { ("pause", class::PAUSE) } else { ("main", class::CONTAINER_TOP) };
        let mut who = task(pid, 1, comm);
        who.cgroup = CgroupKey::new(0, number);
        let path = format!("{}/{id}", pod_path(&self.pods[&self.sandboxes[sandbox].pod]));
        self.kernel(Fact::Exited(Exited { task: who, status, class: bits | class::IN_CONTAINER }));
        self.kernel(Fact::CgroupEmptied { cgroup: cgroup(number, &path) });
    }

    pub(super) fn by_runtime(&self) -> Task {
        self.runtime.clone().unwrap_or_else(|| task(1, 1, "containerd"))
    }

    fn by_kubelet(&self) -> Task {
        task(self.kubelet.unwrap_or(1), 1, "kubelet")
    }
}

/// A pid is one process for the whole of a story.
pub(super) fn task(pid: u32, parent: u32, comm: &str) -> Task {
    Task {
        key: TaskKey::new(pid, u64::from(pid) * 10_000_000),
        tid: pid,
        parent: TaskKey::new(parent, u64::from(parent) * 10_000_000),
        comm: comm.to_owned(),
        cgroup: CgroupKey::new(0, 1),
        netns: HOST,
    }
}

pub(super) fn cgroup(number: u64, path: &str) -> Cgroup {
    let level = u32::try_from(path.matches('/').count()).expect("short");
    Cgroup { key: CgroupKey::new(0, number), path: path.to_owned(), level, nested: false }
}

pub(super) fn pod_path(pod: &Pod) -> String {
    format!("/kubepods/besteffort/pod{}", pod.uid)
}
