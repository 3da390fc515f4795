//! Tests with readers that hang, as at a process that is stuck in the kernel while it holds its memory map.

use std::{
    collections::BTreeSet,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use tokio::{
    runtime,
    sync::mpsc,
    time::{Instant, timeout},
};

use super::{Job, Limits, Question, Read, ReadProgress, Report, Supervisor, clock};
use crate::{
    model::{
        fact::{Fact, List, Observation, Origin},
        id::ContainerId,
        time::Timestamp,
    },
    source::{
        files::queue::MAX_WAITING,
        host::{skipped::Skipped, watch::Reader},
        task::{
            channel::{self, Batch, CancellationSource, QuestionSender},
            records_first::{Teller, records_first},
        },
    },
};

const PATIENCE: Duration = Duration::from_secs(20);
const LIMITS: Limits =
    Limits { hung: Duration::from_millis(50), spare: 2, reread: Duration::from_secs(3600) };

/// Paths that hang until they are released.
#[derive(Clone, Default)]
struct Paths(Arc<(Mutex<BTreeSet<&'static str>>, Condvar)>);

impl Paths {
    fn of(paths: &[&'static str]) -> Self {
        Self(Arc::new((Mutex::new(paths.iter().copied().collect()), Condvar::new())))
    }

    fn release(&self, path: &str) {
        self.0.0.lock().expect("held well").remove(path);
        self.0.1.notify_all();
    }

    fn read(&self, path: &str) {
        let hanging = self.0.0.lock().expect("held well");
        drop(self.0.1.wait_while(hanging, |paths| paths.contains(path)).expect("held well"));
    }
}

/// The list of processes reads all of those paths, and the list of the runtimes' records reads the last one.
#[derive(Default)]
struct Node {
    all: Vec<&'static str>,
    hanging: Paths,
    searches: Searches,
}

/// Each search of the logs: when it began and ended, and how many phases it served.
type Searches = Arc<Mutex<Vec<(Instant, Instant, usize)>>>;

/// How long a search takes.
const SEARCH: Duration = Duration::from_millis(30);

impl Node {
    fn read(&self, reader: &Reader, path: &'static str) -> bool {
        let may = reader.enter(path.into()).is_ok();
        if may {
            self.hanging.read(path);
        }
        may
    }

    fn list(&self, reader: &Reader, list: List, paths: &[&'static str]) -> Batch {
        let mut complete = true;
        for path in paths {
            complete &= self.read(reader, path);
        }
        vec![found(Fact::ListEnded { list, complete })]
    }
}

fn found(fact: Fact) -> Observation {
    Observation { at: clock::now(), origin: Origin::Listed, fact }
}

impl Read for Node {
    fn work(
        &self,
        reader: &Arc<Reader>,
        jobs: &mut mpsc::Receiver<Job>,
        say: &mut dyn FnMut(Report) -> bool,
    ) {
        while let Some(job) = jobs.blocking_recv() {
            let facts = match job {
                Job::Present => self.list(reader, List::Processes, &self.all),
                Job::Records => self.list(reader, List::Runtimes, &[]),
                Job::Questions(asked) => {
                    let ids = asked.into_iter().filter_map(|it| match it.question {
                        Question::Container { id } => Some(id),
                        _ => None,
                    });
                    ids.map(|id| found(Fact::ContainerUnknown(id))).collect()
                }
                Job::LogSearches(searches) => {
                    let began = Instant::now();
                    std::thread::sleep(SEARCH);
                    let search = (began, Instant::now(), searches.len());
                    self.searches.lock().expect("held well").push(search);
                    Batch::new()
                }
                Job::Messages(_) => Batch::new(),
            };
            if !say(Report::Done { facts, skipped: Skipped::default(), early: Vec::new() }) {
                return;
            }
        }
    }
}

/// A supervisor at work.
struct Work {
    batches: mpsc::Receiver<Batch>,
    facts: Vec<Fact>,
    asker: QuestionSender,
    stopper: CancellationSource,
    shown: Arc<ReadProgress>,
}

impl Work {
    fn start(node: Node) -> Self {
        Self::beside_records(node).0
    }

    fn beside_records(node: Node) -> (Self, Teller) {
        let (feed, batches) = channel::feed();
        let (asker, questions) = channel::questions();
        let (stopper, stop) = channel::stop();
        let shown = Arc::new(ReadProgress::default());
        let (teller, records) = records_first(Duration::ZERO);
        let supervisor = Supervisor::new(node, LIMITS, records, &Arc::default(), Arc::clone(&shown));
        tokio::spawn(async move { supervisor.run(&feed, questions, stop).await });
        (Self { batches, facts: Vec::new(), asker, stopper, shown }, teller)
    }

    /// Waits for a fact for which `is_one` is true.
    async fn until(&mut self, is_one: impl Fn(&Fact) -> bool) {
        let wait = async {
            loop {
                if let Some(at) = self.facts.iter().position(&is_one) {
                    self.facts.remove(at);
                    return;
                }
                let batch = self.batches.recv().await.expect("it works");
                self.facts.extend(batch.into_iter().map(|seen| seen.fact));
            }
        };
        timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("it did not come"));
    }

    /// Waits until this many files are shown to hang.
    async fn shows(&self, count: u64) {
        let wait = async {
            while self.shown.hanging() != count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, wait).await.expect("it is shown");
    }

    async fn answered(&mut self, name: &str) {
        let id = ContainerId::parse(name).expect("an id");
        self.asker.ask(Question::Container { id: id.clone() });
        self.until(|fact| *fact == Fact::ContainerUnknown(id.clone())).await;
    }
}

fn block_on(future: impl Future<Output = ()>) {
    runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(future);
}

fn hangs(path: &str, is: bool) -> impl Fn(&Fact) -> bool {
    move |fact| matches!(fact, Fact::FileHangs { path: it, hangs, .. } if it == path && *hangs == is)
}

fn ended(wanted: List, is: bool) -> impl Fn(&Fact) -> bool {
    move |fact| matches!(fact, Fact::ListEnded { list, complete } if *list == wanted && *complete == is)
}

/// The reader of the records is behind. Other answers do not wait for it.
#[test]
fn a_list_of_what_exists_comes_after_the_records_of_before() {
    block_on(async {
        let (mut work, teller) =
            Work::beside_records(Node { all: vec!["/proc/6/cmdline"], ..Node::default() });
        timeout(PATIENCE, teller.wanted()).await.expect("the list waits");
        assert!(work.batches.try_recv().is_err(), "and is not told before");
        teller.told(clock::now());
        work.until(ended(List::Processes, true)).await;
        work.until(ended(List::Runtimes, true)).await;
        work.answered("c1").await;
    });
}

#[test]
fn a_file_that_hangs_is_told_of_and_the_rest_goes_on_without_it() {
    const PATH: &str = "/proc/7/cmdline";
    block_on(async {
        let hanging = Paths::of(&[PATH]);
        let mut work = Work::start(Node {
            all: vec!["/proc/6/cmdline", PATH],
            hanging: hanging.clone(),
            ..Node::default()
        });
        work.until(hangs(PATH, true)).await;
        work.shows(1).await;
        work.answered("c1").await;
        work.until(ended(List::Processes, false)).await;
        work.until(ended(List::Runtimes, true)).await;
        for _ in 0..3 {
            work.asker.ask(Question::Relist);
            work.until(ended(List::Processes, false)).await;
            work.until(ended(List::Runtimes, true)).await;
        }
        assert_eq!(work.shown.hanging(), 1, "it is not tried again");
        hanging.release(PATH);
        work.until(hangs(PATH, false)).await;
        work.until(ended(List::Processes, true)).await;
        work.answered("c2").await;
        work.shows(0).await;
        work.stopper.stop();
        timeout(PATIENCE, async { while work.batches.recv().await.is_some() {} }).await.expect("it ends");
    });
}

/// Neither the reader nor its supervisor runs, for longer than a file may take.
#[test]
fn a_reader_that_did_not_run_hangs_at_no_file() {
    const PATH: &str = "/proc/7/cmdline";
    block_on(async {
        let hanging = Paths::of(&[PATH]);
        let mut work = Work::start(Node { all: vec![PATH], hanging: hanging.clone(), ..Node::default() });
        tokio::time::sleep(LIMITS.hung / 5).await;
        std::thread::sleep(LIMITS.hung * 4);
        // The supervisor checks before the reader has made progress.
        tokio::time::sleep(LIMITS.hung / 5).await;
        hanging.release(PATH);
        work.until(ended(List::Processes, true)).await;
        assert!(!work.facts.iter().any(hangs(PATH, true)), "{:?}", work.facts);
    });
}

/// The number of threads and of questions is bounded, and stopping does not wait for a reader that hangs.
#[test]
fn only_so_many_readers_are_left_and_only_so_many_questions_wait() {
    const ALL: [&str; 3] = ["/var/a", "/var/b", "/var/c"];
    block_on(async {
        let hanging = Paths::of(&ALL);
        let mut work = Work::start(Node { all: ALL.to_vec(), hanging: hanging.clone(), ..Node::default() });
        for path in ALL {
            work.until(hangs(path, true)).await;
        }
        // The third reader cannot be abandoned, so the supervisor waits for it.
        for n in 0..MAX_WAITING + 100 {
            let id = ContainerId::parse(&format!("c{n}")).expect("an id");
            work.asker.ask(Question::Container { id });
        }
        let full = async {
            while work.shown.dropped() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, full).await.expect("it is bounded");
        work.shows(3).await;
        assert_eq!(work.shown.dropped(), 100);
        assert!(work.shown.oldest(clock::now()) >= LIMITS.hung, "the first look has not ended");
        let started = Instant::now();
        hanging.release(ALL[2]);
        work.until(hangs(ALL[2], false)).await;
        work.until(ended(List::Processes, false)).await;
        work.answered("late").await;
        work.stopper.stop();
        timeout(PATIENCE, async { while work.batches.recv().await.is_some() {} }).await.expect("it ends");
        assert!(started.elapsed() < PATIENCE);
        ALL.iter().for_each(|path| hanging.release(path));
    });
}

/// Pods that wait ask again and again.
#[test]
fn one_search_serves_all_that_wait_and_a_longer_rest_follows() {
    block_on(async {
        let searches = Searches::default();
        let mut work = Work::start(Node { searches: Arc::clone(&searches), ..Node::default() });
        work.until(ended(List::Runtimes, true)).await;
        let mut asked = 0;
        let many = async {
            while searches.lock().expect("held well").len() < 3 {
                let container = ContainerId::parse(&format!("c{asked}")).expect("an id");
                let (from, until) = (Timestamp(1), Timestamp(2));
                work.asker.ask(Question::ImageWork { container, from, until });
                asked += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, many).await.expect("it searches");
        let searches = searches.lock().expect("held well").clone();
        for pair in searches.windows(2) {
            let rest = pair[1].0.duration_since(pair[0].1);
            assert!(rest >= 8 * SEARCH, "{rest:?}");
            assert!(pair[1].2 > 1, "{searches:?}");
        }
    });
}

#[test]
fn the_page_says_when_reading_is_given_up() {
    let page = include_str!("../../../../../docs/findings/blind_spot.md");
    let said = format!("Reading is given up after {} s,", Limits::default().hung.as_secs());
    assert!(page.contains(&said), "no {said:?}");
}
