//! A run with a source that tells a story, and the same run replayed from its recording.

use std::{
    fs::File,
    io::{self, Read, Seek},
    time::Duration,
};

use probe_common::event::class;
use tokio::{runtime, sync::oneshot, time::timeout};

use super::{Agent, AgentError, Routes, Served};
use crate::{
    engine::{
        Settings,
        boot::BootRead,
        fact::{Cgroup, Executed, Fact, Loss, Observation, Origin, Task},
        id::{CgroupKey, NetnsKey, TaskKey},
        time::Timestamp,
    },
    recording::{Header, Reader},
    session::Session,
    sink::{
        filter::Filter,
        history::{keep::Keeper, read},
        jsonl::Jsonl,
        outlet::Outlet,
    },
    source::{
        channel::{Batch, feed, stop},
        clock,
        replay::{Pace, replay},
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

/// One that records.
fn session() -> Session {
    session_of(header())
}

fn session_of(header: Header) -> Session {
    let mut session = Session::new(&header, Filter::default(), Box::new(Jsonl));
    session.record(&header).expect("a header");
    session
}

/// Two namespaces and a cgroup come and go, something is lost, the wall clock is set.
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
        Fact::NetnsCreated { netns: netns(5), by: by.clone() },
        Fact::CgroupCreated { cgroup: cgroup.clone(), by: by.clone() },
        Fact::NetnsCreated { netns: netns(6), by: by.clone() },
        Fact::Watermark,
        Fact::NetnsDropped { netns: netns(5), by: by.clone() },
        Fact::Lost { what: Loss::BulkRing, count: 3 },
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

fn file() -> File {
    tempfile::tempfile().expect("a file")
}

fn contents(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().expect("a file");
    file.read_to_end(&mut bytes).expect("readable");
    bytes
}

/// Runs the story; gives what was streamed and recorded.
fn live() -> (Vec<u8>, Vec<u8>) {
    let (stream, recording) = (file(), file());
    let copy = |file: &File| file.try_clone().expect("a second handle");
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (feed, batches) = feed();
        let (stopper, mut stop) = stop();
        let agent = Agent {
            session: session(),
            batches,
            stopper,
            routes: Routes::default(),
            stream: Outlet::spawn("stream", copy(&stream)).expect("a thread"),
            recording: Some(Outlet::spawn("recording", copy(&recording)).expect("a thread")),
            shelf: None,
            history: None,
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
            // What a source still has when it is stopped counts too.
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
    assert_eq!(String::from_utf8_lossy(again.told()), lines);
}

/// The node goes down under the agent: what it saw last is there after the boot.
#[test]
fn the_history_has_the_order_that_ended_the_run() {
    let dir = tempfile::tempdir().expect("a folder");
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (feed, batches) = feed();
        let (stopper, _stop) = stop();
        let agent = Agent {
            session: session(),
            batches,
            stopper,
            routes: Routes::default(),
            stream: Outlet::spawn("stream", io::sink()).expect("a thread"),
            recording: None,
            shelf: None,
            history: Some(Keeper::open(dir.path(), &header(), 9).expect("a thread")),
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
        // The last source has ended, and so does the run.
        drop(feed);
        agent.run(std::future::pending()).await.1.expect("a run without fault");
    });
    let past = read(dir.path());
    assert!(past.troubles.is_empty() && past.heartbeat.as_ref().is_some_and(|beat| beat.ended));
    let before = past.before("next");
    assert_eq!(before.boot_id.as_deref(), Some("b"));
    assert_eq!(before.ordered.map(|ordered| ordered.by).as_deref(), Some("reboot"));
}

/// A place with no room left.
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
            batches,
            stopper,
            routes: Routes::default(),
            stream: Outlet::spawn("stream", io::sink()).expect("a thread"),
            recording: None,
            shelf: None,
            history: None,
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

fn run_with(stream: Outlet, recording: Option<Outlet>) -> Result<(), AgentError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (feed, batches) = feed();
        let (stopper, mut stop) = stop();
        tokio::spawn(async move {
            // A source that goes on until it is stopped or nobody listens.
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
            batches,
            stopper,
            routes,
            stream,
            recording,
            shelf: None,
            history: None,
            served: Served::default(),
        };
        agent.run(std::future::pending()).await.1
    })
}

#[test]
fn a_full_disk_ends_the_recording_and_the_run() {
    let stream = Outlet::spawn("stream", io::sink()).expect("a thread");
    let recording = Outlet::spawn("recording", Full).expect("a thread");
    let result = run_with(stream, Some(recording));
    assert!(matches!(result, Err(AgentError::Recording(_))), "{result:?}");
}

#[test]
fn a_closed_pipe_ends_the_run() {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let result = run_with(Outlet::spawn("stream", writer).expect("a thread"), None);
    match result {
        Err(AgentError::Stream(error)) => assert_eq!(error.kind(), io::ErrorKind::BrokenPipe),
        other => panic!("{other:?}"),
    }
}

/// Standard output is stuck, and the sources would have ended in time.
#[test]
fn who_does_not_read_is_told_to_be_the_one() {
    const STUCK: Duration = Duration::from_millis(200);
    let (unread, writer) = io::pipe().expect("a pipe");
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let result = runtime.block_on(async {
        let (feed, batches) = feed();
        let (stopper, mut stop) = stop();
        let (stuck, end) = oneshot::channel();
        tokio::spawn(async move {
            let mut stuck = Some(stuck);
            while stuck.is_some() {
                for batch in story(clock::now()) {
                    if timeout(STUCK, feed.send(batch)).await.is_err() {
                        stuck.take().map(|stuck| stuck.send(()));
                    }
                }
            }
            stop.requested().await;
        });
        let stream = Outlet::spawn("stream", writer).expect("a thread");
        let (session, routes) = (session(), Routes::default());
        let agent = Agent {
            session,
            batches,
            stopper,
            routes,
            stream,
            recording: None,
            shelf: None,
            history: None,
            served: Served::default(),
        };
        agent.run(async { end.await.expect("told") }).await.1
    });
    drop(unread);
    match result {
        Err(AgentError::Stream(error)) => assert_eq!(error.kind(), io::ErrorKind::TimedOut),
        other => panic!("{other:?}"),
    }
}
