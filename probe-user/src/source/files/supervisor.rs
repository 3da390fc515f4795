//! Assigns jobs to the reader, and supervises it. A reader that hangs at a file is abandoned, and another
//! reader goes on without that file. So names, records and confirmations do not wait for it.
//!
//! **Invariant:** at most [`Limits::spare`] readers are abandoned, whatever hangs.

use std::{
    future,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::time::{self, Instant};
use tracing::warn;

use super::{
    queue::{self, Queue},
    reader::{Job, Read, Report, Worker},
    retry_queue::RetryQueue,
    search_pace::SearchPace,
    unreadable::UnreadableFiles,
};
use crate::{
    model::{
        change::Question,
        fact::{CniCommand, Fact, MessageFound, Observation, Origin},
        id::ContainerId,
        time::Timestamp,
    },
    source::{
        host::{skipped::Skipped, watch::Avoided},
        node::clock,
        task::{
            channel::{Batch, BatchSender, CancellationToken, Closed, QuestionReceiver},
            records_first::RecordsFirst,
        },
    },
};

/// When a reader counts as hanging, and how many may hang.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// How long a reader may be at one file. Even the slowest disk answers sooner, if it answers at all.
    pub(super) hung: Duration,
    pub(super) spare: usize,
    /// How often the records are read without a question: the CNI configuration can break while no pod starts
    /// or ends.
    pub(super) reread: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { hung: Duration::from_secs(10), spare: 4, reread: Duration::from_secs(60) }
    }
}

/// How long until the next try, if the process cannot have another thread or file.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The progress of reading, for metrics and health checks.
#[derive(Debug, Default)]
pub(crate) struct ReadProgress {
    /// Since when the oldest question has waited, boot time in ns; 0 if none waits.
    oldest: AtomicU64,
    waiting: AtomicU64,
    dropped: AtomicU64,
    hanging: AtomicU64,
}

impl ReadProgress {
    /// Returns how long the oldest question has waited.
    #[must_use]
    pub(crate) fn oldest(&self, now: Timestamp) -> Duration {
        match self.oldest.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => now.since(Timestamp(since)),
        }
    }

    /// Returns how many questions wait, of at most [`Self::CAPACITY`].
    #[must_use]
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns how many questions were dropped because there was no room.
    #[must_use]
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns the number of files at which reading hangs.
    #[must_use]
    pub(crate) fn hanging(&self) -> u64 {
        self.hanging.load(Ordering::Relaxed)
    }

    pub(crate) const CAPACITY: usize = queue::MAX_WAITING;
}

/// A reader that was abandoned.
#[derive(Debug)]
struct Abandoned {
    path: PathBuf,
    since: Timestamp,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
pub(super) struct Supervisor<R> {
    read: Arc<R>,
    limits: Limits,
    records_first: RecordsFirst,
    avoided: Arc<Avoided>,
    worker: Option<Worker>,
    /// The current job, and since when it has waited.
    job: Option<(Job, Timestamp)>,
    abandoned: Vec<Abandoned>,
    /// The file at which the current reader hangs, if no more readers can be abandoned.
    stuck: Option<(PathBuf, Timestamp)>,
    queue: Queue,
    later: RetryQueue,
    pace: SearchPace,
    /// A pass goes before questions: true for the first pass and after each batch of questions.
    passes_first: bool,
    /// When the records were last to be read.
    reread_at: Instant,
    /// When the reader was last checked.
    checked: Instant,
    /// Since when this program has run without a pause, as far as the checks show. Earlier time does not
    /// count as hanging.
    runs_since: Instant,
    present: UnreadableFiles,
    records: UnreadableFiles,
    answered: Skipped,
    progress: Arc<ReadProgress>,
}

impl<R: Read> Supervisor<R> {
    /// Makes a supervisor whose first job is to list the node.
    pub(super) fn new(
        read: R,
        limits: Limits,
        records_first: RecordsFirst,
        unreadable: &Arc<AtomicU64>,
        progress: Arc<ReadProgress>,
    ) -> Self {
        let mut queue = Queue::default();
        queue.ask(Question::Relist, clock::now());
        let now = Instant::now();
        let [present, records] = [(); 2].map(|()| UnreadableFiles::new(Arc::clone(unreadable)));
        Self {
            read: Arc::new(read),
            limits,
            records_first,
            avoided: Arc::default(),
            worker: None,
            job: None,
            abandoned: Vec::new(),
            stuck: None,
            queue,
            later: RetryQueue::default(),
            pace: SearchPace::default(),
            passes_first: true,
            reread_at: now,
            checked: now,
            runs_since: now,
            present,
            records,
            answered: Skipped::default(),
            progress,
        }
    }

    /// Runs until `stop` is requested or no more questions can come. It does not wait for readers that hang.
    pub(super) async fn run(
        mut self,
        feed: &BatchSender,
        mut questions: QuestionReceiver,
        mut stop: CancellationToken,
    ) -> Result<(), Closed> {
        loop {
            if self.reread_at.elapsed() >= self.limits.reread {
                self.queue.ask(Question::Records, clock::now());
            }
            self.assign();
            self.show();
            let wait = self.wait();
            tokio::select! {
                biased;
                () = stop.requested() => break,
                report = next_report(&mut self.worker) => self.handle(report, feed).await?,
                question = questions.next() => {
                    let Some(question) = question else { break };
                    let waiting = std::iter::from_fn(|| questions.try_next());
                    let refused = std::iter::once(question).chain(waiting).filter_map(|it| self.ask(it));
                    let refused = refused.collect();
                    self.add_missed(questions.refused());
                    feed.send(refused).await?;
                }
                () = time::sleep(wait) => {}
            }
            let seen = self.check_hangs();
            feed.send(seen).await?;
        }
        UnreadableFiles::new(Arc::default()).log(self.answered);
        Ok(())
    }

    fn ask(&mut self, question: Question) -> Option<Observation> {
        let at = clock::now();
        match question {
            // Other sources answer these.
            Question::Watch { .. } | Question::Held { .. } | Question::Statuses => None,
            Question::Message { container, command, since } => {
                if self.later.ask(container.clone(), command, since, at) {
                    return None;
                }
                Some(Observation { at, origin: Origin::Listed, fact: too_many(container, command) })
            }
            question => {
                self.queue.ask(question, at);
                None
            }
        }
    }

    /// Counts questions that were refused on their way here. Listing the whole node answers most of them.
    fn add_missed(&mut self, count: u64) {
        if count > 0 {
            warn!(count, "too many questions about the node's files at once: listing the node again instead");
            self.queue.dropped += count;
            self.queue.ask(Question::Relist, clock::now());
        }
    }

    /// Gives the reader its next job, if it has none.
    fn assign(&mut self) {
        if self.job.is_some() {
            return;
        }
        let Some((job, at)) = self.next() else { return };
        if self.worker.is_none() {
            match Worker::start(&self.read, &self.avoided) {
                Ok(worker) => self.worker = Some(worker),
                Err(error) => {
                    warn!(%error, "cannot start a thread to read the node's files");
                    self.put_back(job, at);
                    return;
                }
            }
        }
        if let Some(worker) = &self.worker {
            worker.give(job.clone());
            self.job = Some((job, at));
        }
    }

    fn next(&mut self) -> Option<(Job, Timestamp)> {
        let passes_first = std::mem::take(&mut self.passes_first);
        if let Some(pass) = passes_first.then(|| self.next_pass()).flatten() {
            // The whole first pass goes before the first answer.
            self.passes_first = self.queue.reread.is_some();
            return Some(pass);
        }
        if !self.queue.is_empty()
            && let Some(oldest) = self.queue.oldest()
        {
            self.passes_first = true;
            return Some((Job::Questions(self.queue.take()), oldest));
        }
        self.next_search(clock::now()).or_else(|| self.next_pass())
    }

    fn next_search(&mut self, now: Timestamp) -> Option<(Job, Timestamp)> {
        if !self.pace.wait(now).is_zero() {
            return None;
        }
        let searches = self.queue.take_searches();
        if !searches.is_empty() {
            return Some((Job::LogSearches(searches), now));
        }
        let due = self.later.due(now);
        (!due.is_empty()).then_some((Job::Messages(due), now))
    }

    fn next_pass(&mut self) -> Option<(Job, Timestamp)> {
        if let Some(at) = self.queue.relist.take() {
            // Records are read after the lists of what exists, even if that pass hangs.
            self.queue.reread.get_or_insert(at);
            return Some((Job::Present, at));
        }
        let at = self.queue.reread.take()?;
        self.reread_at = Instant::now();
        Some((Job::Records, at))
    }

    fn put_back(&mut self, job: Job, at: Timestamp) {
        match job {
            Job::Present => _ = self.queue.relist.get_or_insert(at),
            Job::Records => _ = self.queue.reread.get_or_insert(at),
            Job::Questions(asked) => self.queue.put_back(asked),
            Job::Messages(wanted) => self.later.put_back(wanted),
            Job::LogSearches(searches) => self.queue.put_back_searches(searches),
        }
    }

    async fn handle(&mut self, report: Option<Report>, feed: &BatchSender) -> Result<(), Closed> {
        if let (Some(Report::Facts(facts) | Report::Done { facts, .. }), Some((Job::Present, _))) =
            (&report, &self.job)
            && let Some(at) = facts.iter().map(|fact| fact.at).max()
        {
            self.records_first.wait(at).await;
        }
        match report {
            Some(Report::Facts(facts)) => feed.send(facts).await,
            Some(Report::Done { facts, skipped, early }) => {
                match self.job.take() {
                    Some((Job::Present, _)) => self.present.log(skipped),
                    Some((Job::Records, _)) => self.records.log(skipped),
                    Some((Job::Messages(_) | Job::LogSearches(_), began)) => {
                        self.pace.ended(began, clock::now());
                        self.answered.append(skipped);
                    }
                    Some((Job::Questions(_), _)) | None => self.answered.append(skipped),
                }
                early.into_iter().for_each(|wanted| self.later.again(wanted));
                feed.send(facts).await
            }
            None => {
                // A reader ends by itself only if the process has too many open files.
                self.worker = None;
                if let Some((job, at)) = self.job.take() {
                    self.put_back(job, at);
                }
                time::sleep(RETRY_INTERVAL).await;
                Ok(())
            }
        }
    }

    /// Checks which readers hang now, and which ones no longer do.
    fn check_hangs(&mut self) -> Batch {
        let mut seen = Batch::new();
        let (back, abandoned) = std::mem::take(&mut self.abandoned)
            .into_iter()
            .partition(|it: &Abandoned| it.thread.is_finished());
        self.abandoned = abandoned;
        for Abandoned { path, since, .. } in back {
            warn!(?path, "a file of the node that hung can be read again");
            self.avoided.remove(&path);
            seen.push(file_hangs(&path, since, false));
            // List again what was listed without this file.
            self.queue.ask(Question::Relist, clock::now());
        }
        let last = std::mem::replace(&mut self.checked, Instant::now());
        if last.elapsed() >= self.limits.hung / 2 {
            // The reader did not run either, unless it had nothing to read.
            self.runs_since = self.checked;
        }
        let runs_for = self.runs_since.elapsed();
        let at = self.worker.as_ref().and_then(|worker| worker.reader.at());
        let hangs = at.filter(|(_, since)| since.elapsed().min(runs_for) >= self.limits.hung);
        if let Some((path, since)) =
            self.stuck.take_if(|(path, _)| hangs.as_ref().is_none_or(|it| it.0 != *path))
        {
            seen.push(file_hangs(&path, since, false));
        }
        if let Some((path, since)) = hangs {
            let since = Timestamp(clock::now().0.saturating_sub(nanos(since.elapsed())));
            if self.stuck.is_none() {
                warn!(
                    ?path,
                    seconds = self.limits.hung.as_secs(),
                    "a file of the node hangs: going on without it"
                );
                seen.push(file_hangs(&path, since, true));
            }
            if self.abandoned.len() < self.limits.spare {
                self.stuck = None;
                self.leave(path, since);
            } else {
                self.stuck.get_or_insert((path, since));
            }
        }
        self.avoided.spare_memory(self.abandoned.len() >= self.limits.spare);
        seen
    }

    /// Abandons the current reader. Another reader goes on without the file at which it hangs.
    fn leave(&mut self, path: PathBuf, since: Timestamp) {
        if let Some(worker) = self.worker.take() {
            self.avoided.add(path.clone());
            self.abandoned.push(Abandoned { path, since, thread: worker.leave() });
        }
        if let Some((job, at)) = self.job.take() {
            self.put_back(job, at);
            self.passes_first = false;
        }
    }

    /// Returns how long until there is something to do or to check.
    fn wait(&self) -> Duration {
        let longest = if self.job.is_none() && self.queue.oldest().is_some() {
            // There is something to read, and no reader could be started.
            RETRY_INTERVAL
        } else if self.job.is_some() || !self.abandoned.is_empty() {
            self.limits.hung / 10
        } else {
            Duration::MAX
        };
        let mut reread = Duration::MAX;
        if self.job.is_none() && self.queue.reread.is_none() {
            reread = self.limits.reread.saturating_sub(self.reread_at.elapsed());
        }
        longest.min(self.until_search(clock::now())).min(reread)
    }

    /// Returns how long until a search may begin; for ever if none is wanted, or while the reader has a job.
    fn until_search(&self, now: Timestamp) -> Duration {
        if self.job.is_some() {
            return Duration::MAX;
        }
        let wanted = if self.queue.has_searches() { Some(Duration::ZERO) } else { self.later.wait(now) };
        wanted.map_or(Duration::MAX, |due| due.max(self.pace.wait(now)))
    }

    fn show(&self) {
        let ReadProgress { oldest, waiting, dropped, hanging } = &*self.progress;
        let since = self.job.as_ref().map(|(_, at)| *at).into_iter().chain(self.queue.oldest()).min();
        oldest.store(since.map_or(0, |at| at.0), Ordering::Relaxed);
        waiting.store(u64::try_from(self.queue.len()).unwrap_or(u64::MAX), Ordering::Relaxed);
        dropped.store(self.queue.dropped, Ordering::Relaxed);
        let hang = self.abandoned.len() + usize::from(self.stuck.is_some());
        hanging.store(u64::try_from(hang).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Returns the reader's next report; never, if there is no reader.
async fn next_report(worker: &mut Option<Worker>) -> Option<Report> {
    match worker {
        Some(worker) => worker.reports.recv().await,
        None => future::pending().await,
    }
}

fn file_hangs(path: &Path, since: Timestamp, hangs: bool) -> Observation {
    let fact = Fact::FileHangs { path: path.display().to_string(), since, hangs };
    Observation { at: clock::now(), origin: Origin::Agent, fact }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn too_many(container: ContainerId, command: CniCommand) -> Fact {
    let source = "too many plugins failed at once to look for what each said".to_owned();
    Fact::MessageFound(MessageFound { container, command, text: None, source })
}

#[cfg(test)]
mod tests;
