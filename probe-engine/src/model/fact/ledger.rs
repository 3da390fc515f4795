//! What keeps addresses and sandboxes on record: IPAM stores, runtimes, the network's configuration.
//!
//! **Invariant:** each of these is one whole reading, or says what changed since the reading before it. What a complete
//! reading does not name was not there when it was read, at the observation's time. What a change does not name was
//! there then as it was before.

use std::net::IpAddr;

pub use probe_common::runtime::Kind as RuntimeKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use strum::{IntoStaticStr, VariantNames};

use crate::model::{
    fact::PodName,
    id::{ContainerId, Subnet},
    scalar::is_default,
    time::Timestamp,
};

/// Everything that an IPAM store held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreRead {
    pub store: Store,
    pub reservations: Vec<Reservation>,
    /// Every entry's name was read; a reservation whose holder could not be read is still one.
    pub complete: bool,
}

/// What changed in an IPAM store since the reading before. Both readings were complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreChanged {
    /// The path of the store.
    pub path: String,
    /// Reservations of new addresses, and of addresses whose reservation is another one.
    pub came: Vec<Reservation>,
    /// Addresses that are no longer reserved.
    pub gone: Vec<IpAddr>,
}

/// A place where an IPAM plugin writes down which addresses are given out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Store {
    pub kind: StoreKind,
    /// The directory with a file for each address, or the one file that holds all.
    pub path: String,
    /// The network that it serves, where the store says so.
    pub network: Option<String>,
}

#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantNames,
    strum::Display,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum StoreKind {
    /// host-local's directory for one network.
    HostLocal,
    /// The checkpoint file of the AWS VPC CNI's ipamd.
    AwsIpamd,
    /// A directory that the user declared: file name = address, content = container id.
    Declared,
}

/// One address that a store says is given out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub address: IpAddr,
    /// `None`: the record could not be read.
    pub holder: Option<Holder>,
    /// When the record was written; zero if that was before this boot.
    pub since: Timestamp,
    /// The record names no holder and has words in its place: somebody reserved the address by hand.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_words: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub container: ContainerId,
    /// Empty where the store does not keep it.
    pub ifname: String,
}

/// The sandboxes that a container runtime keeps on record, the dead among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeRead {
    /// Where they stand: a directory, or a socket.
    pub place: String,
    /// Whose they are; `None`: that is not known of a socket of this name.
    pub kind: Option<RuntimeKind>,
    pub sandboxes: Vec<RuntimeSandbox>,
    pub complete: bool,
    /// So many of them are known by their id alone, for their own record cannot be read: each may be no sandbox at all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unread: u64,
}

/// What changed in a runtime's records since the reading before. The rest of the reading is as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeChanged {
    /// Where the records are, as in [`RuntimeRead`].
    pub place: String,
    /// Sandboxes that are new on record, and those whose pod is named otherwise.
    pub came: Vec<RuntimeSandbox>,
    /// Sandboxes that are no longer on record.
    pub gone: Vec<ContainerId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeSandbox {
    pub id: ContainerId,
    /// Where the record names it.
    pub pod: Option<PodName>,
}

/// The networks that pods are attached to, as the node is configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworksRead {
    pub networks: Vec<Network>,
    pub complete: bool,
    /// Files that are named as a configuration and hold none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undecodable: Vec<String>,
    /// When the first of the configurations was written that were written in this boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    pub name: String,
    /// The types of its plugins, in the order of ADD.
    pub plugins: Vec<String>,
    /// Those of them that another one calls. The runtime does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegates: Vec<String>,
    /// The type of the plugin that gives out its addresses.
    pub ipam: Option<String>,
    pub pools: Vec<Pool>,
}

impl Network {
    /// The plugins that the runtime calls, in the order of ADD.
    pub(crate) fn called(&self) -> impl Iterator<Item = &String> {
        self.plugins.iter().filter(|name| !self.delegates.contains(name))
    }
}

/// A range from which addresses are given out.
#[serde_as]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    pub subnet: Subnet,
    pub first: IpAddr,
    pub last: IpAddr,
    /// How many can be given to pods; the gateway's own is none of them.
    #[serde_as(as = "DisplayFromStr")]
    pub size: u64,
}

/// The commands with which a runtime changes a network (CNI specification, section 2).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
)]
#[serde(rename_all = "UPPERCASE")]
#[strum(serialize_all = "UPPERCASE")]
pub enum CniCommand {
    #[default]
    Add,
    Del,
}

impl CniCommand {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
    fn is_add(&self) -> bool {
        *self == Self::Add
    }
}

/// What an executable on the node says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramFound {
    pub path: String,
    /// `None`: it does not say.
    pub version: Option<String>,
}

/// What a plugin said when an ADD or a DEL failed, as the runtime wrote it down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageFound {
    pub container: ContainerId,
    #[serde(default, skip_serializing_if = "CniCommand::is_add")]
    pub command: CniCommand,
    /// `None`: it could not be read, and `source` says why.
    pub text: Option<String>,
    pub source: String,
}
