//! Every kind of finding, and its members. The rule that finds it, its text for people and its repair are
//! together in the kind's file in `engine/detect/`.
//!
//! **Invariant:** the members, their order and their names are those of the JSON that users read
//! (docs/findings.md), and those of the state file.

use std::{net::IpAddr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};
use serde_with::{FromInto, serde_as, skip_serializing_none};
use strum::{EnumDiscriminants, IntoStaticStr, VariantNames};

use super::{
    Explain,
    address::{
        AbandonedStore, DuplicateAddress, LeakedAddress, LostNetwork, OwnerlessReservation, PoolExhaustion,
        UnverifiedRelease,
    },
    blind::{BlindSpot, Sight},
    cni::{CniFailing, CniQueue, CniSlow, CniWrongDel},
};
use crate::model::{
    fact::{NetworkFaultForm, RunState, RuntimeEventKind, Said, Signal, ThreadState},
    id::{ContainerId, NetnsKey},
    json::NetnsJson,
    process::Process,
    time::Nanoseconds,
};

/// A kind of finding is one row here and a type of its name, with [`Explain`]. The row names what the agent
/// must see so that no finding of the kind is missed or reported too late: signals, and other sights.
macro_rules! kinds {
    ($($kind:ident [$($signal:ident)*] [$($sight:ident)*])*) => {
        /// What is wrong.
        #[derive(
            Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames, EnumDiscriminants,
        )]
        #[serde(rename_all = "snake_case")]
        #[strum(serialize_all = "snake_case", const_into_str)]
        #[strum_discriminants(
            name(FindingKind),
            doc = "A kind of finding, without what it says.",
            derive(PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr, JsonSchema),
            serde(rename_all = "snake_case"),
            strum(serialize_all = "snake_case", const_into_str)
        )]
        pub enum Kind {
            $($kind($kind),)*
        }

        impl Kind {
            /// Returns the text of the kind.
            #[must_use]
            pub fn explain(&self) -> &dyn Explain {
                match self {
                    $(Self::$kind(it) => it,)*
                }
            }

            pub(super) fn explain_mut(&mut self) -> &mut dyn Explain {
                match self {
                    $(Self::$kind(it) => it,)*
                }
            }
        }

        impl FindingKind {
            /// Returns its name in the form of a condition's reason: `LeakedAddress`.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$kind => stringify!($kind),)*
                }
            }

            pub(super) const ALL: &[Self] = &[$(Self::$kind),*];

            pub(super) const fn needs(self) -> (&'static [Signal], &'static [Sight]) {
                match self {
                    $(Self::$kind => (&[$(Signal::$signal),*], &[$(Sight::$sight),*]),)*
                }
            }
        }

        $(impl From<$kind> for Kind {
            fn from(it: $kind) -> Self {
                Self::$kind(it)
            }
        })*

        impl Serialize for Detail<'_> {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                match self.0 {
                    $(Kind::$kind(it) => it.serialize(to),)*
                }
            }
        }

        impl JsonSchema for Detail<'_> {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                "Detail".into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "description": "What is wrong: the members depend on the finding's kind.",
                    "anyOf": [$(generator.subschema_for::<$kind>()),*],
                })
            }
        }
    };
}

kinds! {
    LeakedAddress [Exec Exit NetnsDropped AddressV4 AddressV6]
        [Lost Store Right Runtime CniCache File Kubelet]
    AbandonedStore [] [Store Runtime]
    OwnerlessReservation [] [Lost Store]
    UnverifiedRelease [] []
    DuplicateSandbox [Exec Exit CgroupCreated CgroupEntered CgroupEmptied] [Lost]
    TeardownOutOfOrder [Exec Exit FatalSignal OomKill NetnsDropped] [Lost]
    OrphanNetns [NetnsCreated NetnsDropped] [Listing]
    StuckNetnsTeardown [NetnsDropped NetnsFreed] []
    StuckCgroup [CgroupRemoved CgroupEmptied] [Kubelet]
    StuckStop [Exec Exit FatalSignal] [Lost Runtime Kubelet]
    StuckStart [Exec CgroupCreated CgroupEntered] [Lost Kubelet]
    OrphanSandbox [Exec CgroupCreated CgroupEntered] [Runtime File Kubelet]
    AbandonedSandbox [Exec Exit] [Lost Kubelet]
    SandboxesReplaced [Exec Exit] [Lost]
    RestartedInBulk [Exec Exit FatalSignal] [Lost]
    PhantomSandbox [] [Lost Cri]
    StaleRuntimeStatus [] [Lost Cri]
    MissedRuntimeEvent [] [Lost Cri]
    NodeNetworkUnready [] []
    DaemonFailing [] []
    RuntimeUnresponsive [] []
    DuplicateContainer [Exec Exit CgroupCreated CgroupEntered] [Lost]
    DuplicateAddress [AddressV4 AddressV6] [Lost Store]
    LostNetwork [Exec AddressV4 AddressV6] [Lost]
    CniFailing [Exec Exit] [Lost]
    CniWrongDel [Exec Exit] [Lost]
    CniSlow [Exec Exit] []
    CniQueue [Exec] []
    PoolExhaustion [AddressV4 AddressV6] [Store]
    BlindSpot [] []
}

/// The members of a finding's kind in JSON, without the name of the kind, which is beside them.
#[derive(Clone, Copy, Debug)]
pub struct Detail<'a>(pub &'a Kind);

/// A pod got a sandbox that it did not need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DuplicateSandbox {
    pub form: Duplicate,
    /// How many pods this happened to at once.
    pub count: u32,
}

closed_set! {
    #[schemars(rename = "DuplicateForm")]
    pub enum Duplicate {
        /// Two sandboxes of one pod live.
        Concurrent,
        /// The sandbox was made after the pod had completed.
        AfterCompletion,
        /// Several sandboxes were made one after the other, and none ran a container.
        UnusedRebuild,
    }
}

/// A sandbox's pause process or its network namespace ended before the runtime stopped the sandbox.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TeardownOutOfOrder {
    pub how: OutOfOrder,
    pub killer: Option<Process>,
    /// The number of the signal that it was killed with.
    pub signal: Option<u32>,
}

closed_set! {
    pub enum OutOfOrder {
        PauseKilled,
        /// The kernel's OOM killer killed it: the pod or the node was out of memory.
        PauseOutOfMemory,
        NetnsGone,
    }
}

/// A sandbox's network namespace stays although nothing uses it.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrphanNetns {
    #[serde_as(as = "FromInto<NetnsJson>")]
    #[schemars(with = "NetnsJson")]
    pub netns: NetnsKey,
    pub mounts: Vec<String>,
}

/// The kernel does not finish the teardown of a network namespace.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StuckNetnsTeardown {
    #[serde_as(as = "FromInto<NetnsJson>")]
    #[schemars(with = "NetnsJson")]
    pub netns: NetnsKey,
    #[serde(rename = "held_ns")]
    #[serde_as(as = "Nanoseconds")]
    #[schemars(with = "Nanoseconds")]
    pub held: Duration,
    /// How many network namespaces wait behind it.
    pub waiting: u32,
}

/// A pod's cgroup stays although the pod is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StuckCgroup {
    pub path: String,
    pub populated: Option<bool>,
}

/// The stop of a sandbox has begun and does not end.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StuckStop {
    pub step: StopStep,
    /// The process that does not end.
    pub process: Option<Process>,
    /// How often the plugins were called with DEL.
    pub attempts: u32,
    /// The plugin whose DEL did not succeed.
    pub plugin: Option<String>,
    pub exit_code: Option<u32>,
    /// The file of libcni's cache that cannot be decoded, so that the runtime calls no DEL.
    pub cache_file: Option<String>,
    /// The file to which the network namespace is still bound.
    pub mount: Option<String>,
    /// What the runtime and the kubelet say about the pod: the most telling error first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<Said>,
    /// Why nothing is quoted, if they were searched for: the places that were searched.
    pub unsaid: Option<String>,
}

closed_set! {
    /// The step of a stop that is not over.
    pub enum StopStep {
        /// A container was killed and still runs.
        Containers,
        /// DEL has not succeeded.
        Del,
        /// The network namespace is still bound to its file.
        Unmount,
    }
}

/// A pod is there, and none of its containers has ever run.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StuckStart {
    pub step: StartStep,
    /// How many sandboxes the runtime has begun for the pod.
    pub sandboxes: u32,
    pub cause: Option<StartCause>,
    /// The plugin whose ADD is open, or which is not called.
    pub plugin: Option<String>,
    pub network: Option<String>,
    /// The folders in which the runtime looks for the executables of plugins, if a plugin is not called and
    /// the runtime named them with an earlier call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<String>,
    /// The file of the CNI configuration that cannot be decoded.
    pub config_file: Option<String>,
    /// The addresses that the earlier plugins of the chain gave, and that an IPAM store still holds for
    /// sandboxes that are over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// What the runtime and the kubelet say about the pod: the most telling error first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<Said>,
    /// Why nothing is quoted, if they were searched for: the places that were searched.
    pub unsaid: Option<String>,
}

closed_set! {
    /// What a pod's start waits for.
    pub enum StartStep {
        /// A sandbox.
        Sandbox,
        /// The network of its sandbox.
        Network,
        /// The first container: its image, its volumes and configuration.
        Container,
    }
}

closed_set! {
    /// Why a pod's start waits, where the node shows it.
    pub enum StartCause {
        /// The runtime does not call a plugin that the CNI configuration names.
        PluginNotCalled,
        /// The CNI configuration is missing or cannot be decoded.
        NotConfigured,
    }
}

/// A sandbox's process runs although no runtime has the sandbox on record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrphanSandbox {
    pub process: Process,
}

/// All containers of a sandbox have ended, and nobody starts one again or stops the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AbandonedSandbox {
    /// The name of the container that ended last.
    pub container: Option<String>,
    pub exit_code: Option<u32>,
}

/// Healthy sandboxes were ended and made anew moments after the runtime or the kubelet had started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxesReplaced {
    /// The daemon that had started.
    pub daemon: String,
    /// The number of pods.
    pub count: u32,
    /// The first of them, as NAMESPACE/NAME.
    #[serde(rename = "first_pods")]
    pub first: Vec<String>,
}

/// Containers of many pods were ended at about the same time, and started again.
#[serde_as]
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestartedInBulk {
    /// The daemon that had started moments before. Not there: a process killed the containers.
    pub daemon: Option<String>,
    /// The daemon's program before and now, each with its version, if these are known and differ.
    pub was: Option<String>,
    pub is: Option<String>,
    pub killer: Option<Process>,
    pub containers: u32,
    /// The number of pods.
    pub count: u32,
    /// The time from the first of these ends to the last.
    #[serde(rename = "lasted_ns")]
    #[serde_as(as = "Nanoseconds")]
    #[schemars(with = "String")]
    pub lasted: Duration,
    /// The first of the pods, as NAMESPACE/NAME.
    #[serde(rename = "first_pods")]
    pub first: Vec<String>,
}

/// A runtime says that a sandbox is ready, and nothing of it is left in the kernel. Or it has sandboxes on
/// record that are not ready and whose pods are gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PhantomSandbox {
    /// The runtime's socket.
    pub runtime: String,
    /// How many sandboxes of pods that are gone it has on record. Not there: it is one that counts as ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_on_record: Option<u32>,
}

/// A runtime says of a sandbox or a container what the kernel contradicts.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StaleRuntimeStatus {
    pub how: Contradiction,
    /// The sandbox or the container.
    pub id: ContainerId,
    #[serde(rename = "sandbox")]
    pub is_sandbox: bool,
    /// The container's name in the pod's spec.
    pub container: Option<String>,
    /// How it ended, as the kernel saw it.
    pub exit_code: Option<u32>,
    /// How it ended, as the runtime says.
    pub runtime_exit_code: Option<i32>,
    /// What it is, by its cgroup and its bundle.
    pub evidence: Option<String>,
    /// What it is, as the runtime says.
    pub runtime_says: Option<String>,
}

closed_set! {
    pub enum Contradiction {
        /// The runtime says that it runs, and its process has ended.
        Dead,
        /// The runtime says that it has ended, and its process runs.
        Alive,
        /// The runtime says another exit code.
        ExitCode,
        /// The runtime says that it has another name, or is one of another pod.
        Identity,
    }
}

/// A runtime's event stream did not report a start or an end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissedRuntimeEvent {
    /// The event that did not come.
    pub event: RuntimeEventKind,
    /// The sandbox or the container.
    pub id: ContainerId,
    #[serde(rename = "sandbox")]
    pub is_sandbox: bool,
    /// The container's name in the pod's spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The runtime's socket.
    pub runtime: String,
}

/// The runtime can make no network for a pod.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeNetworkUnready {
    pub how: NetworkFaultForm,
    /// The name of the runtime's program.
    pub runtime: String,
    /// The folder from which the runtime takes the CNI configuration.
    #[serde(rename = "path")]
    pub folder: String,
    /// The file of the configuration that the runtime takes.
    pub config_file: Option<String>,
    /// Why it cannot be loaded.
    pub error: Option<String>,
    /// The plugin whose executable is missing.
    pub plugin: Option<String>,
    /// The folders in which the runtime looks for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<String>,
    /// How many pods wait for a sandbox.
    pub pods: u32,
    /// The first of them, as NAMESPACE/NAME.
    #[serde(rename = "first_pods", default, skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<String>,
}

/// A runtime, a kubelet or a container of a CNI plugin's pod fails soon after each start; or a runtime or a
/// kubelet ended, and nobody has started it again.
#[serde_as]
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DaemonFailing {
    /// The name of its program; the container's name if it is one of a plugin's pod.
    pub daemon: String,
    /// The CNI plugins that do not work without it, if it is a container of their pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<String>,
    /// The pod of these plugins, as NAMESPACE/NAME.
    pub plugin_pod: Option<String>,
    /// How often it failed, one time after the other.
    pub count: u32,
    /// From the first of these starts to the last end.
    #[serde(rename = "lasted_ns")]
    #[serde_as(as = "Nanoseconds")]
    #[schemars(with = "String")]
    pub lasted: Duration,
    /// It had run for a while when it ended, and nobody has started it again. `lasted_ns` is how long it ran.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub down: bool,
    /// The process that sent it the signal before its end.
    pub killer: Option<Process>,
    /// How it ended last: the exit code, or 128 + the signal's number; 0 if nobody saw its end.
    pub exit_code: u32,
    /// The signal that ended it last, if one did.
    pub signal: Option<u32>,
    /// The OOM killer chose it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub oom: bool,
    /// The errors that it logged, the most telling one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<Said>,
    /// Where none was found.
    pub unsaid: Option<String>,
}

/// A runtime accepts connections and answers nothing.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuntimeUnresponsive {
    /// The runtime's socket.
    pub runtime: String,
    /// How many pods wait for it to start them.
    pub pods: u32,
    /// The first of them, as NAMESPACE/NAME.
    #[serde(rename = "first_pods", default, skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<String>,
    /// The process that serves the socket.
    pub process: Option<Process>,
    /// What it does.
    pub state: Option<RunState>,
    /// What its threads do, most of them first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadState>,
}

/// Two containers of the same name run in one sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DuplicateContainer {
    pub name: String,
    pub containers: Vec<ContainerId>,
}
