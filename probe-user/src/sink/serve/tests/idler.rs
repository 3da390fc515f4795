//! Clients that do not read their responses, or send nothing.

use std::{sync::Arc, time::Duration};

use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
    net,
    sync::watch,
    time::{Instant, timeout},
};

use super::{Bench, NETWORK, PATIENCE, block_on, seat};
use crate::sink::serve::{
    ConnectionContext, HANDSHAKE, connection,
    guard::{Guard, Peer},
    over_tcp,
    seats::{Limits, Seats},
    tls,
};

#[test]
fn a_client_that_reads_nothing_is_disconnected() {
    block_on(async {
        let mut bench = Bench::new();
        bench.limits.stall = Duration::from_millis(50);
        let (mut client, server) = duplex(64);
        let (app, guard) = (Arc::clone(&bench.app), Arc::new(Guard::default()));
        let served = tokio::spawn(connection::serve(server, app, guard, (NETWORK, seat()), bench.limits));
        client.write_all(b"GET /v1/events?since=0 HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("it listens");
        timeout(PATIENCE, served).await.expect("it ends").expect("no panic");
        drop(client);
    });
}

/// Findings that fill a response of some megabytes, and clients that request it and read nothing.
#[test]
fn unread_responses_have_a_budget() {
    block_on(async {
        let bench = Bench::with_many_findings();
        let large = bench.get("/v1/findings?state=all").await;
        let fits = (16 << 20) / large.body.len();
        assert!((1..20).contains(&fits), "{} bytes", large.body.len());
        let mut clients = Vec::new();
        for _ in 0..fits {
            let mut client = bench.connect(NETWORK);
            let request = b"GET /v1/findings?state=all HTTP/1.1\r\nHost: localhost\r\n\r\n";
            client.write_all(request).await.expect("it listens");
            let mut begun = [0; 15];
            client.read_exact(&mut begun).await.expect("readable");
            assert_eq!(&begun, b"HTTP/1.1 200 OK");
            clients.push(client);
        }
        let refused = bench.get("/v1/findings?state=all").await;
        assert_eq!(refused.status, 503, "{}", refused.head);
        assert!(refused.text().contains("do not take it"), "{}", refused.text());
        // Small responses, the page, and clients of the socket need no budget.
        for path in ["/healthz", "/readyz", "/app.js", "/v1/openapi.json"] {
            assert_eq!(bench.get(path).await.status, 200, "{path}");
        }
        let request = b"GET /v1/findings?state=all HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let told = bench.send(Peer::Socket, request).await;
        assert_eq!((told.status, told.body.len()), (200, large.body.len()));
        clients.pop();
        let again = async {
            while bench.get("/v1/findings?state=all").await.status != 200 {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, again).await.expect("there is room again");
    });
}

/// Reading a byte now and then must not keep a response alive.
#[test]
fn a_client_that_reads_a_byte_now_and_then_is_disconnected() {
    block_on(async {
        let mut bench = Bench::new();
        bench.limits.stall = Duration::from_millis(200);
        let (mut client, server) = duplex(64);
        let (app, guard) = (Arc::clone(&bench.app), Arc::new(Guard::default()));
        let served = tokio::spawn(connection::serve(server, app, guard, (NETWORK, seat()), bench.limits));
        client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("it listens");
        let trickle = async {
            while client.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let (left, ()) = tokio::join!(timeout(PATIENCE, served), trickle);
        left.expect("it ends").expect("no panic");
    });
}

/// A client that sends nothing, or a part of a handshake, keeps its seat only for the time of a handshake.
#[test]
fn clients_without_a_handshake_are_limited_and_disconnected() {
    const MOST: usize = 8;
    block_on(async {
        let bench = Bench::new();
        let (certificate, key) = (tls::tests::file("server.pem"), tls::tests::file("server.key"));
        let files = tls::Files { certificate: &certificate, key: &key, client_authority: None };
        let loaded = tls::load(files).expect("good files");
        let listener = net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (busy, _idle) = watch::channel(());
        let (app, guard) = (Arc::clone(&bench.app), Arc::new(Guard::default()));
        let seats =
            Seats::new(Limits { total: MOST, reserved: 0, per_address: MOST, ..crate::sink::serve::NETWORK });
        tokio::spawn(over_tcp(
            listener,
            Some(tls::Tls::new(loaded)),
            seats,
            ConnectionContext { app, guard, busy },
        ));
        let started = Instant::now();
        let mut silent = Vec::new();
        for n in 0..MOST {
            let mut client = net::TcpStream::connect(address).await.expect("it listens");
            // The head of a handshake record of 16 KiB, without its content.
            let begun: &[u8] = if n.is_multiple_of(2) { b"" } else { b"\x16\x03\x01\x40\x00" };
            client.write_all(begun).await.expect("it listens");
            silent.push(client);
        }
        let mut rest = Vec::new();
        silent.push(net::TcpStream::connect(address).await.expect("it listens"));
        // Closed or reset.
        timeout(PATIENCE, silent.remove(0).read_to_end(&mut rest)).await.expect("it ends").ok();
        assert!(started.elapsed() < HANDSHAKE, "for one too many the first goes at once");
        for mut client in silent {
            timeout(PATIENCE, client.read_to_end(&mut rest)).await.expect("it ends").ok();
        }
        assert!(started.elapsed() >= HANDSHAKE, "they had their time");
        let good = async {
            let name = ServerName::try_from("localhost").expect("a name");
            let stream = net::TcpStream::connect(address).await?;
            let mut stream = tls::tests::connector(None).connect(name, stream).await?;
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                .await?;
            let mut begun = [0; 15];
            stream.read_exact(&mut begun).await.map(|_| begun)
        };
        let begun = timeout(PATIENCE, good).await.expect("an answer").expect("there is room again");
        assert_eq!(&begun, b"HTTP/1.1 200 OK");
    });
}

/// Requests `/healthz` from this loopback address; returns how long the response took.
async fn probed(address: std::net::SocketAddr, from: [u8; 4]) -> std::io::Result<Duration> {
    let socket = net::TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let started = Instant::now();
    let mut stream = socket.connect(address).await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut begun = [0; 15];
    stream.read_exact(&mut begun).await?;
    assert_eq!(&begun, b"HTTP/1.1 200 OK");
    Ok(started.elapsed())
}

/// The kubelet's probes are answered, whoever else connects and sends nothing.
#[test]
fn connections_that_say_nothing_keep_no_probe_out() {
    block_on(async {
        let bench = Bench::new();
        let listener = net::TcpListener::bind("0.0.0.0:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], address.port()));
        let (busy, _idle) = watch::channel(());
        let (app, guard) = (Arc::clone(&bench.app), Arc::new(Guard::default()));
        tokio::spawn(over_tcp(
            listener,
            None,
            Seats::new(crate::sink::serve::NETWORK),
            ConnectionContext { app, guard, busy },
        ));
        let mut silent = Vec::new();
        for n in 0..600_u16 {
            let socket = net::TcpSocket::new_v4().expect("a socket");
            // The first 300 from one address, the others from many.
            let last = if n < 300 { 2 } else { 3 + u8::try_from(n % 100).expect("small") };
            socket.bind(([127, 0, 0, last], 0).into()).expect("an address");
            silent.push(
                timeout(PATIENCE, socket.connect(address)).await.expect("in time").expect("it listens"),
            );
            if n == 299 || n == 599 {
                for from in [[127, 0, 0, 1], [127, 0, 0, 200], [127, 0, 0, 2]] {
                    let took = timeout(PATIENCE, probed(address, from)).await.expect("in time");
                    let took = took.unwrap_or_else(|why| panic!("{n} {from:?}: {why}"));
                    assert!(took < Duration::from_millis(50), "{n} {from:?}: {took:?}");
                }
            }
        }
    });
}
