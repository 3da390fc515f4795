//! The thread that reads. It does one job after the other, and reports what it finds.

use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, MutexGuard, PoisonError},
    thread,
};

use tokio::sync::mpsc;

use super::{Files, queue::Asked, retry_queue::Wanted};
use crate::{
    model::{
        change::Question,
        fact::{Fact, Observation, Origin, PressureRead, RecordsDiff},
    },
    source::{
        backfill::{self, Node, Records, store::Elsewhere},
        files::{
            answer::{Answerer, FailedCall, LogSearch},
            pressure::Gauges,
        },
        host::{
            HostRoot,
            skipped::Skipped,
            watch::{Avoided, Reader},
        },
        node::clock,
        task::channel::Batch,
    },
};

/// A job for the reader.
#[derive(Clone, Debug)]
pub(super) enum Job {
    Present,
    Records,
    Questions(Vec<Asked>),
    Messages(Vec<Wanted>),
    LogSearches(Vec<LogSearch>),
}

/// What the reader reports.
#[derive(Debug)]
pub(super) enum Report {
    /// Facts; more follow.
    Facts(Batch),
    /// The job is done. `early` has the searches that found nothing yet.
    Done { facts: Batch, skipped: Skipped, early: Vec<Wanted> },
}

/// Does the jobs of a reader thread.
pub(super) trait Read: Send + Sync + 'static {
    /// Does one job after the other, until there are no more jobs or no receiver.
    fn work(
        &self,
        reader: &Arc<Reader>,
        jobs: &mut mpsc::Receiver<Job>,
        send: &mut dyn FnMut(Report) -> bool,
    );
}

/// A thread that reads. A thread that hangs is abandoned.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) reader: Arc<Reader>,
    jobs: mpsc::Sender<Job>,
    pub(super) reports: mpsc::Receiver<Report>,
    thread: thread::JoinHandle<()>,
}

impl Worker {
    pub(super) fn start(read: &Arc<impl Read>, avoided: &Arc<Avoided>) -> io::Result<Self> {
        let reader = Arc::new(Reader::new(Arc::clone(avoided)));
        let (jobs, mut given) = mpsc::channel(1);
        let (sender, reports) = mpsc::channel(1);
        let read = Arc::clone(read);
        let own = Arc::clone(&reader);
        // The thread inherits the capabilities and limits of this one.
        let thread = thread::Builder::new().name("reader".to_owned()).spawn(move || {
            read.work(&own, &mut given, &mut |report| {
                // Waiting for the receiver is not hanging at a file.
                own.leave();
                sender.blocking_send(report).is_ok()
            });
        })?;
        Ok(Self { reader, jobs, reports, thread })
    }

    /// Gives the reader a job. It is idle, so there is room.
    pub(super) fn give(&self, job: Job) {
        self.jobs.try_send(job).ok();
    }

    /// Abandons the reader: its reports are dropped, and it ends once it no longer hangs.
    pub(super) fn leave(self) -> thread::JoinHandle<()> {
        self.thread
    }
}

impl Read for Files {
    fn work(
        &self,
        reader: &Arc<Reader>,
        jobs: &mut mpsc::Receiver<Job>,
        send: &mut dyn FnMut(Report) -> bool,
    ) {
        // Duplicating an open handle fails only if the process has too many.
        let Ok(root) = self.root.watched(Arc::clone(reader)) else { return };
        let mut answerer = Answerer::new(&root);
        // A reader knows what it reported itself. It repeats what an earlier reader, which hangs now, had
        // reported.
        let mut diff = RecordsDiff::default();
        let mut records = Records::knowing(self.elsewhere().clone());
        let mut gauges = Gauges::default();
        while let Some(job) = jobs.blocking_recv() {
            let done = match job {
                Job::Present => {
                    // After this pass the whole records are reported again: names are learned from them, too.
                    diff = RecordsDiff::default();
                    self.pass(&root, &mut backfill::present, send)
                }
                Job::Records => {
                    gauges.close(clock::now());
                    let done = self.pass(
                        &root,
                        &mut |node, send_batch| records.read(node, send_batch),
                        &mut |report| match report {
                            Report::Facts(batch) => {
                                self.runtimes.iter().for_each(|finder| finder.search(&batch));
                                send(Report::Facts(diff.reduce(batch)))
                            }
                            done @ Report::Done { .. } => send(done),
                        },
                    );
                    self.elsewhere().clone_from(records.elsewhere());
                    done
                }
                Job::Questions(asked) => Some(self.answer(&root, &mut answerer, &mut gauges, asked)),
                Job::Messages(wanted) => Some(messages(&answerer, wanted)),
                Job::LogSearches(searches) => Some(search_logs(&mut answerer, searches)),
            };
            if !done.is_some_and(&mut *send) {
                return;
            }
        }
    }
}

/// Lists one part of the node.
type Pass<'a> = &'a mut dyn FnMut(
    Node<'_>,
    &mut dyn FnMut(Batch) -> Result<(), backfill::Closed>,
) -> Result<Skipped, backfill::Closed>;

impl Files {
    /// Returns the stores that the next reader is to know.
    fn elsewhere(&self) -> MutexGuard<'_, BTreeSet<Elsewhere>> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the lists of one pass over the node; `None` if there is no receiver.
    fn pass(&self, root: &HostRoot, pass: Pass<'_>, send: &mut dyn FnMut(Report) -> bool) -> Option<Report> {
        let node = Node {
            root,
            hierarchy: &self.hierarchy,
            clock: &clock::now,
            boot_wall_ns: clock::boot_wall_ns(),
            stores: &self.stores,
        };
        let skipped = pass(node, &mut |batch| {
            if send(Report::Facts(batch)) { Ok(()) } else { Err(backfill::Closed) }
        });
        let skipped = skipped.ok()?;
        Some(Report::Done { facts: Batch::new(), skipped, early: Vec::new() })
    }

    fn answer(
        &self,
        root: &HostRoot,
        answerer: &mut Answerer<'_>,
        gauges: &mut Gauges,
        asked: Vec<Asked>,
    ) -> Report {
        let mut facts = Batch::new();
        for Asked { question, .. } in asked {
            let at = clock::now();
            let fact = match question {
                Question::Container { id } => Some(answerer.container(&id)),
                Question::Pod { uid } => answerer.pod(&uid),
                Question::Expected { uid } => answerer.expected(&uid, at),
                Question::Netns { path } => answerer.netns(&path),
                Question::ProcessNetns { pid } => answerer.process_netns(pid),
                Question::Program { path } => Some(answerer.program(path)),
                Question::Process { process } => {
                    backfill::process_state(root, process).map(Fact::ProcessState)
                }
                Question::Pressure { cgroup, path } => {
                    let read = gauges.read(root, &self.layout, &path, at);
                    read.map(|pressure| Fact::PressureRead(PressureRead { cgroup, pressure }))
                }
                // The first four are searched for later, the next two are passes of their own, and other
                // sources answer the rest.
                Question::Message { .. }
                | Question::ImageWork { .. }
                | Question::Words { .. }
                | Question::DaemonWords { .. }
                | Question::HeldRequests { .. }
                | Question::Relist
                | Question::Records
                | Question::Watch { .. }
                | Question::Held { .. }
                | Question::Statuses => None,
            };
            facts.extend(fact.map(|fact| Observation { at, origin: Origin::Listed, fact }));
        }
        let skipped = std::mem::take(&mut answerer.skipped);
        Report::Done { facts, skipped, early: Vec::new() }
    }
}

/// Searches the logs.
fn search_logs(answerer: &mut Answerer<'_>, searches: Vec<LogSearch>) -> Report {
    let found = answerer.search_logs(searches, clock::boot_wall_ns(), clock::now()).into_iter();
    let at = clock::now();
    let facts = found.map(|fact| Observation { at, origin: Origin::Listed, fact }).collect();
    Report::Done { facts, skipped: Skipped::default(), early: Vec::new() }
}

/// Searches for messages. Reports those that are found, and those that no later search will find.
fn messages(answerer: &Answerer<'_>, wanted: Vec<Wanted>) -> Report {
    let mut facts = Batch::new();
    let mut early = Vec::new();
    let at = clock::now();
    let failed: Vec<_> = wanted
        .iter()
        .map(|it| FailedCall { container: &it.container, command: it.command, logged: it.since..at })
        .collect();
    let messages = answerer.messages(&failed, clock::boot_wall_ns());
    for (wanted, message) in wanted.into_iter().zip(messages) {
        if message.text.is_none() && wanted.is_early() {
            early.push(wanted);
        } else {
            facts.push(Observation { at, origin: Origin::Listed, fact: Fact::MessageFound(message) });
        }
    }
    Report::Done { facts, skipped: Skipped::default(), early }
}
