//! The thread that reads. It is given one job after the other, and says what it finds.

use std::{io, sync::Arc, thread};

use tokio::sync::mpsc;

use super::{Files, later::Wanted, queue::Asked};
use crate::{
    model::{
        change::Question,
        fact::{Fact, Observation, Origin, PressureRead},
    },
    source::{
        answer::Answerer,
        backfill::{self, Node},
        channel::Batch,
        clock,
        host::{
            HostRoot,
            skipped::Skipped,
            watch::{Avoided, Reader},
        },
        pressure,
    },
};

/// What there is to read.
#[derive(Clone, Debug)]
pub(super) enum Job {
    Present,
    Records,
    Questions(Vec<Asked>),
    Messages(Vec<Wanted>),
}

/// What was read.
#[derive(Debug)]
pub(super) enum Said {
    /// More follows.
    Facts(Batch),
    /// The job is done; and which messages are not there yet.
    Done { facts: Batch, skipped: Skipped, early: Vec<Wanted> },
}

/// Reads the node for a thread.
pub(super) trait Read: Send + Sync + 'static {
    /// Does one job after the other, until it is given no more or nobody listens.
    fn work(&self, reader: &Arc<Reader>, jobs: &mut mpsc::Receiver<Job>, say: &mut dyn FnMut(Said) -> bool);
}

/// A thread that reads; one that hangs is left to itself.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) reader: Arc<Reader>,
    jobs: mpsc::Sender<Job>,
    pub(super) said: mpsc::Receiver<Said>,
    thread: thread::JoinHandle<()>,
}

impl Worker {
    pub(super) fn start(read: &Arc<impl Read>, avoided: &Arc<Avoided>) -> io::Result<Self> {
        let reader = Arc::new(Reader::new(Arc::clone(avoided)));
        let (jobs, mut given) = mpsc::channel(1);
        let (says, said) = mpsc::channel(1);
        let (read, own) = (Arc::clone(read), Arc::clone(&reader));
        // It has what the calling thread has: its privileges, and the lack of others.
        let thread = thread::Builder::new().name("reader".to_owned()).spawn(move || {
            read.work(&own, &mut given, &mut |word| {
                // To wait for who listens is not to hang.
                own.leave();
                says.blocking_send(word).is_ok()
            });
        })?;
        Ok(Self { reader, jobs, said, thread })
    }

    /// It has nothing to do, so there is room.
    pub(super) fn give(&self, job: Job) {
        self.jobs.try_send(job).ok();
    }

    /// Nothing that it says is heard any more, and it ends when it is back.
    pub(super) fn leave(self) -> thread::JoinHandle<()> {
        self.thread
    }
}

impl Read for Files {
    fn work(&self, reader: &Arc<Reader>, jobs: &mut mpsc::Receiver<Job>, say: &mut dyn FnMut(Said) -> bool) {
        // A handle that there is can be duplicated, unless the process has no room for one more.
        let Ok(root) = self.root.watched(Arc::clone(reader)) else { return };
        let mut answerer = Answerer::new(&root);
        while let Some(job) = jobs.blocking_recv() {
            let done = match job {
                Job::Present => self.pass(&root, backfill::present, say),
                Job::Records => self.pass(&root, backfill::records, say),
                Job::Questions(asked) => Some(self.answer(&root, &mut answerer, asked)),
                Job::Messages(wanted) => Some(messages(&answerer, wanted)),
            };
            if !done.is_some_and(&mut *say) {
                return;
            }
        }
    }
}

/// A part of the node.
type Pass =
    fn(Node<'_>, &mut dyn FnMut(Batch) -> Result<(), backfill::Closed>) -> Result<Skipped, backfill::Closed>;

impl Files {
    /// Tells of one pass over the node, list by list; `None`: nobody listens.
    fn pass(&self, root: &HostRoot, pass: Pass, say: &mut dyn FnMut(Said) -> bool) -> Option<Said> {
        let node = Node {
            root,
            hierarchy: &self.hierarchy,
            clock: &clock::now,
            boot_wall_ns: clock::boot_wall_ns(),
            stores: &self.stores,
        };
        let mut tell = |batch| if say(Said::Facts(batch)) { Ok(()) } else { Err(backfill::Closed) };
        let skipped = pass(node, &mut tell).ok()?;
        Some(Said::Done { facts: Batch::new(), skipped, early: Vec::new() })
    }

    fn answer(&self, root: &HostRoot, answerer: &mut Answerer<'_>, asked: Vec<Asked>) -> Said {
        let mut facts = Batch::new();
        for Asked { question, .. } in asked {
            let at = clock::now();
            let fact = match question {
                Question::Container { id } => Some(answerer.container(&id)),
                Question::Pod { uid } => answerer.pod(&uid),
                Question::Expected { uid } => answerer.expected(&uid, at),
                Question::Program { path } => Some(answerer.program(path)),
                Question::Pressure { cgroup, path } => {
                    let read = pressure::read(root, &self.layout, &path);
                    read.map(|pressure| Fact::PressureRead(PressureRead { cgroup, pressure }))
                }
                // Looked for later, a pass of its own, and another source's affair.
                Question::Message { .. } | Question::Relist | Question::Records | Question::Watch { .. } => {
                    None
                }
            };
            facts.extend(fact.map(|fact| Observation { at, origin: Origin::Listed, fact }));
        }
        let skipped = std::mem::take(&mut answerer.skipped);
        Said::Done { facts, skipped, early: Vec::new() }
    }
}

/// The answers that there are by now, or will not be.
fn messages(answerer: &Answerer<'_>, wanted: Vec<Wanted>) -> Said {
    let (mut facts, mut early) = (Batch::new(), Vec::new());
    let at = clock::now();
    let failed: Vec<_> = wanted.iter().map(|it| (&it.container, it.since..at)).collect();
    let messages = answerer.messages(&failed, clock::boot_wall_ns());
    for (wanted, message) in wanted.into_iter().zip(messages) {
        if message.text.is_none() && wanted.is_early() {
            early.push(wanted);
        } else {
            facts.push(Observation { at, origin: Origin::Listed, fact: Fact::MessageFound(message) });
        }
    }
    Said::Done { facts, skipped: Skipped::default(), early }
}
