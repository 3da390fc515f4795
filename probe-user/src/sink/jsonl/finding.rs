//! A finding as an object: in the stream, and as `sandprobe findings -o json` writes it.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    kernel::{Netns, Process},
    scalar::{Decimal, names, nanos},
};
use crate::{
    model::{
        change,
        fact::{MessageFound, PodName, ProgramFound, Store, StoreKind},
        finding::{Blind, Cause, Duplicate, FindingKind, Key, Kind, OutOfOrder, Severity, Stage},
        id::{ContainerId, Subnet},
        time::Timestamp,
    },
    sink::{Label, verdict, wall::Rfc3339, word},
};

/// One finding (docs/findings.md).
#[derive(Serialize, JsonSchema)]
pub struct Finding<'a> {
    key: &'a Key,
    kind: FindingKind,
    severity: Severity,
    stage: Stage,
    /// When what is wrong began.
    since: Rfc3339,
    since_boot_ns: Decimal<u64>,
    opened_at: Rfc3339,
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmed_at: Option<Rfc3339>,
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_at: Option<Rfc3339>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<&'a PodName>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    sandboxes: &'a [ContainerId],
    /// Records were lost meanwhile: the cause may be another one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    gapped: bool,
    /// The finding in one sentence.
    summary: String,
    detail: Detail<'a>,
    /// The programs that had a part in it.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    programs: &'a [ProgramFound],
}

/// A place where an IPAM plugin writes down which addresses are given out.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Store")]
struct StoreRef<'a> {
    #[schemars(schema_with = "names::<StoreKind>")]
    kind: &'static str,
    path: &'a str,
}

/// What is wrong: the members depend on the finding's kind.
// Not the model's own form: members are in the order and under the names of docs/findings.md, and have no tag.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum Detail<'a> {
    LeakedAddress {
        cause: Cause,
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
        form: Duplicate,
        count: u32,
    },
    TeardownOutOfOrder {
        how: OutOfOrder,
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
        held_ns: Decimal<u128>,
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
        containers: &'a [ContainerId],
    },
    DuplicateAddress {
        network: Option<&'a str>,
        address: IpAddr,
    },
    CniFailing {
        plugin: &'a str,
        attempts: u32,
        pods: u32,
        wasted_ns: Decimal<u128>,
        exit_code: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<Message<'a>>,
    },
    CniSlow {
        plugin: &'a str,
        command: &'a str,
        took_ns: Decimal<u128>,
        open: bool,
    },
    CniQueue {
        waiting: u32,
        oldest_ns: Decimal<u128>,
        plugin: &'a str,
    },
    PoolExhaustion {
        network: &'a str,
        subnet: Subnet,
        size: u64,
        used: u64,
        leaked: u64,
        free: u64,
        runs_out_in_ns: Option<Decimal<u128>>,
    },
    BlindSpot {
        #[schemars(schema_with = "names::<Blind>")]
        what: &'static str,
        name: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        count: Option<Decimal<u64>>,
        weaker: &'a [FindingKind],
    },
}

/// What a plugin said, or why that could not be read.
#[derive(Serialize, JsonSchema)]
struct Message<'a> {
    text: Option<&'a str>,
    source: &'a str,
}

impl<'a> Finding<'a> {
    #[must_use]
    pub fn of(it: &'a change::Finding, label: &Label) -> Self {
        let wall = |at: Timestamp| Rfc3339(label.wall_ns(at));
        Self {
            key: &it.key,
            kind: FindingKind::from(&it.kind),
            severity: it.severity,
            stage: it.stage,
            since: wall(it.since),
            since_boot_ns: Decimal(it.since.0),
            opened_at: wall(it.opened_at),
            confirmed_at: it.confirmed_at.map(wall),
            closed_at: it.closed_at.map(wall),
            pod: it.pod.as_ref(),
            sandboxes: &it.sandboxes,
            gapped: it.gapped,
            summary: verdict::summary(&it.kind),
            detail: Detail::of(&it.kind),
            programs: &it.programs,
        }
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
                cause: it.cause,
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
            Kind::DuplicateSandbox { form, count } => Self::DuplicateSandbox { form: *form, count: *count },
            Kind::TeardownOutOfOrder { how, killer, signal } => Self::TeardownOutOfOrder {
                how: *how,
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
            Kind::DuplicateContainer { name, containers } => Self::DuplicateContainer { name, containers },
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
                subnet: it.subnet,
                size: it.size,
                used: it.used,
                leaked: it.leaked,
                free: it.free,
                runs_out_in_ns: it.runs_out_in.map(nanos),
            },
            Kind::BlindSpot { spot, weaker } => {
                let (name, count) = match spot {
                    Blind::Signal { signal } => (Some(signal.into_str()), None),
                    Blind::Lost { count } => (None, Some(Decimal(*count))),
                    Blind::Runtime { place } => (place.as_deref(), None),
                    Blind::CniCache { path, count } => (Some(path.as_str()), Some(Decimal(*count))),
                    Blind::Store { path } | Blind::File { path } => (Some(path.as_str()), None),
                    Blind::Listing { list } => (Some(word::list(*list)), None),
                    Blind::Kubelet => (None, None),
                };
                Self::BlindSpot { what: spot.into_str(), name, count, weaker }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
