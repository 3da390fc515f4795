//! A pod as an object, as `sandprobe pods -o json` writes it. The names and forms are those of the event
//! stream.
//!
//! The form differs from the view: a view has times and the whole identity of a process, which are not part
//! of the output.

use schemars::JsonSchema;
use serde::Serialize;
use serde_with::skip_serializing_none;
use strum::IntoStaticStr;

use super::{
    kernel::{Address, Netns},
    scalar::Decimal,
    start::Start,
};
use crate::{
    engine::{
        view::{ContainerView, PodView, SandboxView},
        world::table::{container, sandbox},
    },
    model::{
        fact::{Believed, NameSource},
        id::{ContainerId, PodUid},
    },
};

/// A pod that is on the node.
#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
pub struct Pod<'a> {
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    uid: Option<&'a PodUid>,
    source: NameSource,
    state: PodState,
    /// The pod has no sandbox yet, and has waited for its first one since this time since boot.
    waiting_since_ns: Option<Decimal<u64>>,
    /// The start, as in the event stream.
    start: Option<Start<'a>>,
    sandboxes: Vec<Sandbox<'a>>,
    containers: Vec<Container<'a>>,
}

#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PodSandbox")]
struct Sandbox<'a> {
    id: &'a ContainerId,
    state: SandboxState,
    host_network: bool,
    /// The pid of the process that holds the sandbox.
    pid: Option<u32>,
    netns: Option<Netns>,
    addresses: Vec<Address<'a>>,
}

#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PodContainer")]
struct Container<'a> {
    id: &'a ContainerId,
    name: Option<&'a str>,
    state: ContainerState,
    pid: Option<u32>,
}

/// The state of a pod's newest sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, IntoStaticStr, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
enum PodState {
    #[serde(rename = "no sandbox")]
    #[strum(serialize = "no sandbox")]
    NoSandbox,
    Created,
    Ready,
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SandboxState {
    Created,
    Ready,
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ContainerState {
    Created,
    Running,
    Exited,
}

impl<'a> Pod<'a> {
    #[must_use]
    pub fn of(pod: &'a PodView) -> Self {
        Self {
            namespace: pod.namespace.as_deref(),
            name: pod.name.as_deref(),
            uid: pod.uid.as_ref(),
            source: pod.source,
            state: PodState::of(pod),
            waiting_since_ns: pod.waiting_since.map(|at| Decimal(at.0)),
            start: pod.start.as_ref().map(Start::of),
            sandboxes: pod.sandboxes.iter().map(Sandbox::of).collect(),
            containers: pod.containers.iter().map(Container::of).collect(),
        }
    }
}

impl<'a> Sandbox<'a> {
    fn of(sandbox: &'a SandboxView) -> Self {
        Self {
            id: &sandbox.id,
            state: SandboxState::of(sandbox),
            host_network: sandbox.host_network,
            pid: sandbox.process.map(|key| key.pid),
            netns: sandbox.netns.map(Netns::of),
            addresses: sandbox.addresses.iter().map(|it| Address::of(it.address, &it.ifname)).collect(),
        }
    }
}

impl<'a> Container<'a> {
    fn of(container: &'a ContainerView) -> Self {
        Self {
            id: &container.id,
            name: container.name.as_deref(),
            state: ContainerState::of(container),
            pid: container.pid,
        }
    }
}

impl PodState {
    fn of(pod: &PodView) -> Self {
        match pod.sandboxes.last().map(SandboxState::of) {
            None => Self::NoSandbox,
            Some(SandboxState::Created) => Self::Created,
            Some(SandboxState::Ready) => Self::Ready,
            Some(SandboxState::Stopped) => Self::Stopped,
        }
    }
}

impl SandboxState {
    fn of(sandbox: &SandboxView) -> Self {
        match sandbox.state {
            _ if sandbox.is_ready() => Self::Ready,
            sandbox::State::Created | sandbox::State::Ready { .. } => Self::Created,
            sandbox::State::Stopped { .. } | sandbox::State::Remembered { .. } => Self::Stopped,
        }
    }
}

impl ContainerState {
    fn of(container: &ContainerView) -> Self {
        match (container.state, container.said) {
            _ if container.runs() => Self::Running,
            (container::State::Exited { .. }, _) | (_, Some(Believed::Exited)) => Self::Exited,
            (container::State::Created | container::State::Running { .. }, _) => Self::Created,
        }
    }
}

/// The state of the pod's newest sandbox, as the JSON has it.
#[must_use]
pub fn state(pod: &PodView) -> &'static str {
    PodState::of(pod).into_str()
}
