//! Follows a fake runtime that each test controls.

mod fake;

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use tempfile::TempDir;
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

use self::fake::Fake;
use super::{MAX_EVENTS, Session, has_own_events};
use crate::{
    model::fact::{Answer, Believed, EventStream, Fact, RuntimeEventKind, RuntimeLink, RuntimeStatus},
    source::{
        cri::message::Version,
        host::HostRoot,
        task::channel::{self, Batch},
    },
};

/// Longer than any deadline and any wait of the session.
const LIMIT: Duration = Duration::from_secs(20);

struct Followed {
    batches: mpsc::Receiver<Batch>,
    asks: watch::Sender<u64>,
    socket: PathBuf,
    _folder: TempDir,
}

impl Followed {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("runtime.sock");
        let (feed, batches) = channel::feed();
        let (asks, asked) = watch::channel(0);
        let root = HostRoot::open("/".as_ref()).expect("the root");
        tokio::spawn(Session::new(root, socket.clone(), feed, asked).run());
        Self { batches, asks, socket, _folder: folder }
    }

    fn ask(&self) {
        self.asks.send_modify(|count| *count += 1);
    }

    async fn next(&mut self) -> Fact {
        let batch = timeout(LIMIT, self.batches.recv()).await.expect("in time").expect("a session");
        let [seen] = &batch[..] else { panic!("{batch:?}") };
        seen.fact.clone()
    }

    async fn link(&mut self) -> (Answer, EventStream) {
        let fact = self.next().await;
        let Fact::RuntimeLink(RuntimeLink { answer, events, .. }) = fact else { panic!("{fact:?}") };
        (answer, events)
    }

    /// Skips everything before the runtime is linked like this.
    async fn until(&mut self, link: (Answer, EventStream)) {
        loop {
            if let Fact::RuntimeLink(RuntimeLink { answer, events, .. }) = self.next().await
                && (answer, events) == link
            {
                return;
            }
        }
    }

    async fn status(&mut self) -> RuntimeStatus {
        let fact = self.next().await;
        let Fact::RuntimeStatus(status) = fact else { panic!("{fact:?}") };
        status
    }
}

fn states(status: &RuntimeStatus) -> Vec<(&str, Believed, Option<i32>)> {
    status.came.iter().map(|it| (it.id.as_str(), it.state, it.exit_code)).collect()
}

#[tokio::test]
async fn lists_events_and_exit_codes_are_told_and_a_restart_tells_all_again() {
    let mut followed = Followed::new();
    // A socket at which no runtime has answered yet is not reported.
    let nobody = timeout(Duration::from_millis(200), followed.batches.recv()).await;
    assert!(nobody.is_err(), "{nobody:?}");
    let fake = Fake::start(&followed.socket, "containerd", "v2.1.4");
    fake.contains("c1", 1, 0);
    assert_eq!(followed.link().await, (Answer::Answers, EventStream::Open));
    let status = followed.status().await;
    assert!(status.whole);
    assert_eq!(states(&status), [("c1", Believed::Running, None)]);

    fake.opened().await;
    fake.contains("c1", 2, 137);
    fake.tells("c1", 2);
    let fact = followed.next().await;
    let Fact::RuntimeEvent(event) = fact else { panic!("{fact:?}") };
    assert_eq!((event.id.as_str(), event.what), ("c1", RuntimeEventKind::Stopped));
    followed.ask();
    let status = followed.status().await;
    assert!(!status.whole);
    assert_eq!(states(&status), [("c1", Believed::Exited, Some(137))]);

    drop(fake);
    assert_eq!(followed.link().await.1, EventStream::Closed);
    let _fake = Fake::start(&followed.socket, "containerd", "v2.1.4");
    followed.until((Answer::Answers, EventStream::Open)).await;
    let status = followed.status().await;
    assert!(status.whole && status.came.is_empty(), "{status:?}");
}

#[tokio::test]
async fn a_runtime_that_hangs_is_asked_again_on_the_same_connection() {
    let mut followed = Followed::new();
    let fake = Fake::start(&followed.socket, "containerd", "2.0.0");
    followed.until((Answer::Answers, EventStream::Open)).await;
    followed.status().await;
    fake.hangs(true);
    followed.ask();
    // Each unanswered question is reported, with the time of the first one.
    let told = [followed.next().await, followed.next().await];
    for fact in &told {
        let Fact::RuntimeLink(link) = fact else { panic!("{fact:?}") };
        assert_eq!((link.answer, link.events), (Answer::Hangs, EventStream::Open));
        assert!(link.since.is_some(), "{link:?}");
    }
    assert_eq!(told[0], told[1]);
    fake.contains("c1", 1, 0);
    fake.hangs(false);
    assert_eq!(states(&followed.status().await), [("c1", Believed::Running, None)]);
    assert_eq!(followed.link().await, (Answer::Answers, EventStream::Open));
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn a_runtime_that_hangs_when_it_is_found_is_told() {
    let mut followed = Followed::new();
    let fake = Fake::start(&followed.socket, "containerd", "2.0.0");
    fake.hangs(true);
    assert_eq!(followed.link().await, (Answer::Hangs, EventStream::Closed));
    fake.hangs(false);
    followed.until((Answer::Answers, EventStream::Open)).await;
}

#[tokio::test]
async fn a_stream_that_clients_share_is_never_asked_for() {
    for (name, version) in [("containerd", "1.7.27"), ("cri-o", "1.29.4"), ("docker", "27.1.1")] {
        let mut followed = Followed::new();
        let fake = Fake::start(&followed.socket, name, version);
        followed.until((Answer::Answers, EventStream::None)).await;
        followed.status().await;
        assert!(!fake.calls().contains("GetContainerEvents"), "{name} {version}");
        let all = BTreeSet::from(["Version", "ListPodSandbox", "ListContainers"].map(str::to_owned));
        assert_eq!(fake.calls(), all);
    }
}

#[tokio::test]
async fn a_runtime_without_events_is_read_by_its_list_alone() {
    for fault in [fake::Stream::Unimplemented, fake::Stream::EndsAtOnce] {
        let mut followed = Followed::new();
        let fake = Fake::start(&followed.socket, "cri-o", "1.32.0");
        fake.streams(fault);
        followed.until((Answer::Answers, EventStream::None)).await;
        followed.ask();
        while !matches!(followed.next().await, Fact::RuntimeStatus(_)) {}
        assert_eq!(fake.connections(), 1);
        // After its restart it has events.
        drop(fake);
        let _fake = Fake::start(&followed.socket, "cri-o", "1.32.0");
        followed.ask();
        followed.until((Answer::Answers, EventStream::Open)).await;
    }
}

/// The session's reports are not received. The stream is read nevertheless, and is known to be cut off.
#[tokio::test]
async fn an_endless_stream_is_read_on_and_its_rest_counts_as_missed() {
    let mut followed = Followed::new();
    let fake = Fake::start(&followed.socket, "containerd", "2.1.0");
    followed.until((Answer::Answers, EventStream::Open)).await;
    followed.status().await;
    fake.opened().await;
    for number in 0..3 * MAX_EVENTS {
        fake.tells(&format!("c{number}"), 1);
        if number % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    fake.taken().await;
    let mut told = 0;
    loop {
        match followed.next().await {
            Fact::RuntimeEvent(_) => told += 1,
            Fact::RuntimeLink(link) if link.events == EventStream::Closed => break,
            Fact::RuntimeStatus(_) | Fact::RuntimeLink(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(told < 3 * MAX_EVENTS, "{told}");
    followed.until((Answer::Answers, EventStream::Open)).await;
}

#[tokio::test]
async fn a_list_that_is_too_large_is_no_answer() {
    let mut followed = Followed::new();
    let fake = Fake::start(&followed.socket, "containerd", "1.6.20");
    followed.until((Answer::Answers, EventStream::None)).await;
    followed.status().await;
    fake.contains(&"c".repeat(17 << 20), 1, 0);
    followed.ask();
    assert_eq!(followed.link().await, (Answer::Slow, EventStream::None));
}

#[test]
fn versions_are_compared_by_their_numbers() {
    let has = |name: &str, version: &str| {
        has_own_events(&Version { name: name.to_owned(), version: version.to_owned() })
    };
    for version in ["2.0.0", "v2.1.4", "2.0.0-rc.3", "10.0", "2.1.4+deb"] {
        assert!(has("containerd", version), "{version}");
    }
    for version in ["1.7.99", "v1.6.20~ds1", "", "x.y", "v", "1"] {
        assert!(!has("containerd", version), "{version}");
    }
    assert!(has("cri-o", "1.30.0") && !has("cri-o", "1.29.9") && !has("frakti", "9.9"));
}
