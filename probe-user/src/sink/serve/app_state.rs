//! What all requests share: the server's configuration, and views of the state of the agent.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use super::{
    ask::{Asker, Sight, View},
    guard::Peer,
    response_budget::ResponseBudget,
    ring::Ring,
};
use crate::{
    engine::{
        count::Counts,
        share::Share,
        view::{PodView, PoolView},
    },
    model::{finding::Finding, phase::Start, recovery::Recovery, time::Timestamp},
    recording::{Header, history::History},
    sink::{
        Label,
        doctor::Report,
        metrics::{Metrics, own::Process},
        state_writes::StateWrites,
    },
};

/// How many clients may follow the events at one time.
const STREAMS: usize = 32;
/// How many starts of pods that are gone the saved state has; the agent keeps as many for its own percentiles.
const STARTS: usize = 1024;

/// What the server is started with.
pub(crate) struct ServerConfig {
    pub(crate) header: Header,
    /// When the agent began, in boot time.
    pub(crate) since: Timestamp,
    /// Which signals the agent can see.
    pub(crate) report: Report,
    /// The boots before this one.
    pub(crate) past: History,
    pub(crate) ring: Arc<Ring>,
    pub(crate) metrics: Metrics,
    /// Whether what is found out is kept.
    pub(crate) state_writes: StateWrites,
}

/// A part of the agent's state, with the time when it was copied and the label for the times in it.
pub(super) struct Snapshot<T> {
    pub(super) label: Label,
    pub(super) now: Timestamp,
    pub(super) value: T,
}

/// The pods on the node, and how long the phases of a start take here.
pub(super) struct Pods {
    pub(super) pods: Vec<PodView>,
    pub(super) shares: Vec<Share>,
}

/// What the state directory has too, for commands that make their own lists from it.
pub(super) struct SavedState {
    pub(super) findings: Vec<Finding>,
    pub(super) starts: Vec<Start>,
    pub(super) shares: Vec<Share>,
}

/// How the agent itself is doing.
pub(super) struct Health {
    pub(super) counts: Counts,
    pub(super) has_listed: bool,
    /// Files whose reading hangs, and since when.
    pub(super) hanging: Vec<(String, Timestamp)>,
}

pub(super) struct AppState {
    pub(super) header: Header,
    pub(super) since: Timestamp,
    /// Differs with each run of the agent.
    pub(super) instance: String,
    pub(super) report: Report,
    pub(super) past: History,
    pub(super) ring: Arc<Ring>,
    pub(super) metrics: Metrics,
    pub(super) state_writes: StateWrites,
    pub(super) measured: View<()>,
    pub(super) alive: View<()>,
    pub(super) health: View<Snapshot<Health>>,
    pub(super) process: View<Option<Process>>,
    pub(super) findings: View<Snapshot<Vec<Finding>>>,
    pub(super) pods: View<Snapshot<Pods>>,
    pub(super) pools: View<Snapshot<Vec<PoolView>>>,
    pub(super) recovery: View<Snapshot<Recovery>>,
    pub(super) saved: View<Snapshot<SavedState>>,
    /// One permit for each client that may follow the events.
    pub(super) streams: Arc<Semaphore>,
    /// For the answers that wait for clients of the network and of the socket: neither can use up the other's.
    network: ResponseBudget,
    socket: ResponseBudget,
    /// True once the agent ends.
    pub(super) end: watch::Receiver<bool>,
}

fn view<T: Send + Sync + 'static>(
    asker: &Asker,
    look: impl Fn(&Sight<'_>) -> T + Send + Sync + 'static,
) -> View<Snapshot<T>> {
    View::new(asker, move |sight| Snapshot { label: sight.label.clone(), now: sight.now, value: look(sight) })
}

impl AppState {
    pub(super) fn new(config: ServerConfig, asker: &Asker, end: watch::Receiver<bool>) -> Self {
        let ServerConfig { header, since, report, past, ring, metrics, state_writes } = config;
        // No two agents of one boot begin in the same nanosecond.
        let boot: String = header.boot_id.chars().take(8).collect();
        Self {
            instance: format!("{boot}-{:x}", since.0),
            header,
            since,
            report,
            past,
            ring,
            metrics,
            state_writes,
            measured: View::new(asker, |sight| (sight.measure)()),
            alive: View::new(asker, |_| ()),
            health: view(asker, |sight| Health {
                counts: sight.engine.counts().clone(),
                has_listed: sight.has_listed,
                hanging: sight.engine.hanging(),
            }),
            process: View::new(asker, |sight| (sight.process)()),
            findings: view(asker, |sight| sight.engine.findings().cloned().collect()),
            pods: view(asker, |sight| Pods { pods: sight.engine.pods(), shares: sight.engine.shares() }),
            pools: view(asker, |sight| sight.engine.pools()),
            recovery: view(asker, |sight| sight.engine.recovery().clone()),
            saved: view(asker, |sight| SavedState {
                findings: sight.engine.findings().cloned().collect(),
                starts: sight.engine.late_starts(STARTS),
                shares: sight.engine.shares(),
            }),
            streams: Arc::new(Semaphore::new(STREAMS)),
            network: ResponseBudget::default(),
            socket: ResponseBudget::default(),
            end,
        }
    }

    pub(super) fn budget(&self, peer: Peer) -> &ResponseBudget {
        match peer {
            Peer::Network { .. } => &self.network,
            Peer::Socket => &self.socket,
        }
    }
}
