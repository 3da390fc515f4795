//! Requests to the server: from the network, with and without rights, and over the socket.

use std::cell::OnceCell;

use probe_user::{recording::Reader, sink::serve::detached::DetachedServer};

use super::material::DEMO;

const TOKEN: &str = "0123456789abcdef";

const REQUESTS: [&str; 16] = [
    "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HEAD /metrics HTTP/1.1\r\nHost: 127.0.0.1:9477\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n",
    "GET /healthz HTTP/1.0\r\n\r\nGET /readyz HTTP/1.1\r\nHost: [::1]\r\n\r\n",
    "GET /v1/findings?kind=leaked_address&state=all&namespace=default&pod=report HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /v1/findings/leaked_address%2Fx HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /v1/pods HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "GET /v1/pools HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /v1/boot HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /v1/doctor HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /v1/state HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /v1/history HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /v1/events?since=1&follow=false&event=pod.gone HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /v1/events?since=a-b:7&container=main HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n",
    "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 9f3c6e1a-abc:3\r\n\r\n",
    "POST /v1/pods HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
];

/// The allowed answers. Nothing in this server can fail, and no client is slow.
const STATUSES: [&str; 9] = ["200", "400", "401", "404", "405", "413", "414", "421", "431"];

pub fn seeds() -> Vec<Vec<u8>> {
    REQUESTS.map(|request| request.as_bytes().to_vec()).to_vec()
}

thread_local! {
    static SERVER: OnceCell<DetachedServer> = const { OnceCell::new() };
}

pub fn run(bytes: &[u8]) {
    SERVER.with(|server| {
        let server = server.get_or_init(|| {
            DetachedServer::start(Reader::open(DEMO).expect("the demo"), TOKEN).expect("a server")
        });
        for answer in [server.over_network(bytes), server.over_socket(bytes)] {
            let Some(rest) = answer.strip_prefix(b"HTTP/1.") else {
                assert!(answer.is_empty(), "no response: {}", answer.escape_ascii());
                continue;
            };
            let status = rest.get(2..5).and_then(|status| str::from_utf8(status).ok());
            assert!(
                status.is_some_and(|status| STATUSES.contains(&status)),
                "a response of status {status:?} to {}",
                bytes.escape_ascii()
            );
        }
    });
}
