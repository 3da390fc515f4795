//! Tests with a scripted source, and with a replay of the recording of the same run.

mod stalled;

use std::{
    fs::File,
    io::{self, Read, Seek},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use probe_common::event::class;
use tokio::{runtime, sync::oneshot, time::timeout};

use super::{Agent, AgentError, Outlets, Routes, Served, record::Record, timer::Timer};
use crate::{
    engine::Settings,
    model::{
        change::{Change, Question},
        fact::{Attached, Cgroup, Executed, Fact, Loss, Mechanism, Observation, Origin, Signal, Task},
        id::{CgroupKey, NetnsKey, TaskKey},
        recovery::BootRead,
        time::Timestamp,
    },
    recording::{Header, ReadError, Reader},
    replay::{Pace, ReplayError, replay},
    session::Session,
    sink::{
        Label, Sink,
        render::jsonl::Jsonl,
        select::filter::Filter,
        state::{
            history::{read, writer::BootHistoryWriter},
            state_writes::StateWrites,
        },
        stream::{Destination, Stream, Terminal, write_queue::WriteQueue},
    },
    source::{
        node::clock,
        task::channel::{Batch, feed, questions, stop},
    },
};

fn header() -> Header {
    Header {
        made_by: "0".to_owned(),
        node: "node-1".to_owned(),
        boot_id: "b".to_owned(),
        kernel: "6".to_owned(),
        boot_wall_ns: clock::boot_wall_ns(),
        settings: Settings { hold: Duration::from_millis(20), ..Settings::default() },
    }
}

/// A session with a recording.
fn session() -> Session {
    session_of(header())
}

fn session_of(header: Header) -> Session {
    let mut session = Session::new(&header, Filter::default(), Box::new(Jsonl));
    session.record(&header).expect("a header");
    session
}

/// Two namespaces and a cgroup are made and removed, records are lost, and the wall clock is set.
fn story(start: Timestamp) -> Vec<Batch> {
    let by = Task { key: TaskKey::new(10, 1), comm: "ip".to_owned(), netns: 1, ..Task::default() };
    let netns = |inode| NetnsKey::new(inode, u64::from(inode));
    let cgroup = Cgroup {
        key: CgroupKey::new(0, 77),
        path: "/kubepods/pod11111111-2222-3333-4444-555555555555".to_owned(),
        level: 2,
        nested: false,
    };
    let facts = vec![
        Fact::NetnsCreated { netns: netns(5), by: by.clone(), end_unseen: false },
        Fact::CgroupCreated { cgroup: cgroup.clone(), by: by.clone() },
        Fact::NetnsCreated { netns: netns(6), by: by.clone(), end_unseen: false },
        Fact::Watermark,
        Fact::NetnsDropped { netns: netns(5), by: by.clone() },
        Fact::Lost { what: Loss::BulkRing, count: 3, since: None },
        Fact::Clock { boot_wall_ns: 1_000_000_000_000_000_000 },
        Fact::CgroupRemoved { cgroup, by: by.clone() },
        Fact::NetnsDropped { netns: netns(6), by },
        Fact::Watermark,
    ];
    let observations: Batch = facts
        .into_iter()
        .zip(1u32..)
        .map(|(fact, n)| Observation {
            at: start + Duration::from_micros(n.into()),
            origin: Origin::Kernel,
            fact,
        })
        .collect();
    observations.chunks(3).map(<[Observation]>::to_vec).collect()
}

fn stream_to(to: impl io::Write + Send + 'static) -> Stream {
    Stream::spawn(to, Destination::standard_output(Terminal::None), drop).expect("a thread")
}

fn outlets(stream: Stream, recording: Option<Record>) -> Outlets {
    Outlets::new(stream, recording, None, None)
}

fn record_in(to: impl io::Write + Send + 'static, is_purpose: bool) -> Record {
    Record::new(WriteQueue::spawn(100_000, "recording", to).expect("a thread"), is_purpose)
}

fn file() -> File {
    tempfile::tempfile().expect("a file")
}

fn contents(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().expect("a file");
    file.read_to_end(&mut bytes).expect("readable");
    bytes
}

/// Runs the script; returns the stream and the recording.
fn live() -> (Vec<u8>, Vec<u8>) {
    let (stream, recording) = (file(), file());
    let copy = |file: &File| file.try_clone().expect("a second handle");
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (feed, batches) = feed();
        let (stopper, mut stop) = stop();
        let agent = Agent {
            session: session(),
            timer: Timer::default(),
            batches,
            stopper,
            routes: Routes::default(),
            outlets: outlets(stream_to(copy(&stream)), Some(record_in(copy(&recording), true))),
            findings_file: None,
            history: None,
            otlp: None,
            served: Served::default(),
        };
        let (told, end) = oneshot::channel();
        tokio::spawn(async move {
            let mut story = story(clock::now());
            let last = story.pop().expect("a batch");
            for batch in story {
                feed.send(batch).await.expect("the agent is there");
            }
            told.send(()).expect("the agent is there");
            // The last batch of a source that is stopped counts too.
            stop.requested().await;
            feed.send(last).await.expect("the agent waits for the last");
        });
        let (_, result) = agent.run(async { end.await.expect("told") }).await;
        result.expect("a run without fault");
    });
    (contents(stream), contents(recording))
}

#[test]
fn a_replay_says_the_same_byte_for_byte() {
    let (streamed, recorded) = live();
    let lines = String::from_utf8(streamed.clone()).expect("JSON is UTF-8");
    for event in ["netns.created", "netns.destroyed", "cgroup.created", "cgroup.removed", "gap"] {
        assert!(lines.contains(event), "no {event} in {lines}");
    }

    let mut reader = Reader::open(&*recorded).expect("a recording");
    let mut again = Session::new(reader.header(), Filter::default(), Box::new(Jsonl));
    replay(&mut reader, Pace::FlatOut, |call| again.call(call)).expect("a whole recording");
    assert_eq!(String::from_utf8_lossy(again.output()), lines);
}

/// Netlink is behind, and has no room for another question. The engine learns that the namespace is not
/// watched.
#[test]
fn a_namespace_that_finds_no_room_to_be_asked_about_counts_as_unwatched() {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let unwatched = |has_room: bool| {
        runtime.block_on(async {
            let (feed, batches) = feed();
            let (stopper, _stop) = stop();
            let (netlink, _asked) = questions();
            while !has_room && netlink.ask(Question::Relist).is_none() {}
            let agent = Agent {
                session: session(),
                timer: Timer::default(),
                batches,
                stopper,
                routes: Routes { netlink: Some(netlink), ..Routes::default() },
                outlets: outlets(stream_to(io::sink()), None),
                findings_file: None,
                history: None,
                otlp: None,
                served: Served::default(),
            };
            let attached = Attached {
                signal: Signal::NetnsDropped,
                mechanism: Some(Mechanism::Netlink),
                note: String::new(),
                missed: Vec::new(),
            };
            let made = Fact::NetnsFound { netns: NetnsKey::new(5, 5), mounts: Vec::new(), vacant: false };
            let at = clock::now();
            let facts = [(Origin::Agent, Fact::Attached(attached)), (Origin::Listed, made)];
            let batch = facts.map(|(origin, fact)| Observation { at, origin, fact });
            feed.send(batch.into()).await.expect("the agent is there");
            drop(feed);
            let (session, result) = agent.run(std::future::pending()).await;
            result.expect("a run without fault");
            session.engine().unwatched()
        })
    };
    assert_eq!([unwatched(true), unwatched(false)], [0, 1]);
}

/// The node goes down under the agent: after the boot its last state is on disk.
#[test]
fn the_history_has_the_order_that_ended_the_run() {
    let dir = tempfile::tempdir().expect("a folder");
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (feed, batches) = feed();
        let (stopper, _stop) = stop();
        let agent = Agent {
            session: session(),
            timer: Timer::default(),
            batches,
            stopper,
            routes: Routes::default(),
            outlets: outlets(stream_to(io::sink()), None),
            findings_file: None,
            history: Some(
                BootHistoryWriter::open(dir.path(), &header(), 9, StateWrites::default()).expect("a thread"),
            ),
            otlp: None,
            served: Served::default(),
        };
        let now = clock::now();
        let boot =
            BootRead { boot_id: "b".to_owned(), boot_wall_ns: clock::boot_wall_ns(), ..BootRead::default() };
        let order = Executed {
            task: Task { key: TaskKey::new(10, 1), comm: "reboot".to_owned(), ..Task::default() },
            filename: "/sbin/reboot".to_owned(),
            argv: vec!["reboot".to_owned()],
            argv_total: 7,
            class: class::ORDER,
            ns_pid: 10,
            pid_ns: 1,
            mnt_ns: 1,
        };
        let facts = [Fact::BootRead(Box::new(boot)), Fact::Executed(order), Fact::Watermark];
        let batch = facts.map(|fact| Observation { at: now, origin: Origin::Kernel, fact });
        feed.send(batch.into()).await.expect("the agent is there");
        // The last source has ended, so the run ends.
        drop(feed);
        agent.run(std::future::pending()).await.1.expect("a run without fault");
    });
    let past = read(dir.path());
    assert!(past.problems.is_empty() && past.heartbeat.as_ref().is_some_and(|beat| beat.ended));
    let before = past.before("next");
    assert_eq!(before.boot_id.as_deref(), Some("b"));
    assert_eq!(before.ordered.map(|ordered| ordered.by).as_deref(), Some("reboot"));
}

/// A writer with no room left.
struct Full;

impl io::Write for Full {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_wall_clock_that_was_set_is_noticed() {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (session, result) = runtime.block_on(async {
        let (feed, batches) = feed();
        let (stopper, _stop) = stop();
        let boot_wall_ns = clock::boot_wall_ns() - 3_600_000_000_000;
        let agent = Agent {
            session: session_of(Header { boot_wall_ns, ..header() }),
            timer: Timer::default(),
            batches,
            stopper,
            routes: Routes::default(),
            outlets: outlets(stream_to(io::sink()), None),
            findings_file: None,
            history: None,
            otlp: None,
            served: Served::default(),
        };
        let watermark = Observation { at: clock::now(), origin: Origin::Agent, fact: Fact::Watermark };
        feed.send(vec![watermark]).await.expect("the agent is there");
        drop(feed);
        agent.run(std::future::pending()).await
    });
    result.expect("a run without fault");
    assert!(session.boot_wall_ns().abs_diff(clock::boot_wall_ns()) < 1_000_000_000);
}

fn run_with(stream: Stream, recording: Option<Record>) -> Result<(), AgentError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (feed, batches) = feed();
        let (stopper, mut stop) = stop();
        tokio::spawn(async move {
            // A source that sends until it is stopped or the channel is closed.
            loop {
                for batch in story(clock::now()) {
                    tokio::select! {
                        () = stop.requested() => return,
                        sent = feed.send(batch) => if sent.is_err() { return },
                    }
                }
            }
        });
        let (session, routes) = (session(), Routes::default());
        let agent = Agent {
            session,
            timer: Timer::default(),
            batches,
            stopper,
            routes,
            outlets: outlets(stream, recording),
            findings_file: None,
            history: None,
            otlp: None,
            served: Served::default(),
        };
        agent.run(std::future::pending()).await.1
    })
}

#[test]
fn a_full_disk_ends_the_recording_and_a_run_that_is_made_for_it() {
    let result = run_with(stream_to(io::sink()), Some(record_in(Full, true)));
    assert!(matches!(result, Err(AgentError::Recording(_))), "{result:?}");
}

#[test]
fn a_closed_pipe_ends_the_run() {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    match run_with(stream_to(writer), None) {
        Err(AgentError::Stream { error, .. }) => assert_eq!(error.kind(), io::ErrorKind::BrokenPipe),
        other => panic!("{other:?}"),
    }
}

/// Runs until `count` namespaces were made and removed, then ends in order. Returns the number of events that
/// were reported.
fn run_through(count: usize, stream: Stream, recording: Option<Record>) -> (u64, Result<(), AgentError>) {
    let told = Arc::new(AtomicU64::new(0));
    let mut session = session();
    session.add_sink(Box::new(EventCounter(Arc::clone(&told))));
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (feed, batches) = feed();
        let (stopper, mut stop) = stop();
        let (sent, end) = oneshot::channel();
        tokio::spawn(async move {
            for _ in 0..count / 2 {
                for batch in story(clock::now()) {
                    feed.send(batch).await.expect("the agent is there");
                }
            }
            sent.send(()).expect("the agent is there");
            stop.requested().await;
        });
        let routes = Routes::default();
        let agent = Agent {
            session,
            timer: Timer::default(),
            batches,
            stopper,
            routes,
            outlets: outlets(stream, recording),
            findings_file: None,
            history: None,
            otlp: None,
            served: Served::default(),
        };
        let run = agent.run(async { end.await.expect("told") });
        let (_, result) = timeout(PATIENCE, run).await.expect("it waits for nobody");
        (told.load(Ordering::Relaxed), result)
    })
}

/// Counts the events.
struct EventCounter(Arc<AtomicU64>);

impl Sink for EventCounter {
    fn on_change(&mut self, _: &Change, _: &Label) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Longer than any step of these tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Standard output is a pipe that nobody reads, although it is open.
#[test]
fn who_does_not_read_holds_up_nothing_and_misses_what_is_counted() {
    let (unread, writer) = io::pipe().expect("a pipe");
    let stream = Stream::with_room(100_000, writer, Destination::standard_output(Terminal::None), drop)
        .expect("a thread");
    let dropped = stream.dropped();
    let (told, result) = run_through(2_000, stream, None);
    match result {
        // Only what went into the pipe was written.
        Err(AgentError::Unread { count, .. }) => {
            assert!((told / 2..told).contains(&count), "{count} of {told}")
        }
        other => panic!("{other:?}"),
    }
    assert!(dropped.load(Ordering::Relaxed) > told / 2);
    drop(unread);
}

/// A recording has no gaps: it ends, and the run continues.
#[test]
fn a_recording_that_cannot_go_on_does_not_end_the_agent() {
    let (_, result) = run_through(200, stream_to(io::sink()), Some(record_in(Full, false)));
    match result {
        Err(AgentError::Recording(error)) => assert_eq!(error.kind(), io::ErrorKind::StorageFull),
        other => panic!("{other:?}"),
    }
    let (unread, writer) = io::pipe().expect("a pipe");
    let outlet = WriteQueue::spawn(100_000, "recording", writer).expect("a thread");
    let (_, result) = run_through(2_000, stream_to(io::sink()), Some(Record::new(outlet, false)));
    match result {
        Err(AgentError::Recording(error)) => assert_eq!(error.kind(), io::ErrorKind::TimedOut),
        other => panic!("{other:?}"),
    }
    // The written part has whole lines only, and is recognized as cut off.
    let mut written = Vec::new();
    let mut unread = unread;
    unread.read_to_end(&mut written).expect("readable");
    let mut reader = Reader::open(&*written).expect("a recording");
    let mut again = Session::new(reader.header(), Filter::default(), Box::new(Jsonl));
    let mut calls = 0;
    let ended = replay(&mut reader, Pace::FlatOut, |call| {
        calls += 1;
        again.call(call)
    });
    assert!(matches!(ended, Err(ReplayError::Read(ReadError::CutOff { .. }))), "{ended:?}");
    assert!(calls > 100, "{calls}");
}
