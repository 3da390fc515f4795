//! The world as people ask for it: the pods of this node, each with what belongs to it.

pub use crate::engine::world::table::balance::BalanceView;

use schemars::JsonSchema;
use serde::Serialize;

use super::world::World;
use crate::{
    engine::world::{
        lookup::phase,
        table::{container, netns::Netns, pod::Pod, sandbox},
    },
    model::{
        change::EvidenceEvent,
        fact::{Believed, NameSource, Origin, PodName, Role},
        finding::Cause,
        id::{ContainerId, NetnsKey, PodUid, Subnet, TaskKey},
        phase::Start,
        time::Timestamp,
    },
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub uid: Option<PodUid>,
    pub source: NameSource,
    /// The first evidence of it; for one that was listed, when it was read.
    pub since: Timestamp,
    pub listed: bool,
    /// Since when it waits for its first sandbox, if it has none yet: a start needs one.
    pub waiting_since: Option<Timestamp>,
    /// In its newest sandbox.
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
    /// The programs of its containers are no processes of the node.
    pub hides_programs: bool,
    /// What its runtime says of it, if it is followed.
    pub said: Option<Believed>,
    /// The process that holds it, if there is one.
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
    /// What its runtime says of it, if it is followed.
    pub said: Option<Believed>,
    pub pid: Option<u32>,
}

impl SandboxView {
    /// Whether it is ready: by what the kernel shows, or, if its programs are no processes of the node, by
    /// its runtime's word.
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

/// What was told of a sandbox, in the order in which it was told, and the pod's name as it was told last.
#[derive(Clone, Copy, Debug)]
pub struct ToldView<'a> {
    pub pod: &'a PodName,
    pub events: &'a [EvidenceEvent],
}

/// A range of addresses for pods, and who has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PoolView {
    pub network: String,
    pub subnet: Subnet,
    /// How many there are for pods.
    pub size: u64,
    /// By sandboxes that live, or of which nobody knows that they do not.
    pub in_use: u64,
    /// By sandboxes that are over and still on record with their runtime.
    pub pending_cleanup: u64,
    /// They may be leaked, or still be freed.
    pub leak_candidate: u64,
    pub leaked: u64,
    pub free: u64,
}

/// One of the leaks that a finding of many stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManyView {
    pub cause: Cause,
    /// Identifies this leak, and stays the same as long as it lasts.
    pub leak: u64,
    pub is_confirmed: bool,
}

pub(super) fn pods(world: &World, now: Timestamp) -> Vec<PodView> {
    let mut pods: Vec<PodView> = world
        .pods
        .values()
        .filter(|row| row.is_present())
        .map(|row| PodView {
            waiting_since: waiting_since(world, row),
            start: start_of_pod(world, row.id, now),
            namespace: row.named.namespace.clone(),
            name: row.named.name.clone(),
            uid: row.named.uid.clone(),
            source: row.source,
            since: row.first_at,
            listed: row.origin == Origin::Listed,
            sandboxes: sandboxes_of(world, row.id),
            containers: containers_of(world, row.id),
        })
        .collect();
    pods.sort_by(|one, other| {
        (&one.namespace, &one.name, &one.uid).cmp(&(&other.namespace, &other.name, &other.uid))
    });
    pods
}

pub(super) fn told_of<'a>(world: &'a World, sandbox: &ContainerId) -> Option<ToldView<'a>> {
    let reported = &world.sandboxes.recall(sandbox)?.reported;
    Some(ToldView { pod: &reported.pod, events: &reported.evidence })
}

/// A sandbox that came to nothing leaves the pod waiting. One that was ready and is over means that the pod
/// ends, or begins anew.
fn waiting_since(world: &World, row: &Pod) -> Option<Timestamp> {
    let made_at = row.start.made_at?;
    let is_waiting = !row.start.is_complete
        && row.left_at.is_none()
        && !world.sandboxes.values().any(|it| it.pod == Some(row.id) && !it.is_stopped());
    is_waiting.then_some(made_at)
}

fn start_of_pod(world: &World, pod: u64, now: Timestamp) -> Option<Start> {
    let newest = world.sandboxes.values().filter(|row| row.pod == Some(pod));
    let newest = newest.max_by_key(|row| (row.first_at, &row.id))?;
    phase::start_of(world, &newest.id, now)
}

pub(super) fn all_starts(world: &World, now: Timestamp) -> Vec<Start> {
    world.starts.rows.iter().cloned().chain(phase::open(world, now)).collect()
}

pub(super) fn late_starts(world: &World, others: usize, now: Timestamp) -> Vec<Start> {
    let all = all_starts(world, now);
    let first = all.len().saturating_sub(others);
    let kept = all.into_iter().enumerate().filter(|(place, start)| {
        *place >= first || world.sandboxes.get(&start.sandbox).is_some_and(|row| !row.is_stopped())
    });
    kept.map(|(_, start)| start).collect()
}

fn sandboxes_of(world: &World, pod: u64) -> Vec<SandboxView> {
    let mut views: Vec<SandboxView> = world
        .sandboxes
        .values()
        .filter(|row| row.pod == Some(pod))
        .map(|row| {
            let netns = row.network.netns.and_then(|life| world.netns.get(life));
            SandboxView {
                id: row.id.clone(),
                state: row.state,
                since: row.first_at,
                listed: row.origin == Origin::Listed,
                host_network: row.network.is_host,
                hides_programs: row.hides_programs,
                said: world.beliefs.state_of(&row.id),
                process: world.containers.get(&row.id).and_then(container::Container::process),
                netns: netns.map(|netns| netns.key),
                addresses: netns.map(addresses_of).unwrap_or_default(),
            }
        })
        .collect();
    views.sort_by_key(|view| view.since);
    views
}

fn containers_of(world: &World, pod: u64) -> Vec<ContainerView> {
    let mut rows: Vec<&container::Container> = world
        .containers
        .values()
        .filter(|row| row.pod == Some(pod) && !world.sandboxes.contains_key(&row.id))
        .collect();
    rows.sort_by_key(|row| row.first_at);
    let mut views: Vec<ContainerView> = rows
        .into_iter()
        .map(|row| ContainerView {
            id: row.id.clone(),
            name: row.name.clone(),
            sandbox: row.sandbox.clone(),
            state: row.state,
            said: world.beliefs.state_of(&row.id),
            pid: row.process().map(|key| key.pid),
        })
        .collect();
    views.extend(unseen_containers_of(world, pod));
    views
}

/// The containers of a pod of which only a runtime knows, as it says: their programs are no processes of the
/// node.
fn unseen_containers_of(world: &World, pod: u64) -> impl Iterator<Item = ContainerView> {
    let hiding = world.sandboxes.values().filter(move |row| row.pod == Some(pod) && row.hides_programs);
    let said = hiding.flat_map(|sandbox| {
        let all = world.beliefs.rows();
        all.filter(|row| row.role == Some(Role::Container) && row.sandbox.as_ref() == Some(&sandbox.id))
    });
    let unseen = said.filter(|row| !world.containers.contains_key(&row.id));
    unseen.filter_map(|row| {
        Some(ContainerView {
            id: row.id.clone(),
            name: row.described.name.clone(),
            sandbox: row.sandbox.clone(),
            state: container::State::Created,
            said: Some(world.beliefs.state_of(&row.id)?),
            pid: None,
        })
    })
}

/// Loopback's are everybody's.
fn addresses_of(netns: &Netns) -> Vec<AddressView> {
    let own = netns.addresses.iter().filter(|address| !address.address.address.is_loopback());
    own.map(|address| AddressView { address: address.address, ifname: address.ifname.clone() }).collect()
}
