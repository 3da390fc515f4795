//! Tells the cluster what is wrong on this node: as Events on pods and on the node, and as a condition of the node.
//!
//! A thread of its own looks at the engine's state every few seconds, and asks the API server for what differs from what
//! it told before. So nothing waits for the API server, and nothing is queued for it. While it cannot be reached, or refuses,
//! it is asked less and less often.
//!
//! It reads nothing from the API server, and needs the right to create and patch Events and to patch the status of its own
//! node (docs/kubernetes.md).

mod api_server;
mod condition;
mod event;
mod link;
mod plan;
mod stats;

use std::{io, num::NonZero, sync::Arc, thread, time::Duration};

use jiff::Timestamp as WallTime;
use kube::{Config, api::Patch};
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
    plan::{Deed, Ledger, Step},
    stats::Resource,
};
pub(crate) use self::{condition::CONDITION, stats::KubernetesStats};
use crate::{
    model::{change::Finding, finding::Revision, time::Timestamp},
    sink::{
        loop_queue::{Client, Snapshot, View},
        rate::Rate,
        verdict::Judge,
    },
};

/// How often the engine's state is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// How many Events are begun in a minute, at most.
const RATE: NonZero<u32> = NonZero::new(10).expect("it is not 0");
/// How long a request that is under way may take to end when the agent ends.
const LAST: Duration = Duration::from_secs(1);

/// What is told, and to whom.
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// The name of the node's object.
    pub(crate) node: String,
    pub(crate) events: bool,
    pub(crate) condition: bool,
    /// When the agent began, in boot time.
    pub(crate) since: Timestamp,
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct Exporter {
    end: watch::Sender<bool>,
    ended: oneshot::Receiver<()>,
}

impl Exporter {
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
    since: Timestamp,
    judge: Arc<Judge>,
    revision: View<Snapshot<(Revision, bool)>>,
    findings: View<Snapshot<Vec<Finding>>>,
    stats: Arc<KubernetesStats>,
    events: Option<Events>,
    condition: Option<(Condition, Link)>,
}

struct Events {
    ledger: Ledger,
    rate: Rate,
    link: Link,
    /// The findings of which all is told.
    told: Option<Revision>,
}

impl Teller {
    fn new(settings: Settings, client: &Client, judge: Arc<Judge>, stats: Arc<KubernetesStats>) -> Self {
        let Settings { config, node, events, condition, since } = settings;
        let url = config.cluster_url.to_string();
        let link = |what| Link::new(what, url.clone());
        Self {
            events: events.then(|| Events {
                ledger: Ledger::default(),
                rate: Rate::new(RATE),
                link: link("Events"),
                told: None,
            }),
            condition: condition.then(|| (Condition::default(), link("the node's condition"))),
            server: ApiServer::new(config),
            node,
            since,
            judge,
            revision: View::snapshot(client, |agent| (agent.engine.findings_revision(), agent.has_listed)),
            findings: View::snapshot(client, |agent| agent.engine.findings().cloned().collect()),
            stats,
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
        let Some((condition, link)) = self.condition.as_mut().filter(|(_, link)| link.is_due()) else {
            return;
        };
        // An agent that does not answer now answers at the next look.
        let Ok(verdict) = self.judge.verdict().await else { return };
        let now = Instant::now();
        let Some(due) = condition.due(&verdict, now) else { return };
        let patch = Patch::Strategic(condition::patch(&due, WallTime::now()));
        let answer = self.server.patch("/api/v1/nodes", &self.node, Some("status"), &patch).await;
        self.stats.count(Resource::Condition, &answer);
        match answer {
            Ok(_) => {
                link.works();
                condition.told(due, now);
            }
            Err(failure) => link.fails(&failure),
        }
    }

    async fn tell_events(&mut self) {
        let Some(events) = self.events.as_mut().filter(|it| it.link.is_due()) else { return };
        let Ok(look) = self.revision.get().await else { return };
        let (revision, has_listed) = look.value;
        // Before the first listing a finding of the last agent may close and open again.
        if !has_listed || events.told == Some(revision) {
            return;
        }
        let Ok(findings) = self.findings.get().await else { return };
        let plan = events.ledger.plan(&findings.value, self.since);
        let mut waiting = plan.withheld;
        for step in plan.steps {
            if step.deed != Deed::End && !events.rate.take(findings.now) {
                waiting += 1;
                continue;
            }
            let answer = tell(&mut self.server, &step, &self.node).await;
            self.stats.count(Resource::Event, &answer);
            match answer {
                Ok(count) => {
                    events.link.works();
                    events.ledger.done(step, count);
                }
                // It never can be told, and the others can.
                Err(Failure::Gone | Failure::Exists) => events.ledger.done(step, None),
                Err(failure @ Failure::Invalid(_)) => {
                    events.link.gives_up(&failure);
                    events.ledger.done(step, None);
                }
                Err(failure @ (Failure::Refused(_) | Failure::Away(_))) => {
                    events.link.fails(&failure);
                    return;
                }
            }
        }
        events.ledger.begun();
        self.stats.wait(waiting);
        events.told = (waiting == plan.withheld).then_some(revision);
    }
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
