//! Views of the world for users: the pods of this node, each with its sandboxes and containers.

use schemars::JsonSchema;
use serde::Serialize;

pub use super::world::balance::BalanceView;
use super::world::{World, container, netns::Netns, phase, pod::Pod, sandbox};
use crate::model::{
    change::EvidenceEvent,
    fact::{Believed, NameSource, Origin, PodName, Role},
    finding::Cause,
    id::{ContainerId, NetnsKey, PodUid, Subnet, TaskKey},
    phase::Start,
    time::Timestamp,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub uid: Option<PodUid>,
    pub source: NameSource,
    /// The time of its first evidence; if it was listed, the time of reading.
    pub since: Timestamp,
    pub listed: bool,
    /// Since when it has waited for its first sandbox, if it has none yet. `start` is `None` then.
    pub waiting_since: Option<Timestamp>,
    /// The start in its newest sandbox.
    pub start: Option<Start>,
    pub sandboxes: Vec<SandboxView>,
    pub containers: Vec<ContainerView>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxView {
    pub id: ContainerId,
    pub state: sandbox::State,
    pub since: Timestamp,
    pub listed: bool,
    pub host_network: bool,
    /// The programs of its containers are not processes of the node.
    pub hides_programs: bool,
    /// The state that its runtime reports, if the runtime is followed.
    pub said: Option<Believed>,
    /// The process that holds it (pause), if there is one.
    pub process: Option<TaskKey>,
    pub netns: Option<NetnsKey>,
    pub addresses: Vec<AddressView>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressView {
    pub address: Subnet,
    pub ifname: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerView {
    pub id: ContainerId,
    pub name: Option<String>,
    pub sandbox: Option<ContainerId>,
    pub state: container::State,
    /// The state that its runtime reports, if the runtime is followed.
    pub said: Option<Believed>,
    pub pid: Option<u32>,
}

impl SandboxView {
    /// Whether it is ready: as the kernel shows, or, if its programs are not processes of the node, as its
    /// runtime says.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match self.state {
            sandbox::State::Ready { .. } => true,
            sandbox::State::Created => self.hides_programs && self.said == Some(Believed::Running),
            sandbox::State::Stopped { .. } | sandbox::State::Remembered { .. } => false,
        }
    }
}

impl ContainerView {
    /// Whether it runs: the kernel shows its process, or it shows none and its runtime says that it runs.
    #[must_use]
    pub fn runs(&self) -> bool {
        match self.state {
            container::State::Running { .. } => true,
            container::State::Created => self.said == Some(Believed::Running),
            container::State::Exited { .. } => false,
        }
    }
}

impl PodView {
    #[must_use]
    pub fn named(&self) -> PodName {
        PodName { namespace: self.namespace.clone(), name: self.name.clone(), uid: self.uid.clone() }
    }
}

/// The events of a sandbox in the order in which they were reported, and the pod's name as it was last
/// reported.
#[derive(Clone, Copy, Debug)]
pub struct ToldView<'a> {
    pub pod: &'a PodName,
    pub events: &'a [EvidenceEvent],
}

/// A range of addresses for pods, and how many of them are in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PoolView {
    pub network: String,
    pub subnet: Subnet,
    /// How many there are for pods.
    pub size: u64,
    /// Held by sandboxes that live, or are not known to be over.
    pub in_use: u64,
    /// Held by sandboxes that are over and still on record with their runtime.
    pub pending_cleanup: u64,
    /// They may be leaked, or still be freed.
    pub leak_candidate: u64,
    pub leaked: u64,
    pub free: u64,
}

/// One of the leaks in a finding about many leaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManyView {
    pub cause: Cause,
    /// The id of this leak. It is unique, and stays the same as long as the leak lasts.
    pub leak: u64,
    pub is_confirmed: bool,
}

impl World {
    pub(super) fn pods(&self, now: Timestamp) -> Vec<PodView> {
        let mut pods: Vec<PodView> = self
            .pods
            .values()
            .filter(|row| row.is_present())
            .map(|row| PodView {
                waiting_since: self.waiting_since(row),
                start: self.start_of_pod(row.id, now),
                namespace: row.named.namespace.clone(),
                name: row.named.name.clone(),
                uid: row.named.uid.clone(),
                source: row.source,
                since: row.first_at,
                listed: row.origin == Origin::Listed,
                sandboxes: self.sandboxes_of(row.id),
                containers: self.containers_of(row.id),
            })
            .collect();
        pods.sort_by(|one, other| {
            (&one.namespace, &one.name, &one.uid).cmp(&(&other.namespace, &other.name, &other.uid))
        });
        pods
    }

    pub(super) fn told_of(&self, sandbox: &ContainerId) -> Option<ToldView<'_>> {
        let reported = &self.sandboxes.recall(sandbox)?.reported;
        Some(ToldView { pod: &reported.pod, events: &reported.evidence })
    }

    /// Returns since when a pod has waited for its first sandbox. A sandbox that failed leaves the pod
    /// waiting. If a sandbox was ready and is over, the pod ends or starts again.
    fn waiting_since(&self, row: &Pod) -> Option<Timestamp> {
        if row.start.is_complete || row.left_at.is_some() {
            return None;
        }
        if self.sandboxes.values().any(|it| it.pod == Some(row.id) && !it.is_stopped()) {
            return None;
        }
        row.start.made_at
    }

    fn start_of_pod(&self, pod: u64, now: Timestamp) -> Option<Start> {
        let newest = self.sandboxes.values().filter(|row| row.pod == Some(pod));
        let newest = newest.max_by_key(|row| (row.first_at, &row.id))?;
        self.start_of(&newest.id, now)
    }

    pub(super) fn all_starts(&self, now: Timestamp) -> Vec<Start> {
        self.starts.rows.iter().cloned().chain(phase::open(self, now)).collect()
    }

    pub(super) fn late_starts(&self, others: usize, now: Timestamp) -> Vec<Start> {
        let all = self.all_starts(now);
        let first = all.len().saturating_sub(others);
        let kept = all.into_iter().enumerate().filter(|(place, start)| {
            *place >= first || self.sandboxes.get(&start.sandbox).is_some_and(|row| !row.is_stopped())
        });
        kept.map(|(_, start)| start).collect()
    }

    fn sandboxes_of(&self, pod: u64) -> Vec<SandboxView> {
        let mut views: Vec<SandboxView> = self
            .sandboxes
            .values()
            .filter(|row| row.pod == Some(pod))
            .map(|row| {
                let netns = row.network.netns.and_then(|life| self.netns.get(life));
                SandboxView {
                    id: row.id.clone(),
                    state: row.state,
                    since: row.first_at,
                    listed: row.origin == Origin::Listed,
                    host_network: row.network.is_host,
                    hides_programs: row.hides_programs,
                    said: self.beliefs.state_of(&row.id),
                    process: self.containers.get(&row.id).and_then(container::Container::process),
                    netns: netns.map(|netns| netns.key),
                    addresses: netns.map(addresses_of).unwrap_or_default(),
                }
            })
            .collect();
        views.sort_by_key(|view| view.since);
        views
    }

    fn containers_of(&self, pod: u64) -> Vec<ContainerView> {
        let mut rows: Vec<&container::Container> = self
            .containers
            .values()
            .filter(|row| row.pod == Some(pod) && !self.sandboxes.contains_key(&row.id))
            .collect();
        rows.sort_by_key(|row| row.first_at);
        let views = rows.into_iter().map(|row| ContainerView {
            id: row.id.clone(),
            name: row.name.clone(),
            sandbox: row.sandbox.clone(),
            state: row.state,
            said: self.beliefs.state_of(&row.id),
            pid: row.process().map(|key| key.pid),
        });
        let mut views: Vec<ContainerView> = views.collect();
        views.extend(self.unseen_containers_of(pod));
        views
    }

    /// Returns the containers of a pod that only a runtime knows: their programs are not processes of the
    /// node.
    fn unseen_containers_of(&self, pod: u64) -> impl Iterator<Item = ContainerView> {
        let hiding = self.sandboxes.values().filter(move |row| row.pod == Some(pod) && row.hides_programs);
        let said = hiding.flat_map(|sandbox| {
            let all = self.beliefs.rows();
            all.filter(|row| row.role == Some(Role::Container) && row.sandbox.as_ref() == Some(&sandbox.id))
        });
        let unseen = said.filter(|row| !self.containers.contains_key(&row.id));
        unseen.filter_map(|row| {
            Some(ContainerView {
                id: row.id.clone(),
                name: row.described.name.clone(),
                sandbox: row.sandbox.clone(),
                state: container::State::Created,
                said: Some(self.beliefs.state_of(&row.id)?),
                pid: None,
            })
        })
    }
}

/// Returns the addresses of a namespace, without those of loopback, which every namespace has.
fn addresses_of(netns: &Netns) -> Vec<AddressView> {
    let own = netns.addresses.iter().filter(|address| !address.address.address.is_loopback());
    own.map(|address| AddressView { address: address.address, ifname: address.ifname.clone() }).collect()
}
