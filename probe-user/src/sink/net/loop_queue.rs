//! The queue in which requests of the server and of the Kubernetes client wait for the agent's loop.
//!
//! The loop copies a part of the engine's state. The copy answers every client that asks within a short time,
//! so a thousand clients cost the loop as much as one.
//!
//! **Invariant:** the loop only copies. The server's thread formats the copy.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time,
};

use crate::{
    engine::Engine,
    model::time::Timestamp,
    sink::{Label, metrics::agent_stats::Process},
};

/// How long a copy answers requests.
const MAX_AGE: Duration = Duration::from_millis(250);
/// How long a request waits for the loop before it fails.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// How many requests may wait: more than there are views.
const DEPTH: usize = 32;

/// The state that the loop shows to a request.
pub(crate) struct AgentView<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) label: &'a Label,
    /// Time since boot.
    pub(crate) now: Timestamp,
    /// All lists that are read at the start are complete.
    pub(crate) has_listed: bool,
    /// Sets the gauges of the metrics.
    pub(crate) measure: &'a dyn Fn(),
    /// Returns the statistics of the agent's own process.
    pub(crate) process: &'a dyn Fn() -> Option<Process>,
    /// How many network namespaces the kernel allows.
    pub(crate) netns_limit: Option<u64>,
}

type Request = Box<dyn FnOnce(&AgentView<'_>) + Send>;

#[derive(Clone, Debug)]
pub(crate) struct Client {
    requests: mpsc::Sender<Request>,
    patience: Duration,
}

/// The requests that wait. The loop takes them.
#[derive(Debug)]
pub(crate) struct Queue(mpsc::Receiver<Request>);

/// The loop did not answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent did not answer within {} s", ANSWER_TIMEOUT.as_secs())]
pub(crate) struct Unanswered;

#[must_use]
pub(crate) fn queue() -> (Client, Queue) {
    let (sender, receiver) = mpsc::channel(DEPTH);
    (Client { requests: sender, patience: ANSWER_TIMEOUT }, Queue(receiver))
}

impl Queue {
    /// The next request; never returns once no more can come.
    pub(crate) async fn next(&mut self) -> Request {
        match self.0.recv().await {
            Some(request) => request,
            None => std::future::pending().await,
        }
    }
}

/// A part of the agent's state, with the time when it was copied and the label for the times in it.
pub(crate) struct Snapshot<T> {
    pub(crate) label: Label,
    pub(crate) now: Timestamp,
    pub(crate) value: T,
}

/// A part of the agent's state, and the latest copy of it.
pub(crate) struct View<T> {
    client: Client,
    copy: Arc<dyn Fn(&AgentView<'_>) -> T + Send + Sync>,
    found: Mutex<Option<(Instant, Arc<T>)>>,
}

impl<T: Send + Sync + 'static> View<T> {
    pub(crate) fn new(client: &Client, copy: impl Fn(&AgentView<'_>) -> T + Send + Sync + 'static) -> Self {
        Self { client: client.clone(), copy: Arc::new(copy), found: Mutex::new(None) }
    }

    /// The current state, or a copy from a moment ago. Clients that ask at the same time get the same copy.
    pub(crate) async fn get(&self) -> Result<Arc<T>, Unanswered> {
        let mut found = self.found.lock().await;
        if let Some((at, known)) = found.as_ref()
            && at.elapsed() < MAX_AGE
        {
            return Ok(Arc::clone(known));
        }
        let it = Arc::new(self.ask().await?);
        *found = Some((Instant::now(), Arc::clone(&it)));
        Ok(it)
    }

    /// Copies the current state for a rare request. The copy is not kept.
    pub(crate) async fn ask(&self) -> Result<T, Unanswered> {
        let (answer, answered) = oneshot::channel();
        let copy = Arc::clone(&self.copy);
        let request: Request = Box::new(move |agent| {
            answer.send(copy(agent)).ok();
        });
        let asked = async {
            self.client.requests.send(request).await.ok()?;
            answered.await.ok()
        };
        time::timeout(self.client.patience, asked).await.ok().flatten().ok_or(Unanswered)
    }
}

impl<T: Send + Sync + 'static> View<Snapshot<T>> {
    pub(crate) fn snapshot(
        client: &Client,
        copy: impl Fn(&AgentView<'_>) -> T + Send + Sync + 'static,
    ) -> Self {
        Self::new(client, move |agent| Snapshot {
            label: agent.label.clone(),
            now: agent.now,
            value: copy(agent),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::runtime;

    use super::{AgentView, Arc, Queue, Timestamp, Unanswered, View, queue};
    use crate::{
        engine::{Engine, Settings},
        sink::Label,
    };

    async fn answer(mut requests: Queue) {
        let engine = Engine::new(Settings::default());
        let label = Label { node: "n".to_owned(), boot_id: "b".to_owned(), boot_wall_ns: 0 };
        loop {
            let request = requests.next().await;
            request(&AgentView {
                engine: &engine,
                label: &label,
                now: Timestamp(7),
                has_listed: true,
                measure: &|| {},
                process: &|| None,
                netns_limit: None,
            });
        }
    }

    fn runtime() -> runtime::Runtime {
        runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
    }

    #[test]
    fn many_requests_at_once_are_one_question() {
        runtime().block_on(async {
            let (client, requests) = queue();
            let looks = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&looks);
            let view = Arc::new(View::new(&client, move |agent| {
                counted.fetch_add(1, Ordering::Relaxed);
                agent.now
            }));
            let clients: Vec<_> = (0..100)
                .map(|_| {
                    let view = Arc::clone(&view);
                    tokio::spawn(async move { view.get().await })
                })
                .collect();
            tokio::spawn(answer(requests));
            for client in clients {
                let found = client.await.expect("no panic").expect("an answer");
                assert_eq!(*found, Timestamp(7));
            }
            assert_eq!(looks.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn a_loop_that_does_not_answer_is_reported() {
        runtime().block_on(async {
            let (client, requests) = queue();
            let client = super::Client { patience: std::time::Duration::from_millis(10), ..client };
            let view = View::new(&client, |_| ());
            assert_eq!(view.get().await.expect_err("nobody looks"), Unanswered);
            drop(requests);
            assert_eq!(view.get().await.expect_err("nobody is there"), Unanswered);
        });
    }
}
