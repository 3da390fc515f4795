//! A pod's life as hooks report it, in the order that was traced with containerd 1.6, runc 1.1 and the bridge
//! plugin.

use probe_common::event::class;
use probe_engine::model::{
    fact::{
        Address, Caller, Cgroup, CniCalled, CniVariables, Executed, Exited, Fact, Family, Listened, Listener,
        Observation, Origin, SIGKILL, Signaled, Task,
    },
    id::{NetnsKey, Subnet},
    time::Timestamp,
};

use crate::pod::{MAIN, PASSING, PAUSE, Pod, SHIM, containerd, kubelet};

/// The class bits of a container's own first program.
const TOP: u32 = class::CONTAINER_TOP | class::IN_CONTAINER;

/// A sequence of events.
pub(crate) struct Script {
    pub(crate) facts: Vec<Observation>,
    pub(crate) at: Timestamp,
    step_us: u64,
    passing: u32,
}

impl Script {
    pub(crate) fn new(at: Timestamp, step_us: u64) -> Self {
        Self { facts: Vec::with_capacity(128), at, step_us, passing: PASSING }
    }

    fn say(&mut self, fact: Fact) {
        self.facts.push(Observation { at: self.at, origin: Origin::Kernel, fact });
        self.at.0 += self.step_us * 1000;
    }

    /// RunPodSandbox, then CreateContainer and StartContainer.
    pub(crate) fn start(&mut self, pod: &Pod) {
        self.passing = PASSING;
        let [cgroup, sandbox, container] = pod.cgroups();
        self.say(Fact::CgroupCreated { cgroup, by: kubelet() });
        self.say(Fact::NetnsCreated { netns: pod.netns(), by: containerd(), end_unseen: false });
        self.network(pod, true);
        let starter = self.passing(pod, "containerd-shim");
        self.exec(
            &starter,
            class::RUNTIME,
            &format!("/usr/bin/containerd-shim-runc-v2 -id {} start", pod.ids[0]),
        );
        let shim = pod.task(SHIM, "containerd-shim", pod.began_at);
        self.exec(&shim, class::RUNTIME, &format!("containerd-shim-runc-v2 -id {} -address /x", pod.ids[0]));
        self.exit(starter, class::RUNTIME, 0);
        let pause = pod.task_within(1, PAUSE, "pause", pod.began_at);
        self.create(pod, 0, sandbox, &pause, "/pause");
        let main = pod.task_within(2, MAIN, "main", pod.began_at);
        self.create(pod, 1, container, &main, "/bin/main --serve");
        let socket = Listener { port: 8080, family: Family::Ipv6 };
        self.say(Fact::Listened(Listened { container: main.cgroup, task: main, socket }));
    }

    /// `runc create` and `runc start` of a sandbox (0) or a container (1).
    fn create(&mut self, pod: &Pod, which: usize, cgroup: Cgroup, it: &Task, line: &str) {
        let id = &pod.ids[which];
        let bits = if which == 0 { TOP | class::PAUSE } else { TOP };
        let runc = self.passing(pod, "runc");
        self.exec(&runc, class::RUNTIME, &format!("runc --root /r create --bundle /b {id}"));
        self.say(Fact::CgroupCreated { cgroup: cgroup.clone(), by: runc.clone() });
        self.say(Fact::CgroupEntered { cgroup, member: it.key, by: runc.clone() });
        self.exec(it, TOP, "runc init");
        self.exit(runc, class::RUNTIME, 0);
        let runc = self.passing(pod, "runc");
        self.exec(&runc, class::RUNTIME, &format!("runc --root /r start {id}"));
        self.exec(it, bits, line);
        self.exit(runc, class::RUNTIME, 0);
    }

    /// A probe in a container, as the kubelet has the runtime execute it.
    pub(crate) fn probe(&mut self, pod: &Pod) {
        self.passing = PASSING + 24;
        let [.., cgroup] = pod.cgroups();
        let runc = self.passing(pod, "runc");
        self.exec(&runc, class::RUNTIME, &format!("runc --root /r exec --process /p {}", pod.ids[1]));
        let process = self.passing;
        self.passing += 1;
        let probe = pod.task_within(2, process, "probe", self.at);
        self.say(Fact::CgroupEntered { cgroup, member: probe.key, by: runc.clone() });
        self.exec(&probe, TOP, "runc init");
        self.exec(&probe, TOP, "/bin/probe --ready");
        self.exit(probe, TOP, 0);
        self.exit(runc, class::RUNTIME, 0);
    }

    /// StopPodSandbox and RemovePodSandbox.
    pub(crate) fn end(&mut self, pod: &Pod) {
        self.passing = PASSING + 32;
        let [cgroup, sandbox, container] = pod.cgroups();
        let main = pod.task_within(2, MAIN, "main", pod.began_at);
        self.delete(pod, 1, container, main, TOP);
        let pause = pod.task_within(1, PAUSE, "pause", pod.began_at);
        self.delete(pod, 0, sandbox, pause, TOP | class::PAUSE);
        self.network(pod, false);
        self.netns_goes(pod);
        self.exit(pod.task(SHIM, "containerd-shim", pod.began_at), class::RUNTIME, 0);
        self.cgroup_goes(cgroup, kubelet());
    }

    /// An ADD that fails, and the runtime's cleanup after it.
    pub(crate) fn fail(&mut self, pod: &Pod) {
        self.passing = PASSING;
        self.say(Fact::NetnsCreated { netns: pod.netns(), by: containerd(), end_unseen: false });
        let loopback = self.call(pod, "loopback", "ADD", "lo");
        self.exit(loopback, class::CNI, 0);
        let bridge = self.call(pod, "bridge", "ADD", "eth0");
        self.exit(bridge, class::CNI, 0x100);
        for (plugin, ifname) in [("bridge", "eth0"), ("loopback", "lo")] {
            let call = self.call(pod, plugin, "DEL", ifname);
            self.exit(call, class::CNI, 0);
        }
        self.netns_goes(pod);
    }

    /// `runc kill` and `runc delete`.
    fn delete(&mut self, pod: &Pod, which: usize, cgroup: Cgroup, it: Task, bits: u32) {
        let id = &pod.ids[which];
        let runc = self.passing(pod, "runc");
        self.exec(&runc, class::RUNTIME, &format!("runc --root /r kill {id} 9"));
        self.say(Fact::Signaled(Signaled {
            target: it.clone(),
            signal: SIGKILL,
            code: 0,
            sender: runc.clone(),
        }));
        self.exit(it, bits, SIGKILL);
        self.say(Fact::CgroupEmptied { cgroup: cgroup.clone() });
        self.exit(runc, class::RUNTIME, 0);
        let runc = self.passing(pod, "runc");
        self.exec(&runc, class::RUNTIME, &format!("runc --root /r delete {id}"));
        self.cgroup_goes(cgroup, runc.clone());
        self.exit(runc, class::RUNTIME, 0);
    }

    fn cgroup_goes(&mut self, cgroup: Cgroup, by: Task) {
        self.say(Fact::CgroupRemoved { cgroup: cgroup.clone(), by });
        self.say(Fact::CgroupReleased { cgroup });
    }

    fn netns_goes(&mut self, pod: &Pod) {
        self.say(Fact::NetnsDropped { netns: pod.netns(), by: containerd() });
        self.say(Fact::NetnsFreed { netns: NetnsKey::new(pod.netns().inode, 0) });
    }

    /// ADD or DEL of each plugin.
    fn network(&mut self, pod: &Pod, is_add: bool) {
        let command = if is_add { "ADD" } else { "DEL" };
        let loopback = self.call(pod, "loopback", command, "lo");
        let own = Subnet { address: [127, 0, 0, 1].into(), prefix: 8 };
        self.address(pod, own, "lo", &loopback, is_add);
        self.exit(loopback, class::CNI, 0);
        if !is_add {
            let portmap = self.call(pod, "portmap", command, "eth0");
            self.exit(portmap, class::CNI, 0);
        }
        let bridge = self.call(pod, "bridge", command, "eth0");
        let ipam = self.call_from(&bridge, pod, "host-local", command, "eth0");
        self.exit(ipam, class::CNI, 0);
        self.address(pod, pod.subnet(), "eth0", &bridge, is_add);
        self.exit(bridge, class::CNI, 0);
        if is_add {
            let portmap = self.call(pod, "portmap", command, "eth0");
            self.exit(portmap, class::CNI, 0);
        }
    }

    fn address(&mut self, pod: &Pod, address: Subnet, ifname: &str, by: &Task, is_added: bool) {
        let it = Address {
            netns: pod.netns(),
            address,
            ifname: ifname.to_owned(),
            ifindex: 2,
            flags: 0,
            scope: 0,
            by: by.clone(),
        };
        self.say(if is_added { Fact::AddressAdded(it) } else { Fact::AddressRemoved(it) });
    }

    fn call(&mut self, pod: &Pod, plugin: &str, command: &str, ifname: &str) -> Task {
        self.call_from(&containerd(), pod, plugin, command, ifname)
    }

    fn call_from(&mut self, parent: &Task, pod: &Pod, plugin: &str, command: &str, ifname: &str) -> Task {
        let mut task = self.passing(pod, plugin);
        task.parent = parent.key;
        let runtime = containerd();
        self.say(Fact::CniCalled(CniCalled {
            task: task.clone(),
            filename: format!("/opt/cni/bin/{plugin}"),
            caller: Some(Caller { key: runtime.key, comm: runtime.comm }),
            host: true,
            variables: CniVariables {
                command: command.to_owned(),
                container_id: Some(pod.ids[0].clone()),
                netns: Some(pod.netns_path()),
                ifname: Some(ifname.to_owned()),
                args: Some(pod.cni_args()),
                path: Some("/opt/cni/bin".to_owned()),
                ..CniVariables::default()
            },
            env_truncated: false,
        }));
        task
    }

    /// Makes a short-lived process that begins now.
    fn passing(&mut self, pod: &Pod, comm: &str) -> Task {
        let process = self.passing;
        self.passing += 1;
        pod.task(process, comm, self.at)
    }

    fn exec(&mut self, task: &Task, bits: u32, line: &str) {
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        self.say(Fact::Executed(Executed {
            ns_pid: task.key.pid,
            task: task.clone(),
            filename: argv.first().cloned().unwrap_or_default(),
            argv_total: u32::try_from(line.len() + 1).expect("short"),
            argv,
            class: bits,
            pid_ns: 1,
            mnt_ns: 1,
        }));
    }

    fn exit(&mut self, task: Task, bits: u32, status: u32) {
        self.say(Fact::Exited(Exited { task, status, class: bits }));
    }
}
