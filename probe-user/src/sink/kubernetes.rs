//! Reports what is wrong on this node to the cluster: as Events on pods and on the node, and as a condition
//! of the node.
//!
//! A separate thread compares the engine's state with what it has reported every few seconds, and sends the
//! differences to the API server. So nothing waits for the API server, and nothing is queued for it. While
//! the API server cannot be reached, or refuses, the thread tries less and less often.
//!
//! The thread reads nothing from the API server except the answers to its writes. It needs the right to
//! create and patch Events and to patch the status of its own node (docs/kubernetes.md).

mod condition;
mod event;
mod plan;
mod store;

use std::{collections::VecDeque, io, num::NonZero, sync::Arc, thread, time::Duration};

use jiff::Timestamp as WallTime;
use serde_json::json;
use tokio::{
    runtime,
    sync::{oneshot, watch},
    time::{self, Instant},
};

pub(crate) use self::{condition::CONDITION, store::Store};
use self::{
    condition::{Answer, Condition},
    event::Place,
    plan::{EventAction, Ledger, Plan, Step},
};
use crate::{
    api_server::{
        ApiServer, Failure, Patch,
        link::Link,
        stats::{KubernetesStats, Resource},
    },
    model::{change::Finding, finding::Revision, time::Timestamp},
    sink::{
        net::loop_queue::{Client, Snapshot, View},
        select::rate::Rate,
        verdict::{Judge, Verdict},
    },
};

/// How often the engine's state is compared.
const INTERVAL: Duration = Duration::from_secs(5);
/// How often Events are planned again because findings changed, such as their counts, while none came or
/// went.
const DETAIL_INTERVAL: Duration = Duration::from_secs(60);
/// How many Events begin in a minute, at most, and how many end.
const RATE: NonZero<u32> = NonZero::new(10).expect("it is not 0");
/// The number of requests that may fail in one round.
const MAX_FAILURES: usize = 3;
/// A starting agent does not report before this time that it sees too little, because its predecessor may
/// have seen all.
const LISTING: Duration = Duration::from_secs(60);
/// What to do if the node has no object.
const OTHER_NAME: &str = "; is the node's name (NODE_NAME) that of its object in the cluster?";
/// How long the thread may take to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// The settings: what is reported, and where.
pub(crate) struct Settings {
    pub(crate) server: ApiServer,
    /// The name of the node's object.
    pub(crate) node: String,
    pub(crate) events: bool,
    pub(crate) condition: bool,
    /// Keeps which Events were reported.
    pub(crate) store: Option<Store>,
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct Reporter {
    end: watch::Sender<bool>,
    ended: oneshot::Receiver<()>,
}

impl Reporter {
    pub(crate) fn start(
        settings: Settings,
        client: &Client,
        judge: Arc<Judge>,
        stats: Arc<KubernetesStats>,
    ) -> io::Result<Self> {
        let (end, mut ending) = watch::channel(false);
        let (done, ended) = oneshot::channel();
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let mut publisher = Publisher::new(settings, client, judge, stats);
        thread::Builder::new().name("kubernetes".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = publisher.run() => {}
                    _ = ending.wait_for(|end| *end) => {}
                }
                publisher.finish().await;
            });
            runtime.shutdown_background();
            done.send(()).ok();
        })?;
        Ok(Self { end, ended })
    }

    pub(crate) async fn finish(self) {
        self.end.send_replace(true);
        time::timeout(SHUTDOWN_TIMEOUT, self.ended).await.ok();
    }
}

struct Publisher {
    server: ApiServer,
    node: String,
    judge: Arc<Judge>,
    revision: View<Snapshot<(Revision, bool)>>,
    findings: View<Snapshot<Vec<Finding>>>,
    stats: Arc<KubernetesStats>,
    events: Option<Events>,
    condition: Option<(Condition, Link)>,
    began: Instant,
}

struct Events {
    ledger: Ledger,
    store: Option<Store>,
    /// Whether the store has what the ledger has.
    is_kept: bool,
    begins: Rate,
    ends: Rate,
    link: Link,
    planned: Option<Planned>,
}

/// The steps that are left since the last plan, which is made from all findings.
struct Planned {
    revision: Revision,
    at: Instant,
    steps: VecDeque<Step>,
    withheld: usize,
}

impl Planned {
    fn holds(&self, revision: Revision) -> bool {
        self.revision == revision
            || self.revision.stages == revision.stages && self.at.elapsed() < DETAIL_INTERVAL
    }
}

impl Publisher {
    fn new(settings: Settings, client: &Client, judge: Arc<Judge>, stats: Arc<KubernetesStats>) -> Self {
        let Settings { server, node, events, condition, store } = settings;
        let url = server.url();
        Self {
            events: events.then(|| Events {
                ledger: Ledger::default(),
                store,
                is_kept: true,
                begins: Rate::new(RATE),
                ends: Rate::new(RATE),
                link: Link::new("Events", "written to", url.clone()),
                planned: None,
            }),
            condition: condition.then(|| {
                (Condition::default(), Link::new("the node's condition", "written to", url.clone()))
            }),
            server,
            node,
            judge,
            revision: View::snapshot(client, |agent| (agent.engine.findings_revision(), agent.has_listed)),
            findings: View::snapshot(client, |agent| agent.engine.findings().cloned().collect()),
            stats,
            began: Instant::now(),
        }
    }

    async fn run(&mut self) {
        let mut rounds = time::interval(INTERVAL);
        rounds.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            self.publish_condition().await;
            self.publish_events().await;
        }
    }

    async fn publish_condition(&mut self) {
        let Some((condition, link)) = &mut self.condition else { return };
        if !link.is_due() || !self.server.may_be_asked() {
            return;
        }
        // An agent that does not answer now answers in the next round.
        let Ok(verdict) = self.judge.verdict().await else { return };
        if verdict.is_early() && self.began.elapsed() < LISTING {
            return;
        }
        match write_condition(&mut self.server, &self.node, condition, &verdict).await {
            Ok(()) => link.works(),
            Err(failure @ Failure::Gone) => link.fails_with(&failure, OTHER_NAME),
            Err(failure) => link.fails(&failure),
        }
    }

    async fn publish_events(&mut self) {
        let Some(events) = &mut self.events else { return };
        if !events.link.is_due() || !self.server.may_be_asked() {
            return;
        }
        let Ok(snapshot) = self.revision.get().await else { return };
        let (revision, has_listed) = snapshot.value;
        // Before the first listing, a finding of the last agent may close and open again.
        if !has_listed {
            return;
        }
        if let Some(last) = events.store.as_mut().and_then(Store::last) {
            events.ledger = last.await;
        }
        if !events.planned.as_ref().is_some_and(|it| it.holds(revision)) {
            let Ok(findings) = self.findings.ask().await else { return };
            let Plan { steps, withheld } = events.ledger.plan(&findings.value);
            events.planned = Some(Planned { revision, at: Instant::now(), steps: steps.into(), withheld });
        }
        self.stats.wait(events.go_on(&mut self.server, &self.node, snapshot.now).await);
        events.keep();
    }

    /// Keeps what was reported since it was last kept.
    async fn finish(self) {
        let Some(Events { ledger, store: Some(store), is_kept, .. }) = self.events else { return };
        store.finish(if is_kept { None } else { Some(ledger) }).await;
    }
}

impl Events {
    fn keep(&mut self) {
        let Some(store) = &self.store else { return };
        self.is_kept &= !store.has_failed();
        if !self.is_kept {
            self.is_kept = store.keep(&self.ledger);
        }
    }

    /// Does as many of the planned steps as it may. Returns how many findings still wait for their Event.
    async fn go_on(&mut self, server: &mut ApiServer, node: &str, now: Timestamp) -> usize {
        let Some(planned) = &mut self.planned else { return 0 };
        let mut failures = Vec::new();
        let mut is_done = false;
        let mut later = VecDeque::new();
        while failures.len() < MAX_FAILURES && server.may_be_asked() {
            let Some(step) = planned.steps.pop_front() else { break };
            let rate = if step.action == EventAction::End { &mut self.ends } else { &mut self.begins };
            if !rate.take(now) {
                later.push_back(step);
                continue;
            }
            match send(server, &step, node).await {
                Ok(count) => {
                    is_done = true;
                    self.ledger.done(step, count);
                }
                // This Event can never be reported, and others can.
                Err(Failure::Gone | Failure::Exists) => {
                    is_done = true;
                    self.ledger.done(step, None);
                }
                Err(failure @ Failure::Invalid(_)) => {
                    self.link.gives_up(&failure);
                    self.ledger.done(step, None);
                }
                Err(
                    failure @ (Failure::Unknown(_)
                    | Failure::Unfit(_)
                    | Failure::Refused(_)
                    | Failure::Away(_)),
                ) => {
                    failures.push(failure);
                    self.ledger.failed(step);
                }
            }
        }
        later.append(&mut planned.steps);
        planned.steps = later;
        let lacking = planned.steps.iter().filter(|it| it.action != EventAction::End).count();
        let waiting = planned.withheld + lacking + failures.len();
        if is_done {
            self.is_kept = false;
        }
        match failures.first() {
            Some(failure) => {
                self.link.fails(failure);
                // The next round makes a new plan, with the failed steps last.
                self.planned = None;
            }
            None if is_done => self.link.works(),
            None => {}
        }
        waiting
    }
}

/// Writes the condition, if it is due.
async fn write_condition(
    server: &mut ApiServer,
    node: &str,
    condition: &mut Condition,
    verdict: &Verdict,
) -> Result<(), Failure> {
    let now = Instant::now();
    if !condition.is_due(verdict, now) {
        return Ok(());
    }
    let path = format!("/api/v1/nodes/{node}/status");
    let mut patch = async |body| -> Result<Answer, Failure> {
        server.patch(Resource::Condition, &path, Patch::Strategic, &body).await
    };
    if !condition.knows() {
        // An empty patch is answered with the node's object. The condition that the last agent wrote may be
        // the same.
        condition.is_known(patch(json!({})).await?.condition(CONDITION));
    }
    let wall = WallTime::now();
    patch(condition.patch(verdict, wall)).await?;
    condition.written(verdict, now, wall);
    Ok(())
}

/// Does a step. Returns the Event's count, which is how many times the finding came.
async fn send(server: &mut ApiServer, step: &Step, node: &str) -> Result<Option<i32>, Failure> {
    let place = Place::of(&step.subject, node);
    let path = place.collection();
    let now = WallTime::now();
    let at = format!("{path}/{}", place.name);
    let change = event::change(step, now);
    let change = async |server: &mut ApiServer| -> Result<Answer, Failure> {
        server.patch(Resource::Event, &at, Patch::Merge, &change).await
    };
    let begun = event::event(step, &place, node, now);
    match step.action {
        // The last agent may have created it.
        EventAction::Begin => match server.create(&path, &begun).await {
            Err(Failure::Exists) => change(server).await,
            answer => answer,
        },
        // The API server removes Events after an hour, by default.
        EventAction::Again { .. } => match change(server).await {
            Err(Failure::Gone) => server.create(&path, &begun).await,
            answer => answer,
        },
        EventAction::End => change(server).await,
    }
    .map(|answer| answer.count)
}

#[cfg(test)]
mod tests;
