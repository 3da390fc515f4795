//! Findings about addresses and their IPAM stores.

use std::{net::IpAddr, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as, skip_serializing_none};

use crate::model::{
    fact::{Store, StoreKind},
    id::Subnet,
    process::Process,
    scalar::{is_default, names},
    time::Nanoseconds,
};

/// An IPAM still counts an address as allocated, and no pod has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeakedAddress {
    pub cause: Cause,
    pub address: IpAddr,
    pub network: Option<String>,
    /// The network's name was inferred from the configuration.
    #[serde(rename = "network_inferred")]
    pub inferred: bool,
    pub ifname: String,
    /// The plugin that the runtime called.
    pub plugin: Option<String>,
    /// The IPAM stores that still count it as allocated. If there is none, only libcni's cache names it.
    pub stores: Vec<StoreRef>,
    /// Present if this finding is about many addresses, of which this is the first.
    #[serde(flatten)]
    pub many: Option<Many>,
}

/// A place where an IPAM plugin writes down which addresses are given out.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Store")]
pub struct StoreRef {
    #[serde_as(as = "DisplayFromStr")]
    #[schemars(schema_with = "names::<StoreKind>")]
    pub kind: StoreKind,
    pub path: String,
}

impl StoreRef {
    pub(crate) fn of(it: &Store) -> Self {
        Self { kind: it.kind, path: it.path.clone() }
    }
}

/// Addresses of one network that leaked for one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Many {
    pub count: u32,
    /// The first of them, in order.
    #[serde(rename = "first_addresses")]
    pub first: Vec<IpAddr>,
}

impl LeakedAddress {
    /// Returns the number of addresses.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.many.as_ref().map_or(1, |many| many.count)
    }
}

/// A pod that runs has lost addresses that a CNI ADD gave it, and no DEL took them.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostNetwork {
    pub ifname: String,
    pub addresses: Vec<IpAddr>,
    pub network: Option<String>,
    /// The plugin that the runtime called.
    pub plugin: Option<String>,
    /// The process that removed the first of them.
    pub by: Option<Process>,
    /// Whether that process is one of a container of the pod. Absent if no hook saw the process.
    pub by_pod: Option<bool>,
}

closed_set! {
    /// Why an address was not given back.
    #[schemars(rename = "LeakCause")]
    pub enum Cause {
        /// DEL was never called.
        DelMissing,
        /// DEL was called only with an empty `CNI_NETNS`, and reported success.
        DelBlind,
        /// DEL reported success and freed nothing.
        DelHollow,
        /// DEL failed, each time.
        DelFailed,
        /// The ADD that reserved it failed, and no DEL was called.
        AddFailed,
        /// The runtime ended after it had asked for the address and before it had the sandbox on record: it
        /// will never call DEL.
        RuntimeEnded,
        /// DEL reported success and left the release to a daemon of the plugin, which has not done it.
        ReleaseQueued,
        /// A store names a sandbox that no runtime knows; how that came about was not seen.
        StaleRecord,
    }
}

/// An IPAM store of a network that no CNI configuration names any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AbandonedStore {
    pub path: String,
    pub network: String,
    /// How many addresses the store counts as allocated.
    pub count: u32,
}

/// An IPAM store counts addresses as allocated and does not say to whom.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OwnerlessReservation {
    #[serde_as(as = "DisplayFromStr")]
    #[serde(rename = "store")]
    #[schemars(schema_with = "names::<StoreKind>")]
    pub kind: StoreKind,
    pub path: String,
    pub network: Option<String>,
    /// How many of its reservations name no holder.
    pub count: u32,
    /// The first of them, in order.
    #[serde(rename = "first_addresses")]
    pub first: Vec<IpAddr>,
}

/// Sandboxes ended with an empty `CNI_NETNS` in each DEL, or without a DEL, and no IPAM store shows whether
/// their addresses were freed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnverifiedRelease {
    pub plugin: String,
    pub count: u32,
    /// How many of these had no DEL that succeeded; absent if each had one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub without_del: u32,
}

/// Two sandboxes got the same address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DuplicateAddress {
    pub network: Option<String>,
    pub address: IpAddr,
}

/// A range of pod addresses is used up, or soon will be.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolExhaustion {
    pub network: String,
    pub subnet: Subnet,
    pub size: u64,
    /// Addresses that are neither free nor leaked: of sandboxes that live or wait to be cleaned up, of those
    /// that may have leaked, and `ownerless`.
    pub used: u64,
    /// How many of the used ones have a reservation that names no sandbox; absent if none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ownerless: u64,
    pub leaked: u64,
    pub free: u64,
    /// When nothing is free, at the rate at which addresses leak.
    #[serde(rename = "runs_out_in_ns")]
    #[serde_as(as = "Option<Nanoseconds>")]
    #[schemars(with = "Option<Nanoseconds>")]
    pub runs_out_in: Option<Duration>,
}
