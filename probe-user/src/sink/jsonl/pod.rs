//! A pod as an object, with the names and forms of the event stream: as `sandprobe pods -o json` writes it.

use serde::Serialize;

use super::start::Start;
use crate::engine::{
    view::{PodView, SandboxView},
    world::{container, sandbox},
};

#[derive(Serialize)]
struct Pod<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
    source: &'static str,
    state: &'static str,
    /// As in the event stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<Start<'a>>,
    sandboxes: Vec<Sandbox<'a>>,
    containers: Vec<Container<'a>>,
}

#[derive(Serialize)]
struct Sandbox<'a> {
    id: &'a str,
    state: &'static str,
    host_network: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    netns: Option<Netns>,
    addresses: Vec<Address<'a>>,
}

#[derive(Serialize)]
struct Netns {
    inode: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cookie: Option<String>,
}

#[derive(Serialize)]
struct Address<'a> {
    address: String,
    prefix: u8,
    ifname: &'a str,
}

#[derive(Serialize)]
struct Container<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
}

/// As a value to be put into another object, or to be a line.
#[must_use]
pub fn object(pod: &PodView) -> impl Serialize + '_ {
    Pod {
        namespace: pod.namespace.as_deref(),
        name: pod.name.as_deref(),
        uid: pod.uid.as_ref().map(|uid| uid.as_str()),
        source: pod.source.into_str(),
        state: state(pod),
        start: pod.start.as_ref().map(Start::of),
        sandboxes: pod.sandboxes.iter().map(sandbox_object).collect(),
        containers: pod
            .containers
            .iter()
            .map(|it| Container {
                id: it.id.as_str(),
                name: it.name.as_deref(),
                state: container_state(&it.state),
                pid: it.pid,
            })
            .collect(),
    }
}

fn sandbox_object(sandbox: &SandboxView) -> Sandbox<'_> {
    Sandbox {
        id: sandbox.id.as_str(),
        state: sandbox_state(&sandbox.state),
        host_network: sandbox.host_network,
        pid: sandbox.process.map(|key| key.pid),
        netns: sandbox
            .netns
            .map(|key| Netns { inode: key.inode, cookie: (key.cookie != 0).then(|| key.cookie.to_string()) }),
        addresses: sandbox
            .addresses
            .iter()
            .map(|it| Address {
                address: it.address.address.to_string(),
                prefix: it.address.prefix,
                ifname: &it.ifname,
            })
            .collect(),
    }
}

/// That of its newest sandbox.
#[must_use]
pub fn state(pod: &PodView) -> &'static str {
    pod.sandboxes.last().map_or("no sandbox", |sandbox| sandbox_state(&sandbox.state))
}

fn sandbox_state(state: &sandbox::State) -> &'static str {
    match state {
        sandbox::State::Created => "created",
        sandbox::State::Ready { .. } => "ready",
        sandbox::State::Stopped { .. } | sandbox::State::Remembered { .. } => "stopped",
    }
}

fn container_state(state: &container::State) -> &'static str {
    match state {
        container::State::Created => "created",
        container::State::Running { .. } => "running",
        container::State::Exited { .. } => "exited",
    }
}
