//! Sends starts, teardowns and boots as traces, and findings as log records, to an OTLP receiver (the
//! OpenTelemetry protocol, over gRPC or HTTP). docs/otlp.md describes what is sent.
//!
//! `start`, `teardown`, `boot` and `finding` make spans and records from the engine's state; `caller` makes
//! spans in the traces of those who call plugins. `feed` decides when. `queue` is between the agent's loop
//! and the thread that sends (`exporter`, with `client`).
//!
//! The messages are those of opentelemetry-proto. The OpenTelemetry SDK is not used: it is for spans that a
//! program makes while it runs, with the program's own ids and times. The spans here are made after the
//! event, and their ids and times follow from the event.
//!
//! **Invariant:** the agent's loop never waits for the receiver.

mod attribute;
mod boot;
mod caller;
mod client;
mod connect;
mod context;
pub(crate) mod credentials;
mod event;
mod exporter;
mod failure;
pub(crate) mod feed;
pub(crate) mod figures;
mod finding;
pub(crate) mod header;
mod health;
mod id;
mod key;
mod pace;
mod queue;
pub(crate) mod resource;
pub(crate) mod signal;
mod start;
pub(crate) mod target;
mod teardown;
#[cfg(test)]
mod tests;
mod trace;

use std::{io, sync::Arc};

use opentelemetry_proto::tonic::resource::v1::Resource;

use self::{
    credentials::Credentials,
    exporter::{Exporter, Route},
    feed::{ChangeSink, Feed},
    figures::ExportCounters,
    pace::Pace,
    queue::Queue,
    signal::Signal,
    target::Target,
};
use crate::{engine::Engine, model::time::Timestamp, sink::Label};

/// The agent loop's side of the export.
#[derive(Debug)]
pub(crate) struct Otlp {
    feed: Feed,
    queues: Vec<(Signal, Queue)>,
    exporter: Exporter,
}

/// Where to send, and which signals.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) target: Target,
    pub(crate) credentials: Credentials,
    pub(crate) signals: Vec<Signal>,
    pub(crate) resource: Resource,
}

impl Otlp {
    /// Starts the thread that sends. The notes are a sink for the changes of the run. `begun` is when the
    /// agent began.
    pub(crate) fn start(export: Export, begun: Timestamp) -> io::Result<(Self, ChangeSink)> {
        let Export { target, credentials, signals, resource } = export;
        let route = Route { target, credentials, resource: Arc::new(resource), pace: Pace::default() };
        Self::start_at(route, &signals, begun)
    }

    fn start_at(route: Route, signals: &[Signal], begun: Timestamp) -> io::Result<(Self, ChangeSink)> {
        let queues: Vec<(Signal, Queue)> = Signal::ALL
            .into_iter()
            .filter(|signal| signals.contains(signal))
            .map(|signal| (signal, Queue::new(&route.pace, ExportCounters::new(signal))))
            .collect();
        let exporter = Exporter::spawn(route, &queues)?;
        let traces = queue_of(&queues, Signal::Traces);
        let logs = queue_of(&queues, Signal::Logs);
        let (feed, notes) = Feed::new(traces, logs, begun);
        Ok((Self { feed, queues, exporter }, notes))
    }

    /// The counters, for the metrics.
    pub(crate) fn figures(&self) -> Vec<ExportCounters> {
        self.queues.iter().map(|(_, queue)| queue.figures.clone()).collect()
    }

    /// When [`Self::update`] has something to do besides the noted changes.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.feed.due()
    }

    /// Queues what follows from the noted changes.
    pub(crate) fn update(&mut self, now: Timestamp, engine: &Engine, label: &Label) {
        self.feed.update(now, engine, label);
    }

    /// Queues the rest, and returns once it was sent or could not be sent.
    pub(crate) async fn finish(mut self, now: Timestamp, engine: &Engine, label: &Label) {
        self.feed.finish(now, engine, label);
        self.queues.iter().for_each(|(_, queue)| queue.close());
        self.exporter.ended().await;
    }
}

fn queue_of(queues: &[(Signal, Queue)], signal: Signal) -> Option<Queue> {
    queues.iter().find(|(it, _)| *it == signal).map(|(_, queue)| queue.clone())
}
