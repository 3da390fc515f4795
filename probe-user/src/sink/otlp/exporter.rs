//! Sends what waits, batch by batch, on a thread of its own.
//!
//! A batch that fails for a passing reason is tried again, later and later, until its patience ends; meanwhile the queue
//! fills up and drops its oldest. The log has a line for each reason for which sending fails, once, and one when it works again.

use std::{
    io,
    sync::Arc,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use opentelemetry_proto::tonic::resource::v1::Resource;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::{
    runtime,
    sync::oneshot,
    time::{self, Instant},
};
use tracing::warn;

use super::{
    client::Client,
    credentials::Credentials,
    failure::{Failure, Reason, said},
    figures::Dropped,
    pace::{BackOff, Pace},
    queue::{Batch, Queue},
    signal::{Partial, Signal},
    target::Target,
};

/// The name of the thread.
const THREAD: &str = "otlp";

/// Where everything goes, and as what.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) target: Target,
    pub(super) credentials: Credentials,
    pub(super) resource: Arc<Resource>,
    pub(super) pace: Pace,
}

/// The running thread.
#[derive(Debug)]
pub(super) struct Exporter(oneshot::Receiver<()>);

impl Exporter {
    /// Starts the thread, which ends once all queues are closed.
    pub(super) fn spawn(route: Route, queues: &[(Signal, Queue)]) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (end, ended) = oneshot::channel();
        let pipelines: Vec<Pipeline> = queues
            .iter()
            .map(|(signal, queue)| Pipeline::new(route.clone(), *signal, queue.clone()))
            .collect();
        thread::Builder::new().name(THREAD.to_owned()).spawn(move || {
            runtime.block_on(async {
                let mut all = tokio::task::JoinSet::new();
                pipelines.into_iter().for_each(|pipeline| drop(all.spawn(pipeline.run())));
                while all.join_next().await.is_some() {}
            });
            // A name that is being looked up delays nobody.
            runtime.shutdown_background();
            end.send(()).ok();
        })?;
        Ok(Self(ended))
    }

    /// Returns once everything was sent or dropped.
    pub(super) async fn ended(self) {
        self.0.await.ok();
    }
}

/// What sends one signal.
struct Pipeline {
    signal: Signal,
    route: Route,
    queue: Queue,
    client: Client,
    health: Health,
}

/// How it goes, for the log.
#[derive(Debug, Default)]
struct Health {
    failing: Option<Failing>,
    /// Rejections were logged.
    rejects: bool,
}

/// Requests fail since one that did not.
#[derive(Debug)]
struct Failing {
    /// The reasons that were logged.
    told: Vec<Reason>,
    requests: u64,
    /// How many spans or records had been dropped before.
    dropped: u64,
}

impl Pipeline {
    fn new(route: Route, signal: Signal, queue: Queue) -> Self {
        let client = Client::new(route.target.clone(), signal, route.credentials.clone());
        Self { signal, route, queue, client, health: Health::default() }
    }

    async fn run(mut self) {
        while let Some(batch) = self.queue.batch(&self.route.pace).await {
            self.deliver(batch).await;
            if self.queue.is_closed() && self.health.failing.is_some() {
                // There is no time for more tries.
                self.queue.clear(Dropped::Ended);
            }
        }
    }

    async fn deliver(&mut self, batch: Batch) {
        let request = self.signal.request(&batch.scopes, &self.route.resource);
        let entries = batch.entries;
        drop(batch);
        let until = Instant::now() + self.route.pace.patience;
        let mut waits = BackOff::new(&self.route.pace);
        loop {
            let failure = match self.client.send(&request, &self.route.pace).await {
                Ok(partial) => return self.taken(entries, &partial),
                Err(failure) => failure,
            };
            self.failed(&failure);
            let again = Instant::now() + waits.wait(failure.wait, random()).min(self.route.pace.patience);
            let why = if self.queue.is_closed() {
                Dropped::Ended
            } else if failure.is_passing {
                // At the end of the agent there is one more try.
                time::timeout_at(again, self.queue.closed()).await.ok();
                if again <= until {
                    continue;
                }
                Dropped::Expired
            } else {
                Dropped::Refused
            };
            self.queue.figures.add_dropped(why, entries);
            return;
        }
    }

    fn taken(&mut self, entries: u64, partial: &Partial) {
        let rejected = partial.rejected.min(entries);
        let figures = &self.queue.figures;
        figures.add_exported(entries - rejected);
        figures.add_dropped(Dropped::Rejected, rejected);
        figures.succeeded(now());
        let (signal, target) = (self.signal.as_str(), &self.route.target);
        if let Some(Failing { requests, dropped, .. }) = self.health.failing.take() {
            let dropped = figures.all_dropped().saturating_sub(dropped);
            warn!(
                "{signal} are sent to {target} again, after {requests} failed requests; {dropped} were dropped"
            );
        }
        let is_told = !partial.message.is_empty() || rejected > 0;
        if is_told && !self.health.rejects {
            let message = said(&partial.message);
            warn!("{target} took {signal} and rejected {rejected} of {entries}{message}; it is told once");
            self.health.rejects = true;
        }
    }

    fn failed(&mut self, failure: &Failure) {
        self.queue.figures.add_failed(failure.reason);
        let dropped = self.queue.figures.all_dropped();
        let failing = self.health.failing.get_or_insert(Failing { told: Vec::new(), requests: 0, dropped });
        failing.requests += 1;
        if !failing.told.contains(&failure.reason) {
            failing.told.push(failure.reason);
            let (signal, target) = (self.signal.as_str(), &self.route.target);
            let next = if failure.is_passing { "it is tried again" } else { "what it refused is dropped" };
            warn!("{signal} cannot be sent to {target}: {failure}; {next}");
        }
    }
}

/// Seconds since the epoch.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn random() -> u8 {
    let mut byte = [0];
    // Without randomness the waits are the shortest.
    SystemRandom::new().fill(&mut byte).ok();
    byte[0]
}
