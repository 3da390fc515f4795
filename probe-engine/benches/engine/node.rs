//! The node's files and processes: what exists when the agent begins, and what is read when the engine asks.

use std::collections::BTreeMap;

use probe_engine::model::{
    change::Question,
    fact::{
        Address, Bound, CacheFound, ContainerFound, Fact, Holder, List, MessageFound, NameSource, Network,
        NetworksRead, NodeFolders, Observation, Origin, Pool, Pressure, PressureRead, ProcessFound,
        ProgramFound, RecordsDiff, Reservation, ReservationState, Role, RuntimeKind, RuntimeRead,
        RuntimeSandbox, Store, StoreKind, StoreRead, Task,
    },
    id::{ContainerId, NetnsKey, PodUid, Subnet},
    time::Timestamp,
};

use crate::{
    SHARERS,
    pod::{MAIN, PAUSE, Pod, SHIM, address, containerd, full_id, kubelet, parse},
    scenario::Scenario,
};

/// When the pods began that exist at first.
const BEGAN: Timestamp = Timestamp(1_000_000_000);
/// The first number of pods that come and go, above the numbers of pods that stay.
const FIRST_COMING: u64 = 40_000;
/// The first number of dead sandboxes that hold an address in a store.
const FIRST_LEASE: u64 = 1_000_000;
/// The first inode of namespaces without a pod.
const FIRST_NAMESPACE: u32 = 4_030_000_000;

pub(crate) struct Node {
    /// The live pods, by number.
    pods: BTreeMap<u64, Pod>,
    /// The pod of each sandbox and container.
    numbers: BTreeMap<String, (u64, Role)>,
    uids: BTreeMap<PodUid, u64>,
    staying: u64,
    leases: u64,
    namespaces: u32,
    next: u64,
    diff: RecordsDiff,
}

impl Node {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let mut node = Self {
            pods: BTreeMap::new(),
            numbers: BTreeMap::new(),
            uids: BTreeMap::new(),
            staying: scenario.pods,
            leases: scenario.leases,
            namespaces: u32::try_from(scenario.namespaces).expect("so many namespaces"),
            next: FIRST_COMING,
            diff: RecordsDiff::default(),
        };
        let sharing = scenario.findings * SHARERS;
        for number in 0..scenario.pods + sharing {
            let mut pod = Pod::new(number, BEGAN);
            if let Some(place) = number.checked_sub(scenario.pods) {
                pod.address = address(scenario.pods + place / SHARERS);
            }
            node.insert(number, pod);
        }
        node
    }

    /// Begins a pod now.
    pub(crate) fn begin(&mut self, at: Timestamp) -> u64 {
        let number = self.next;
        self.next += 1;
        self.insert(number, Pod::new(number, at));
        number
    }

    /// Makes a try of one of `of_pods` pods whose ADD fails.
    pub(crate) fn begin_failing(&mut self, of_pods: u64, at: Timestamp) -> Pod {
        let number = self.next;
        self.next += 1;
        Pod::tried_again(number, FIRST_LEASE + number % of_pods, at)
    }

    pub(crate) fn pod(&self, number: u64) -> &Pod {
        &self.pods[&number]
    }

    /// Returns one of the pods that stay.
    pub(crate) fn staying(&self, turn: u64) -> Option<&Pod> {
        (self.staying > 0).then(|| &self.pods[&(turn % self.staying)])
    }

    pub(crate) fn end(&mut self, number: u64) -> Pod {
        self.pods.remove(&number).expect("it lives")
    }

    fn insert(&mut self, number: u64, pod: Pod) {
        self.numbers.insert(pod.ids[0].clone(), (number, Role::Sandbox));
        self.numbers.insert(pod.ids[1].clone(), (number, Role::Container));
        self.uids.insert(pod.uid(), number);
        self.pods.insert(number, pod);
    }

    /// Answers a question as the agent does: a relisting reports the records whole, other readings only their
    /// changes.
    pub(crate) fn answer(&mut self, question: &Question, at: Timestamp) -> Vec<Observation> {
        let facts = match question {
            Question::Container { id } => vec![self.container(id)],
            Question::Pod { uid } => self.of_uid(uid, found),
            Question::Netns { .. } | Question::ProcessNetns { .. } => Vec::new(),
            Question::Expected { uid } => self.of_uid(uid, |pod| Fact::ContainersExpected {
                uid: pod.uid(),
                names: vec!["main".to_owned()],
            }),
            Question::Watch { .. }
            | Question::Held { .. }
            | Question::Statuses
            | Question::Process { .. }
            | Question::ImageWork { .. }
            | Question::HeldRequests { .. }
            | Question::Words { .. }
            | Question::DaemonWords { .. } => Vec::new(),
            Question::Relist => {
                self.diff = RecordsDiff::default();
                self.all()
            }
            Question::Records => self.records(),
            Question::Program { path } => {
                vec![Fact::ProgramFound(ProgramFound {
                    path: path.clone(),
                    version: Some("1.1.1".to_owned()),
                })]
            }
            Question::Message { container, command, .. } => vec![Fact::MessageFound(MessageFound {
                container: container.clone(),
                command: *command,
                text: Some("no route to the daemon".to_owned()),
                source: "journal".to_owned(),
            })],
            Question::Pressure { cgroup, .. } => {
                vec![Fact::PressureRead(PressureRead { cgroup: *cgroup, pressure: Pressure::default() })]
            }
        };
        let seen = facts.into_iter().map(|fact| Observation { at, origin: Origin::Listed, fact });
        self.diff.reduce(seen.collect())
    }

    fn of_uid(&self, uid: &PodUid, fact: impl Fn(&Pod) -> Fact) -> Vec<Fact> {
        let pod = self.uids.get(uid).and_then(|number| self.pods.get(number));
        pod.map(fact).into_iter().collect()
    }

    fn container(&self, id: &ContainerId) -> Fact {
        let known = self.numbers.get(id.as_str());
        let known = known.and_then(|(number, role)| Some((self.pods.get(number)?, *role)));
        known.map_or_else(|| Fact::ContainerUnknown(id.clone()), |(pod, role)| bundle(pod, role))
    }

    /// Lists everything on the node, and the records.
    fn all(&self) -> Vec<Fact> {
        let mut facts = vec![Fact::KubeletExpected(true)];
        let mut list = |list: List, found: Vec<Fact>| {
            facts.push(Fact::ListBegun(list));
            facts.extend(found);
            facts.push(Fact::ListEnded { list, complete: true });
        };
        let pods = || self.pods.values();
        list(
            List::Containers,
            pods().flat_map(|pod| [Role::Sandbox, Role::Container].map(|it| bundle(pod, it))).collect(),
        );
        list(List::Pods, pods().map(found).collect());
        let cgroups = pods().flat_map(Pod::cgroups);
        list(List::Cgroups, cgroups.map(|cgroup| Fact::CgroupFound { cgroup, populated: true }).collect());
        let daemons = [(containerd(), "/usr/bin/containerd"), (kubelet(), "/usr/bin/kubelet")];
        let mut processes: Vec<Fact> =
            daemons.into_iter().map(|(task, filename)| process(task, "/system.slice", filename)).collect();
        processes.extend(pods().flat_map(processes_of));
        list(List::Processes, processes);
        let own = pods().map(|pod| Fact::NetnsFound {
            netns: pod.netns(),
            mounts: vec![pod.netns_path()],
            vacant: false,
        });
        let others = (0..self.namespaces).map(|number| Fact::NetnsFound {
            netns: NetnsKey::new(FIRST_NAMESPACE + number, u64::from(FIRST_NAMESPACE + number)),
            mounts: vec![format!("/run/netns/other-{number}")],
            vacant: true,
        });
        list(List::Netns, own.chain(others).collect());
        list(List::Addresses, pods().map(address_of).collect());
        facts.extend(self.records());
        facts
    }

    /// Reads the records, runtimes first, as the agent does.
    fn records(&self) -> Vec<Fact> {
        let mut facts = vec![Fact::ListBegun(List::Runtimes)];
        let of_pods =
            self.pods.values().map(|pod| RuntimeSandbox { id: pod.sandbox(), pod: Some(pod.name()) });
        let kept = (0..self.leases).filter(|number| number % 2 == 0);
        let others = kept.map(|number| RuntimeSandbox { id: lease_holder(number), pod: None });
        facts.push(Fact::RuntimeRead(RuntimeRead {
            place: "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes".to_owned(),
            kind: Some(RuntimeKind::Containerd),
            sandboxes: of_pods.chain(others).collect(),
            complete: true,
            unread: 0,
        }));
        facts.push(Fact::ListEnded { list: List::Runtimes, complete: true });
        facts.push(Fact::ListBegun(List::CniCache));
        facts.extend(self.pods.values().map(|pod| {
            Fact::CacheFound(CacheFound {
                network: "podnet".to_owned(),
                container: pod.sandbox(),
                ifname: "eth0".to_owned(),
                addresses: vec![pod.subnet()],
                netns: Some(pod.netns_path()),
                args: vec![("K8S_POD_UID".to_owned(), pod.uid().as_str().to_owned())],
            })
        }));
        facts.push(Fact::ListEnded { list: List::CniCache, complete: true });
        facts.push(Fact::ListBegun(List::Ipam));
        facts.push(self.store());
        facts.push(Fact::ListEnded { list: List::Ipam, complete: true });
        facts.push(Fact::NetworksRead(NetworksRead {
            written: None,
            networks: vec![network()],
            complete: true,
            undecodable: Vec::new(),
            loading: None,
            folders: NodeFolders::default(),
        }));
        facts
    }

    fn store(&self) -> Fact {
        let reserved = |address, container| Reservation {
            address,
            holder: Some(Holder { container, ifname: "eth0".to_owned() }),
            since: Timestamp(1),
            in_words: false,
            pod: None,
            state: ReservationState::Held,
        };
        let of_pods = self.pods.values().map(|pod| reserved(pod.address, pod.sandbox()));
        let others =
            (0..self.leases).map(|number| reserved(address(FIRST_LEASE + number), lease_holder(number)));
        Fact::StoreRead(StoreRead {
            store: Store {
                kind: StoreKind::HostLocal,
                path: "/var/lib/cni/networks/podnet".to_owned(),
                network: Some("podnet".to_owned()),
                bound: Bound::Sandbox,
            },
            reservations: of_pods.chain(others).collect(),
            complete: true,
        })
    }
}

fn lease_holder(number: u64) -> ContainerId {
    parse(&full_id((FIRST_LEASE + number) * 2))
}

fn network() -> Network {
    let pool = Pool {
        subnet: Subnet { address: [10, 0, 0, 0].into(), prefix: 8 },
        first: [10, 0, 0, 2].into(),
        last: [10, 255, 255, 254].into(),
        size: 16_777_213,
    };
    Network {
        name: "podnet".to_owned(),
        plugins: ["bridge", "portmap"].map(str::to_owned).to_vec(),
        delegates: Vec::new(),
        ipam: Some("host-local".to_owned()),
        pools: vec![pool],
    }
}

fn bundle(pod: &Pod, role: Role) -> Fact {
    let (id, name) = match role {
        Role::Sandbox => (pod.sandbox(), None),
        Role::Container => (pod.container(), Some("main".to_owned())),
    };
    Fact::ContainerFound(ContainerFound {
        id,
        role,
        sandbox: Some(pod.sandbox()),
        name,
        pod: Some(pod.name()),
        source: NameSource::Bundle,
        started: None,
    })
}

fn found(pod: &Pod) -> Fact {
    let name = pod.name();
    Fact::PodFound {
        uid: pod.uid(),
        namespace: name.namespace.unwrap_or_default(),
        name: name.name.unwrap_or_default(),
        source: NameSource::LogFolder,
    }
}

fn processes_of(pod: &Pod) -> [Fact; 3] {
    let [_, sandbox, container] = pod.cgroups();
    let mut shim = process(
        pod.task(SHIM, "containerd-shim", pod.began_at),
        "/system.slice",
        "/usr/bin/containerd-shim-runc-v2",
    );
    if let Fact::ProcessFound(it) = &mut shim {
        it.argv.extend(["-id".to_owned(), pod.ids[0].clone()]);
    }
    [
        shim,
        process(pod.task_within(1, PAUSE, "pause", pod.began_at), &sandbox.path, "/pause"),
        process(pod.task_within(2, MAIN, "main", pod.began_at), &container.path, "/bin/main"),
    ]
}

fn process(task: Task, cgroup_path: &str, filename: &str) -> Fact {
    let ns_pid = if cgroup_path.starts_with("/kubepods") { 1 } else { task.key.pid };
    Fact::ProcessFound(ProcessFound {
        task,
        argv: vec![filename.to_owned()],
        cgroup_path: cgroup_path.to_owned(),
        ns_pid,
        cni: None,
        filename: filename.to_owned(),
        forged: false,
    })
}

fn address_of(pod: &Pod) -> Fact {
    Fact::AddressFound(Address {
        netns: pod.netns(),
        address: pod.subnet(),
        ifname: "eth0".to_owned(),
        ifindex: 2,
        flags: 0,
        scope: 0,
        by: Task::default(),
    })
}
