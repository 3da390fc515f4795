//! Blind spots: what the agent cannot see.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantNames};

use super::FindingKind;
use crate::model::{
    fact::{List, Signal},
    scalar::{Decimal, names},
};

/// sandprobe cannot see something, and its verdicts are weaker for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlindSpot {
    #[serde(flatten)]
    #[schemars(with = "BlindJson")]
    pub spot: Blind,
    /// Kinds of findings that may be missed or reported too late.
    pub weaker: Vec<FindingKind>,
}

impl BlindSpot {
    /// Makes a blind spot that weakens all kinds that need what is not seen.
    pub(crate) fn of(spot: Blind) -> Self {
        let is_loss = matches!(spot, Blind::NoAgent | Blind::State);
        let sight = if is_loss { Sight::Lost } else { Sight::from(&spot) };
        let weaker = FindingKind::ALL.iter().copied().filter(|kind| {
            let (signals, sights) = kind.needs();
            sights.contains(&sight) || matches!(&spot, Blind::Signal { signal } if signals.contains(signal))
        });
        Self { weaker: weaker.collect(), spot }
    }
}

#[derive(
    Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames, EnumDiscriminants,
)]
#[serde(into = "BlindJson", try_from = "BlindJson")]
#[strum(serialize_all = "snake_case", const_into_str)]
#[strum_discriminants(name(Sight), vis(pub(super)), doc = "What a blind spot is about.")]
pub enum Blind {
    /// No mechanism could be attached.
    Signal { signal: Signal },
    /// Records were lost.
    Lost { count: u64 },
    /// Too many findings are open, so this many more are left out.
    LeftOut { count: u64 },
    /// For some time no agent ran.
    NoAgent,
    /// The state that the last agent kept was lost.
    State,
    /// A store could not be read whole.
    Store { path: String },
    /// The agent may not ask a store about single addresses: it lacks this right.
    Right { right: String },
    /// No runtime's records could be read whole.
    Runtime { place: Option<String> },
    /// A runtime's list could not be read over CRI.
    Cri { socket: String },
    /// `count` files of libcni's cache could not be read, this one among them.
    CniCache { path: String, count: u64 },
    /// Reading a file hangs.
    File { path: String },
    /// A list of the node could not be read whole.
    Listing { list: List },
    /// The node has pods, and no kubelet is known.
    Kubelet,
}

/// A blind spot as the members of a finding. Members that a kind does not have are null, except the count,
/// which is left out.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) struct BlindJson {
    #[schemars(schema_with = "names::<Blind>")]
    what: String,
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<Decimal<u64>>,
}

#[derive(Debug, thiserror::Error)]
#[error("no blind spot is {what} with the name {name:?}")]
pub(super) struct NoBlindSpot {
    what: String,
    name: Option<String>,
}

impl From<Blind> for BlindJson {
    fn from(spot: Blind) -> Self {
        let what = spot.into_str().to_owned();
        let (name, count) = match spot {
            Blind::Signal { signal } => (Some(signal.to_string()), None),
            Blind::Lost { count } | Blind::LeftOut { count } => (None, Some(Decimal(count))),
            Blind::Runtime { place } => (place, None),
            Blind::CniCache { path, count } => (Some(path), Some(Decimal(count))),
            Blind::Store { path: name }
            | Blind::File { path: name }
            | Blind::Cri { socket: name }
            | Blind::Right { right: name } => (Some(name), None),
            Blind::Listing { list } => (Some(plural(list).to_owned()), None),
            Blind::Kubelet | Blind::NoAgent | Blind::State => (None, None),
        };
        Self { what, name, count }
    }
}

impl TryFrom<BlindJson> for Blind {
    type Error = NoBlindSpot;

    fn try_from(BlindJson { what, name, count }: BlindJson) -> Result<Self, NoBlindSpot> {
        let count = count.map_or(0, |Decimal(count)| count);
        let spot = match (what.as_str(), name.clone()) {
            ("signal", Some(name)) => name.parse().ok().map(|signal| Self::Signal { signal }),
            ("lost", _) => Some(Self::Lost { count }),
            ("left_out", _) => Some(Self::LeftOut { count }),
            ("store", Some(path)) => Some(Self::Store { path }),
            ("right", Some(right)) => Some(Self::Right { right }),
            ("runtime", place) => Some(Self::Runtime { place }),
            ("cri", Some(socket)) => Some(Self::Cri { socket }),
            ("cni_cache", Some(path)) => Some(Self::CniCache { path, count }),
            ("file", Some(path)) => Some(Self::File { path }),
            ("listing", Some(name)) => {
                let list = List::ALL.into_iter().find(|list| plural(*list) == name);
                list.map(|list| Self::Listing { list })
            }
            ("kubelet", _) => Some(Self::Kubelet),
            ("no_agent", _) => Some(Self::NoAgent),
            ("state", _) => Some(Self::State),
            _ => None,
        };
        spot.ok_or(NoBlindSpot { what, name })
    }
}

/// Returns what a list contains, in the plural.
pub(crate) fn plural(list: List) -> &'static str {
    match list {
        List::Processes => "processes",
        List::Netns => "network namespaces",
        List::Addresses => "addresses",
        List::Cgroups => "cgroups",
        List::Containers => "containers",
        List::Pods => "pods",
        List::CniCache => "attachments in libcni's cache",
        List::Ipam => "stores of addresses",
        List::Runtimes => "runtimes' records",
    }
}
