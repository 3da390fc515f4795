//! The log about a receiver that cannot be reached, or a server that is not one: what is wrong, and what to
//! do.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpListener,
    thread,
    time::Duration,
};

use bytes::Bytes;
use tokio::runtime;

use super::{
    Spoken, nowhere, protocol, quick,
    receiver::{Answer, Receiver},
    route, target, to, trusting,
};
use crate::sink::otlp::{
    client::Client,
    credentials::Sources,
    failure::{Failure, Reason},
    pace::Pace,
    signal::Signal,
    target::Target,
};

const BOTH: [Spoken; 2] = [Spoken::Grpc, Spoken::Http];

fn fail(target: Target, sources: &Sources, signal: Signal) -> Failure {
    let pace = Pace { deadline: Duration::from_secs(10), ..quick() };
    let route = route(target, sources, pace);
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let failed = runtime.block_on(async {
        let mut client = Client::new(route.target, signal, route.credentials);
        client.send(&Bytes::new(), &pace).await.expect_err("no receiver")
    });
    assert!(!failed.text.contains('\n'), "{failed}");
    failed
}

/// A server that answers each connection with these bytes and closes it.
fn server(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for stream in listener.incoming().take(4) {
            let mut stream = stream.expect("a connection");
            assert!(stream.read(&mut [0; 4096]).expect("a request") > 0);
            stream.write_all(answer).ok();
            // The client reads what was sent before the connection ends.
            stream.shutdown(std::net::Shutdown::Write).ok();
            io::copy(&mut stream, &mut io::sink()).ok();
        }
    });
    address
}

fn check(failed: &Failure, reason: Reason, told: &str) {
    assert_eq!(failed.reason, reason, "{failed}");
    assert!(failed.text.contains(told), "{failed}");
}

#[test]
fn nobody_at_the_address_is_told() {
    for spoken in BOTH {
        let address = nowhere().to_string();
        let failed = fail(target("http", &address, spoken), &Sources::default(), Signal::Traces);
        check(&failed, Reason::Connect, &format!("no connection to {address}: Connection refused"));
        check(&failed, Reason::Connect, "start the receiver or correct the URL");
        assert!(failed.is_passing);
        let failed = fail(target("http", "no..name:1", spoken), &Sources::default(), Signal::Traces);
        check(&failed, Reason::Resolve, "the name no..name has no address");
        assert!(failed.is_passing);
    }
}

#[test]
fn a_certificate_that_is_not_trusted_is_told() {
    for spoken in BOTH {
        let receiver = Receiver::start(spoken, Some(super::sending::acceptor())).expect("a port");
        let at = format!("127.0.0.1:{}", receiver.address().port());
        let stranger = Sources { ca: Some(super::file("other.pem")), ..Sources::default() };
        let failed = fail(target("https", &at, spoken), &stranger, Signal::Traces);
        check(&failed, Reason::Tls, "give its authority with --otlp-ca");
        // The receiver speaks no TLS.
        let plain = Receiver::start(spoken, None).expect("a port");
        let at = plain.address().to_string();
        let failed = fail(target("https", &at, spoken), &trusting(), Signal::Traces);
        assert!(matches!(failed.reason, Reason::Tls), "{failed}");
        // The receiver speaks TLS, and the agent does not.
        let at = receiver.address().to_string();
        let failed = fail(target("http", &at, spoken), &Sources::default(), Signal::Traces);
        check(&failed, Reason::Protocol, "no OTLP is spoken there");
    }
}

#[test]
fn the_other_protocol_s_port_is_told_with_what_to_do() {
    for (spoken, listens, todo) in [
        (Spoken::Grpc, Spoken::Http, "try --otlp-protocol http/protobuf (usually on port 4318)"),
        (Spoken::Http, Spoken::Grpc, "try --otlp-protocol grpc (usually on port 4317)"),
    ] {
        let receiver = Receiver::start(listens, None).expect("a port");
        let target = Target::new(
            format!("http://{}", receiver.address()).parse().expect("a URL"),
            Some(protocol(spoken)),
        );
        let failed = fail(target.expect("a receiver"), &Sources::default(), Signal::Traces);
        check(&failed, Reason::Protocol, todo);
        assert!(failed.is_passing);
    }
}

#[test]
fn a_server_that_is_no_receiver_is_told() {
    let page = server(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\n\r\nhello");
    let failed = fail(target("http", &page, Spoken::Http), &Sources::default(), Signal::Traces);
    check(&failed, Reason::Protocol, "no OTLP is spoken there: it answers 200 with \"text/html\"");
    let moved = server(b"HTTP/1.1 301 Moved\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n");
    let failed = fail(target("http", &moved, Spoken::Http), &Sources::default(), Signal::Traces);
    check(&failed, Reason::Refused, "it answers 301");
    let long =
        server(b"HTTP/1.1 500 No\r\ncontent-type: text/plain\r\ncontent-length: 9\r\n\r\nno\x1b[31m\n!");
    let failed = fail(target("http", &long, Spoken::Http), &Sources::default(), Signal::Traces);
    check(&failed, Reason::Refused, "it answers 500: no\\u{1b}[31m\\n!");
    let silent = server(b"");
    let failed = fail(target("http", &silent, Spoken::Http), &Sources::default(), Signal::Traces);
    check(&failed, Reason::Protocol, "no OTLP is spoken there: the connection ended");
}

#[test]
fn a_receiver_that_refuses_is_told_with_what_to_do() {
    for (spoken, code, signal, reason, told) in [
        (Spoken::Http, 401, Signal::Traces, Reason::Credentials, "--otlp-header-file"),
        (Spoken::Http, 403, Signal::Traces, Reason::Credentials, "--otlp-header-file"),
        (Spoken::Grpc, 7, Signal::Logs, Reason::Credentials, "--otlp-header-file"),
        (Spoken::Http, 404, Signal::Logs, Reason::NotFound, "send only traces (--otlp-signals)"),
        (Spoken::Grpc, 12, Signal::Traces, Reason::NotFound, "send only logs (--otlp-signals)"),
        (Spoken::Http, 503, Signal::Logs, Reason::Busy, "it answers 503"),
        (Spoken::Grpc, 14, Signal::Logs, Reason::Busy, "it answers Unavailable"),
        (Spoken::Grpc, 13, Signal::Logs, Reason::Refused, "it answers Internal"),
    ] {
        let receiver = Receiver::start(spoken, None).expect("a port");
        receiver.received().answers.push_back(Answer::Status(code, Vec::new()));
        let failed = fail(to(&receiver, spoken), &Sources::default(), signal);
        check(&failed, reason, told);
        assert_eq!(failed.is_passing, reason == Reason::Busy, "{failed}");
    }
}

/// A proxy may have no backend for a while, or cut an answer.
#[test]
fn what_a_proxy_does_is_tried_again() {
    for (answer, reason, told) in [
        (Answer::Page(503), Reason::Busy, "it answers Unavailable"),
        (Answer::Page(404), Reason::Protocol, "no OTLP is spoken there: it answers Unimplemented"),
        (Answer::Cut, Reason::Protocol, "missing grpc-status trailer"),
    ] {
        let receiver = Receiver::start(Spoken::Grpc, None).expect("a port");
        receiver.received().answers.push_back(answer);
        let failed = fail(to(&receiver, Spoken::Grpc), &Sources::default(), Signal::Traces);
        check(&failed, reason, told);
        assert!(failed.is_passing, "{failed}");
    }
}

/// Any server can refuse a request; only a receiver accepts one.
#[test]
fn a_connection_is_lost_only_to_one_that_has_taken_a_request() {
    for (first, reason) in [(Answer::Take, Reason::Lost), (Answer::Status(500, Vec::new()), Reason::Protocol)]
    {
        let receiver = Receiver::start(Spoken::Http, None).expect("a port");
        // If a kept connection is lost, it is made again once.
        receiver.received().answers.extend([first, Answer::Close, Answer::Close]);
        let route = route(to(&receiver, Spoken::Http), &Sources::default(), quick());
        let mut client = Client::new(route.target, Signal::Traces, route.credentials);
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let failed = runtime.block_on(async {
            client.send(&Bytes::new(), &quick()).await.ok();
            client.send(&Bytes::new(), &quick()).await.expect_err("it closes")
        });
        assert_eq!(failed.reason, reason, "{failed}");
    }
}

#[test]
fn details_that_are_no_base64_are_left_out() {
    let details = || vec![("grpc-status-details-bin", "!".to_owned())];
    for answer in [Answer::Status(14, details()), Answer::Trailers(14, details())] {
        let receiver = Receiver::start(Spoken::Grpc, None).expect("a port");
        receiver.received().answers.push_back(answer);
        let failed = fail(to(&receiver, Spoken::Grpc), &Sources::default(), Signal::Traces);
        check(&failed, Reason::Busy, "it answers Unavailable");
        assert!(failed.is_passing);
    }
}

#[test]
fn when_to_try_again_is_a_number_or_a_date() {
    let date = (jiff::Timestamp::now() + Duration::from_secs(90)).to_zoned(jiff::tz::TimeZone::UTC);
    let date = jiff::fmt::rfc2822::DateTimePrinter::new()
        .timestamp_to_rfc9110_string(&date.timestamp())
        .expect("a date");
    let most = u64::MAX.to_string();
    for (text, least, most) in [("7", 7, 7), (&*date, 85, 90), (&*most, u64::MAX, u64::MAX)] {
        let receiver = Receiver::start(Spoken::Http, None).expect("a port");
        let answer = Answer::Status(503, vec![("retry-after", text.to_owned())]);
        receiver.received().answers.push_back(answer);
        let failed = fail(to(&receiver, Spoken::Http), &Sources::default(), Signal::Traces);
        let wait = failed.wait.expect(text).as_secs();
        assert!((least..=most).contains(&wait), "{text}: {wait}");
    }
}
