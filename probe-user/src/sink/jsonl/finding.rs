//! A finding as an object: in the stream, and as `sandprobe findings -o json` writes it.

use std::net::IpAddr;

use serde::Serialize;

use super::event::{Netns, Process, Text, nanos};
use crate::{
    model::{
        fact::{MessageFound, PodName, ProgramFound, Store},
        finding::{self, Blind, Kind},
        id::Subnet,
        time::Timestamp,
    },
    sink::{Label, wall::Rfc3339, word},
};

#[derive(Serialize)]
pub(crate) struct Finding<'a> {
    key: &'a str,
    kind: &'static str,
    severity: &'static str,
    stage: &'static str,
    since: Text<Rfc3339>,
    since_boot_ns: Text<u64>,
    opened_at: Text<Rfc3339>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmed_at: Option<Text<Rfc3339>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_at: Option<Text<Rfc3339>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<Pod<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sandboxes: Vec<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    gapped: bool,
    summary: String,
    detail: Detail<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    programs: Vec<Program<'a>>,
}

#[derive(Serialize)]
struct Pod<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
}

#[derive(Serialize)]
struct Program<'a> {
    path: &'a str,
    version: Option<&'a str>,
}

#[derive(Serialize)]
struct StoreRef<'a> {
    kind: &'static str,
    path: &'a str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Detail<'a> {
    LeakedAddress {
        cause: &'static str,
        address: IpAddr,
        network: Option<&'a str>,
        network_inferred: bool,
        ifname: &'a str,
        plugin: Option<&'a str>,
        stores: Vec<StoreRef<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        count: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        first_addresses: Option<&'a [IpAddr]>,
    },
    AbandonedStore {
        path: &'a str,
        network: &'a str,
        count: u32,
    },
    UnverifiedRelease {
        plugin: &'a str,
        count: u32,
    },
    DuplicateSandbox {
        form: &'static str,
        count: u32,
    },
    TeardownOutOfOrder {
        how: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        killer: Option<Process<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        signal: Option<u32>,
    },
    OrphanNetns {
        netns: Netns,
        mounts: &'a [String],
    },
    StuckNetnsTeardown {
        netns: Netns,
        held_ns: Text<u128>,
        waiting: u32,
    },
    StuckCgroup {
        path: &'a str,
        populated: Option<bool>,
    },
    OrphanSandbox {
        process: Process<'a>,
    },
    DuplicateContainer {
        name: &'a str,
        containers: Vec<&'a str>,
    },
    DuplicateAddress {
        network: Option<&'a str>,
        address: IpAddr,
    },
    CniFailing {
        plugin: &'a str,
        attempts: u32,
        pods: u32,
        wasted_ns: Text<u128>,
        exit_code: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<Message<'a>>,
    },
    CniSlow {
        plugin: &'a str,
        command: &'a str,
        took_ns: Text<u128>,
        open: bool,
    },
    CniQueue {
        waiting: u32,
        oldest_ns: Text<u128>,
        plugin: &'a str,
    },
    PoolExhaustion {
        network: &'a str,
        subnet: Text<Subnet>,
        size: u64,
        used: u64,
        leaked: u64,
        free: u64,
        runs_out_in_ns: Option<Text<u128>>,
    },
    BlindSpot {
        what: &'static str,
        name: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        count: Option<Text<u64>>,
        weaker: Vec<&'static str>,
    },
}

/// What a plugin said, or why that could not be read.
#[derive(Serialize)]
struct Message<'a> {
    text: Option<&'a str>,
    source: &'a str,
}

impl<'a> Finding<'a> {
    pub(crate) fn of(it: &'a finding::Finding, label: &Label) -> Self {
        let wall = |at: Timestamp| Text(Rfc3339(label.wall_ns(at)));
        Self {
            key: it.key.as_str(),
            kind: it.kind.into_str(),
            severity: it.severity.into_str(),
            stage: it.stage.into_str(),
            since: wall(it.since),
            since_boot_ns: Text(it.since.0),
            opened_at: wall(it.opened_at),
            confirmed_at: it.confirmed_at.map(wall),
            closed_at: it.closed_at.map(wall),
            pod: it.pod.as_ref().map(Pod::of),
            sandboxes: it.sandboxes.iter().map(|id| id.as_str()).collect(),
            gapped: it.gapped,
            summary: crate::sink::verdict::summary(&it.kind),
            detail: Detail::of(&it.kind),
            programs: it.programs.iter().map(Program::of).collect(),
        }
    }
}

impl<'a> Pod<'a> {
    fn of(pod: &'a PodName) -> Self {
        Self {
            namespace: pod.namespace.as_deref(),
            name: pod.name.as_deref(),
            uid: pod.uid.as_ref().map(|uid| uid.as_str()),
        }
    }
}

impl<'a> Program<'a> {
    fn of(it: &'a ProgramFound) -> Self {
        Self { path: &it.path, version: it.version.as_deref() }
    }
}

impl<'a> StoreRef<'a> {
    fn of(store: &'a Store) -> Self {
        Self { kind: store.kind.into_str(), path: &store.path }
    }
}

impl<'a> Message<'a> {
    fn of(it: &'a MessageFound) -> Self {
        Self { text: it.text.as_deref(), source: &it.source }
    }
}

impl<'a> Detail<'a> {
    fn of(kind: &'a Kind) -> Self {
        match kind {
            Kind::LeakedAddress(it) => Self::LeakedAddress {
                cause: it.cause.into_str(),
                address: it.address,
                network: it.network.as_deref(),
                network_inferred: it.inferred,
                ifname: &it.ifname,
                plugin: it.plugin.as_deref(),
                stores: it.stores.iter().map(StoreRef::of).collect(),
                count: it.many.as_ref().map(|many| many.count),
                first_addresses: it.many.as_ref().map(|many| many.first.as_slice()),
            },
            Kind::AbandonedStore { path, network, count } => {
                Self::AbandonedStore { path, network, count: *count }
            }
            Kind::UnverifiedRelease { plugin, count } => Self::UnverifiedRelease { plugin, count: *count },
            Kind::DuplicateSandbox { form, count } => {
                Self::DuplicateSandbox { form: form.into_str(), count: *count }
            }
            Kind::TeardownOutOfOrder { how, killer, signal } => Self::TeardownOutOfOrder {
                how: how.into_str(),
                killer: killer.as_ref().map(Process::of),
                signal: *signal,
            },
            Kind::OrphanNetns { netns, mounts } => Self::OrphanNetns { netns: Netns::of(*netns), mounts },
            Kind::StuckNetnsTeardown { netns, held, waiting } => Self::StuckNetnsTeardown {
                netns: Netns::of(*netns),
                held_ns: nanos(*held),
                waiting: *waiting,
            },
            Kind::StuckCgroup { path, populated } => Self::StuckCgroup { path, populated: *populated },
            Kind::OrphanSandbox { process } => Self::OrphanSandbox { process: Process::of(process) },
            Kind::DuplicateContainer { name, containers } => Self::DuplicateContainer {
                name,
                containers: containers.iter().map(|id| id.as_str()).collect(),
            },
            Kind::DuplicateAddress { network, address } => {
                Self::DuplicateAddress { network: network.as_deref(), address: *address }
            }
            Kind::CniFailing(it) => Self::CniFailing {
                plugin: &it.plugin,
                attempts: it.attempts,
                pods: it.pods,
                wasted_ns: nanos(it.wasted),
                exit_code: it.code,
                message: it.message.as_ref().map(Message::of),
            },
            Kind::CniSlow { plugin, command, took, open } => {
                Self::CniSlow { plugin, command, took_ns: nanos(*took), open: *open }
            }
            Kind::CniQueue { waiting, oldest, plugin } => {
                Self::CniQueue { waiting: *waiting, oldest_ns: nanos(*oldest), plugin }
            }
            Kind::PoolExhaustion(it) => Self::PoolExhaustion {
                network: &it.network,
                subnet: Text(it.subnet),
                size: it.size,
                used: it.used,
                leaked: it.leaked,
                free: it.free,
                runs_out_in_ns: it.runs_out_in.map(nanos),
            },
            Kind::BlindSpot { spot, weaker } => {
                let (what, name, count) = match spot {
                    Blind::Signal { signal } => ("signal", Some(signal.into_str()), None),
                    Blind::Lost { count } => ("lost", None, Some(Text(*count))),
                    Blind::Store { path } => ("store", Some(path.as_str()), None),
                    Blind::Runtime { place } => ("runtime", place.as_deref(), None),
                    Blind::CniCache { path, count } => ("cni_cache", Some(path.as_str()), Some(Text(*count))),
                    Blind::File { path } => ("file", Some(path.as_str()), None),
                    Blind::Listing { list } => ("listing", Some(word::list(*list)), None),
                    Blind::Kubelet => ("kubelet", None, None),
                };
                Self::BlindSpot { what, name, count, weaker: weaker.iter().map(|it| it.into_str()).collect() }
            }
        }
    }
}

#[cfg(test)]
mod tests;
