//! Requests to an overloaded API server.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use serde_json::json;
use tokio::time::Instant;

use super::{
    Answer, Events, Planned,
    plan::{EventAction, Ledger, Object, Step},
};
use crate::{
    api_server::{
        ApiServer,
        access::{Access, Login},
        link::Link,
        rest::Rest,
        stats::KubernetesStats,
        token::TokenFile,
    },
    endpoint::pem::PemSource,
    model::{
        finding::{FindingKind, Key, Revision},
        time::Timestamp,
    },
    sink::select::rate::Rate,
};

/// Starts a server that gives this answer to every request.
fn start(status: &'static str, header: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    // The thread ends with the tests.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client");
            read(&stream);
            count.fetch_add(1, Ordering::SeqCst);
            let body = "Too many requests, please try again later.\n";
            let head =
                format!("HTTP/1.1 {status}\r\n{header}Connection: close\r\nContent-Length: {}", body.len());
            write!(stream, "{head}\r\n\r\n{body}").expect("it listens");
        }
    });
    (address, asked)
}

/// Reads a request, and returns its head.
fn read(stream: &TcpStream) -> String {
    let (mut reader, mut length) = (BufReader::new(stream), 0);
    let mut line = String::new();
    let mut head = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        let value = line.to_ascii_lowercase().strip_prefix("content-length:").map(|it| it.trim().to_owned());
        length = value.map_or(length, |value| value.parse().expect("a number"));
        head.push_str(&line);
        line.clear();
    }
    reader.take(length).read_to_end(&mut Vec::new()).expect("a body");
    head
}

fn server(address: SocketAddr) -> ApiServer {
    let url = format!("http://{address}").parse().expect("a URL");
    ApiServer::new(Access::new(url), Rest::default(), Arc::new(KubernetesStats::default()))
}

fn step(number: usize, action: EventAction) -> Step {
    let key = Key::parse(&format!("leaked_address/net/10.0.0.{number}")).expect("a key");
    Step::new((Object::Node, key), FindingKind::LeakedAddress, "it leaked".to_owned(), action)
}

fn events(steps: impl Iterator<Item = Step>) -> Events {
    let steps = steps.collect();
    Events {
        ledger: Ledger::default(),
        store: None,
        is_kept: true,
        begins: Rate::new(super::RATE),
        ends: Rate::new(super::RATE),
        link: Link::new("Events", "written to", String::new()),
        planned: Some(Planned { revision: Revision::default(), at: Instant::now(), steps, withheld: 0 }),
    }
}

/// Tries to report three findings.
async fn tell(server: &mut ApiServer) -> usize {
    events((0..3).map(|number| step(number, EventAction::Begin)))
        .go_on(server, "node-1", Timestamp::ZERO)
        .await
}

/// The token and the certificates are read again each minute, and after a failure.
#[tokio::test]
async fn a_request_has_the_token_that_the_file_has_now() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("token");
    fs::write(&path, "first").expect("a file");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (sender, heads) = mpsc::channel();
    // The thread ends with the tests.
    thread::spawn(move || {
        let answers =
            [("200 OK", "{}"), ("200 OK", "{}"), ("200 OK", "{}"), ("500 No", "no"), ("200 OK", "{}")];
        for ((status, body), stream) in answers.into_iter().zip(listener.incoming()) {
            let mut stream = stream.expect("a client");
            sender.send(read(&stream)).expect("the test runs");
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            )
            .expect("it listens");
        }
    });
    let url = format!("http://{address}/k8s/").parse().expect("a URL");
    let login = Login::TokenFile(TokenFile::open(path.clone()).expect("a token"));
    let mut server = ApiServer::new(
        Access { login, ..Access::new(url) },
        Rest::default(),
        Arc::new(KubernetesStats::default()),
    );
    for (token, later, wanted) in [
        ("first", 0, "first"),
        ("second", 0, "first"),
        ("second", 61, "second"),
        // This one fails, so the next one reads the file.
        ("third", 0, "second"),
        ("third", 0, "third"),
    ] {
        fs::write(&path, token).expect("a file");
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(later)).await;
        tokio::time::resume();
        server.create::<Answer>("/api/v1/namespaces/a/events", &json!({})).await.ok();
        let head = heads.recv().expect("a request");
        assert!(head.starts_with("POST /k8s/api/v1/namespaces/a/events?fieldManager=sandprobe "), "{head}");
        assert!(head.contains(&format!("authorization: Bearer {wanted}\r\n")), "{head}");
    }
}

/// The old certificates are used on, and whoever does not accept them hears of it in the log.
#[tokio::test]
async fn certificates_that_cannot_be_read_again_are_named_where_the_agent_is_not_accepted() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("ca.pem");
    let pem = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sink/serve/tls/ca.pem");
    fs::copy(pem, &path).expect("a file");
    let (address, _) = start("401 Unauthorized", "");
    let url = format!("http://{address}").parse().expect("a URL");
    let access = Access { authority: Some(PemSource::File(path.clone())), ..Access::new(url) };
    let mut server = ApiServer::new(access, Rest::default(), Arc::new(KubernetesStats::default()));
    let mut said = async || server.get::<Answer>("/apis").await.err().map(|why| why.to_string());
    let before = said().await.expect("it is refused");
    fs::remove_file(&path).expect("a file");
    let name = path.display();
    let why = "No such file or directory (os error 2)";
    let expected = format!("{before}; cannot read a certificate authority in {name}: {why}");
    assert_eq!(said().await, Some(expected));
}

#[tokio::test]
async fn ends_have_their_own_rate_and_delay_no_begin() {
    let (address, asked) = start("422 Unprocessable Entity", "");
    let mut server = server(address);
    let mut events = events(
        (0..50).map(|n| step(n, EventAction::End)).chain((50..53).map(|n| step(n, EventAction::Begin))),
    );
    let rate = usize::try_from(super::RATE.get()).expect("a small number");
    let mut before = 0;
    for (second, wanted) in [(0, rate + 3), (1, 0), (7, 1), (120, rate)] {
        let waiting = events.go_on(&mut server, "node-1", Timestamp(second * 1_000_000_000)).await;
        let asked = asked.load(Ordering::SeqCst);
        assert_eq!((asked - before, waiting), (wanted, 0), "after {second} s");
        before = asked;
    }
}

#[tokio::test]
async fn a_server_that_asks_to_be_left_alone_is() {
    for (status, header, asked_times) in [
        ("429 Too Many Requests", "Retry-After: 30\r\n", 1),
        ("503 Service Unavailable", "Retry-After: 30\r\n", 1),
        // Without `Retry-After`, or with another status, the server gets a request for each finding.
        ("429 Too Many Requests", "", 3),
        ("500 Internal Server Error", "Retry-After: 30\r\n", 3),
    ] {
        let (address, asked) = start(status, header);
        let mut server = server(address);
        assert!(server.may_be_asked());
        let waiting = tell(&mut server).await;
        let left_alone = asked_times == 1;
        assert_eq!(
            (asked.load(Ordering::SeqCst), waiting, !server.may_be_asked()),
            (asked_times, 3, left_alone),
            "{status} {header}"
        );
    }
}

#[tokio::test]
async fn it_is_left_alone_as_long_as_it_asks_within_bounds() {
    for (header, least, most) in [
        ("Retry-After: 30\r\n", 29, 38),
        ("Retry-After: 18446744073709551615\r\n", 299, 376),
        ("Retry-After: Thu, 01 Jan 1970 00:00:00 GMT\r\n", 0, 0),
        ("Retry-After: soon\r\n", 0, 0),
    ] {
        let (address, _) = start("429 Too Many Requests", header);
        let mut server = server(address);
        tell(&mut server).await;
        tokio::time::pause();
        let begin = Instant::now();
        while !server.may_be_asked() {
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let rested = begin.elapsed().as_secs();
        assert!((least..=most).contains(&rested), "{header} {rested} s");
        tokio::time::resume();
    }
}
