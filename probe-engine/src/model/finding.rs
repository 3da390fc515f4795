//! What can be wrong on the node: the kinds of findings, and the key by which each finding is known. A
//! [finding](super::change::Finding) is kept with the changes, because its evidence is changes.
//!
//! **Invariant:** a key says what is wrong with which thing, and nothing of when or by whom it was found: a restart
//! and a replay give the same key.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, DisplayFromStr, SerializeDisplay, serde_as};
use strum::{EnumDiscriminants, IntoStaticStr, VariantNames};

use crate::model::{
    fact::{List, MessageFound, Signal, Store},
    id::{ContainerId, NetnsKey, NotThat, Subnet},
    reference::Process,
    time::Nanoseconds,
};

/// `KIND/…`, of what never changes: names, addresses, ids.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr, JsonSchema,
)]
pub struct Key(String);

closed_set! {
    /// How far it is with a finding.
    pub enum Stage {
        /// It may yet come right by itself.
        Candidate,
        Confirmed,
        /// What was wrong is so no longer.
        Closed,
    }
}

closed_set! {
    /// What to do about it.
    pub enum Severity {
        /// To be known.
        Info,
        /// To be looked at in working hours.
        Warning,
        /// Pods fail, or soon will.
        Critical,
    }
}

/// What is wrong.
#[serde_as]
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
    /// An address is given out and nobody has it.
    LeakedAddress(LeakedAddress),
    /// A store of a network that no configuration names any more, and how many addresses it counts as given out.
    AbandonedStore { path: String, network: String, count: u32 },
    /// Addresses of sandboxes that went with a blind DEL alone, and no store that would tell whether they were freed.
    UnverifiedRelease { plugin: String, count: u32 },
    /// A sandbox was made that nobody needed.
    DuplicateSandbox { form: Duplicate, count: u32 },
    /// What holds a sandbox ended before the runtime stopped it.
    TeardownOutOfOrder { how: OutOfOrder, killer: Option<Process>, signal: Option<u32> },
    /// A sandbox's namespace that nothing uses is kept.
    OrphanNetns { netns: NetnsKey, mounts: Vec<String> },
    /// The kernel does not finish taking a namespace apart.
    StuckNetnsTeardown {
        netns: NetnsKey,
        #[serde_as(as = "Nanoseconds")]
        held: Duration,
        waiting: u32,
    },
    /// A pod's cgroup stays though the pod is gone.
    StuckCgroup { path: String, populated: Option<bool> },
    /// A sandbox's process lives though no runtime has it on record.
    OrphanSandbox { process: Process },
    /// Two containers of one name live in one sandbox.
    DuplicateContainer { name: String, containers: Vec<ContainerId> },
    /// One address was given to two sandboxes.
    DuplicateAddress { network: Option<String>, address: IpAddr },
    /// ADD fails and is tried again.
    CniFailing(CniFailing),
    /// A call of a plugin takes, or took, long.
    CniSlow {
        plugin: String,
        command: String,
        #[serde_as(as = "Nanoseconds")]
        took: Duration,
        open: bool,
    },
    /// Many plugins run at once, and the oldest for long.
    CniQueue {
        waiting: u32,
        #[serde_as(as = "Nanoseconds")]
        oldest: Duration,
        plugin: String,
    },
    /// A range of addresses is used up, or soon will be.
    PoolExhaustion(PoolExhaustion),
    /// Something cannot be seen, and verdicts are weaker for it.
    BlindSpot { spot: Blind, weaker: Vec<FindingKind> },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeakedAddress {
    pub address: IpAddr,
    pub network: Option<String>,
    /// The network's name was inferred from the configuration.
    pub inferred: bool,
    pub ifname: String,
    /// The plugin that the runtime called.
    pub plugin: Option<String>,
    pub cause: Cause,
    /// Who still says that it is given out; none: libcni's cache alone.
    pub stores: Vec<Store>,
    /// It is the first of so many that they are one finding.
    #[serde(default)]
    pub many: Option<Many>,
}

/// Addresses of one network that leaked for one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Many {
    pub count: u32,
    /// The first of them, in order.
    pub first: Vec<IpAddr>,
}

impl LeakedAddress {
    /// How many addresses it is about.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.many.as_ref().map_or(1, |many| many.count)
    }
}

closed_set! {
    /// Why an address was not given back.
    #[schemars(rename = "LeakCause")]
    pub enum Cause {
        /// DEL was never called.
        DelMissing,
        /// DEL was called without a namespace only, and answered that all is well.
        DelBlind,
        /// DEL failed, each time.
        DelFailed,
        /// The ADD that reserved it failed, and no DEL was called.
        AddFailed,
        /// The runtime ended after it had asked for the address and before it had the sandbox on record: it will never call
        /// DEL.
        RuntimeEnded,
        /// A store names a sandbox that no runtime knows; how that came about was not seen.
        StaleRecord,
    }
}

closed_set! {
    #[schemars(rename = "DuplicateForm")]
    pub enum Duplicate {
        /// Two sandboxes of one pod live.
        Concurrent,
        /// The pod had done all its work.
        AfterCompletion,
        /// One after the other is made, and none runs a container.
        UnusedRebuild,
    }
}

closed_set! {
    pub enum OutOfOrder {
        PauseKilled,
        /// By the kernel: the pod or the node was out of memory.
        PauseOutOfMemory,
        NetnsGone,
    }
}

#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniFailing {
    pub plugin: String,
    /// ADDs that failed, of all sandboxes.
    pub attempts: u32,
    /// Pods that still wait for one to succeed.
    pub pods: u32,
    /// How long the failed calls ran, together.
    #[serde_as(as = "Nanoseconds")]
    pub wasted: Duration,
    pub code: Option<u32>,
    /// What the plugin said, or why that could not be read.
    pub message: Option<MessageFound>,
}

#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolExhaustion {
    pub network: String,
    pub subnet: Subnet,
    #[serde_as(as = "DisplayFromStr")]
    pub size: u64,
    /// By sandboxes that live or wait to be cleaned up.
    #[serde_as(as = "DisplayFromStr")]
    pub used: u64,
    #[serde_as(as = "DisplayFromStr")]
    pub leaked: u64,
    #[serde_as(as = "DisplayFromStr")]
    pub free: u64,
    /// When nothing is free, at the rate at which addresses leak.
    #[serde_as(as = "Option<Nanoseconds>")]
    pub runs_out_in: Option<Duration>,
}

/// What cannot be seen.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Blind {
    /// No mechanism could be attached.
    Signal { signal: Signal },
    /// Records were lost.
    Lost {
        #[serde_as(as = "DisplayFromStr")]
        count: u64,
    },
    /// A store could not be read whole.
    Store { path: String },
    /// No runtime's records could be read whole.
    Runtime { place: Option<String> },
    /// So many files of libcni's cache could not be read, this one among them.
    CniCache {
        path: String,
        #[serde_as(as = "DisplayFromStr")]
        count: u64,
    },
    /// Reading a file hangs.
    File { path: String },
    /// Things of a kind that are on the node could not be listed whole.
    Listing { list: List },
    /// The node has pods, and no kubelet is known.
    Kubelet,
}

/// Numbers that are other ones when any finding is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revision {
    /// Of how far it is with each: opened, confirmed, closed.
    pub stages: u64,
    /// Of what each means: also its severity, cause and sandboxes, but not what only counts.
    pub meaning: u64,
}

impl Key {
    /// `kind/part/part`; a slash within a part would make two of it.
    pub(crate) fn new(kind: &str, parts: &[&str]) -> Self {
        let mut text = kind.to_owned();
        for part in parts {
            text.push('/');
            text.extend(part.chars().map(|letter| if letter == '/' { ':' } else { letter }));
        }
        Self(text)
    }

    /// One that was written down before.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('/')?;
        (!kind.is_empty() && !rest.is_empty()).then(|| Self(text.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its first part.
    pub(crate) fn kind(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }
}

impl FromStr for Key {
    type Err = NotThat;

    fn from_str(text: &str) -> Result<Self, NotThat> {
        Self::parse(text).ok_or(NotThat::KEY)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Kind {
    /// Whether it says the same as another one, but for numbers that move while it goes on.
    pub(crate) fn means(&self, other: &Self) -> bool {
        let said = |it: &Self| {
            let Self::CniFailing(it) = it else { return None };
            it.message.as_ref()?.text.clone()
        };
        self.without_numbers() == other.without_numbers() && said(self) == said(other)
    }

    /// The same without what moves while it goes on.
    fn without_numbers(&self) -> Self {
        let mut it = self.clone();
        match &mut it {
            Self::UnverifiedRelease { count, .. }
            | Self::DuplicateSandbox { count, .. }
            | Self::AbandonedStore { count, .. } => *count = 0,
            Self::StuckNetnsTeardown { held, waiting, .. } => (*held, *waiting) = (Duration::ZERO, 0),
            Self::CniFailing(it) => {
                (it.attempts, it.pods, it.wasted) = (0, 0, Duration::ZERO);
                // Of many sandboxes it is now this one's that was found.
                it.message = None;
            }
            Self::CniSlow { took, .. } => *took = Duration::ZERO,
            Self::CniQueue { waiting, oldest, plugin } => {
                (*waiting, *oldest) = (0, Duration::ZERO);
                plugin.clear();
            }
            Self::PoolExhaustion(it) => (it.used, it.leaked, it.free, it.runs_out_in) = (0, 0, 0, None),
            Self::BlindSpot { spot: Blind::Lost { count }, .. } => *count = 0,
            Self::LeakedAddress(it) => {
                if let Some(many) = &mut it.many {
                    (it.address, many.count, many.first) = (Ipv4Addr::UNSPECIFIED.into(), 0, Vec::new());
                }
            }
            Self::TeardownOutOfOrder { .. }
            | Self::OrphanNetns { .. }
            | Self::StuckCgroup { .. }
            | Self::OrphanSandbox { .. }
            | Self::DuplicateContainer { .. }
            | Self::DuplicateAddress { .. }
            | Self::BlindSpot { .. } => {}
        }
        it
    }

    /// Whether the sandboxes of such a finding are some of many, others now and then.
    pub(crate) fn shows_some(&self) -> bool {
        let is_many = matches!(self, Self::LeakedAddress(it) if it.many.is_some());
        is_many || matches!(self, Self::CniFailing(_) | Self::CniSlow { .. } | Self::CniQueue { .. })
    }
}
