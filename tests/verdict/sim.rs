//! A node that does not exist: a kubelet, a runtime, CNI plugins and their IPAM as they behave, told as facts, with the
//! truth of what is given out beside it. Stories and properties run on it.
//!
//! **Invariant:** nothing here knows of a verdict: what the IPAM still holds is the truth that verdicts are held against.

mod answer;
mod plain;
mod plugin;
mod say;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use probe_user::model::{
    fact::{Observation, Task},
    id::{ContainerId, PodUid},
    time::Timestamp,
};

pub(crate) use plugin::{Add, Del};
pub(crate) use say::Death;

/// How a network's plugin finds the addresses that it is to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ipam {
    /// By container id, in a store: bridge with host-local.
    HostLocal,
    /// Through the namespace, in a declared store: without one it frees nothing.
    Keyed,
    /// Through the namespace, and nobody can read its store.
    Cloud,
}

/// One network that pods can be attached to.
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
    /// Of its cgroup, while there is one.
    cgroup: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: ContainerId,
    pub(crate) pod: String,
    inode: u32,
    /// The namespace's file, while it is bound.
    path: Option<String>,
    netns_lives: bool,
    pause: Option<u32>,
    cgroup: Option<u64>,
    /// The address that it has, by network.
    addresses: BTreeMap<String, Vec<IpAddr>>,
    containers: Vec<String>,
}

#[derive(Clone, Debug)]
struct Container {
    id: ContainerId,
    name: String,
    sandbox: String,
    pid: Option<u32>,
    cgroup: u64,
}

/// Who holds an address, by network and address.
pub(crate) type Held = BTreeMap<(String, IpAddr), (ContainerId, String)>;

pub(crate) struct Sim {
    now: Timestamp,
    facts: Vec<Observation>,
    pub(crate) nets: Vec<Net>,
    pods: BTreeMap<String, Pod>,
    sandboxes: BTreeMap<String, Sandbox>,
    containers: BTreeMap<String, Container>,
    /// The truth: what the IPAM of each network holds.
    pub(crate) held: Held,
    cache: BTreeMap<(ContainerId, String), (String, Vec<IpAddr>)>,
    /// What the runtime has on record.
    kept: BTreeSet<ContainerId>,
    runtime: Option<Task>,
    kubelet: Option<u32>,
    /// Another runtime, once it has run.
    crio: Option<Task>,
    crio_runs: bool,
    next: u32,
    /// Whether stores and runtime's records can be read.
    pub(crate) readable: bool,
    /// Whether all of the runtime's records can be.
    pub(crate) whole: bool,
    /// Networks that no configuration names any more.
    pub(crate) unconfigured: BTreeSet<String>,
    /// Whether all of the networks' configuration can be read.
    pub(crate) configuration_whole: bool,
    /// A file of libcni's cache that cannot be read.
    pub(crate) torn: Option<String>,
    /// Containers of no pod, by name: their id and their monitor.
    plain: BTreeMap<String, (ContainerId, u32)>,
}

/// From one fact to the next.
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
            now: Timestamp(1_000_000_000),
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
            cache: BTreeMap::new(),
            kept: BTreeSet::new(),
            runtime: None,
            kubelet: None,
            crio: None,
            crio_runs: false,
            next: 100,
            readable: true,
            whole: true,
            unconfigured: BTreeSet::new(),
            configuration_whole: true,
            torn: None,
            plain: BTreeMap::new(),
        }
    }

    #[must_use]
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// Time passes; it does not go back.
    pub(crate) fn pass_to(&mut self, at: Timestamp) {
        self.now = self.now.max(at);
    }

    /// What happened since this was last asked, in its order.
    pub(crate) fn take(&mut self) -> Vec<Observation> {
        std::mem::take(&mut self.facts)
    }

    #[must_use]
    pub(crate) fn sandbox(&self, name: &str) -> Option<&Sandbox> {
        self.sandboxes.get(name)
    }

    /// The sandbox's own name in the story.
    #[must_use]
    pub(crate) fn name_of(&self, id: &ContainerId) -> Option<&str> {
        self.sandboxes.iter().find(|(_, row)| row.id == *id).map(|(name, _)| name.as_str())
    }

    #[must_use]
    pub(crate) fn is_kept(&self, id: &ContainerId) -> bool {
        self.kept.contains(id)
    }

    fn net(&self, name: &str) -> Net {
        self.nets.iter().find(|net| net.name == name).unwrap_or_else(|| panic!("no network {name}")).clone()
    }

    /// A power cut tears the file of a sandbox's attachment in libcni's cache.
    pub(crate) fn tear(&mut self, name: &str) {
        let id = &self.sandboxes[name].id;
        let key = self.cache.keys().find(|(container, _)| container == id).expect("it is cached").clone();
        let (network, _) = self.cache.remove(&key).expect("just found");
        self.torn = Some(format!("/var/lib/cni/results/{network}-{}-{}", key.0, key.1));
    }

    /// A sandbox that is over, and its pod, are no longer needed by the story.
    pub(crate) fn over(&mut self, name: &str) {
        if let Some(row) = self.sandboxes.remove(name) {
            self.pods.remove(&row.pod);
        }
    }

    /// A number never given before.
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
