//! Describes what happens on a node in a few words, and the event stream as short lines.

mod line;
pub(super) mod run;

use probe_common::{event::class, id::CgroupKey};

use crate::{
    engine::world::CheckpointEntry,
    model::{
        fact::{
            Address, Attached, Caller, Cgroup, CniCalled, CniVariables, ContainerFound, Executed, Exited,
            Fact, Family, List, Listened, Listener, Loss, Mechanism, NameSource, Network, NetworksRead,
            NodeFolders, Observation, Origin, PodName, ProcessFound, Role, RuntimeKind, RuntimeRead,
            RuntimeSandbox, Signal, Signaled, Task,
        },
        id::{ContainerId, NetnsKey, PodUid, Subnet, TICK, TaskKey},
        time::Timestamp,
    },
};

pub(super) const UID: &str = "11111111-2222-3333-4444-555555555555";
pub(super) const HOST: u32 = 4_026_531_833;
pub(super) const POD_NETNS: u32 = 4_026_532_177;

/// The pids of the runtime's daemon and of the pod's shim.
pub(super) const CONTAINERD: u32 = 564;
pub(super) const SHIM: u32 = 623;

pub(super) fn id(digit: char) -> ContainerId {
    ContainerId::parse(&digit.to_string().repeat(64)).expect("an id")
}

pub(super) fn uid() -> PodUid {
    PodUid::parse(UID).expect("a UID")
}

pub(super) fn ms(at: u64) -> Timestamp {
    Timestamp(at * 1_000_000)
}

/// The path of a container's cgroup in the pod.
pub(super) fn leaf(digit: char) -> String {
    format!("/kubepods/besteffort/pod{UID}/{}", id(digit))
}

/// Facts in order. Each comes a millisecond after the one before, unless a time is given.
#[derive(Clone)]
pub(super) struct Story {
    /// The checkpoint of an earlier engine.
    pub(super) restored: Vec<CheckpointEntry>,
    pub(super) facts: Vec<Observation>,
    now: u64,
    /// How far the watermark is behind facts that are not ordered.
    lag: u64,
}

/// A process in a story. A pid is one process in the whole story.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) comm: &'static str,
    pub(super) cgroup: u64,
    pub(super) netns: u32,
}

pub(super) fn key(pid: u32) -> TaskKey {
    TaskKey::new(pid, u64::from(pid) * TICK)
}

impl Who {
    pub(super) const fn new(pid: u32, parent: u32, comm: &'static str) -> Self {
        Self { pid, parent, comm, cgroup: 1, netns: HOST }
    }

    /// Began at this time, in ms.
    pub(super) fn started(at: u64, parent: u32, comm: &'static str) -> Self {
        Self::new(u32::try_from(at * 1_000_000 / TICK).expect("a pid"), parent, comm)
    }

    pub(super) const fn within(self, cgroup: u64, netns: u32) -> Self {
        Self { cgroup, netns, ..self }
    }

    pub(super) fn task(self) -> Task {
        Task {
            key: key(self.pid),
            tid: self.pid,
            parent: key(self.parent),
            comm: self.comm.to_owned(),
            cgroup: CgroupKey::new(0, self.cgroup),
            netns: self.netns,
        }
    }
}

pub(super) const DAEMON: Who = Who::new(CONTAINERD, 1, "containerd");
pub(super) const KUBELET: Who = Who::new(500, 1, "kubelet");

impl Story {
    pub(super) fn new() -> Self {
        Self { restored: Vec::new(), facts: Vec::new(), now: 1, lag: 0 }
    }

    pub(super) fn lag(&mut self, lag: u64) -> &mut Self {
        self.lag = lag;
        self
    }

    /// Sets the time of the next fact.
    pub(super) fn at(&mut self, at: u64) -> &mut Self {
        self.now = at;
        self
    }

    pub(super) fn say(&mut self, origin: Origin, fact: Fact) -> &mut Self {
        self.facts.push(Observation { at: ms(self.now), origin, fact });
        self.now += 1;
        self
    }

    pub(super) fn kernel(&mut self, fact: Fact) -> &mut Self {
        self.say(Origin::Kernel, fact)
    }

    pub(super) fn listed(&mut self, fact: Fact) -> &mut Self {
        self.say(Origin::Listed, fact)
    }

    /// The node's only network was read, with this chain of plugins.
    pub(super) fn network(&mut self, name: &str, plugins: &[&str]) -> &mut Self {
        let plugins = plugins.iter().map(|&plugin| plugin.to_owned()).collect();
        let network =
            Network { name: name.to_owned(), plugins, delegates: Vec::new(), ipam: None, pools: Vec::new() };
        self.listed(Fact::NetworksRead(NetworksRead {
            written: None,
            networks: vec![network],
            complete: true,
            undecodable: Vec::new(),
            loading: None,
            folders: NodeFolders::default(),
        }))
    }

    pub(super) fn netns(&mut self, who: Who, inode: u32, cookie: u64) -> &mut Self {
        self.kernel(Fact::NetnsCreated {
            netns: NetnsKey::new(inode, cookie),
            by: who.task(),
            end_unseen: false,
        })
    }

    pub(super) fn dropped(&mut self, inode: u32, cookie: u64) -> &mut Self {
        let by = Who::new(789, CONTAINERD, "kworker/u4:1").task();
        self.kernel(Fact::NetnsDropped { netns: NetnsKey::new(inode, cookie), by })
    }

    pub(super) fn freed(&mut self, inode: u32) -> &mut Self {
        self.kernel(Fact::NetnsFreed { netns: NetnsKey::new(inode, 0) })
    }

    pub(super) fn address(&mut self, who: Who, inode: u32, text: &str, ifname: &str) -> &mut Self {
        let it = address(who, inode, text, ifname);
        self.kernel(Fact::AddressAdded(it))
    }

    pub(super) fn unaddress(&mut self, who: Who, inode: u32, text: &str, ifname: &str) -> &mut Self {
        let it = address(who, inode, text, ifname);
        self.kernel(Fact::AddressRemoved(it))
    }

    pub(super) fn exec(&mut self, who: Who, bits: u32, line: &str) -> &mut Self {
        self.kernel(executed(who, bits, line))
    }

    pub(super) fn exit(&mut self, who: Who, bits: u32, status: u32) -> &mut Self {
        self.kernel(Fact::Exited(Exited { task: who.task(), status, class: bits }))
    }

    pub(super) fn kill(&mut self, sender: Who, target: Who, signal: u32) -> &mut Self {
        self.kernel(Fact::Signaled(Signaled {
            target: target.task(),
            signal,
            code: 0,
            sender: sender.task(),
        }))
    }

    pub(super) fn mkdir(&mut self, number: u64, path: &str) -> &mut Self {
        self.kernel(Fact::CgroupCreated { cgroup: cgroup(number, path), by: KUBELET.task() })
    }

    pub(super) fn rmdir(&mut self, number: u64, path: &str) -> &mut Self {
        self.kernel(Fact::CgroupRemoved { cgroup: cgroup(number, path), by: KUBELET.task() })
    }

    pub(super) fn emptied(&mut self, number: u64, path: &str) -> &mut Self {
        self.kernel(Fact::CgroupEmptied { cgroup: cgroup(number, path) })
    }

    /// A socket of `who` listens, in the container whose own cgroup has this number.
    pub(super) fn listen(&mut self, who: Who, number: u64, port: u16) -> &mut Self {
        let socket = Listener { port, family: Family::Ipv4 };
        let container = CgroupKey::new(0, number);
        self.kernel(Fact::Listened(Listened { task: who.task(), container, socket }))
    }

    /// containerd calls a plugin for the pod's sandbox `s`.
    pub(super) fn cni(
        &mut self,
        pid: u32,
        parent: u32,
        plugin: &str,
        command: &str,
        netns: &str,
    ) -> &mut Self {
        self.kernel(Fact::CniCalled(call(pid, parent, plugin, command, netns, 'a')))
    }

    /// A whole call that succeeds after a millisecond.
    pub(super) fn cni_done(&mut self, pid: u32, plugin: &str, command: &str, netns: &str) -> &mut Self {
        self.cni(pid, CONTAINERD, plugin, command, netns);
        self.exit(Who::new(pid, CONTAINERD, "plugin"), class::CNI, 0)
    }

    /// A plugin that was running when it was found. The start time of its process follows from its pid.
    pub(super) fn cni_found(&mut self, it: CniCalled) -> &mut Self {
        let CniCalled { task, filename, variables, .. } = it;
        self.listed(Fact::ProcessFound(ProcessFound {
            forged: false,
            ns_pid: task.key.pid,
            task,
            argv: vec![filename.clone()],
            cgroup_path: "/".to_owned(),
            cni: Some(variables),
            filename,
        }))
    }

    pub(super) fn container(&mut self, digit: char, role: Role, sandbox: char, name: &str) -> &mut Self {
        self.listed(Fact::ContainerFound(ContainerFound {
            id: id(digit),
            role,
            sandbox: Some(id(sandbox)),
            name: (role == Role::Container).then(|| name.to_owned()),
            pod: Some(pod_name()),
            source: NameSource::Bundle,
            started: None,
        }))
    }

    pub(super) fn attached(&mut self, signal: Signal, mechanism: Option<Mechanism>) -> &mut Self {
        let it = Attached { signal, mechanism, note: String::new(), missed: Vec::new() };
        self.say(Origin::Agent, Fact::Attached(it))
    }

    /// The watermark passes, and timers that are due run.
    pub(super) fn moment(&mut self) -> &mut Self {
        self.say(Origin::Agent, Fact::Clock { boot_wall_ns: 0 })
    }

    /// Time passes in steps of half a second, and everything that is due happens. The next fact is at `at`.
    pub(super) fn until(&mut self, at: u64) -> &mut Self {
        while self.now + 700 < at {
            let now = self.now;
            self.at(now + 500).moment();
        }
        self.at(at - 200).moment().at(at - 1).moment()
    }

    pub(super) fn lost(&mut self) -> &mut Self {
        self.say(Origin::Agent, Fact::Lost { what: Loss::LifecycleRing, count: 3, since: None })
    }

    pub(super) fn list(&mut self, list: List, complete: bool, say: impl FnOnce(&mut Self)) -> &mut Self {
        self.listed(Fact::ListBegun(list));
        say(self);
        self.listed(Fact::ListEnded { list, complete })
    }

    pub(super) fn found(&mut self, who: Who, ns_pid: u32, path: &str, line: &str) -> &mut Self {
        self.listed(Fact::ProcessFound(ProcessFound {
            forged: false,
            task: who.task(),
            argv: words(line),
            cgroup_path: path.to_owned(),
            ns_pid,
            cni: None,
            filename: words(line).first().cloned().unwrap_or_default(),
        }))
    }

    /// containerd has these sandboxes on record. All belong to the story's pod.
    pub(super) fn on_record(&mut self, sandboxes: &[char]) -> &mut Self {
        let sandbox = |digit: &char| RuntimeSandbox { id: id(*digit), pod: Some(pod_name()) };
        let sandboxes = sandboxes.iter().map(sandbox).collect();
        let (place, kind) = ("/var/lib/containerd".to_owned(), Some(RuntimeKind::Containerd));
        self.listed(Fact::RuntimeRead(RuntimeRead { place, kind, sandboxes, complete: true, unread: 0 }))
    }
}

pub(super) fn address(who: Who, inode: u32, text: &str, ifname: &str) -> Address {
    let (ip, prefix) = text.split_once('/').expect("an address with its prefix");
    Address {
        netns: NetnsKey::new(inode, 0),
        address: Subnet {
            address: ip.parse().expect("an address"),
            prefix: prefix.parse().expect("a prefix"),
        },
        ifname: ifname.to_owned(),
        ifindex: 2,
        flags: 0,
        scope: 0,
        by: who.task(),
    }
}

pub(super) fn executed(who: Who, bits: u32, line: &str) -> Fact {
    let argv = words(line);
    let total: usize = argv.iter().map(|arg| arg.len() + 1).sum();
    Fact::Executed(Executed {
        task: who.task(),
        filename: argv.first().cloned().unwrap_or_default(),
        argv_total: u32::try_from(total).expect("short"),
        argv,
        class: bits,
        ns_pid: who.pid,
        pid_ns: 1,
        mnt_ns: 1,
    })
}

pub(super) fn cgroup(number: u64, path: &str) -> Cgroup {
    let level = u32::try_from(path.matches('/').count()).expect("short");
    Cgroup { key: CgroupKey::new(0, number), path: path.to_owned(), level, nested: false }
}

pub(super) fn call(
    pid: u32,
    parent: u32,
    plugin: &str,
    command: &str,
    netns: &str,
    digit: char,
) -> CniCalled {
    let args = format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={UID}",
        id(digit)
    );
    CniCalled {
        task: Who::new(pid, parent, "plugin").task(),
        filename: plugin.to_owned(),
        caller: Some(Caller { key: key(CONTAINERD), comm: "containerd".to_owned() }),
        host: true,
        variables: CniVariables {
            command: command.to_owned(),
            container_id: Some(id(digit).as_str().to_owned()),
            netns: Some(netns.to_owned()),
            ifname: Some(if plugin.ends_with("loopback") { "lo" } else { "eth0" }.to_owned()),
            args: Some(args),
            path: Some("/opt/other:/usr/lib/cni/".to_owned()),
            ..CniVariables::default()
        },
        env_truncated: false,
    }
}

pub(super) fn pod_name() -> PodName {
    PodName { namespace: Some("default".to_owned()), name: Some("web-0".to_owned()), uid: Some(uid()) }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}
