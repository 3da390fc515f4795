//! A simulated node: a kubelet, a runtime, CNI plugins and their IPAM. Their actions become facts, and the
//! simulation knows which addresses are allocated. Stories and property tests run on it.
//!
//! **Invariant:** the simulation knows nothing of findings. Its IPAM content is the truth that findings are
//! compared with.

mod answer;
mod cri;
mod daemon;
mod hidden;
mod plain;
mod plugin;
mod process;
mod sandbox;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use probe_user::model::{
    fact::{Answer, Fact, Loss, Observation, Origin, Said, Task},
    id::{ContainerId, PodUid},
    time::Timestamp,
};

pub(crate) use hidden::Under;
pub(crate) use plugin::{Add, Del};
pub(crate) use process::Death;

/// How a network's plugin finds the addresses to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ipam {
    /// Finds it by container id in a store, as bridge with host-local does.
    HostLocal,
    /// Finds it through the namespace, in a declared store. Without the namespace it frees nothing.
    Keyed,
    /// Finds it through the namespace. Nobody can read its store.
    Cloud,
}

/// A network that pods can be attached to.
#[derive(Clone, Debug)]
pub(crate) struct Net {
    pub(crate) name: String,
    pub(crate) plugin: String,
    pub(crate) ipam: Ipam,
    /// Plugins after the first.
    pub(crate) chained: Vec<String>,
    pub(crate) ifname: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) uid: PodUid,
    /// The id of its cgroup, while it exists.
    cgroup: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: ContainerId,
    pub(crate) pod: String,
    inode: u32,
    /// The path of the namespace's file, while it is bound.
    path: Option<String>,
    netns_lives: bool,
    pause: Option<u32>,
    under: Under,
    shim: Option<u32>,
    cgroup: Option<u64>,
    /// Its addresses by network.
    addresses: BTreeMap<String, Vec<IpAddr>>,
    containers: Vec<String>,
}

#[derive(Clone, Debug)]
struct Container {
    id: ContainerId,
    name: String,
    sandbox: String,
    pid: Option<u32>,
    under: Under,
    cgroup: u64,
    /// How its program ended, in the form of wait(2).
    status: u32,
}

/// An attachment in libcni's cache: its network and its addresses.
type Cached = (String, Vec<IpAddr>);

/// The holder of each address, by network and address.
pub(crate) type Held = BTreeMap<(String, IpAddr), (ContainerId, String)>;

pub(crate) struct Sim {
    now: Timestamp,
    facts: Vec<Observation>,
    pub(crate) nets: Vec<Net>,
    pods: BTreeMap<String, Pod>,
    sandboxes: BTreeMap<String, Sandbox>,
    containers: BTreeMap<String, Container>,
    /// The truth: the addresses that the IPAM of each network holds.
    pub(crate) held: Held,
    /// The addresses whose file in the store is empty, and since when.
    emptied: BTreeMap<(String, IpAddr), Timestamp>,
    cache: BTreeMap<(ContainerId, String), Cached>,
    /// The sandboxes in the runtime's records.
    recorded: BTreeSet<ContainerId>,
    runtime: Option<Task>,
    kubelet: Option<Task>,
    /// A second runtime, once it has run.
    second: Option<Task>,
    second_runs: bool,
    next: u32,
    /// Whether the stores and the runtime's records can be read.
    pub(crate) readable: bool,
    /// Whether the runtime's records can be read completely.
    pub(crate) whole: bool,
    /// Networks that no configuration names any more.
    pub(crate) unconfigured: BTreeSet<String>,
    /// Whether the networks' configuration can be read completely.
    pub(crate) configuration_whole: bool,
    /// The file of the CNI configuration is cut off.
    pub(crate) undecodable: bool,
    /// There is no file of a CNI configuration.
    pub(crate) has_no_configuration: bool,
    /// The plugin whose executable is missing.
    pub(crate) missing: Option<String>,
    /// The path of an unreadable file in libcni's cache.
    pub(crate) torn: Option<String>,
    /// The intended content of that file.
    half_written: Option<((ContainerId, String), Cached)>,
    /// Whether the runtime is followed over CRI.
    followed: bool,
    /// How it answers while it runs.
    answer: Answer,
    /// When it was last found not to answer, and since when it does not.
    unanswered: Option<(Timestamp, Timestamp)>,
    /// Pods that were deleted: the kubelet removed their log folders.
    deleted: BTreeSet<PodUid>,
    /// What was said about pods: when, and about which. No pod: a daemon said it about itself.
    said: Vec<(Timestamp, String, Said)>,
    /// Processes of the node that end containers, by name.
    killers: BTreeMap<String, Task>,
    /// Containers of no pod by name: their id and their monitor's pid.
    plain: BTreeMap<String, (ContainerId, u32)>,
    /// Whether pods have limits, which hold them back for half of all time.
    pub(crate) limited: bool,
}

/// The node's own network namespace.
const HOST: u32 = 4_026_531_833;
/// The pid of a program of the node that the agent does not follow.
const NODES: u32 = 7;
/// The pid of a program that begins only long after the simulation. Processes of the simulation have lower
/// pids.
const NEWCOMER: u32 = 4_000_000;
/// When a simulation begins.
pub(crate) const BEGIN: Timestamp = Timestamp(1_000_000_000);
/// The time from one fact to the next.
const STEP: Duration = Duration::from_millis(1);

impl Sim {
    #[must_use]
    pub(crate) fn new() -> Self {
        let net = |name: &str, plugin: &str, ipam, ifname: &str| Net {
            name: name.to_owned(),
            plugin: plugin.to_owned(),
            ipam,
            chained: Vec::new(),
            ifname: ifname.to_owned(),
        };
        let mut podnet = net("podnet", "bridge", Ipam::HostLocal, "eth0");
        podnet.chained.push("portmap".to_owned());
        Self {
            now: BEGIN,
            facts: Vec::new(),
            nets: vec![
                podnet,
                net("keynet", "keyed", Ipam::Keyed, "eth0"),
                net("cloudnet", "cloud-cni", Ipam::Cloud, "eth0"),
                net("second", "macvlan", Ipam::HostLocal, "net1"),
            ],
            pods: BTreeMap::new(),
            sandboxes: BTreeMap::new(),
            containers: BTreeMap::new(),
            held: Held::new(),
            emptied: BTreeMap::new(),
            cache: BTreeMap::new(),
            recorded: BTreeSet::new(),
            runtime: None,
            kubelet: None,
            second: None,
            second_runs: false,
            next: 100,
            readable: true,
            whole: true,
            unconfigured: BTreeSet::new(),
            configuration_whole: true,
            undecodable: false,
            has_no_configuration: false,
            missing: None,
            torn: None,
            half_written: None,
            followed: false,
            answer: Answer::Answers,
            unanswered: None,
            said: Vec::new(),
            deleted: BTreeSet::new(),
            killers: BTreeMap::new(),
            plain: BTreeMap::new(),
            limited: false,
        }
    }

    #[must_use]
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// Lets time pass. Time does not go back.
    pub(crate) fn pass_to(&mut self, at: Timestamp) {
        self.ask_again(at);
        self.now = self.now.max(at);
    }

    /// Returns the facts since the last call, in their order.
    pub(crate) fn take(&mut self) -> Vec<Observation> {
        std::mem::take(&mut self.facts)
    }

    pub(super) fn emit(&mut self, origin: Origin, fact: Fact) {
        self.facts.push(Observation { at: self.now, origin, fact });
        self.now = self.now + STEP;
    }

    pub(super) fn kernel(&mut self, fact: Fact) {
        self.emit(Origin::Kernel, fact);
    }

    pub(crate) fn lost(&mut self, what: Loss, count: u64) {
        self.emit(Origin::Agent, Fact::Lost { what, count, since: None });
    }

    /// The agent does not run from now until this time. Then it reads that records were lost, and after that
    /// the records of this time.
    pub(crate) fn lost_until(&mut self, at: Timestamp, count: u64) {
        let fact = Fact::Lost { what: Loss::SkippedRun, count, since: Some(self.now) };
        self.facts.push(Observation { at, origin: Origin::Agent, fact });
    }

    /// The node was suspended since the last event.
    pub(crate) fn wakes(&mut self, at: Timestamp) {
        let slept = at.since(self.now());
        self.pass_to(at);
        self.emit(Origin::Agent, Fact::Resumed { slept });
    }

    #[must_use]
    pub(crate) fn sandbox(&self, name: &str) -> Option<&Sandbox> {
        self.sandboxes.get(name)
    }

    /// Returns the sandbox's name in the story.
    #[must_use]
    pub(crate) fn name_of(&self, id: &ContainerId) -> Option<&str> {
        self.sandboxes.iter().find(|(_, row)| row.id == *id).map(|(name, _)| name.as_str())
    }

    #[must_use]
    pub(crate) fn is_recorded(&self, id: &ContainerId) -> bool {
        self.recorded.contains(id)
    }

    fn net(&self, name: &str) -> Net {
        self.nets.iter().find(|net| net.name == name).unwrap_or_else(|| panic!("no network {name}")).clone()
    }

    /// The agent reads the configuration without being asked, as it does each minute.
    pub(crate) fn read_configuration(&mut self) {
        let read = self.networks();
        self.emit(Origin::Listed, read);
    }

    /// Leaves the file of a sandbox's attachment in libcni's cache half written, as by a power cut or while
    /// libcni writes it.
    pub(crate) fn tear(&mut self, name: &str) {
        let id = &self.sandboxes[name].id;
        let of_sandbox = self.cache.keys().find(|(container, _)| container == id);
        let key = of_sandbox.expect("the attachment is cached").clone();
        let cached = self.cache.remove(&key).expect("just found");
        self.torn = Some(format!("/var/lib/cni/results/{}-{}-{}", cached.0, key.0, key.1));
        self.half_written = Some((key, cached));
    }

    /// The rest of the half-written file is written.
    pub(crate) fn write_out(&mut self) {
        self.torn = None;
        self.cache.extend(self.half_written.take());
    }

    /// Removes an ended sandbox and its pod, which the story no longer needs.
    pub(crate) fn remove_from_story(&mut self, name: &str) {
        if let Some(row) = self.sandboxes.remove(name) {
            self.pods.remove(&row.pod);
        }
    }

    /// Returns a number that was never used before.
    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }
}

impl Default for Sim {
    fn default() -> Self {
        Self::new()
    }
}
