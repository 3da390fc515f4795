//! What the server knows: what it was given at the start, and the views of what the agent knows.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use super::{
    ask::{Asker, Sight, View},
    guard::Peer,
    ring::Ring,
    room::Room,
};
use crate::{
    engine::{
        boot::Recovery,
        count::Counts,
        finding::Finding,
        phase::{Share, Start},
        time::Timestamp,
        view::{PodView, PoolView},
    },
    recording::{Header, history::History},
    sink::{
        Label,
        doctor::Report,
        metrics::{Metrics, own::Process},
    },
};

/// So many may follow the events at one time.
const STREAMS: usize = 32;
/// So many starts are told beside those of the pods that are here; as many as the agent keeps for its own percentiles.
const STARTS: usize = 1024;

/// What is known at the start.
pub struct Given {
    pub header: Header,
    /// When the agent began, in boot time.
    pub since: Timestamp,
    /// What it can see.
    pub report: Report,
    /// The boots before this one.
    pub past: History,
    pub ring: Arc<Ring>,
    pub metrics: Metrics,
}

/// When it was so, and what the times in it mean.
pub(super) struct Known<T> {
    pub(super) label: Label,
    pub(super) now: Timestamp,
    pub(super) it: T,
}

/// What is told of pods.
pub(super) struct Pods {
    pub(super) pods: Vec<PodView>,
    pub(super) shares: Vec<Share>,
}

/// What another command makes its own lists from.
pub(super) struct State {
    pub(super) findings: Vec<Finding>,
    pub(super) starts: Vec<Start>,
    pub(super) shares: Vec<Share>,
}

/// How the agent does.
pub(super) struct Health {
    pub(super) counts: Counts,
    pub(super) has_listed: bool,
    /// Files at which reading hangs, and since when.
    pub(super) hanging: Vec<(String, Timestamp)>,
}

pub(super) struct House {
    pub(super) header: Header,
    pub(super) since: Timestamp,
    /// Another one with each run.
    pub(super) instance: String,
    pub(super) report: Report,
    pub(super) past: History,
    pub(super) ring: Arc<Ring>,
    pub(super) metrics: Metrics,
    pub(super) measured: View<()>,
    pub(super) alive: View<()>,
    pub(super) health: View<Known<Health>>,
    pub(super) process: View<Option<Process>>,
    pub(super) findings: View<Known<Vec<Finding>>>,
    pub(super) pods: View<Known<Pods>>,
    pub(super) pools: View<Known<Vec<PoolView>>>,
    pub(super) recovery: View<Known<Recovery>>,
    pub(super) state: View<Known<State>>,
    /// Room for those who follow the events.
    pub(super) streams: Arc<Semaphore>,
    /// For what waits to be taken over the network, and over the socket: neither can take the other's.
    network: Room,
    socket: Room,
    /// True once the agent ends.
    pub(super) end: watch::Receiver<bool>,
}

fn view<T: Send + Sync + 'static>(
    asker: &Asker,
    look: impl Fn(&Sight<'_>) -> T + Send + Sync + 'static,
) -> View<Known<T>> {
    View::new(asker, move |sight| Known { label: sight.label.clone(), now: sight.now, it: look(sight) })
}

impl House {
    pub(super) fn new(given: Given, asker: &Asker, end: watch::Receiver<bool>) -> Self {
        let Given { header, since, report, past, ring, metrics } = given;
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
            state: view(asker, |sight| State {
                findings: sight.engine.findings().cloned().collect(),
                starts: sight.engine.late_starts(STARTS),
                shares: sight.engine.shares(),
            }),
            streams: Arc::new(Semaphore::new(STREAMS)),
            network: Room::default(),
            socket: Room::default(),
            end,
        }
    }

    pub(super) fn room(&self, peer: Peer) -> &Room {
        match peer {
            Peer::Network { .. } => &self.network,
            Peer::Socket => &self.socket,
        }
    }
}
