//! Sends what waits in the queues, batch by batch, on a separate thread.
//!
//! A batch that fails for a transient reason is tried again after longer and longer waits, until its time is
//! over. Meanwhile the queue fills up and drops its oldest entries. `health` logs the failures.

use std::{
    io,
    sync::Arc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use opentelemetry_proto::tonic::resource::v1::Resource;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::{
    runtime,
    sync::oneshot,
    time::{self, Instant},
};
use tracing::{error, warn};

use super::{
    client::Client,
    credentials::Credentials,
    failure::{Failure, said},
    figures::Dropped,
    health::{Again, Health},
    pace::{BackOff, Pace},
    queue::{Batch, Queue},
    signal::{Partial, Signal},
    target::Target,
};

/// The name of the thread.
const THREAD: &str = "otlp";

/// Where everything is sent, and the resource that it describes.
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
                while let Some(ended) = all.join_next().await {
                    if let Err(why) = ended {
                        error!(%why, "a signal is sent no more: this is an error of the program");
                    }
                }
            });
            // The end does not wait for a name that is being resolved.
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

/// Sends one signal.
struct Pipeline {
    signal: Signal,
    route: Route,
    queue: Queue,
    client: Client,
    /// The waits since the last request that was accepted.
    waits: BackOff,
    health: Health,
    /// A rejection was logged.
    has_logged_rejection: bool,
}

impl Pipeline {
    fn new(route: Route, signal: Signal, queue: Queue) -> Self {
        let client = Client::new(route.target.clone(), signal, route.credentials.clone());
        let waits = BackOff::new(&route.pace);
        let health = Health::default();
        Self { signal, route, queue, client, waits, health, has_logged_rejection: false }
    }

    async fn run(mut self) {
        while let Some(batch) = self.queue.batch(&self.route.pace).await {
            self.deliver(batch).await;
            if self.queue.is_closed() && self.health.is_failing() {
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
        loop {
            let failure = match self.client.send(&request, &self.route.pace).await {
                Ok(partial) => return self.taken(entries, &partial),
                Err(failure) => failure,
            };
            self.failed(&failure);
            if self.queue.is_closed() {
                return self.queue.figures.add_dropped(Dropped::Ended, entries);
            }
            if !failure.is_passing {
                self.queue.figures.add_dropped(Dropped::Refused, entries);
                // It may refuse the other batches too, and without a pause they would be dropped as fast as
                // it answers.
                self.pause(None).await;
                return;
            }
            if self.pause(failure.wait).await > until {
                return self.queue.figures.add_dropped(Dropped::Expired, entries);
            }
        }
    }

    /// Waits until the next try, and returns its time. When the agent ends, there is one more try at once.
    async fn pause(&mut self, asked: Option<Duration>) -> Instant {
        let again = Instant::now() + self.waits.wait(asked, random()).min(self.route.pace.patience);
        time::timeout_at(again, self.queue.closed()).await.ok();
        again
    }

    fn taken(&mut self, entries: u64, partial: &Partial) {
        let rejected = partial.rejected.min(entries);
        let figures = &self.queue.figures;
        figures.add_exported(entries - rejected);
        figures.add_dropped(Dropped::Rejected, rejected);
        figures.succeeded(now());
        self.waits = BackOff::new(&self.route.pace);
        let signal = self.signal.as_str();
        let target = &self.route.target;
        if let Some(Again { failed, dropped }) = self.health.succeeded(figures.all_dropped(), Instant::now())
        {
            warn!(
                "{signal} are sent to {target} again, after {failed} failed requests; {dropped} were dropped"
            );
        }
        let has_rejection = !partial.message.is_empty() || rejected > 0;
        if has_rejection && !self.has_logged_rejection {
            let message = said(&partial.message);
            warn!("{target} took {signal} and rejected {rejected} of {entries}{message}; logged once");
            self.has_logged_rejection = true;
        }
    }

    fn failed(&mut self, failure: &Failure) {
        self.queue.figures.add_failed(failure.reason);
        if self.health.failed(failure.reason, self.queue.figures.all_dropped(), Instant::now()) {
            let signal = self.signal.as_str();
            let target = &self.route.target;
            let next = if failure.is_passing { "it is tried again" } else { "what it refused is dropped" };
            warn!("{signal} cannot be sent to {target}: {failure}; {next}");
        }
    }
}

/// The current time, seconds since the epoch.
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
