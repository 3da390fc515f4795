//! The node's files as a source: lists the node at the start and on request, and answers questions about
//! containers and pods.
//!
//! One thread reads, because a file may be slow. Another thread watches it, because a file may hang.

pub mod answer;
pub mod buildinfo;
pub(crate) mod pressure;
mod queue;
mod reader;
pub(crate) mod release;
mod retry_queue;
mod search_pace;
mod supervisor;
mod unreadable;

use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, Mutex, atomic::AtomicU64},
    thread::{self, JoinHandle},
};

use tokio::runtime;

pub(crate) use self::supervisor::ReadProgress;
use self::supervisor::{Limits, Supervisor};
use super::{
    backfill::store::{Declared, Elsewhere},
    cri::follow::Finder,
    host::HostRoot,
    node::cgroup::{Hierarchy, Layout},
    task::{
        channel::{BatchSender, CancellationToken, Closed, QuestionReceiver},
        records_first::RecordsFirst,
    },
};

#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) root: HostRoot,
    /// The hierarchy whose ids the hooks report.
    pub(crate) hierarchy: Hierarchy,
    /// All hierarchies.
    pub(crate) layout: Layout,
    /// The stores that the agent's configuration names.
    pub(crate) stores: Vec<Declared>,
    /// The stores of host-local that are not in a usual place, as the last reader knew them.
    pub(crate) elsewhere: Mutex<BTreeSet<Elsewhere>>,
    /// Receives the number of files that could not be read.
    pub(crate) unreadable: Arc<AtomicU64>,
    /// Receives the progress of reading.
    pub(crate) reading: Arc<ReadProgress>,
    /// Makes a list of what exists wait for the earlier kernel records.
    pub(crate) records_first: RecordsFirst,
    /// Receives the sockets at which runtimes answer, if runtimes are followed.
    pub(crate) runtimes: Option<Finder>,
}

impl Files {
    /// Begins to list the node. The hooks must be attached before, so that they see what happens meanwhile.
    pub(crate) fn start(
        self,
        feed: BatchSender,
        questions: QuestionReceiver,
        stop: CancellationToken,
    ) -> io::Result<JoinHandle<()>> {
        // This runtime only waits; it reads no file.
        let runtime = runtime::Builder::new_current_thread().enable_time().build()?;
        let unreadable = Arc::clone(&self.unreadable);
        let reading = Arc::clone(&self.reading);
        let records_first = self.records_first.clone();
        thread::Builder::new().name("files".to_owned()).spawn(move || {
            let supervisor = Supervisor::new(self, Limits::default(), records_first, &unreadable, reading);
            // After a stop, or if the engine is gone, nothing is left to do.
            let _ended: Result<(), Closed> = runtime.block_on(supervisor.run(&feed, questions, stop));
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        sync::{Arc, Mutex},
        time::Duration,
    };

    use super::Files;
    use crate::{
        model::{
            change::Question,
            fact::{CniCommand, Fact, List, Observation, ProgramFound},
            id::{ContainerId, PodUid},
        },
        source::{
            host::HostRoot,
            node::{
                cgroup::{Hierarchy, Layout},
                clock,
            },
            task::{channel, records_first::records_first},
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
        let (asker, questions) = channel::questions();
        let (stopper, stop) = channel::stop();
        let (layout, stores, unreadable) = (Layout::default(), Vec::new(), Arc::default());
        let (_teller, records_first) = records_first(Duration::ZERO);
        let files = Files {
            root,
            hierarchy,
            layout,
            stores,
            elsewhere: Mutex::default(),
            unreadable,
            reading: Arc::default(),
            records_first,
            runtimes: None,
        };
        let files = files.start(feed, questions, stop).expect("a thread");

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
        let container = ContainerId::parse("c1").expect("an id");
        asker.ask(Question::Message { container, command: CniCommand::Add, since });
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
