//! Records of addresses and sandboxes: IPAM stores, runtimes, the network configuration.
//!
//! **Invariant:** each of these is one whole reading, or the changes since the previous reading. What a
//! complete reading does not name did not exist when it was read, at the observation's time. What a change
//! does not name is unchanged.

use std::{net::IpAddr, time::Duration};

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
    /// The name of every entry was read. The holders of some may be missing.
    pub complete: bool,
}

/// What changed in an IPAM store since the previous reading. Both readings were complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreChanged {
    /// The path of the store.
    pub path: String,
    /// Reservations of new addresses, and changed reservations.
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
    #[serde(default, skip_serializing_if = "is_default")]
    pub bound: Bound,
}

/// What keeps the addresses of a store allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    #[default]
    Sandbox,
    /// The pod: the next sandbox of the pod gets the same address.
    Pod,
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
    /// The file in which azure-cns keeps the endpoints of all sandboxes.
    AzureCns,
    /// The file of the IPAM plugin azure-vnet-ipam.
    AzureVnetIpam,
    /// The file in which the plugin azure-vnet keeps its endpoints.
    AzureVnet,
    /// The folder in which Cilium's agent keeps a file for each endpoint.
    Cilium,
    /// The socket of UCloud's ipamd.
    UcloudIpamd,
    /// Calico's objects at the API server.
    Calico,
}

impl StoreKind {
    /// Whether the store is a directory with a file for each address.
    pub(crate) fn is_directory(self) -> bool {
        match self {
            Self::HostLocal | Self::Declared => true,
            Self::AwsIpamd
            | Self::AzureCns
            | Self::AzureVnetIpam
            | Self::AzureVnet
            | Self::Cilium
            | Self::UcloudIpamd
            | Self::Calico => false,
        }
    }

    /// Returns the IPAM plugin of a store that is asked about single addresses. None: the store is read.
    pub(crate) fn asked_for(self) -> Option<&'static str> {
        match self {
            Self::Calico => Some("calico-ipam"),
            Self::HostLocal
            | Self::Declared
            | Self::AwsIpamd
            | Self::AzureCns
            | Self::AzureVnetIpam
            | Self::AzureVnet
            | Self::Cilium
            | Self::UcloudIpamd => None,
        }
    }

    /// Returns how long the plugin itself may take to free the address of a sandbox that is gone.
    pub(crate) fn own_cleanup(self) -> Duration {
        match self {
            // The agent looks every five minutes, and removes an endpoint whose interface was gone twice.
            Self::Cilium => Duration::from_secs(12 * 60),
            // kube-controllers sees it with its next scan, within 7.5 minutes, and frees it with the first
            // one after 15 more.
            Self::Calico => Duration::from_secs(32 * 60),
            Self::HostLocal
            | Self::Declared
            | Self::AwsIpamd
            | Self::AzureCns
            | Self::AzureVnetIpam
            | Self::AzureVnet
            | Self::UcloudIpamd => Duration::ZERO,
        }
    }

    /// Whether the plugin frees by the sandbox's id alone, so that its DEL needs no network namespace.
    pub(crate) fn is_freed_by_id(self) -> bool {
        match self {
            Self::Cilium | Self::UcloudIpamd | Self::Calico => true,
            Self::HostLocal
            | Self::Declared
            | Self::AwsIpamd
            | Self::AzureCns
            | Self::AzureVnetIpam
            | Self::AzureVnet => false,
        }
    }

    /// Whether the store shows when each address was allocated. Otherwise it was allocated then or before.
    pub(crate) fn has_times(self) -> bool {
        self.is_directory() || self == Self::AwsIpamd
    }
}

/// One address that a store counts as allocated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub address: IpAddr,
    /// `None`: the record could not be read, or the address is `in_words`.
    pub holder: Option<Holder>,
    /// When the record was written; zero if that was before this boot.
    pub since: Timestamp,
    /// The record has other text in place of a holder: somebody reserved the address by hand. Or the plugin
    /// may keep the address for the pod whatever happens to its sandbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_words: bool,
    /// The pod, if the record names it beside the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Box<PodName>>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub state: ReservationState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationState {
    #[default]
    Held,
    /// DEL has succeeded without freeing the address: a daemon of the plugin has yet to do it.
    Queued { since: Timestamp },
}

impl Reservation {
    pub(crate) fn queued_since(&self) -> Option<Timestamp> {
        match self.state {
            ReservationState::Held => None,
            ReservationState::Queued { since } => Some(since),
        }
    }
}

/// Whether a store that is asked about single addresses can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreLink {
    pub store: Store,
    pub answer: StoreAnswer,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreAnswer {
    Answers,
    /// The agent lacks this right.
    Refused {
        right: String,
    },
    /// It has not answered for a while.
    Silent,
    /// It is not asked any more.
    Off,
}

/// A store's answer about one address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressAnswered {
    /// The path of the store.
    pub path: String,
    pub address: IpAddr,
    pub holder: Holder,
    /// The address is allocated to this holder. Otherwise it is free, or somebody else has it.
    pub is_held: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub container: ContainerId,
    /// Empty if the store does not keep it.
    pub ifname: String,
}

/// The sandboxes that a container runtime keeps on record, including the dead ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeRead {
    /// Where the records are: a directory, or a socket.
    pub place: String,
    /// The kind of the runtime; `None`: it is not known for a socket of this name.
    pub kind: Option<RuntimeKind>,
    pub sandboxes: Vec<RuntimeSandbox>,
    pub complete: bool,
    /// How many of them are known by their id only, because their record cannot be read. Each of these may
    /// not be a sandbox.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unread: u64,
}

/// What changed in a runtime's records since the previous reading. The rest is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeChanged {
    /// Where the records are, as in [`RuntimeRead`].
    pub place: String,
    /// Sandboxes that are new on record, and those whose pod's name changed.
    pub came: Vec<RuntimeSandbox>,
    /// Sandboxes that are no longer on record.
    pub gone: Vec<ContainerId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeSandbox {
    pub id: ContainerId,
    /// The pod, if the record names it.
    pub pod: Option<PodName>,
}

/// The networks of pods, from the node's CNI configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworksRead {
    pub networks: Vec<Network>,
    pub complete: bool,
    /// Files that are named as a configuration and cannot be decoded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undecodable: Vec<String>,
    /// When the first configuration of this boot was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub folders: NodeFolders,
    /// How the runtime that serves pods loads its configuration. None: that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loading: Option<NetworkLoading>,
}

/// What a runtime finds when it loads the network of pods as it is configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkLoading {
    pub runtime: RuntimeKind,
    /// The folder of the configuration.
    pub folder: String,
    /// Why it can make no network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<NetworkFault>,
}

/// The plugin that containerd calls beside those of the pod's network.
pub const LOOPBACK: &str = "loopback";

/// Why a runtime can make no network.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkFault {
    pub how: NetworkFaultForm,
    /// The file that the runtime takes.
    pub file: Option<String>,
    /// Why the file cannot be loaded.
    pub error: Option<String>,
    /// The plugin whose executable is missing.
    pub plugin: Option<String>,
}

closed_set! {
    pub enum NetworkFaultForm {
        /// The folder has no configuration.
        NoConfiguration,
        /// The file that the runtime takes cannot be loaded.
        BadConfiguration,
        /// The executable of a plugin is in none of the folders in which the runtime looks.
        PluginMissing,
    }
}

/// The folders of this node that commands for a repair name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFolders {
    /// The folders of the CNI configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<String>,
    /// The folders in which the runtime looks for plugins, as it is configured, or as it said with its last
    /// call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<String>,
    /// The root of the kubelet that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    pub name: String,
    /// The types of its plugins, in the order of ADD.
    pub plugins: Vec<String>,
    /// The plugins that another plugin calls instead of the runtime.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegates: Vec<String>,
    /// The type of the plugin that gives out its addresses.
    pub ipam: Option<String>,
    pub pools: Vec<Pool>,
}

impl Network {
    /// Returns the plugins that the runtime calls, in the order of ADD.
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
    /// How many can be given to pods; the gateway's address is not counted.
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

/// The message of a plugin whose ADD or DEL failed, as the runtime logged it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageFound {
    pub container: ContainerId,
    #[serde(default, skip_serializing_if = "CniCommand::is_add")]
    pub command: CniCommand,
    /// `None`: it could not be read; `source` says why.
    pub text: Option<String>,
    pub source: String,
}
