//! Asks the API server whether addresses are still allocated, where an IPAM plugin keeps that in objects of
//! the cluster. Single addresses are asked about, and few: a node with many pods and without a leak asks
//! nothing after its start.
//!
//! **Invariant:** only an answer that was read whole counts as one. Nothing follows from an answer that did
//! not come.

mod calico;
mod pace;

use std::{collections::VecDeque, io, mem, net::IpAddr, thread, time::Duration};

use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use tokio::{
    runtime,
    time::{self, Instant},
};
use tracing::warn;

use self::pace::Pace;
use crate::{
    api_server::{ApiServer, Failure, link::Link, rest::random},
    model::{
        change::Question,
        fact::{
            AddressAnswered, Bound, Fact, Holder, Observation, Origin, Store, StoreAnswer, StoreKind,
            StoreLink,
        },
        time::Timestamp,
    },
    source::{
        node::clock,
        task::channel::{BatchSender, CancellationToken, Closed, QuestionReceiver},
    },
    words::escape::escaped,
};

/// At most this many questions wait. The engine asks again about what was left out.
const MAX_QUESTIONS: usize = 1024;
/// The agents of a cluster start within this time, so that they do not ask together after an upgrade.
const SPREAD: Duration = Duration::from_secs(10);
/// How long the API server is left alone after it refused a request, for somebody to give the right.
const REFUSED: Duration = Duration::from_secs(10 * 60);
/// A ledger that has not answered for this long is reported.
const SILENT: Duration = Duration::from_secs(5 * 60);
/// How often it is checked whether the API server may be asked again.
const CHECK: Duration = Duration::from_secs(1);
/// The name of an object that is not there. The request for it shows whether the agent has the right to ask.
const NOBODY: &str = "sandprobe";

/// A kind of ledger.
#[derive(Debug)]
pub(crate) struct Kind {
    store: StoreKind,
    /// The words for it in the log.
    name: &'static str,
    /// The API groups that may have it, with their versions. The first that the API server has is used.
    groups: &'static [(&'static str, &'static str)],
    /// The resources that are read. The first names the store.
    resources: &'static [&'static str],
}

pub(crate) use calico::CALICO;

/// A group of APIs that has the ledger.
#[derive(Clone, Copy, Debug)]
struct Group {
    name: &'static str,
    version: &'static str,
}

/// A question about an address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    network: String,
    holder: Holder,
    address: IpAddr,
}

/// Why a question has no answer.
#[derive(Debug)]
enum Unanswered {
    /// With the right that is missing, if one is.
    Failed(Failure, Option<String>),
    /// This address alone cannot be asked about, or its records do not fit together.
    Unclear(String),
    /// An object has another form than expected.
    Unfit(String),
    /// The agent takes no more facts.
    Closed,
}

impl From<Closed> for Unanswered {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

/// Asks one API server.
struct Asker {
    kind: &'static Kind,
    server: ApiServer,
    feed: BatchSender,
    questions: QuestionReceiver,
    waiting: VecDeque<Asked>,
    pace: Pace,
    link: Link,
    /// Where the ledger is, once it was found and could be read.
    group: Option<Group>,
    refused_until: Option<Instant>,
    failing_since: Option<Instant>,
    /// The first address whose records had another form than expected, since the last answer.
    unfit: Option<IpAddr>,
    reported: Option<StoreAnswer>,
    was_unclear: bool,
}

impl Kind {
    /// Returns the name by which findings know the ledger, whichever group has it.
    fn path(&self) -> String {
        let (group, _) = self.groups.first().copied().unwrap_or_default();
        format!("{}.{group}", self.resources.first().copied().unwrap_or_default())
    }

    fn store(&self) -> Store {
        Store { kind: self.store, path: self.path(), network: None, bound: Bound::Sandbox }
    }
}

/// Returns what an agent that asks this ledger reports at its start. `before`: the stores that the last agent
/// asked. A ledger that it did not ask counts as one that answers until it is found, so that nothing else
/// decides meanwhile.
pub(crate) fn links_at_start(asked: Option<&Kind>, before: Vec<Store>) -> Vec<StoreLink> {
    let own = asked.map(Kind::store);
    let new = own.clone().filter(|own| !before.contains(own));
    let left = before.into_iter().filter(|it| Some(it) != own.as_ref());
    left.map(|store| StoreLink { store, answer: StoreAnswer::Off })
        .chain(new.map(|store| StoreLink { store, answer: StoreAnswer::Answers }))
        .collect()
}

/// Starts the thread that asks, until `stop` is requested.
pub(crate) fn start(
    kind: &'static Kind,
    server: ApiServer,
    feed: BatchSender,
    questions: QuestionReceiver,
    mut stop: CancellationToken,
) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("ledger".to_owned()).spawn(move || {
        runtime.block_on(async {
            let mut asker = Asker::new(kind, server, feed, questions);
            tokio::select! {
                () = stop.requested() => {}
                () = asker.run() => {}
            }
        });
        // A look-up of a name may take long.
        runtime.shutdown_background();
    })?;
    Ok(())
}

impl Asker {
    fn new(kind: &'static Kind, server: ApiServer, feed: BatchSender, questions: QuestionReceiver) -> Self {
        let link = Link::new(kind.name, "read at", server.url());
        Self {
            kind,
            server,
            feed,
            questions,
            waiting: VecDeque::new(),
            pace: Pace::default(),
            link,
            group: None,
            refused_until: None,
            failing_since: None,
            unfit: None,
            reported: None,
            was_unclear: false,
        }
    }

    async fn run(&mut self) {
        time::sleep(SPREAD.mul_f64(random())).await;
        loop {
            while let Some(question) = self.questions.try_next() {
                self.take(question);
            }
            if self.group.is_some() && self.waiting.is_empty() {
                let Some(question) = self.questions.next().await else { return };
                self.take(question);
                continue;
            }
            if !self.may_ask() {
                time::sleep(CHECK).await;
                continue;
            }
            if self.step().await.is_err() {
                return;
            }
        }
    }

    fn take(&mut self, question: Question) {
        // Other sources answer the other questions.
        if let Question::Held { path: _, network, holder, address } = question {
            let asked = Asked { network, holder, address };
            if self.waiting.len() < MAX_QUESTIONS && !self.waiting.contains(&asked) {
                self.waiting.push_back(asked);
            }
        }
    }

    fn may_ask(&self) -> bool {
        self.refused_until.is_none_or(|until| until <= Instant::now())
            && self.link.is_due()
            && self.server.may_be_asked()
    }

    /// Finds the ledger, or asks about the next address.
    async fn step(&mut self) -> Result<(), Closed> {
        let asked = if self.group.is_some() { self.waiting.pop_front() } else { None };
        let result = match (self.group, &asked) {
            (None, _) => self.find().await,
            (Some(group), Some(asked)) => self.answer(group, asked).await,
            (Some(_), None) => Ok(()),
        };
        match result {
            Ok(()) => {}
            Err(Unanswered::Closed) => return Err(Closed),
            // The engine asks again after a while.
            Err(Unanswered::Unclear(why)) => self.warn_once(&why),
            Err(Unanswered::Unfit(why)) => {
                let Some(asked) = &asked else {
                    self.link.fails(&Failure::Unfit(why));
                    return self.fails().await;
                };
                self.warn_once(&why);
                // The records of one address may be damaged while all others are fine.
                if *self.unfit.get_or_insert(asked.address) == asked.address {
                    return Ok(());
                }
                return self.fails().await;
            }
            Err(Unanswered::Failed(failure, right)) => {
                self.link.fails(&failure);
                // The objects may move to another group when Calico is upgraded.
                self.group = None;
                self.waiting.extend(asked);
                if let Some(right) = right {
                    self.refused_until = Some(Instant::now() + REFUSED);
                    self.failing_since = None;
                    return self.report(StoreAnswer::Refused { right }).await;
                }
                return self.fails().await;
            }
        }
        // Objects that are not there may be answered while all others fail.
        if asked.is_none() && self.failing_since.is_some() && !self.waiting.is_empty() {
            return Ok(());
        }
        self.link.works();
        self.failing_since = None;
        if asked.is_some() {
            self.unfit = None;
        }
        self.report(StoreAnswer::Answers).await
    }

    fn warn_once(&mut self, why: &str) {
        if !mem::replace(&mut self.was_unclear, true) {
            warn!("whose an address is cannot be read at the API server: {}", escaped(why));
        }
    }

    /// Reports the ledger as silent if nothing was answered for [`SILENT`].
    async fn fails(&mut self) -> Result<(), Closed> {
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        if since.elapsed() < SILENT {
            return Ok(());
        }
        self.report(StoreAnswer::Silent).await
    }

    /// Finds out which group has the ledger, and whether the agent may read there.
    async fn find(&mut self) -> Result<(), Unanswered> {
        let groups: Groups = self.get("/apis", "get /apis").await?;
        let known = self.kind.groups.iter().copied();
        let mut found = known.filter(|(name, _)| groups.groups.iter().any(|it| it.name == *name));
        let Some((name, version)) = found.next() else {
            let names: Vec<&str> = self.kind.groups.iter().map(|(name, _)| *name).collect();
            let why = format!("it has no objects of {}", names.join(" or "));
            return Err(Unanswered::Failed(Failure::Away(why), None));
        };
        let group = Group { name, version };
        for resource in self.kind.resources {
            self.object::<IgnoredAny>(group, resource, NOBODY).await?;
        }
        self.group = Some(group);
        Ok(())
    }

    /// Asks about an address, and reports the answer.
    async fn answer(&mut self, group: Group, asked: &Asked) -> Result<(), Unanswered> {
        // What is read is at least as new as this.
        let at = clock::now();
        let is_held = calico::is_held(self, group, asked).await?;
        let Asked { network: _, holder, address } = asked.clone();
        let fact =
            Fact::AddressAnswered(AddressAnswered { path: self.kind.path(), address, holder, is_held });
        Ok(self.feed.send(vec![observed(at, fact)]).await?)
    }

    /// Reads an object. None: there is no such object.
    async fn object<T: DeserializeOwned>(
        &mut self,
        group: Group,
        resource: &str,
        name: &str,
    ) -> Result<Option<T>, Unanswered> {
        let Group { name: group, version } = group;
        let path = format!("/apis/{group}/{version}/{resource}/{name}");
        match self.get(&path, &format!("get {resource}.{group}")).await {
            Ok(object) => Ok(Some(object)),
            Err(Unanswered::Failed(Failure::Gone, _)) => Ok(None),
            // Other objects may be fine.
            Err(Unanswered::Failed(Failure::Unfit(why), _)) => {
                Err(Unanswered::Unfit(format!("{path}: {why}")))
            }
            Err(other) => Err(other),
        }
    }

    /// Reads what is at this path, for which the agent needs this right.
    async fn get<T: DeserializeOwned>(&mut self, path: &str, right: &str) -> Result<T, Unanswered> {
        self.pace.wait().await;
        self.server.get(path).await.map_err(|failure| {
            let is_refused = matches!(failure, Failure::Refused(_));
            Unanswered::Failed(failure, is_refused.then(|| right.to_owned()))
        })
    }

    /// Reports whether the ledger answers, if that has changed.
    async fn report(&mut self, answer: StoreAnswer) -> Result<(), Closed> {
        if self.reported.as_ref() == Some(&answer) {
            return Ok(());
        }
        self.reported = Some(answer.clone());
        let link = StoreLink { store: self.kind.store(), answer };
        self.feed.send(vec![observed(clock::now(), Fact::StoreLink(link))]).await
    }
}

fn observed(at: Timestamp, fact: Fact) -> Observation {
    Observation { at, origin: Origin::Listed, fact }
}

/// The answer to `/apis`.
#[derive(Debug, Deserialize)]
struct Groups {
    groups: Vec<NamedGroup>,
}

#[derive(Debug, Deserialize)]
struct NamedGroup {
    name: String,
}

#[cfg(test)]
mod tests;
