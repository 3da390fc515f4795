//! The node's files as a source: lists everything at the start and whenever it is asked to, and answers what a
//! container or a pod is.
//!
//! It works on a thread of its own, since a file may be slow to read.

mod later;
mod unread;

use std::{
    future, io,
    sync::{Arc, atomic::AtomicU64},
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::runtime::{self, Runtime};

use super::{
    answer::Answerer,
    backfill::{self, Node, store::Declared},
    cgroup::{Hierarchy, Layout},
    channel::{Asks, Batch, Closed, Feed, Stop},
    clock,
    host::{HostRoot, skipped::Skipped},
    pressure,
};
use crate::engine::{
    change::Question,
    fact::{Fact, MessageFound, Observation, Origin, PressureRead},
    id::ContainerId,
};
use later::{Later, Wanted};
use unread::Unread;

/// So many questions that wait already are answered in one batch; the names of a burst of containers go together.
const TOGETHER: usize = 64;

#[derive(Debug)]
pub struct Files {
    pub root: HostRoot,
    /// The one whose ids the hooks give.
    pub hierarchy: Hierarchy,
    /// All of them.
    pub layout: Layout,
    /// Those that the configuration names.
    pub stores: Vec<Declared>,
    /// Told how much could not be read.
    pub unreadable: Arc<AtomicU64>,
}

impl Files {
    /// Begins to list the node; for what happens meanwhile to be seen too, the hooks must be attached by now.
    pub fn start(self, feed: Feed, asks: Asks, stop: Stop) -> io::Result<JoinHandle<()>> {
        // For waiting alone: nothing that it runs reads a file.
        let runtime = runtime::Builder::new_current_thread().enable_time().build()?;
        thread::Builder::new().name("files".to_owned()).spawn(move || {
            // Neither a stop nor an engine that is gone leaves anything to do.
            let _ended: Result<(), Closed> = self.run(&runtime, &feed, asks, stop);
        })
    }

    fn run(&self, runtime: &Runtime, feed: &Feed, mut asks: Asks, mut stop: Stop) -> Result<(), Closed> {
        let mut answerer = Answerer::new(&self.root);
        let [mut present, mut records] = [(); 2].map(|()| Unread::new(Arc::clone(&self.unreadable)));
        self.pass(feed, &stop, backfill::present, &mut present)?;
        self.pass(feed, &stop, backfill::records, &mut records)?;
        let mut later = Later::default();
        loop {
            let wait = later.wait(clock::now());
            let first = match runtime.block_on(next(&mut asks, &mut stop, wait)) {
                Next::Question(question) => Some(question),
                Next::Due => None,
                Next::End => break,
            };
            let mut batch = Batch::new();
            let mut passes = [false, false];
            let [relist, reread] = &mut passes;
            let waiting = std::iter::from_fn(|| asks.try_next()).take(TOGETHER);
            for question in first.into_iter().chain(waiting) {
                let at = clock::now();
                let fact = match question {
                    Question::Container { id } => Some(answerer.container(&id)),
                    Question::Pod { uid } => answerer.pod(&uid),
                    Question::Expected { uid } => answerer.expected(&uid, at),
                    Question::Relist => {
                        *relist = true;
                        None
                    }
                    Question::Records => {
                        *reread = true;
                        None
                    }
                    Question::Program { path } => Some(answerer.program(path)),
                    Question::Message { container, since } => {
                        let taken = later.ask(container.clone(), since, at);
                        (!taken).then(|| too_many(container))
                    }
                    Question::Pressure { cgroup, path } => {
                        let read = pressure::read(&self.root, &self.layout, &path);
                        read.map(|pressure| Fact::PressureRead(PressureRead { cgroup, pressure }))
                    }
                    // Another source's affair.
                    Question::Watch { .. } => None,
                };
                batch.extend(fact.map(|fact| Observation { at, origin: Origin::Listed, fact }));
            }
            batch.extend(messages(&answerer, &mut later));
            feed.send_blocking(batch)?;
            let [relist, reread] = passes;
            if relist {
                self.pass(feed, &stop, backfill::present, &mut present)?;
            }
            if relist || reread {
                self.pass(feed, &stop, backfill::records, &mut records)?;
            }
        }
        Unread::new(Arc::default()).tell(answerer.skipped);
        Ok(())
    }

    /// Tells of one pass over the node, list by list.
    fn pass(&self, feed: &Feed, stop: &Stop, pass: Pass, unread: &mut Unread) -> Result<(), Closed> {
        let node = Node {
            root: &self.root,
            hierarchy: &self.hierarchy,
            clock: &clock::now,
            boot_wall_ns: clock::boot_wall_ns(),
            stores: &self.stores,
        };
        let read = pass(node, &mut |batch| {
            if stop.is_requested() {
                Err(backfill::Closed)
            } else {
                feed.send_blocking(batch).map_err(Into::into)
            }
        });
        unread.tell(read.map_err(|backfill::Closed| Closed)?);
        Ok(())
    }
}

/// A part of the node.
type Pass =
    fn(Node<'_>, &mut dyn FnMut(Batch) -> Result<(), backfill::Closed>) -> Result<Skipped, backfill::Closed>;

impl From<Closed> for backfill::Closed {
    fn from(Closed: Closed) -> Self {
        Self
    }
}

/// What there is to do.
enum Next {
    Question(Question),
    /// It is time for something that was to be answered later.
    Due,
    /// There will be no question, or it is time to end.
    End,
}

async fn next(asks: &mut Asks, stop: &mut Stop, wait: Option<Duration>) -> Next {
    let due = async {
        match wait {
            Some(wait) => tokio::time::sleep(wait).await,
            None => future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = stop.requested() => Next::End,
        question = asks.next() => question.map_or(Next::End, Next::Question),
        () = due => Next::Due,
    }
}

fn too_many(container: ContainerId) -> Fact {
    let source = "too many plugins failed at once to look for what each said".to_owned();
    Fact::MessageFound(MessageFound { container, text: None, source })
}

/// The answers that there are by now, or will not be.
fn messages(answerer: &Answerer<'_>, later: &mut Later) -> Batch {
    let mut found = Batch::new();
    for wanted in later.due(clock::now()) {
        let at = clock::now();
        let Wanted { container, since, .. } = &wanted;
        let message = answerer.message(container, *since..at, clock::boot_wall_ns());
        if message.text.is_none() && wanted.is_early() {
            later.again(wanted);
        } else {
            found.push(Observation { at, origin: Origin::Listed, fact: Fact::MessageFound(message) });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use super::Files;
    use crate::{
        engine::{
            change::Question,
            fact::{Fact, List, Observation, ProgramFound},
            id::{ContainerId, PodUid},
        },
        source::{
            cgroup::{Hierarchy, Layout},
            channel, clock,
            host::HostRoot,
        },
    };

    const UID: &str = "11111111-2222-3333-4444-555555555555";

    #[test]
    fn lists_first_then_answers_and_ends_when_told() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(root.path().join(format!("var/log/pods/default_web-0_{UID}")))
            .expect("a log folder");
        let root = HostRoot::open(root.path()).expect("the root");
        let hierarchy = Hierarchy { id: 0, controllers: Vec::new(), mount: "/sys/fs/cgroup".to_owned() };
        let (feed, mut batches) = channel::feed();
        let (asker, asks) = channel::asks();
        let (stopper, stop) = channel::stop();
        let (layout, stores, unreadable) = (Layout::default(), Vec::new(), Arc::default());
        let files = Files { root, hierarchy, layout, stores, unreadable };
        let files = files.start(feed, asks, stop).expect("a thread");

        let mut next =
            || batches.blocking_recv().map(|batch| batch.into_iter().map(|Observation { fact, .. }| fact));
        let first: Vec<Fact> = next().expect("the pods").collect();
        assert!(matches!(
            first[..],
            [Fact::ListBegun(List::Pods), Fact::PodFound { .. }, Fact::ListEnded { .. }]
        ));
        let others = (0..8).filter_map(|_| next()?.last()).collect::<Vec<_>>();
        assert!(others.iter().all(|fact| matches!(fact, Fact::ListEnded { .. })), "{others:?}");

        asker.ask(Question::Pod { uid: PodUid::parse(UID).expect("a uid") });
        let named: Vec<Fact> = next().expect("the answer").collect();
        assert!(matches!(&named[..], [Fact::PodFound { name, .. }] if name == "web-0"));
        let id = ContainerId::parse("c1").expect("an id");
        asker.ask(Question::Container { id: id.clone() });
        assert_eq!(next().expect("the answer").collect::<Vec<_>>(), [Fact::ContainerUnknown(id)]);
        let path = "/opt/cni/bin/gone".to_owned();
        asker.ask(Question::Program { path: path.clone() });
        let fact = Fact::ProgramFound(ProgramFound { path, version: None });
        assert_eq!(next().expect("the answer").collect::<Vec<_>>(), [fact]);
        let since = clock::now();
        asker.ask(Question::Message { container: ContainerId::parse("c1").expect("an id"), since });
        asker.ask(Question::Relist);
        assert!(matches!(next().expect("the pods").next(), Some(Fact::ListBegun(List::Pods))));
        for _ in 0..8 {
            next();
        }
        stopper.stop();
        assert!(next().is_none());
        files.join().expect("no panic");
    }
}
