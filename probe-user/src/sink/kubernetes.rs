//! Tells the cluster what is wrong on this node: as Events on pods and on the node, and as a condition of the node.
//!
//! A thread of its own looks at the engine's state every few seconds, and asks the API server for what differs from what
//! it told before. So nothing waits for the API server, and nothing is queued for it. While it cannot be reached, or refuses,
//! it is asked less and less often.
//!
//! It reads nothing from the API server but the answers to what it writes, and needs the right to create and patch Events and to patch the status of its own
//! node (docs/kubernetes.md).

mod api_server;
mod condition;
mod event;
mod link;
mod plan;
mod rest;
mod stats;
mod store;
mod text;
mod token;

use std::{collections::VecDeque, io, num::NonZero, sync::Arc, thread, time::Duration};

use jiff::Timestamp as WallTime;
use kube::{Config, api::Patch};
use serde_json::json;
use tokio::{
    runtime,
    sync::{oneshot, watch},
    time::{self, Instant},
};

use self::{
    api_server::{ApiServer, Failure},
    condition::Condition,
    event::Place,
    link::Link,
    plan::{Deed, Ledger, Plan, Step},
};
pub(crate) use self::{
    condition::CONDITION,
    stats::KubernetesStats,
    store::Store,
    token::{TokenFile, check as check_token},
};
use crate::{
    model::{change::Finding, finding::Revision, time::Timestamp},
    sink::{
        loop_queue::{Client, Snapshot, View},
        rate::Rate,
        verdict::{Judge, Verdict},
    },
};

/// How often the engine's state is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// How often all is looked at again because findings mean something else, as with other counts, and none came or went.
const MEANING: Duration = Duration::from_secs(60);
/// How many Events begin in a minute, at most, and how many end.
const RATE: NonZero<u32> = NonZero::new(10).expect("it is not 0");
/// So many requests may fail in one look.
const FAILURES: usize = 3;
/// An agent that starts is not told to be blind before this time: the one before it was not.
const LISTING: Duration = Duration::from_secs(60);
/// How long the thread may take to end.
const LAST: Duration = Duration::from_secs(1);

/// What is told, and to whom.
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// The file of the token in it, if it is from one.
    pub(crate) token_file: Option<TokenFile>,
    /// The name of the node's object.
    pub(crate) node: String,
    pub(crate) events: bool,
    pub(crate) condition: bool,
    /// Where it is kept which Events were told.
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
        let mut teller = Teller::new(settings, client, judge, stats);
        thread::Builder::new().name("kubernetes".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = teller.run() => {}
                    _ = ending.wait_for(|end| *end) => {}
                }
                teller.finish().await;
            });
            runtime.shutdown_background();
            done.send(()).ok();
        })?;
        Ok(Self { end, ended })
    }

    pub(crate) async fn finish(self) {
        self.end.send_replace(true);
        time::timeout(LAST, self.ended).await.ok();
    }
}

struct Teller {
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

/// What is still to be done since the last look at all findings.
struct Planned {
    revision: Revision,
    at: Instant,
    steps: VecDeque<Step>,
    withheld: usize,
}

impl Planned {
    fn holds(&self, revision: Revision) -> bool {
        self.revision == revision || self.revision.stages == revision.stages && self.at.elapsed() < MEANING
    }
}

impl Teller {
    fn new(settings: Settings, client: &Client, judge: Arc<Judge>, stats: Arc<KubernetesStats>) -> Self {
        let Settings { config, token_file, node, events, condition, store } = settings;
        let url = config.cluster_url.to_string();
        let link = |what| Link::new(what, url.clone());
        Self {
            events: events.then(|| Events {
                ledger: Ledger::default(),
                store,
                is_kept: true,
                begins: Rate::new(RATE),
                ends: Rate::new(RATE),
                link: link("Events"),
                planned: None,
            }),
            condition: condition.then(|| (Condition::default(), link("the node's condition"))),
            server: ApiServer::new(config, token_file, Arc::clone(&stats)),
            node,
            judge,
            revision: View::snapshot(client, |agent| (agent.engine.findings_revision(), agent.has_listed)),
            findings: View::snapshot(client, |agent| agent.engine.findings().cloned().collect()),
            stats,
            began: Instant::now(),
        }
    }

    async fn run(&mut self) {
        let mut looks = time::interval(LOOK);
        looks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            self.tell_condition().await;
            self.tell_events().await;
        }
    }

    async fn tell_condition(&mut self) {
        let is_due = |link: &Link| link.is_due() && self.server.may_be_asked();
        let Some((condition, link)) = self.condition.as_mut().filter(|(_, link)| is_due(link)) else {
            return;
        };
        // An agent that does not answer now answers at the next look.
        let Ok(verdict) = self.judge.verdict().await else { return };
        if verdict.is_early() && self.began.elapsed() < LISTING {
            return;
        }
        match write_condition(&mut self.server, &self.node, condition, &verdict).await {
            Ok(()) => link.works(),
            Err(failure) => link.fails(&failure),
        }
    }

    async fn tell_events(&mut self) {
        let is_due = |link: &Link| link.is_due() && self.server.may_be_asked();
        let Some(events) = self.events.as_mut().filter(|it| is_due(&it.link)) else { return };
        let Ok(look) = self.revision.get().await else { return };
        let (revision, has_listed) = look.value;
        // Before the first listing a finding of the last agent may close and open again.
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
        self.stats.wait(events.go_on(&mut self.server, &self.node, look.now).await);
        events.keep();
    }

    /// Keeps what was told since it was last kept.
    async fn finish(self) {
        let Some(Events { ledger, store: Some(store), is_kept, .. }) = self.events else { return };
        store.finish(Some(ledger).filter(|_| !is_kept)).await;
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

    /// Does as many of the planned steps as it may. Gives how many findings wait for their Event then.
    async fn go_on(&mut self, server: &mut ApiServer, node: &str, now: Timestamp) -> usize {
        let Some(planned) = &mut self.planned else { return 0 };
        let (mut failures, mut is_done) = (Vec::new(), false);
        let mut later = VecDeque::new();
        while failures.len() < FAILURES && server.may_be_asked() {
            let Some(step) = planned.steps.pop_front() else { break };
            let rate = if step.deed == Deed::End { &mut self.ends } else { &mut self.begins };
            if !rate.take(now) {
                later.push_back(step);
                continue;
            }
            match tell(server, &step, node).await {
                Ok(count) => {
                    is_done = true;
                    self.ledger.done(step, count);
                }
                // It never can be told, and others can.
                Err(Failure::Gone | Failure::Exists) => {
                    is_done = true;
                    self.ledger.done(step, None);
                }
                Err(failure @ Failure::Invalid(_)) => {
                    self.link.gives_up(&failure);
                    self.ledger.done(step, None);
                }
                Err(failure @ (Failure::Unknown(_) | Failure::Refused(_) | Failure::Away(_))) => {
                    failures.push(failure);
                    self.ledger.failed(step);
                }
            }
        }
        later.append(&mut planned.steps);
        planned.steps = later;
        let lacking = planned.steps.iter().filter(|it| it.deed != Deed::End).count();
        let waiting = planned.withheld + lacking + failures.len();
        if is_done {
            self.is_kept = false;
        }
        match failures.first() {
            Some(failure) => {
                self.link.fails(failure);
                // The next look plans anew, with what failed behind the others.
                self.planned = None;
            }
            None if is_done => self.link.works(),
            None => {}
        }
        waiting
    }
}

/// Writes the condition, if that is due.
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
    let mut patch =
        async |body| server.patch("/api/v1/nodes", node, Some("status"), &Patch::Strategic(body)).await;
    if !condition.knows() {
        // A change of nothing is answered with the node's object: what the last agent has written may be the same.
        condition.is_known(patch(json!({})).await?.condition(CONDITION));
    }
    let wall = WallTime::now();
    patch(condition.patch(verdict, wall)).await?;
    condition.told(verdict, now, wall);
    Ok(())
}

/// Does a step. Gives how many times the finding came.
async fn tell(server: &mut ApiServer, step: &Step, node: &str) -> Result<Option<i32>, Failure> {
    let place = Place::of(&step.subject, node);
    let path = place.collection();
    let now = WallTime::now();
    let change = Patch::Merge(event::change(step, now));
    let change = async |server: &mut ApiServer| server.patch(&path, &place.name, None, &change).await;
    let begun = event::event(step, &place, node, now);
    match step.deed {
        // The last agent may have told it.
        Deed::Begin => match server.create(&path, &begun).await {
            Err(Failure::Exists) => change(server).await,
            answer => answer,
        },
        // The API server removes Events after an hour, by default.
        Deed::Again { .. } => match change(server).await {
            Err(Failure::Gone) => server.create(&path, &begun).await,
            answer => answer,
        },
        Deed::End => change(server).await,
    }
    .map(|answer| answer.count)
}

#[cfg(test)]
mod tests;
