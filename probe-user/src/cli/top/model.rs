//! What the view shows: the agent's documents (`docs/api.md`), as far as they are shown.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::Deserialize;
use serde_with::{DisplayFromStr, serde_as};

use crate::{
    cli::{snapshot::AgentSnapshot, verdict},
    model::{fact::PodName, phase::Start, time::Timestamp},
};

/// One answer of the agent.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) doctor: Doctor,
    pub(super) verdict: verdict::Answer,
    pub(super) addresses: Addresses,
    pub(super) state: Arc<State>,
    pub(super) rates: Option<Rates>,
}

/// The documents that are large, and are not read each time.
#[derive(Debug)]
pub(super) struct State {
    pub(super) snapshot: AgentSnapshot,
    pub(super) pods: Vec<Pod>,
}

/// What the agent did between two answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    /// Events a second.
    pub(super) events: f64,
    /// In percent of one CPU.
    pub(super) cpu_percent: f64,
    /// Records that were lost.
    pub(super) lost: u64,
}

/// `/v1/doctor`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Doctor {
    pub(super) version: String,
    pub(super) node: String,
    /// The time of the answer.
    pub(super) boot_ns: Timestamp,
    pub(super) signals: Vec<Signal>,
    pub(super) cure: Option<String>,
    pub(super) agent: Agent,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Signal {
    pub(super) signal: String,
    pub(super) grade: Grade,
    pub(super) mechanism: Option<String>,
    pub(super) programs: Vec<String>,
    #[serde(default)]
    pub(super) note: String,
    #[serde(default)]
    pub(super) lacks: String,
    pub(super) missed: Vec<Missed>,
}

/// The worst is last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Grade {
    Full,
    Degraded,
    Cannot,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Missed {
    pub(super) mechanism: String,
    pub(super) why: String,
}

#[serde_as]
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Agent {
    pub(super) instance: String,
    #[serde_as(as = "DisplayFromStr")]
    pub(super) since: jiff::Timestamp,
    pub(super) reasons: Vec<String>,
    pub(super) degraded: Vec<String>,
    pub(super) seq: u64,
    #[serde_as(as = "BTreeMap<_, DisplayFromStr>")]
    losses: BTreeMap<String, u64>,
    cost: Cost,
    pub(super) netns: Namespaces,
}

#[serde_as]
#[derive(Clone, Debug, Deserialize)]
struct Cost {
    #[serde_as(as = "Option<DisplayFromStr>")]
    #[serde(default)]
    cpu_ns: Option<u64>,
    #[serde_as(as = "Option<DisplayFromStr>")]
    #[serde(default)]
    rss_bytes: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Namespaces {
    pub(super) count: u64,
    pub(super) limit: Option<u64>,
}

/// `/v1/pools`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Addresses {
    pub(super) pools: Vec<Pool>,
    pub(super) balance: Vec<Balance>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Pool {
    pub(super) network: String,
    pub(super) subnet: String,
    pub(super) size: u64,
    pub(super) in_use: u64,
    pub(super) pending_cleanup: u64,
    pub(super) leak_candidate: u64,
    pub(super) leaked: u64,
    pub(super) free: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Balance {
    pub(super) plugin: String,
    #[serde(default)]
    pub(super) network: Option<String>,
    pub(super) added: u64,
    pub(super) released: u64,
    pub(super) live: u64,
    pub(super) unreleased: u64,
}

/// `/v1/pods`.
#[derive(Debug, Deserialize)]
pub(super) struct PodList {
    pub(super) pods: Vec<Pod>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Pod {
    #[serde(flatten)]
    pub(super) name: PodName,
    pub(super) state: String,
    /// Since when it waits for its first sandbox.
    #[serde(rename = "waiting_since_ns")]
    pub(super) waiting_since: Option<Timestamp>,
}

impl Data {
    /// The time of the answer.
    pub(super) fn now(&self) -> Timestamp {
        self.doctor.boot_ns.max(self.state.snapshot.now)
    }

    /// Returns the start as of the time of the answer: a start that was read earlier may still wait.
    pub(super) fn as_of_now(&self, start: &Start) -> Start {
        let mut start = start.clone();
        if start.waits {
            start.end = start.end.max(self.now());
            if let Some(last) = start.phases.last_mut() {
                last.end = start.end;
            }
        }
        start
    }
}

impl Doctor {
    /// Returns what has changed since an earlier answer of the same run of the agent.
    pub(super) fn rates(&self, earlier: &Self) -> Option<Rates> {
        let seconds = self.boot_ns.since(earlier.boot_ns).as_secs_f64();
        if self.agent.instance != earlier.agent.instance || seconds <= 0.0 {
            return None;
        }
        let events = self.agent.seq.saturating_sub(earlier.agent.seq);
        let cpu_before = earlier.agent.cost.cpu_ns.unwrap_or_default();
        let cpu = self.agent.cost.cpu_ns.unwrap_or_default().saturating_sub(cpu_before);
        let cpu = Duration::from_nanos(cpu);
        Some(Rates {
            events: events as f64 / seconds,
            cpu_percent: 100.0 * cpu.as_secs_f64() / seconds,
            lost: self.agent.lost().saturating_sub(earlier.agent.lost()),
        })
    }
}

impl Agent {
    /// How many records were lost since it began.
    pub(super) fn lost(&self) -> u64 {
        self.losses.values().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// The resident memory, in MiB.
    pub(super) fn memory(&self) -> Option<u64> {
        self.cost.rss_bytes.map(|bytes| bytes >> 20)
    }
}

impl Pool {
    /// How many of its addresses are not free.
    pub(super) fn taken(&self) -> u64 {
        self.size.saturating_sub(self.free)
    }

    /// How much of it is taken.
    pub(super) fn percent(&self) -> u64 {
        let percent = (u128::from(self.taken()) * 100).checked_div(u128::from(self.size)).unwrap_or_default();
        u64::try_from(percent).unwrap_or(100).min(100)
    }
}
