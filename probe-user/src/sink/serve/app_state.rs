//! The state that all requests share: the server's configuration, and views of the agent's state.

use std::sync::Arc;

use tokio::sync::watch;

use super::{guard::Peer, response_budget::ResponseBudget, ring::Ring};
use crate::{
    engine::{
        count::Counts,
        share::Share,
        view::{BalanceView, PodView, PoolView},
    },
    model::{change::Finding, phase::Start, recovery::Recovery, time::Timestamp},
    recording::{Header, history::History},
    sink::{
        metrics::{Metrics, agent_stats::Process},
        net::loop_queue::{Client, Snapshot, View},
        render::doctor::Report,
        state::state_writes::StateWrites,
        stream::StreamTrouble,
        verdict::Judge,
    },
};

/// How many starts of removed pods the saved state has. The agent keeps the same number for its own
/// percentiles.
const STARTS: usize = 1024;

/// The configuration of the server.
pub(crate) struct ServerConfig {
    pub(crate) header: Header,
    /// When the agent began, since boot.
    pub(crate) since: Timestamp,
    /// Which signals the agent can see.
    pub(crate) report: Report,
    /// The boots before this one.
    pub(crate) past: History,
    pub(crate) ring: Arc<Ring>,
    pub(crate) metrics: Metrics,
    /// Whether the state directory can be written.
    pub(crate) state_writes: StateWrites,
    /// Whether the stream is written.
    pub(crate) stream_trouble: StreamTrouble,
}

/// The pods on the node, and how long the phases of a start take there.
pub(super) struct Pods {
    pub(super) pods: Vec<PodView>,
    pub(super) shares: Vec<Share>,
}

/// The content of the state directory, for commands that make their own lists from it.
pub(super) struct SavedState {
    pub(super) findings: Vec<Finding>,
    pub(super) starts: Vec<Start>,
    pub(super) shares: Vec<Share>,
}

/// The pools of addresses, and the balance of each CNI plugin and network.
pub(super) struct Addresses {
    pub(super) pools: Vec<PoolView>,
    pub(super) balance: Vec<BalanceView>,
}

/// The state of the agent itself.
pub(super) struct Health {
    pub(super) counts: Counts,
    pub(super) has_listed: bool,
    /// Files whose reading hangs, and since when.
    pub(super) hanging: Vec<(String, Timestamp)>,
    /// How many network namespaces the kernel has, and how many it allows.
    pub(super) netns: (usize, Option<u64>),
}

/// The state that all requests share.
pub(super) struct AppState {
    pub(super) config: ServerConfig,
    /// Differs for each run of the agent.
    pub(super) instance: String,
    pub(super) views: Views,
    pub(super) judge: Arc<Judge>,
    budgets: Budgets,
    /// True once the agent ends.
    pub(super) end: watch::Receiver<bool>,
}

/// The parts of the agent's state that requests read.
pub(super) struct Views {
    /// Sets the gauges for a scrape.
    pub(super) measured: View<()>,
    /// Shows that the agent's loop answers.
    pub(super) alive: View<()>,
    pub(super) health: View<Snapshot<Health>>,
    pub(super) process: View<Option<Process>>,
    pub(super) findings: View<Snapshot<Vec<Finding>>>,
    pub(super) pods: View<Snapshot<Pods>>,
    pub(super) pools: View<Snapshot<Addresses>>,
    pub(super) recovery: View<Snapshot<Recovery>>,
    pub(super) saved: View<Snapshot<SavedState>>,
}

/// The budgets for responses that wait for their clients. The network and the socket each have one, so that
/// neither can use up the other's.
#[derive(Default)]
struct Budgets {
    network: ResponseBudget,
    socket: ResponseBudget,
}

impl Views {
    fn new(client: &Client) -> Self {
        Self {
            measured: View::new(client, |agent| (agent.measure)()),
            alive: View::new(client, |_| ()),
            health: View::snapshot(client, |agent| Health {
                counts: agent.engine.counts().clone(),
                has_listed: agent.has_listed,
                hanging: agent.engine.hanging(),
                netns: (agent.engine.netns_in_kernel(), agent.netns_limit),
            }),
            process: View::new(client, |agent| (agent.process)()),
            findings: View::snapshot(client, |agent| agent.engine.findings().cloned().collect()),
            pods: View::snapshot(client, |agent| Pods {
                pods: agent.engine.pods(),
                shares: agent.engine.shares(),
            }),
            pools: View::snapshot(client, |agent| Addresses {
                pools: agent.engine.pools(),
                balance: agent.engine.balance(),
            }),
            recovery: View::snapshot(client, |agent| agent.engine.recovery().clone()),
            saved: View::snapshot(client, |agent| SavedState {
                findings: agent.engine.findings().cloned().collect(),
                starts: agent.engine.late_starts(STARTS),
                shares: agent.engine.shares(),
            }),
        }
    }
}

impl AppState {
    pub(super) fn new(config: ServerConfig, client: &Client, end: watch::Receiver<bool>) -> Self {
        // No two agents of one boot start in the same nanosecond.
        let boot: String = config.header.boot_id.chars().take(8).collect();
        let judge = Arc::new(Judge::new(client, config.report.unseen().next().is_none()));
        Self {
            judge,
            instance: format!("{boot}-{:x}", config.since.0),
            config,
            views: Views::new(client),
            budgets: Budgets::default(),
            end,
        }
    }

    pub(super) fn budget(&self, peer: Peer) -> &ResponseBudget {
        match peer {
            Peer::Network { .. } => &self.budgets.network,
            Peer::Socket => &self.budgets.socket,
        }
    }
}
