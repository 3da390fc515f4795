//! The runtime, the kubelet, and the pods' cgroups that the kubelet makes and removes.

use probe_common::event::class;
use probe_user::model::{
    fact::{Exited, Fact, Family, Listened, Listener, Origin, ProgramFound, Signaled, Task},
    id::{CgroupKey, PodUid},
};

use super::{
    Pod, Sim,
    process::{cgroup, pod_path, task},
};

impl Sim {
    pub(crate) fn runtime_starts(&mut self) {
        let mut task = self.task("containerd", 1);
        task.key.start = self.now().0;
        self.runtime = Some(task.clone());
        self.executed(task, class::CALLER, &["/usr/bin/containerd"]);
        self.link();
    }

    pub(crate) fn kubelet_starts(&mut self) {
        let mut task = self.task("kubelet", 1);
        task.key.start = self.now().0;
        self.kubelet = Some(task.clone());
        self.executed(task, class::CALLER, &["/usr/bin/kubelet"]);
        self.emit(Origin::Listed, Fact::KubeletExpected(true));
        self.remove_ended_pods();
    }

    /// The kubelet starts, and its executable says this version.
    pub(crate) fn kubelet_starts_as(&mut self, version: &str) {
        self.kubelet_starts();
        let (path, version) = ("/usr/bin/kubelet".to_owned(), Some(version.to_owned()));
        self.emit(Origin::Listed, Fact::ProgramFound(ProgramFound { path, version }));
    }

    pub(crate) fn runtime_dies(&mut self) {
        if let Some(task) = self.runtime.take() {
            self.kernel(Fact::Exited(Exited { task, status: 9, class: class::CALLER }));
            self.link();
        }
    }

    pub(crate) fn kubelet_dies(&mut self) {
        if let Some(task) = self.kubelet.take() {
            self.kernel(Fact::Exited(Exited { task, status: 9, class: class::CALLER }));
        }
    }

    /// The kubelet or the runtime ends by itself with this exit code.
    pub(crate) fn daemon_fails(&mut self, by: &str, code: u32) {
        let task = self.daemon(by).expect("it runs");
        self.kernel(Fact::Exited(Exited { task, status: code << 8, class: class::CALLER }));
    }

    /// systemd ends the kubelet or the runtime, which exits with another code than 0.
    pub(crate) fn daemon_is_stopped(&mut self, by: &str) {
        let task = self.daemon(by).expect("it runs");
        let sender = self.task("systemd", 1);
        self.kernel(Fact::Signaled(Signaled { target: task.clone(), signal: 15, code: 0, sender }));
        self.kernel(Fact::Exited(Exited { task, status: 1 << 8, class: class::CALLER }));
    }

    fn daemon(&mut self, by: &str) -> Option<Task> {
        if by == "kubelet" { self.kubelet.take() } else { self.runtime.take() }
    }

    /// A program of the runtime is asked for something while the runtime does not run, and fails.
    pub(crate) fn runtime_is_asked(&mut self) {
        let task = self.task("containerd", 1);
        self.executed(task.clone(), class::CALLER, &["/usr/bin/containerd", "config", "dump"]);
        self.kernel(Fact::Exited(Exited { task, status: 1 << 8, class: class::CALLER }));
    }

    /// Starts a second runtime of this name, which the kubelet does not use.
    pub(crate) fn second_starts(&mut self, name: &str) {
        let mut task = self.task(name, 1);
        task.key.start = self.now().0;
        (self.second, self.second_runs) = (Some(task.clone()), true);
        self.executed(task, class::CALLER, &[&format!("/usr/bin/{name}")]);
    }

    pub(crate) fn second_dies(&mut self) {
        let task = self.second.clone().expect("the runtime runs");
        self.second_runs = false;
        self.kernel(Fact::Exited(Exited { task, status: 0x100, class: class::CALLER }));
    }

    /// The kubelet makes the pod's cgroup if it does not exist.
    pub(crate) fn pod(&mut self, name: &str) {
        let number = self.bound_pod(name);
        let pod = self.pods.get_mut(name).expect("the pod is known");
        if pod.cgroup.is_none() {
            pod.cgroup = Some(number);
            let cgroup = cgroup(number, &pod_path(pod));
            let by = self.by_kubelet();
            self.kernel(Fact::CgroupCreated { cgroup, by });
        }
    }

    /// A static pod. Its UID is the hash of its manifest.
    pub(crate) fn static_pod(&mut self, name: &str) {
        let uid = PodUid::parse(&format!("{:032x}", self.number())).expect("a UID");
        self.pods.insert(name.to_owned(), Pod { name: name.to_owned(), uid, cgroup: None });
    }

    /// The kubelet listens at a port.
    pub(crate) fn kubelet_listens(&mut self, port: u16) {
        let socket = Listener { port, family: Family::Ipv4 };
        let task = self.by_kubelet();
        self.kernel(Fact::Listened(Listened { task, container: CgroupKey::new(0, 0), socket }));
    }

    /// The API server binds the pod to the node. Returns a number for the pod.
    pub(super) fn bound_pod(&mut self, name: &str) -> u64 {
        let number = u64::from(self.number());
        self.pods.entry(name.to_owned()).or_insert_with(|| Pod {
            name: name.to_owned(),
            uid: PodUid::parse(&format!("11111111-2222-3333-4444-{number:012}")).expect("a UID"),
            cgroup: None,
        });
        number
    }

    /// The kubelet's record of the pod's containers is read.
    pub(crate) fn pod_has(&mut self, name: &str, containers: &str) {
        let uid = self.pods[name].uid.clone();
        let names = containers.split(',').map(str::to_owned).collect();
        self.emit(Origin::Listed, Fact::ContainersExpected { uid, names });
    }

    pub(crate) fn pod_is_deleted(&mut self, name: &str) {
        self.deleted.insert(self.pods[name].uid.clone());
    }

    pub(crate) fn pod_goes(&mut self, name: &str) {
        let pod = self.pods.get_mut(name).expect("the pod is known");
        let path = pod_path(pod);
        if let Some(number) = pod.cgroup.take() {
            let by = self.by_kubelet();
            self.kernel(Fact::CgroupRemoved { cgroup: cgroup(number, &path), by });
        }
    }

    /// The kubelet removes the cgroup of a pod when the runtime has forgotten the pod's last sandbox. The
    /// kubelet keeps that sandbox until the pod is done.
    pub(super) fn remove_ended_pods(&mut self) {
        let is_over = |pod: &Pod| {
            let mut all = self.sandboxes.values().filter(|row| row.pod == pod.name).peekable();
            let has_had = all.peek().is_some();
            has_had && all.all(|row| row.pause.is_none() && !self.recorded.contains(&row.id))
        };
        let over = self.pods.values().filter(|pod| is_over(pod)).map(|pod| pod.name.clone());
        for pod in over.collect::<Vec<_>>() {
            if self.kubelet.is_some() {
                self.pod_goes(&pod);
            }
        }
    }

    pub(super) fn by_runtime(&self) -> Task {
        self.runtime.clone().unwrap_or_else(|| task(1, 1, "containerd"))
    }

    pub(super) fn by_kubelet(&self) -> Task {
        self.kubelet.clone().unwrap_or_else(|| task(1, 1, "kubelet"))
    }
}
