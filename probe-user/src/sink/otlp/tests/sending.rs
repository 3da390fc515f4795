//! Spans and records arrive once and whole, over each protocol; those that cannot be sent are bounded and
//! counted.

use std::{
    thread,
    time::{Duration, Instant},
};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::runtime;
use tokio_rustls::TlsAcceptor;

use super::{
    Spoken, file, headers, nowhere, quick,
    receiver::{Answer, Receiver},
    recorded, route, start, target, to, trusting,
};
use crate::{
    model::time::Timestamp,
    sink::otlp::{
        Otlp,
        credentials::Sources,
        exporter::Exporter,
        figures::{ExportCounters, Snapshot},
        pace::Pace,
        queue::Queue,
        signal::{Item, Signal},
    },
};

const BOTH: [Spoken; 2] = [Spoken::Grpc, Spoken::Http];
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn block_on<T>(work: impl Future<Output = T>) -> T {
    runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

fn until(is_so: impl Fn() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < limit, "it never is so");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A queue and the thread that empties it.
struct Sending {
    queue: Queue,
    exporter: Exporter,
}

impl Sending {
    fn of(signal: Signal, target: super::Target, sources: &Sources, pace: Pace) -> Self {
        let queue = Queue::new(&pace, ExportCounters::new(signal));
        let exporter =
            Exporter::spawn(route(target, sources, pace), &[(signal, queue.clone())]).expect("a thread");
        Self { queue, exporter }
    }

    fn now(&self) -> Snapshot {
        self.queue.figures.read()
    }

    /// Waits until everything is sent or dropped.
    fn end(self) -> Snapshot {
        self.queue.close();
        block_on(self.exporter.ended());
        self.queue.figures.read()
    }
}

fn count(counted: &[(&'static str, u64)], name: &str) -> u64 {
    counted.iter().find(|(it, _)| *it == name).expect(name).1
}

fn all(counted: &[(&'static str, u64)]) -> u64 {
    counted.iter().map(|(_, count)| count).sum()
}

/// Repeats a trace of the recording without end.
fn items() -> impl Iterator<Item = Item> {
    let sent = recorded::replay("demo.jsonl");
    let of = sent.spans.first().expect("a span").trace_id.clone();
    let spans: Vec<_> = sent.spans.into_iter().filter(|span| span.trace_id == of).collect();
    std::iter::repeat(Item::of_trace(spans))
}

pub(super) fn acceptor() -> TlsAcceptor {
    let chain = vec![CertificateDer::from_pem_file(file("server.pem")).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_file(file("server.key")).expect("a key");
    let mut config = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("they fit");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(std::sync::Arc::new(config))
}

/// Replays a recording as the agent's loop does; returns what has been sent by the end.
fn run(mut otlp: Otlp, notes: super::ChangeSink) -> Vec<Snapshot> {
    let (mut session, calls) = recorded::open("demo.jsonl");
    session.add_sink(Box::new(notes));
    let mut now = Timestamp::ZERO;
    for call in calls {
        now = now.max(call.at().unwrap_or_default());
        session.call(call).expect("nothing is recorded");
        otlp.update(now, session.engine(), session.label());
    }
    let figures = otlp.figures();
    block_on(otlp.finish(now, session.engine(), session.label()));
    figures.iter().map(ExportCounters::read).collect()
}

#[test]
fn a_recorded_run_arrives_whole_over_each_protocol_with_and_without_tls() {
    let expected = recorded::replay("demo.jsonl");
    let dir = tempfile::tempdir().expect("a directory");
    for (spoken, has_tls) in BOTH.into_iter().flat_map(|spoken| [(spoken, false), (spoken, true)]) {
        let receiver = Receiver::start(spoken, has_tls.then(acceptor)).expect("a port");
        let address = receiver.address().to_string();
        let target = target(if has_tls { "https" } else { "http" }, &address, spoken);
        let sources = Sources { ca: trusting().ca, ..headers(&dir, "x-tenant: seven\n") };
        let (otlp, notes) = start(route(target, &sources, quick()));
        let figures = run(otlp, notes);
        let received = receiver.received();
        assert_eq!(received.problems, [""; 0], "{spoken:?} {has_tls}");
        assert_eq!(received.spans, expected.spans, "{spoken:?} {has_tls}");
        assert_eq!(received.records, expected.records, "{spoken:?} {has_tls}");
        assert_eq!(
            received.traces().len(),
            received.spans.iter().filter(|it| it.parent_span_id.is_empty()).count()
        );
        assert!(received.headers.iter().all(|it| it["x-tenant"] == "seven"
            && it["user-agent"].to_str().is_ok_and(|it| it.contains("sandprobe/"))));
        assert!(received.resources.iter().all(|it| it.attributes.len() > 5));
        let [traces, logs] = &figures[..] else { panic!("{figures:?}") };
        assert_eq!(traces.exported, expected.spans.len() as u64);
        assert_eq!(logs.exported, expected.records.len() as u64);
        for it in [traces, logs] {
            assert_eq!((all(&it.dropped), all(&it.failed), it.waiting), (0, 0, 0), "{it:?}");
            assert!(it.succeeded_at.is_some());
        }
    }
}

#[test]
fn while_nothing_listens_memory_is_bounded_and_the_newest_arrive_later() {
    for spoken in BOTH {
        let address = nowhere();
        let pace = Pace { room: 200_000, batch: 20_000, ..quick() };
        let sending = Sending::of(
            Signal::Traces,
            target("http", &address.to_string(), spoken),
            &Sources::default(),
            pace,
        );
        let mut given = 0;
        for item in items().take(2_000) {
            given += item.entries;
            sending.queue.push(item);
        }
        until(|| count(&sending.now().failed, "connect") >= 3);
        let now = sending.now();
        let full = count(&now.dropped, "queue_full");
        assert!(full > 0 && now.exported == 0, "{now:?}");
        // The entries that wait, that are being sent, and that were dropped add up.
        assert!(given - full - now.waiting <= 200, "{given}: {now:?}");
        let receiver = Receiver::start_at(spoken, None, address).expect("the port is free");
        until(|| sending.now().waiting == 0 && sending.now().exported > 0);
        let end = sending.end();
        assert_eq!(end.exported + all(&end.dropped), given, "{end:?}");
        assert_eq!(receiver.received().problems, [""; 0]);
        assert_eq!(receiver.received().spans.len() as u64, end.exported);
    }
}

#[test]
fn what_is_refused_for_a_while_is_sent_again_when_the_receiver_wants_it() {
    let details = details();
    for (spoken, answers, wait) in [
        (Spoken::Http, vec![Answer::Status(503, vec![("retry-after", "1".to_owned())])], 1000),
        (Spoken::Http, vec![Answer::Status(429, Vec::new()), Answer::Status(502, Vec::new())], 0),
        (Spoken::Http, vec![Answer::Close, Answer::Close], 0),
        (Spoken::Grpc, vec![Answer::Status(14, Vec::new()), Answer::Status(4, Vec::new())], 0),
        (Spoken::Grpc, vec![Answer::Status(8, vec![("grpc-status-details-bin", details)])], 300),
        (Spoken::Grpc, vec![Answer::Close], 0),
    ] {
        let receiver = Receiver::start(spoken, None).expect("a port");
        let refused = answers.len();
        receiver.received().answers.extend(answers);
        let begun = Instant::now();
        let sending = Sending::of(Signal::Traces, to(&receiver, spoken), &Sources::default(), quick());
        let item = items().next().expect("an item");
        let given = item.entries;
        sending.queue.push(item);
        until(|| sending.now().exported == given);
        assert!(begun.elapsed() >= Duration::from_millis(wait), "{spoken:?} {:?}", begun.elapsed());
        let end = sending.end();
        assert_eq!(all(&end.dropped), 0, "{end:?}");
        assert!(all(&end.failed) >= 1, "{end:?}");
        let received = receiver.received();
        assert!(received.requests > refused, "{}", received.requests);
        assert_eq!((&received.problems[..], received.spans.len() as u64), (&[][..], given));
    }
}

/// `RetryInfo` with 300 ms, as gRPC has it in a header.
fn details() -> String {
    use tonic_types::{ErrorDetails, StatusExt as _};
    let details = ErrorDetails::with_retry_info(Some(Duration::from_millis(300)));
    let status = tonic::Status::with_error_details(tonic::Code::ResourceExhausted, "full", details);
    let header = status.into_http::<tonic::body::Body>().headers()["grpc-status-details-bin"].clone();
    header.to_str().expect("text").to_owned()
}

#[test]
fn what_is_refused_for_good_is_dropped_and_counted_and_the_rest_goes_on() {
    for (spoken, answer, dropped, why) in [
        (Spoken::Http, Answer::Status(400, Vec::new()), "refused", Some("refused")),
        (Spoken::Http, Answer::Status(401, Vec::new()), "refused", Some("credentials")),
        (Spoken::Http, Answer::Status(404, Vec::new()), "refused", Some("not_found")),
        (Spoken::Http, Answer::Reject(2), "rejected", None),
        (Spoken::Grpc, Answer::Status(3, Vec::new()), "refused", Some("refused")),
        (Spoken::Grpc, Answer::Status(8, Vec::new()), "refused", Some("refused")),
        (Spoken::Grpc, Answer::Status(12, Vec::new()), "refused", Some("not_found")),
        (Spoken::Grpc, Answer::Status(16, Vec::new()), "refused", Some("credentials")),
        (Spoken::Grpc, Answer::Reject(2), "rejected", None),
    ] {
        for signal in Signal::ALL {
            let receiver = Receiver::start(spoken, None).expect("a port");
            receiver.received().answers.push_back(answer.clone());
            let sending = Sending::of(signal, to(&receiver, spoken), &Sources::default(), quick());
            let items: Vec<Item> = match signal {
                Signal::Traces => items().take(2).collect(),
                Signal::Logs => {
                    recorded::replay("demo.jsonl").records.into_iter().take(2).map(Item::of_record).collect()
                }
            };
            let given: u64 = items.iter().map(|item| item.entries).sum();
            for item in items {
                let before = receiver.received().requests;
                sending.queue.push(item);
                until(|| receiver.received().requests > before);
            }
            let end = sending.end();
            let lost = count(&end.dropped, dropped);
            assert!(lost > 0 && lost == all(&end.dropped), "{end:?}");
            assert_eq!(end.exported + lost, given, "{answer:?} {end:?}");
            match why {
                Some(why) => assert_eq!((count(&end.failed, why), all(&end.failed)), (1, 1), "{end:?}"),
                None => assert_eq!(all(&end.failed), 0, "{end:?}"),
            }
            assert_eq!(receiver.received().problems, [""; 0]);
        }
    }
}

/// Without a wait between the requests, everything in the queue would be dropped at once.
#[test]
fn one_that_refuses_everything_for_a_while_costs_little() {
    for (spoken, code) in [(Spoken::Http, 401), (Spoken::Http, 404), (Spoken::Grpc, 12)] {
        let receiver = Receiver::start(spoken, None).expect("a port");
        receiver.received().answers.extend(vec![Answer::Status(code, Vec::new()); 3]);
        let item = items().next().expect("an item");
        let pace = Pace {
            batch: item.bytes.len(),
            first_wait: Duration::from_millis(100),
            longest_wait: Duration::from_secs(1),
            ..quick()
        };
        let sending = Sending::of(Signal::Traces, to(&receiver, spoken), &Sources::default(), pace);
        let begun = Instant::now();
        for _ in 0..10 {
            sending.queue.push(item.clone());
        }
        until(|| sending.now().exported == 7 * item.entries);
        // At least the halves of 100, 200 and 400 ms.
        assert!(begun.elapsed() >= Duration::from_millis(350), "{:?}", begun.elapsed());
        let end = sending.end();
        assert_eq!(count(&end.dropped, "refused"), 3 * item.entries, "{end:?}");
        assert_eq!(receiver.received().requests, 10);
    }
}

#[test]
fn a_receiver_that_hangs_is_left_and_asked_again_and_the_loop_never_waits() {
    for spoken in BOTH {
        let receiver = Receiver::start(spoken, None).expect("a port");
        receiver.received().answers.push_back(Answer::Hang);
        let sending = Sending::of(Signal::Traces, to(&receiver, spoken), &Sources::default(), quick());
        let item = items().next().expect("an item");
        let begun = Instant::now();
        for _ in 0..1000 {
            sending.queue.push(item.clone());
        }
        assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
        until(|| sending.now().waiting == 0 && sending.now().exported > 0);
        let end = sending.end();
        assert!(count(&end.failed, "timeout") >= 1, "{end:?}");
        assert_eq!(end.exported + all(&end.dropped), 1000 * item.entries);
        assert_eq!(receiver.received().problems, [""; 0]);
    }
}

#[test]
fn patience_ends_and_so_does_the_agent() {
    let (address, dir) = (nowhere().to_string(), Sources::default());
    let pace = Pace { patience: Duration::from_millis(300), ..quick() };
    let sending = Sending::of(Signal::Logs, target("http", &address, Spoken::Http), &dir, pace);
    let record = recorded::replay("demo.jsonl").records.into_iter().next().expect("a record");
    sending.queue.push(Item::of_record(record.clone()));
    until(|| count(&sending.now().dropped, "expired") == 1);
    drop(sending.end());
    let sending = Sending::of(Signal::Logs, target("http", &address, Spoken::Http), &dir, quick());
    for _ in 0..50 {
        sending.queue.push(Item::of_record(record.clone()));
    }
    until(|| count(&sending.now().failed, "connect") > 0);
    let begun = Instant::now();
    let end = sending.end();
    assert_eq!(count(&end.dropped, "ended"), 50, "{end:?}");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// The receiver closes an idle connection. The next request needs a new one, and no failure is counted.
#[test]
fn an_idle_connection_that_ended_is_no_failure() {
    for spoken in BOTH {
        let first = Receiver::start(spoken, None).expect("a port");
        let address = first.address();
        let sending = Sending::of(Signal::Traces, to(&first, spoken), &Sources::default(), quick());
        let item = items().next().expect("an item");
        sending.queue.push(item.clone());
        until(|| sending.now().exported == item.entries);
        drop(first);
        let second = Receiver::start_at(spoken, None, address).expect("the port is free");
        sending.queue.push(item.clone());
        until(|| sending.now().exported == 2 * item.entries);
        // The server is known to be a receiver now, so a connection that ends in the middle of a request is
        // lost.
        second.received().answers.push_back(Answer::Close);
        sending.queue.push(item.clone());
        until(|| sending.now().exported == 3 * item.entries);
        assert_eq!(all(&sending.now().failed), 0, "it was the idle connection, which is made again");
        let end = sending.end();
        assert_eq!((all(&end.failed), all(&end.dropped)), (0, 0), "{end:?}");
        assert_eq!(second.received().problems, [""; 0]);
    }
}
