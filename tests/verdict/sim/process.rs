//! The processes of sandboxes and containers, and their cgroups.

use probe_common::event::class;
use probe_user::model::{
    fact::{Cgroup, Executed, Exited, Fact, RuntimeEventKind, Signaled, Task},
    id::{CgroupKey, ContainerId, TaskKey},
};

use super::{Container, HOST, Pod, Sim, Under};

/// The cause of a pause process's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    Runtime,
    Kubelet,
    Stranger,
    OutOfMemory,
}

/// A process in a cgroup of its own.
struct Program {
    pid: u32,
    number: u64,
    is_pause: bool,
}

impl Sim {
    /// Returns a new process.
    pub(super) fn task(&mut self, comm: &str, parent: u32) -> Task {
        let pid = self.number();
        task(pid, parent, comm)
    }

    pub(super) fn executed(&mut self, task: Task, bits: u32, argv: &[&str]) {
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

    pub(crate) fn container_starts(&mut self, name: &str, sandbox: &str) {
        let number = self.number();
        let id = ContainerId::parse(&format!("{number:064x}")).expect("an id");
        let row = self.sandboxes.get_mut(sandbox).expect("the sandbox is known");
        let key = format!("{sandbox}.{name}.{number}");
        row.containers.push(key.clone());
        let (inode, pod, under) = (row.inode, row.pod.clone(), row.under);
        let path = format!("{}/{id}", pod_path(&self.pods[&pod]));
        if under != Under::Runc {
            let pid = Some(self.number());
            let cgroup = u64::from(number);
            let (name, sandbox) = (name.to_owned(), sandbox.to_owned());
            let row = Container { id: id.clone(), name, sandbox, pid, under, cgroup, status: 0 };
            self.containers.insert(key, row);
            self.hidden_container_made(under, &id, cgroup, &path);
            self.tells(&id, RuntimeEventKind::Started);
            return;
        }
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
                under,
                cgroup: cgroup_number,
                status: 0,
            },
        );
        self.kernel(Fact::CgroupCreated { cgroup: cgroup(cgroup_number, &path), by: runc.clone() });
        let mut main = self.task("main", runc.key.pid);
        main.cgroup = CgroupKey::new(0, cgroup_number);
        main.netns = inode;
        let row = self.containers.get_mut(&key).expect("just made");
        row.pid = Some(main.key.pid);
        let id = row.id.clone();
        self.executed(main, class::CONTAINER_TOP | class::IN_CONTAINER, &["/main"]);
        self.kernel(Fact::Exited(Exited { task: runc, status: 0, class: class::RUNTIME }));
        self.tells(&id, RuntimeEventKind::Started);
    }

    /// The runtime makes a container whose program cannot be run.
    pub(crate) fn container_fails(&mut self, sandbox: &str) {
        let number = self.number();
        let id = ContainerId::parse(&format!("{number:064x}")).expect("an id");
        let path = format!("{}/{id}", pod_path(&self.pods[&self.sandboxes[sandbox].pod]));
        let runc = self.task("runc", 1);
        self.executed(runc.clone(), class::RUNTIME, &["runc", "create", "--bundle", "/b", id.as_str()]);
        let made = cgroup(u64::from(number), &path);
        self.kernel(Fact::CgroupCreated { cgroup: made.clone(), by: runc.clone() });
        self.kernel(Fact::CgroupRemoved { cgroup: made, by: runc.clone() });
        self.kernel(Fact::Exited(Exited { task: runc, status: 1 << 8, class: class::RUNTIME }));
    }

    /// All running containers of that name in a sandbox end.
    pub(crate) fn container_exits(&mut self, name: &str, sandbox: &str, code: u32) {
        if self.sandboxes[sandbox].under != Under::Runc {
            self.hidden_container_ends(name, sandbox, code << 8);
            return;
        }
        for (program, id) in self.take_running(name, sandbox) {
            self.ends(program, &id, sandbox, code << 8);
        }
    }

    /// StopContainer: the runtime sends SIGTERM to all running containers of that name in a sandbox, and they
    /// end.
    pub(crate) fn container_stops(&mut self, name: &str, sandbox: &str) {
        for (program, id) in self.take_running(name, sandbox) {
            let runc = self.task("runc", 1);
            self.executed(runc.clone(), class::RUNTIME, &["runc", "kill", id.as_str(), "15"]);
            let target = task(program.pid, 1, "main");
            self.kernel(Fact::Signaled(Signaled { target, signal: 15, code: 0, sender: runc }));
            self.ends(program, &id, sandbox, 15);
        }
    }

    /// A process of the node sends this signal to all running containers of that name in a sandbox, and they
    /// end. It is the same process for each container. systemd is PID 1.
    pub(crate) fn container_is_killed(&mut self, name: &str, sandbox: &str, by: &str, signal: u32) {
        let sender = self.killer(by);
        for (program, id) in self.take_running(name, sandbox) {
            let target = task(program.pid, 1, "main");
            self.kernel(Fact::Signaled(Signaled { target, signal, code: 0, sender: sender.clone() }));
            // It catches SIGTERM.
            self.ends(program, &id, sandbox, if signal == 15 { 0 } else { signal });
        }
    }

    /// Returns the process of the node that kills under this name.
    fn killer(&mut self, by: &str) -> Task {
        let new = if by == "systemd" { task(1, 0, by) } else { self.task(by, 1) };
        self.killers.entry(by.to_owned()).or_insert(new).clone()
    }

    /// Returns the id of the latest container in a sandbox.
    pub(crate) fn latest_container(&self, sandbox: &str) -> ContainerId {
        let key = self.sandboxes[sandbox].containers.last().expect("it has a container");
        self.containers[key].id.clone()
    }

    /// Returns the programs of all running containers of that name in a sandbox. They count as ended from now
    /// on.
    fn take_running(&mut self, name: &str, sandbox: &str) -> Vec<(Program, ContainerId)> {
        let keys = self.sandboxes[sandbox].containers.clone();
        let mut taken = Vec::new();
        for key in keys {
            let row = self.containers.get_mut(&key).expect("a container of the sandbox");
            if row.name == name
                && let Some(pid) = row.pid.take()
            {
                taken.push((Program { pid, number: row.cgroup, is_pause: false }, row.id.clone()));
            }
        }
        taken
    }

    /// The pause process ends, and its cgroup is empty.
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
            Death::Stranger => self.killer("chaos"),
            Death::OutOfMemory => self.task("chaos", 1),
        };
        let signaled = Signaled { target, signal: 9, code: 0, sender: sender.clone() };
        self.kernel(match death {
            Death::OutOfMemory => Fact::OomKilled(signaled),
            Death::Runtime | Death::Kubelet | Death::Stranger => Fact::Signaled(signaled),
        });
        if death == Death::Runtime {
            self.kernel(Fact::Exited(Exited { task: sender, status: 0, class: class::RUNTIME }));
        }
        self.ends(Program { pid, number, is_pause: true }, &id, name, 9);
    }

    /// The runtime kills everything in a sandbox and removes the cgroups.
    pub(crate) fn kill_all(&mut self, name: &str) {
        if self.sandboxes[name].under != Under::Runc {
            self.hidden_sandbox_ends(name);
            return;
        }
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
        self.shim_ends(name);
        let row = self.sandboxes.get_mut(name).expect("the sandbox is known");
        if let Some(number) = row.cgroup.take() {
            let path = format!("{}/{}", pod_path(&self.pods[&row.pod]), row.id);
            let by = self.task("runc", 1);
            self.kernel(Fact::CgroupRemoved { cgroup: cgroup(number, &path), by });
        }
    }

    pub(super) fn shim_ends(&mut self, name: &str) {
        let row = self.sandboxes.get_mut(name).expect("the sandbox is known");
        if let Some(pid) = row.shim.take() {
            let shim = task(pid, 1, "containerd-shim");
            self.kernel(Fact::Exited(Exited { task: shim, status: 0, class: class::RUNTIME }));
        }
    }

    /// A process of a sandbox ends, and its cgroup is empty.
    fn ends(&mut self, it: Program, id: &ContainerId, sandbox: &str, status: u32) {
        let Program { pid, number, is_pause } = it;
        if let Some(row) = self.containers.values_mut().find(|row| row.id == *id) {
            row.status = status;
        }
        let (comm, bits) = if is_pause { ("pause", class::PAUSE) } else { ("main", class::CONTAINER_TOP) };
        let mut who = task(pid, 1, comm);
        who.cgroup = CgroupKey::new(0, number);
        let path = format!("{}/{id}", pod_path(&self.pods[&self.sandboxes[sandbox].pod]));
        self.kernel(Fact::Exited(Exited { task: who, status, class: bits | class::IN_CONTAINER }));
        self.kernel(Fact::CgroupEmptied { cgroup: cgroup(number, &path) });
        self.tells(id, RuntimeEventKind::Stopped);
    }
}

/// In a story each pid belongs to one process only.
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
