//! The HTTP server as the agent's loop sees it: it answers the server's questions about the engine.

use crate::{
    agent::stats::StatsCollector,
    model::time::Timestamp,
    session::Session,
    sink::{
        kubernetes::Reporter,
        metrics::Metrics,
        net::loop_queue::{AgentView, Queue},
        serve::Server,
    },
    source::node::clock,
};

/// The server, if there is one.
#[derive(Default)]
pub(crate) struct Served(Option<Running>);

struct Running {
    server: Server,
    /// Reports to the cluster, if that was requested.
    reporter: Option<Reporter>,
    requests: Queue,
    figures: StatsCollector,
    metrics: Metrics,
}

impl Served {
    #[must_use]
    pub(crate) fn new(server: Server, requests: Queue, figures: StatsCollector, metrics: Metrics) -> Self {
        Self(Some(Running { server, reporter: None, requests, figures, metrics }))
    }

    /// Adds the thread that reports to the cluster. It ends with the server, and its questions are answered
    /// until then.
    pub(crate) fn attach_reporter(&mut self, reporter: Reporter) {
        if let Some(running) = &mut self.0 {
            running.reporter = Some(reporter);
        }
    }

    /// Notes that every change so far is written: their latency is known.
    pub(super) fn written(&self, now: Timestamp) {
        if let Some(Running { metrics, .. }) = &self.0 {
            metrics.timed(now);
        }
    }

    /// Answers the next question; never returns if there is no server. May be cancelled.
    pub(super) async fn answer(&mut self, session: &Session) {
        let Some(Running { requests, figures, metrics, .. }) = &mut self.0 else {
            return std::future::pending().await;
        };
        let request = requests.next().await;
        let now = clock::now();
        request(&AgentView {
            engine: session.engine(),
            label: session.label(),
            now,
            has_listed: session.has_listed(),
            measure: &|| metrics.update(session.engine(), now, &figures.own()),
            process: &|| figures.process(),
            netns_limit: figures.netns_limit(),
        });
    }

    pub(super) async fn finish(self) {
        let Some(Running { server, reporter, requests, .. }) = self.0 else { return };
        // From here on nobody answers.
        drop(requests);
        if let Some(reporter) = reporter {
            reporter.finish().await;
        }
        server.finish().await;
    }
}
