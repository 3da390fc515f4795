//! The content of the node's files for the engine's questions.

use std::time::Duration;

use probe_user::model::{
    change::Question,
    fact::{
        Bound, CacheFound, ContainerFound, CpuUse, DaemonWordsFound, Fact, Holder, List, MemoryEvents,
        MessageFound, NameSource, Network, NetworkFault, NetworkFaultForm, NetworkLoading, NetworksRead,
        NodeFolders, Observation, Origin, PodName, Pool, Pressure, PressureRead, ProcessFound, Reservation,
        ReservationState, Role, RuntimeKind, RuntimeRead, RuntimeSandbox, Said, Speaker, Stall, Store,
        StoreKind, StoreRead, Task, WordsFound,
    },
    id::{CgroupKey, ContainerId, NetnsKey, PodUid, Subnet},
    time::Timestamp,
};

use super::{
    HOST, Ipam, NEWCOMER, NODES, Net, Pod, Sandbox, Sim, Under,
    plain::monitored,
    process::{cgroup, pod_path, task},
};

const RUNTIME: &str = "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes";
const CONFIGURATION: &str = "/etc/cni/net.d/10-podnet.conflist";

impl Sim {
    /// Returns the answer to a question, read completely now.
    #[must_use]
    pub(crate) fn answer(&mut self, question: &Question) -> Vec<Observation> {
        let facts = match question {
            Question::Container { id } if self.readable => vec![self.container(id)],
            Question::ProcessNetns { pid: pid @ (NODES | NEWCOMER) } => {
                vec![Fact::ProcessNetns { process: task(*pid, 1, "sshd").key, netns: HOST }]
            }
            Question::Records if self.readable => self.records(),
            Question::Relist if self.readable => self.node(),
            Question::Pod { uid } if self.deleted.contains(uid) => vec![Fact::PodUnknown(uid.clone())],
            Question::Container { .. }
            | Question::Records
            | Question::Relist
            | Question::Pod { .. }
            | Question::Expected { .. }
            | Question::Netns { .. }
            | Question::ProcessNetns { .. }
            | Question::Watch { .. }
            | Question::Held { .. }
            | Question::ImageWork { .. }
            | Question::HeldRequests { .. }
            | Question::Program { .. } => Vec::new(),
            Question::Words { uid, since, .. } => self.words(uid, *since),
            Question::DaemonWords { daemon, since } => vec![self.daemon_words(daemon, *since)],
            Question::Message { container, command, .. } => vec![Fact::MessageFound(MessageFound {
                container: container.clone(),
                command: *command,
                text: Some("no route to the daemon".to_owned()),
                source: "journal".to_owned(),
            })],
            Question::Process { process } => self.process_state(*process).into_iter().collect(),
            Question::Statuses => return self.statuses().into_iter().collect(),
            Question::Pressure { cgroup, .. } => vec![self.pressure(*cgroup)],
        };
        let at = self.now;
        facts.into_iter().map(|fact| Observation { at, origin: Origin::Listed, fact }).collect()
    }

    fn container(&self, id: &ContainerId) -> Fact {
        if let Some(row) = self.sandboxes.values().find(|row| row.id == *id) {
            return self.found(id, Role::Sandbox, id, None, &row.pod);
        }
        match self.containers.values().find(|row| row.id == *id) {
            Some(row) => {
                let sandbox = &self.sandboxes[&row.sandbox];
                self.found(id, Role::Container, &sandbox.id, Some(row.name.clone()), &sandbox.pod)
            }
            None => Fact::ContainerUnknown(id.clone()),
        }
    }

    fn found(
        &self,
        id: &ContainerId,
        role: Role,
        sandbox: &ContainerId,
        name: Option<String>,
        pod: &str,
    ) -> Fact {
        let sandbox = Some(sandbox.clone());
        let pod = Some(self.pod_name(pod));
        Fact::ContainerFound(ContainerFound {
            id: id.clone(),
            role,
            sandbox,
            name,
            pod,
            source: NameSource::Bundle,
            started: None,
        })
    }

    pub(super) fn pod_name(&self, pod: &str) -> PodName {
        let pod = &self.pods[pod];
        PodName {
            namespace: Some("default".to_owned()),
            name: Some(pod.name.clone()),
            uid: Some(pod.uid.clone()),
        }
    }

    /// The kubelet or the runtime logs an error about a pod.
    pub(crate) fn says(&mut self, by: &str, pod: &str, text: &str) {
        let said = Said {
            by: by.parse().expect("kubelet, runtime or plugin"),
            text: text.to_owned(),
            at: "2026-11-25T09:29:07Z".to_owned(),
            source: "journal".to_owned(),
        };
        self.said.push((self.now, pod.to_owned(), said));
    }

    /// Returns what was said about a pod since then, the latest first, and the pod's name if it was said.
    fn words(&self, uid: &PodUid, since: Timestamp) -> Vec<Fact> {
        let of_pod = self
            .said
            .iter()
            .filter(|(at, pod, _)| *at >= since && self.pods.get(pod).is_some_and(|pod| pod.uid == *uid));
        let named = of_pod.clone().map(|(_, pod, _)| pod.clone()).next();
        let said: Vec<Said> = of_pod.rev().map(|(_, _, said)| said.clone()).collect();
        let unsaid = said.is_empty().then(|| "it is not in the journal".to_owned());
        let mut facts = Vec::new();
        if let Some(name) = named {
            let namespace = "default".to_owned();
            let source = NameSource::KubeletLog;
            facts.push(Fact::PodFound { uid: uid.clone(), namespace, name, source });
        }
        facts.push(Fact::WordsFound(WordsFound { uid: uid.clone(), since, said, unsaid }));
        facts
    }

    /// Returns what a daemon said about itself since then, the latest first.
    fn daemon_words(&self, daemon: &str, since: Timestamp) -> Fact {
        let by = if daemon == "kubelet" { Speaker::Kubelet } else { Speaker::Runtime };
        let its = self.said.iter().filter(|(at, pod, said)| *at >= since && pod.is_empty() && said.by == by);
        let said: Vec<Said> = its.rev().map(|(_, _, said)| said.clone()).collect();
        let unsaid = said.is_empty().then(|| "it is not in the journal".to_owned());
        Fact::DaemonWordsFound(DaemonWordsFound { daemon: daemon.to_owned(), since, said, unsaid })
    }

    /// Returns the pressure of a pod's cgroup, which is throttled for a hundredth of all time without limits.
    fn pressure(&self, cgroup: CgroupKey) -> Fact {
        let hundredth = Duration::from_nanos(self.now.0 / 100);
        let seconds = self.now.0 / 1_000_000_000;
        let mut pressure = Pressure::default();
        let mut cpu = CpuUse { used: hundredth, throttled: hundredth, periods: seconds, limit: None };
        if self.limited {
            cpu = CpuUse { used: hundredth * 10, throttled: hundredth * 50, limit: Some(100), ..cpu };
            pressure.memory = Some(MemoryEvents { high: seconds, max: 0, oom: 0, limit: Some(48 << 20) });
            pressure.io_stall = Some(Stall { some: hundredth * 50, full: Duration::ZERO });
        }
        pressure.cpu = Some(cpu);
        Fact::PressureRead(PressureRead { cgroup, pressure })
    }

    /// Returns everything that lives, and the records.
    fn node(&self) -> Vec<Fact> {
        let mut facts = Vec::new();
        let mut list = |which: List, found: Vec<Fact>| {
            facts.push(Fact::ListBegun(which));
            facts.extend(found);
            facts.push(Fact::ListEnded { list: which, complete: true });
        };
        list(List::Containers, self.ids().map(|id| self.container(id)).collect());
        list(List::Cgroups, self.cgroups());
        list(List::Processes, self.processes());
        let bound = self.sandboxes.iter().filter(|(_, row)| row.netns_lives);
        let bound = bound.map(|(key, row)| Fact::NetnsFound {
            netns: NetnsKey::new(row.inode, 0),
            mounts: row.path.iter().cloned().collect(),
            vacant: row.pause.is_none()
                && !self.containers.values().any(|it| it.sandbox == *key && it.pid.is_some()),
        });
        list(List::Netns, bound.collect());
        facts.extend(self.records());
        facts
    }

    fn ids(&self) -> impl Iterator<Item = &ContainerId> {
        let sandboxes = self.sandboxes.values().filter(|row| row.pause.is_some()).map(|row| &row.id);
        sandboxes.chain(self.containers.values().filter(|row| row.pid.is_some()).map(|row| &row.id))
    }

    fn cgroups(&self) -> Vec<Fact> {
        let found = |number: u64, path: String, populated: bool| Fact::CgroupFound {
            cgroup: cgroup(number, &path),
            populated,
        };
        let of_pod = |pod: &Pod| {
            let path = pod_path(pod);
            let lives = self.sandboxes.values().any(|row| row.pod == pod.name && row.pause.is_some());
            Some(found(pod.cgroup?, path, lives))
        };
        let mut all: Vec<Fact> = self.pods.values().filter_map(of_pod).collect();
        for row in self.sandboxes.values() {
            let path = || format!("{}/{}", pod_path(&self.pods[&row.pod]), row.id);
            let populated = row.pause.is_some() && row.under.is_in_cgroup();
            all.extend(row.cgroup.map(|number| found(number, path(), populated)));
        }
        for row in self.containers.values().filter(|row| row.pid.is_some() && row.under != Under::Kata) {
            let pod = &self.pods[&self.sandboxes[&row.sandbox].pod];
            let populated = row.under == Under::Runc;
            all.push(found(row.cgroup, format!("{}/{}", pod_path(pod), row.id), populated));
        }
        all
    }

    fn processes(&self) -> Vec<Fact> {
        let found = |task: Task, ns_pid: u32, path: &str, filename: &str| {
            Fact::ProcessFound(ProcessFound {
                forged: false,
                task,
                argv: vec![filename.to_owned()],
                cgroup_path: path.to_owned(),
                ns_pid,
                cni: None,
                filename: filename.to_owned(),
            })
        };
        let monitor = |(id, pid): &(ContainerId, u32)| {
            let argv = ["/usr/bin/conmon", "-c", monitored(id)].map(str::to_owned);
            Fact::ProcessFound(ProcessFound {
                forged: false,
                task: task(*pid, 1, "conmon"),
                argv: argv.to_vec(),
                cgroup_path: "/machine.slice".to_owned(),
                ns_pid: *pid,
                cni: None,
                filename: "/usr/bin/conmon".to_owned(),
            })
        };
        let kubelet = self.kubelet.iter();
        let kubelet =
            kubelet.map(|task| found(task.clone(), task.key.pid, "/system.slice", "/usr/bin/kubelet"));
        let second = self.second.iter().filter(|_| self.second_runs).map(|task| {
            found(task.clone(), task.key.pid, "/system.slice", &format!("/usr/bin/{}", task.comm))
        });
        let containerd = self.runtime.iter();
        let containerd =
            containerd.map(|task| found(task.clone(), task.key.pid, "/system.slice", "/usr/bin/containerd"));
        let mut all: Vec<Fact> =
            containerd.chain(kubelet).chain(second).chain(self.plain.values().map(monitor)).collect();
        let shims = self.sandboxes.values().filter_map(|row| Some((row.shim?, row.under, &row.id)));
        all.extend(shims.map(|(pid, under, id)| {
            let argv = [under.shim(), "-namespace", "k8s.io", "-id", id.as_str(), "-address", "/x"];
            Fact::ProcessFound(ProcessFound {
                forged: false,
                task: task(pid, 1, "containerd-shim"),
                argv: argv.map(str::to_owned).to_vec(),
                cgroup_path: "/system.slice".to_owned(),
                ns_pid: pid,
                cni: None,
                filename: format!("/usr/bin/{}", under.shim()),
            })
        }));
        let mut inside = |pid: u32, comm: &str, number: u64, sandbox: &Sandbox, id: &ContainerId| {
            let mut who = task(pid, 1, comm);
            who.cgroup = CgroupKey::new(0, number);
            who.netns = sandbox.inode;
            let path = format!("{}/{id}", pod_path(&self.pods[&sandbox.pod]));
            all.push(found(who, 1, &path, &format!("/{comm}")));
        };
        for row in self.sandboxes.values() {
            if let (Some(pid), Some(number)) = (row.pause, row.cgroup) {
                match row.under {
                    Under::Runc => inside(pid, "pause", number, row, &row.id),
                    Under::GvisorAlone => inside(pid, "runsc", number, row, &row.id),
                    Under::Kata => inside(pid, "qemu-system-x86", number, row, &row.id),
                    Under::Gvisor => {}
                }
            }
        }
        for row in self.containers.values().filter(|row| row.under == Under::Runc) {
            if let Some(pid) = row.pid {
                inside(pid, "main", row.cgroup, &self.sandboxes[&row.sandbox], &row.id);
            }
        }
        all
    }

    /// Returns the records, runtimes first. If a runtime has forgotten a sandbox by then, no DEL for it will
    /// come.
    fn records(&self) -> Vec<Fact> {
        let mut facts = vec![Fact::ListBegun(List::Runtimes)];
        // The folder has only ids. The runtime itself also says whose they are.
        let pod_of = |id: &ContainerId| self.sandboxes.values().find(|row| row.id == *id);
        let named =
            |id: &ContainerId| pod_of(id).filter(|_| self.followed).map(|row| self.pod_name(&row.pod));
        let sandboxes = self.recorded.iter().map(|id| RuntimeSandbox { id: id.clone(), pod: named(id) });
        facts.push(Fact::RuntimeRead(RuntimeRead {
            place: RUNTIME.to_owned(),
            kind: Some(RuntimeKind::Containerd),
            sandboxes: sandboxes.collect(),
            complete: self.whole,
            unread: 0,
        }));
        if let Some(second) = &self.second {
            let (place, kind) = if second.comm == "crio" {
                ("/var/lib/containers/storage/overlay-containers/containers.json", RuntimeKind::Crio)
            } else {
                ("/var/lib/docker/containerd/daemon", RuntimeKind::Containerd)
            };
            facts.push(Fact::RuntimeRead(RuntimeRead {
                place: place.to_owned(),
                kind: Some(kind),
                sandboxes: Vec::new(),
                complete: true,
                unread: 0,
            }));
        }
        facts.push(Fact::ListEnded { list: List::Runtimes, complete: true });
        facts.push(Fact::ListBegun(List::CniCache));
        for ((container, ifname), (network, addresses)) in &self.cache {
            facts.push(Fact::CacheFound(CacheFound {
                network: network.clone(),
                container: container.clone(),
                ifname: ifname.clone(),
                addresses: addresses.iter().map(|address| Subnet { address: *address, prefix: 24 }).collect(),
                netns: None,
                args: Vec::new(),
            }));
        }
        facts.extend(self.torn.clone().map(|path| Fact::CacheUnread { path }));
        facts.push(Fact::ListEnded { list: List::CniCache, complete: true });
        facts.push(Fact::ListBegun(List::Ipam));
        facts.extend(self.nets.iter().filter(|net| net.ipam != Ipam::Cloud).map(|net| self.store(net)));
        facts.push(Fact::ListEnded { list: List::Ipam, complete: true });
        facts.push(self.networks());
        facts
    }

    /// What a reading of the configuration shows.
    pub(super) fn networks(&self) -> Fact {
        let is_configured = |net: &&Net| {
            !self.undecodable && !self.has_no_configuration && !self.unconfigured.contains(&net.name)
        };
        let networks = self.nets.iter().filter(is_configured).map(network).collect();
        Fact::NetworksRead(NetworksRead {
            written: None,
            networks,
            complete: self.configuration_whole && !self.undecodable,
            undecodable: self.undecodable.then(|| CONFIGURATION.to_owned()).into_iter().collect(),
            folders: NodeFolders { plugins: vec!["/opt/cni/bin".to_owned()], ..NodeFolders::default() },
            loading: self.loading(),
        })
    }

    /// How the runtime loads the configuration. It is unknown while a second runtime runs.
    fn loading(&self) -> Option<NetworkLoading> {
        if self.second_runs || !self.configuration_whole {
            return None;
        }
        let fault = |how, file: bool, error: Option<&str>, plugin: Option<&String>| NetworkFault {
            how,
            file: file.then(|| CONFIGURATION.to_owned()),
            error: error.map(str::to_owned),
            plugin: plugin.cloned(),
        };
        let fault = if self.has_no_configuration {
            Some(fault(NetworkFaultForm::NoConfiguration, false, None, None))
        } else if self.undecodable {
            let error = "EOF while parsing an object at line 3 column 0";
            Some(fault(NetworkFaultForm::BadConfiguration, true, Some(error), None))
        } else {
            self.missing.as_ref().map(|it| fault(NetworkFaultForm::PluginMissing, true, None, Some(it)))
        };
        Some(NetworkLoading { runtime: RuntimeKind::Containerd, folder: "/etc/cni/net.d".to_owned(), fault })
    }

    fn store(&self, net: &Net) -> Fact {
        let of_net = self.held.iter().filter(|((network, _), _)| *network == net.name);
        let emptied = self.emptied.iter().filter(|((network, _), _)| *network == net.name);
        let reservation = |address, (container, ifname): &(ContainerId, String)| Reservation {
            address,
            holder: Some(Holder { container: container.clone(), ifname: ifname.clone() }),
            since: Timestamp(1),
            in_words: false,
            pod: None,
            state: ReservationState::Held,
        };
        let kind = if net.ipam == Ipam::Keyed { StoreKind::Declared } else { StoreKind::HostLocal };
        Fact::StoreRead(StoreRead {
            store: Store {
                kind,
                path: format!("/var/lib/cni/networks/{}", net.name),
                network: Some(net.name.clone()),
                bound: Bound::Sandbox,
            },
            reservations: of_net
                .map(|((_, address), holder)| reservation(*address, holder))
                .chain(emptied.map(|((_, address), since)| Reservation {
                    address: *address,
                    holder: None,
                    since: *since,
                    in_words: false,
                    pod: None,
                    state: ReservationState::Held,
                }))
                .collect(),
            complete: true,
        })
    }
}

fn network(net: &Net) -> Network {
    let ipam = match net.ipam {
        Ipam::HostLocal => Some("host-local".to_owned()),
        Ipam::Keyed | Ipam::Cloud => None,
    };
    let pool = Pool {
        subnet: Subnet { address: [10, 88, 0, 0].into(), prefix: 24 },
        first: [10, 88, 0, 1].into(),
        last: [10, 88, 0, 254].into(),
        size: 253,
    };
    let plugins = std::iter::once(net.plugin.clone()).chain(net.chained.iter().cloned()).collect();
    let pools = if net.ipam == Ipam::HostLocal { vec![pool] } else { Vec::new() };
    Network { name: net.name.clone(), plugins, delegates: Vec::new(), ipam, pools }
}
