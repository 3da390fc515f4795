//! The agent's metrics in Prometheus' text format. `docs/metrics.md` lists every family.
//!
//! Each change of a run updates the counters and histograms. A scrape first sets the gauges, from the
//! engine's views and the agent's own statistics, and then reads the text.
//!
//! **Invariant:** no family has more series than its cap, whatever the node does.

pub mod agent_stats;
mod bucket;
mod counters;
pub mod family;
mod gauges;
mod groups;
pub mod label;
mod owner;
pub mod page;
mod series;
mod set;
#[cfg(test)]
mod tests;
mod workload;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use probe_common::event;
use prometheus::{Registry, TextEncoder};

use self::{
    agent_stats::AgentStats,
    counters::Counters,
    family::FOLDED,
    gauges::Gauges,
    label::PodLabel,
    series::{Registrar, Vector as _},
};
use super::{Label, Sink};
use crate::{
    engine::{
        Engine,
        incident::Incidents,
        view::{BalanceView, ManyView, PodView, PoolView},
    },
    model::{
        change::{Change, Finding},
        recovery::Recovery,
        time::Timestamp,
    },
};

pub(crate) use prometheus::TEXT_FORMAT;

/// All metrics of one agent. A clone shares them.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    tables: Mutex<Tables>,
}

struct Tables {
    counters: Counters,
    gauges: Gauges,
}

/// The state of the node and of the agent, from which the gauges are set.
struct Views<'a> {
    now: Timestamp,
    pods: &'a [PodView],
    pools: &'a [PoolView],
    balance: &'a [BalanceView],
    findings: &'a [&'a Finding],
    incidents: &'a Incidents<'a>,
    /// The leaks that are reported together as one finding.
    many: &'a [ManyView],
    recovery: &'a Recovery,
    /// When each daemon that runs started.
    daemons: &'a BTreeMap<&'a str, Timestamp>,
    /// Network namespaces that the kernel has.
    netns: usize,
    /// Network namespaces that netlink does not watch yet.
    unwatched: usize,
    /// Ends of namespaces that netlink reported too late.
    stale: u64,
    own: &'a AgentStats,
}

impl Metrics {
    /// `labels`: the pod labels that the user asked for, each once.
    #[must_use]
    pub fn new(labels: &[PodLabel]) -> Self {
        Self::register(labels)
            .expect("names and labels of the table are those of Prometheus, and each is there once")
    }

    fn register(labels: &[PodLabel]) -> prometheus::Result<Self> {
        let mut labels = labels.to_vec();
        labels.sort_unstable();
        labels.dedup();
        let registry = Registry::new();
        let folded = prometheus::CounterVec::make(&FOLDED, FOLDED.labels)?;
        registry.register(Box::new(folded.clone()))?;
        let registrar = Registrar { registry: &registry, labels: &labels, folded: &folded };
        let counters = Counters::new(registrar)?;
        let gauges = Gauges::new(registrar)?;
        Ok(Self(Arc::new(Inner { registry, tables: Mutex::new(Tables { counters, gauges }) })))
    }

    /// Counts a change.
    pub(crate) fn count(&self, change: &Change) {
        self.with(|tables| tables.counters.on_change(change));
    }

    /// Records that all changes so far are written now, to measure their latency.
    pub(crate) fn timed(&self, now: Timestamp) {
        self.with(|tables| tables.counters.timed(now));
    }

    /// Sets the gauges from the state of the node and of the agent.
    pub fn update(&self, engine: &Engine, now: Timestamp, agent: &AgentStats) {
        let findings: Vec<&Finding> = engine.findings().collect();
        self.with(|tables| tables.counters.lags(engine.lags()));
        self.set_gauges(&Views {
            now,
            pods: &engine.pods(),
            pools: &engine.pools(),
            balance: &engine.balance(),
            findings: &findings,
            incidents: &Incidents::of(findings.iter().copied()),
            many: &engine.many(),
            recovery: engine.recovery(),
            daemons: &engine.daemons_since(),
            netns: engine.netns_in_kernel(),
            unwatched: engine.unwatched(),
            stale: engine.counts().stale,
            own: agent,
        });
    }

    fn set_gauges(&self, views: &Views<'_>) {
        self.with(|tables| {
            tables.counters.sweep(views.now);
            tables.counters.leaked(views.many);
            for ring in &views.own.probe.rings {
                for (kind, lost) in event::NAMES.iter().zip(&ring.lost) {
                    tables.counters.lost(ring.name, kind, *lost);
                }
            }
            tables.gauges.set(views);
        });
    }

    /// Sets whether the agent is ready.
    pub(crate) fn ready(&self, is_ready: bool) {
        self.with(|tables| tables.gauges.ready(is_ready));
    }

    /// The text of a scrape, in [`TEXT_FORMAT`].
    pub fn text(&self) -> prometheus::Result<String> {
        TextEncoder::new().encode_to_string(&self.0.registry.gather())
    }

    fn with(&self, work: impl FnOnce(&mut Tables)) {
        // The counters are usable even after a panic.
        work(&mut self.0.tables.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Sink for Metrics {
    fn on_change(&mut self, change: &Change, _: &Label) {
        self.count(change);
    }
}
