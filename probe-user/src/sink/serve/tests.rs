//! Responses, permissions and limits, over in-memory streams, with the demo's recording as the node.

mod degraded;
mod follower;
mod head;
mod idler;
mod verdict;

use std::{fs::File, io::BufReader, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    runtime,
    sync::watch,
    time::{Instant, timeout},
};

use super::{
    app_state::{AppState, ServerConfig},
    connection::{self, Limits},
    guard::{Guard, Peer, Token},
    openapi::DOCUMENT,
    ring::{Ring, tests as rings},
    route::ROUTES,
    seats::{self, Seat, Seats},
};
use crate::{
    engine::{Call, Engine},
    model::{
        change::{ChangeKind, Output},
        fact::{Bound, Fact, Loss, Observation, Origin, Store, StoreKind, StoreRead},
        time::Timestamp,
    },
    recording::{Reader, history::History},
    sink::{
        Label, Sink as _,
        metrics::{Metrics, agent_stats::Process},
        net::loop_queue::{AgentView, queue},
        render::{
            doctor::{Check, Grade, Report, Row},
            jsonl::schema::tests as schema,
        },
        state::state_writes::StateWrites,
        stream::StreamTrouble,
    },
};

const NETWORK: Peer = Peer::Network { has_certificate: false, is_loopback: false };
/// Longer than any step of these tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server without listeners.
struct Bench {
    app: Arc<AppState>,
    guard: Guard,
    limits: Limits,
    ring: Arc<Ring>,
    end: watch::Sender<bool>,
}

/// A response.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn lines(&self) -> Vec<Value> {
        let lines = self.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect()
    }

    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text")
    }
}

impl Bench {
    /// Must be called within a tokio runtime.
    fn new() -> Self {
        Self::seeing("exec", Some("raw tracepoint"))
    }

    /// A server for a node with a thousand findings, each with a long text.
    fn with_many_findings() -> Self {
        let unread = |n: u32| {
            let path = format!("/{n}/{}", "x".repeat(1000));
            let store = Store { kind: StoreKind::Declared, path, network: None, bound: Bound::Sandbox };
            Fact::StoreRead(StoreRead { store, reservations: Vec::new(), complete: false })
        };
        Self::told("exec", Some("raw tracepoint"), (0..1000).map(unread).collect())
    }

    /// A server whose only signal is seen in this way.
    fn seeing(signal: &'static str, mechanism: Option<&'static str>) -> Self {
        Self::told(signal, mechanism, Vec::new())
    }

    /// Like `seeing`, with `last` as the node's last facts.
    fn told(signal: &'static str, mechanism: Option<&'static str>, last: Vec<Fact>) -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/recordings/demo.jsonl");
        let mut reader =
            Reader::open(BufReader::new(File::open(path).expect("the recording"))).expect("a recording");
        let header = reader.header().clone();
        let label = Label {
            node: header.node.clone(),
            boot_id: header.boot_id.clone(),
            boot_wall_ns: header.boot_wall_ns,
        };
        let mut ring = Arc::new(Ring::default());
        let metrics = Metrics::new(&[]);
        let mut engine = Engine::new(header.settings.clone());
        let mut now = Timestamp::ZERO;
        while let Some(call) = reader.next_call().expect("a call") {
            if let Call::Observe(seen) = &call {
                now = now.max(seen.at);
            }
            engine.call(call);
            while let Some(output) = engine.poll() {
                if let Output::Change(change) = output {
                    metrics.count(&change);
                    ring.on_change(&change, &label);
                }
            }
        }
        for fact in last {
            engine.observe(Observation { at: now, origin: Origin::Listed, fact });
        }
        engine.advance(now + Duration::from_secs(1));
        while engine.poll().is_some() {}
        let row = Row {
            signal,
            grade: mechanism.map_or(Grade::Degraded, |_| Grade::Full),
            mechanism,
            programs: vec!["exec"],
            note: String::new(),
            lacks: if mechanism.is_some() { String::new() } else { "CAP_EXAMPLE".to_owned() },
            missed: Vec::new(),
        };
        let config = ServerConfig {
            header,
            since: Timestamp(0xabc),
            report: Report {
                checks: vec![Check::full("hooks", "attached")],
                cure: (!row.lacks.is_empty()).then(|| "ask for it".to_owned()),
                signals: vec![row],
            },
            past: History::default(),
            ring: Arc::clone(&ring),
            metrics,
            state_writes: StateWrites::default(),
            stream_trouble: StreamTrouble::default(),
        };
        let (client, mut requests) = queue();
        let (end, ending) = watch::channel(false);
        let app = Arc::new(AppState::new(config, &client, ending));
        tokio::spawn(async move {
            loop {
                let request = requests.next().await;
                let cpu = Duration::from_micros(4);
                let process = Process {
                    cpu,
                    resident: 7 << 20,
                    threads: 5,
                    capabilities: 1 << 39,
                    ..Process::default()
                };
                request(&AgentView {
                    engine: &engine,
                    label: &label,
                    now,
                    has_listed: true,
                    measure: &|| {},
                    process: &|| Some(process),
                    netns_limit: Some(1000),
                });
            }
        });
        Self { app, guard: Guard::default(), limits: Limits::default(), ring, end }
    }

    fn connect(&self, peer: Peer) -> DuplexStream {
        let (client, server) = duplex(64 << 10);
        let (app, guard) = (Arc::clone(&self.app), Arc::new(self.guard.clone()));
        tokio::spawn(connection::serve(server, app, guard, (peer, seat()), self.limits));
        client
    }

    async fn send(&self, peer: Peer, request: &[u8]) -> Answer {
        let mut client = self.connect(peer);
        client.write_all(request).await.expect("it listens");
        read(&mut client).await
    }

    async fn get(&self, path: &str) -> Answer {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        self.send(NETWORK, request.as_bytes()).await
    }
}

/// A seat of a small table.
fn seat() -> Seat {
    Seats::new(seats::Limits::ONE).take(seats::Origin::SOCKET).expect("it is the first").0
}

/// Reads until the server closes.
async fn read(client: &mut DuplexStream) -> Answer {
    let mut bytes = Vec::new();
    timeout(PATIENCE, client.read_to_end(&mut bytes)).await.expect("it ends").expect("readable");
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(bytes[..end].to_vec()).expect("text").to_lowercase();
    let mut body = bytes.split_off(end + 4);
    if head.contains("transfer-encoding: chunked") {
        body = unchunked(&body);
    }
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head, body }
}

/// Decodes a chunked body (RFC 9112, section 7.1).
fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size = str::from_utf8(&bytes[..end]).expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a size");
        body.extend(&bytes[end + 2..][..size]);
        bytes = &bytes[end + 2 + size + 2..];
    }
    body
}

fn block_on(test: impl Future<Output = ()>) {
    runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test);
}

#[test]
fn each_request_has_its_status_and_nothing_may_be_framed_sniffed_or_kept() {
    block_on(async {
        let bench = Bench::new();
        let cases: [(&str, u16, &str); 20] = [
            ("GET / HTTP/1.1\r\n", 200, "text/html"),
            ("GET /app.js HTTP/1.1\r\n", 200, "text/javascript"),
            ("GET /healthz HTTP/1.1\r\n", 200, "text/plain"),
            ("GET /metrics HTTP/1.1\r\n", 200, "text/plain; version=0.0.4"),
            ("HEAD /v1/findings HTTP/1.1\r\n", 200, "application/json"),
            ("GET /v1/findings?kind=leaked_address&state=all HTTP/1.1\r\n", 200, "application/json"),
            ("GET /v1/findings?kind=leak HTTP/1.1\r\n", 400, "application/json"),
            ("GET /v1/findings?state=wrong HTTP/1.1\r\n", 400, "application/json"),
            ("GET /v1/pods?pod=x HTTP/1.1\r\n", 400, "application/json"),
            ("GET /v1/events?since=x HTTP/1.1\r\n", 400, "application/json"),
            ("GET /v1/findings/nothing HTTP/1.1\r\n", 404, "application/json"),
            ("GET /v1/findings/ HTTP/1.1\r\n", 404, "application/json"),
            ("GET /v1 HTTP/1.1\r\n", 404, "application/json"),
            ("GET /../etc/passwd HTTP/1.1\r\n", 404, "application/json"),
            ("POST /v1/findings HTTP/1.1\r\n", 405, "application/json"),
            ("DELETE / HTTP/1.1\r\n", 405, "application/json"),
            ("POST / HTTP/1.1\r\nContent-Length: 5\r\n", 405, "application/json"),
            ("PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", 405, "application/json"),
            ("GET / HTTP/1.1\r\nContent-Length: 5\r\n", 413, "application/json"),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", 413, "application/json"),
        ];
        for (request, status, kind) in cases {
            let whole = format!("{request}Host: localhost\r\nConnection: close\r\n\r\n");
            let answer = bench.send(NETWORK, whole.as_bytes()).await;
            assert_eq!(answer.status, status, "{request}: {}", answer.head);
            for header in [
                &format!("content-type: {kind}"),
                "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'",
                "x-content-type-options: nosniff",
                "cache-control: no-store",
            ] {
                assert!(answer.head.contains(header), "{request}: no {header} in {}", answer.head);
            }
            if request.starts_with("HEAD") {
                assert!(answer.body.is_empty(), "{answer:?}");
            } else if status >= 400 {
                let error = answer.json()["error"].as_str().expect("a sentence").to_owned();
                assert!(!error.is_empty() && !error.contains('\n'), "{error}");
            }
        }
    });
}

#[test]
fn heads_are_bounded_in_size_and_time() {
    block_on(async {
        let mut bench = Bench::new();
        let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nx: {}\r\n\r\n", "y".repeat(64 << 10));
        let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "x: y\r\n".repeat(200));
        let path = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "y".repeat(64 << 10));
        for request in [long, many, path] {
            let mut client = bench.connect(NETWORK);
            // The server may close before everything is written.
            client.write_all(request.as_bytes()).await.ok();
            let answer = read(&mut client).await;
            assert!(matches!(answer.status, 414 | 431), "{answer:?}");
        }
        bench.limits.head = Duration::from_millis(50);
        for begun in ["", "GET / HT", "GET / HTTP/1.1\r\nHost: localhost\r\n"] {
            let mut client = bench.connect(NETWORK);
            client.write_all(begun.as_bytes()).await.expect("it listens");
            let started = Instant::now();
            let mut rest = Vec::new();
            timeout(PATIENCE, client.read_to_end(&mut rest)).await.expect("it ends").expect("readable");
            assert!(started.elapsed() >= Duration::from_millis(40), "{begun:?}");
        }
        // A connection without another request is closed too.
        let mut client = bench.connect(NETWORK);
        client.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("it listens");
        assert_eq!(read(&mut client).await.status, 200);
    });
}

#[test]
fn a_token_is_asked_for_but_not_by_probes_and_not_on_the_socket() {
    block_on(async {
        let mut bench = Bench::new();
        bench.guard.token = Some(Token::new("0123456789abcdef").expect("a token"));
        let ask = async |peer, path, header: &str| {
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\n{header}\r\n");
            bench.send(peer, request.as_bytes()).await
        };
        let refused = ask(NETWORK, "/v1/pods", "").await;
        assert_eq!(refused.status, 401);
        assert!(refused.head.contains("www-authenticate: bearer"), "{}", refused.head);
        for path in ["/v1/events", "/metrics", "/v1/state", "/v1/history", "/v1/openapi.json"] {
            assert_eq!(ask(NETWORK, path, "Authorization: Bearer wrong\r\n").await.status, 401, "{path}");
        }
        assert_eq!(ask(NETWORK, "/v1/pods", "Authorization: Bearer 0123456789abcdef\r\n").await.status, 200);
        for path in ["/healthz", "/readyz", "/", "/app.js", "/style.css"] {
            assert_eq!(ask(NETWORK, path, "").await.status, 200, "{path}");
        }
        assert_eq!(ask(Peer::Socket, "/v1/pods", "").await.status, 200);
        bench.guard = Guard { own_names_only: true, ..Guard::default() };
        assert_eq!(bench.get("/v1/pods").await.status, 200);
        let foreign = b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
        assert_eq!(bench.send(NETWORK, foreign).await.status, 421);
    });
}

#[test]
fn findings_are_chosen_and_explained() {
    block_on(async {
        let bench = Bench::new();
        let keys = |answer: &Answer| -> Vec<String> {
            let findings = answer.json()["findings"].as_array().expect("a list").clone();
            findings.iter().map(|it| it["key"].as_str().expect("a key").to_owned()).collect()
        };
        let all = keys(&bench.get("/v1/findings?state=all").await);
        let leaks = keys(&bench.get("/v1/findings?kind=leaked_address").await);
        assert!(leaks.len() == 1 && all.len() > 1, "{all:?}");
        assert_eq!(
            keys(&bench.get("/v1/findings?namespace=default&pod=report&kind=leaked_address").await),
            leaks
        );
        assert_eq!(keys(&bench.get("/v1/findings?namespace=elsewhere").await), [""; 0]);
        // The key as it is, and with every byte escaped.
        let escaped: String = leaks[0].bytes().map(|byte| format!("%{byte:02X}")).collect();
        for key in [&leaks[0], &escaped] {
            let one = bench.get(&format!("/v1/findings/{key}")).await.json();
            assert_eq!(one["key"], leaks[0].as_str());
            assert!(one["evidence"].as_array().is_some_and(|it| !it.is_empty()), "{one}");
        }
        assert_eq!(bench.get("/v1/findings/a").await.status, 400, "many have that in their key");
    });
}

#[test]
fn a_stream_goes_on_where_it_was_or_says_what_is_missing() {
    block_on(async {
        let mut bench = Bench::new();
        let instance = bench.app.instance.clone();
        let newest = bench.ring.newest();
        let whole = bench.get("/v1/events?since=0&follow=false").await.lines();
        assert_eq!(whole[0]["event"], "stream.opened");
        assert_eq!(whole[0]["stream"]["since"], format!("{instance}:0"));
        let seqs: Vec<u64> = whole[1..].iter().map(|it| it["seq"].as_u64().expect("a number")).collect();
        assert_eq!(seqs, (1..=newest).collect::<Vec<_>>());
        let rest =
            bench.get(&format!("/v1/events?since={instance}:{}&follow=false", newest - 3)).await.lines();
        assert_eq!(rest[1..], whole[whole.len() - 3..]);
        // A number of another run, and one that does not exist yet.
        for since in ["00000000-1:5".to_owned(), format!("{}", newest + 1)] {
            let other = bench.get(&format!("/v1/events?since={since}&follow=false")).await.lines();
            assert_eq!(other[1]["stream"]["why"], "other_run", "{since}");
            assert_eq!(other[1]["stream"].get("missed"), None);
            assert_eq!(other[2..], whole[1..]);
        }
        let only = bench.get("/v1/events?since=0&follow=false&event=finding.confirmed").await.lines();
        assert!(only.len() > 1 && only[1..].iter().all(|it| it["event"] == "finding.confirmed"), "{only:?}");
        // The client was away for longer than the ring reaches back.
        for seq in 1..=9000 {
            bench
                .ring
                .on_change(&rings::change(newest + seq, "x", ChangeKind::CgroupEmptied), &rings::label());
        }
        let late = bench.get(&format!("/v1/events?since={newest}&follow=false")).await.lines();
        assert_eq!((&late[1]["event"], &late[1]["stream"]["why"]), (&"stream.missed".into(), &"late".into()));
        let missed: u64 = late[1]["stream"]["missed"].as_str().expect("a number").parse().expect("a number");
        assert_eq!(late[2]["seq"].as_u64(), Some(newest + missed + 1));
        assert_eq!(late[1]["stream"]["since"], format!("{instance}:{}", newest + missed));
        assert_eq!(late.len() as u64, 2 + 9000 - missed);
    });
}

#[test]
fn server_sent_events_have_the_place_as_their_id() {
    block_on(async {
        let bench = Bench::new();
        let instance = &bench.app.instance;
        let newest = bench.ring.newest();
        // A browser's last position takes precedence over the one with which the page began.
        let request = format!(
            "GET /v1/events?since=0&follow=false HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\
             Last-Event-ID: {instance}:{}\r\nConnection: close\r\n\r\n",
            newest - 1
        );
        let answer = bench.send(NETWORK, request.as_bytes()).await;
        assert!(answer.head.contains("content-type: text/event-stream"), "{}", answer.head);
        let text = answer.text();
        let events: Vec<&str> = text.split_terminator("\n\n").collect();
        assert_eq!(events.len(), 2, "{text}");
        let (id, data) = events[1].split_once('\n').expect("two lines");
        assert_eq!(id, format!("id: {instance}:{newest}"));
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").expect("data")).expect("JSON");
        assert_eq!(data["seq"].as_u64(), Some(newest));
    });
}

#[test]
fn a_follower_gets_each_event_and_the_end() {
    block_on(async {
        let mut bench = Bench::new();
        let newest = bench.ring.newest();
        let mut client = bench.connect(NETWORK);
        client
            .write_all(b"GET /v1/events?pod=x HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await
            .expect("it listens");
        let mut seen = Vec::new();
        let mut until = async |word: &str| {
            let found = async {
                while !String::from_utf8_lossy(&seen).contains(word) {
                    client.read_buf(&mut seen).await.expect("readable");
                }
            };
            timeout(PATIENCE, found).await.unwrap_or_else(|_late| panic!("no {word}"));
        };
        until("stream.opened").await;
        for (seq, pod) in [(1, "x"), (2, "y"), (3, "x")] {
            bench
                .ring
                .on_change(&rings::change(newest + seq, pod, ChangeKind::CgroupEmptied), &rings::label());
        }
        until(&format!("\"seq\":{},", newest + 3)).await;
        bench.end.send_replace(true);
        let ended = timeout(PATIENCE, client.read_to_end(&mut seen)).await.expect("it ends");
        ended.expect("readable");
        let text = String::from_utf8(seen).expect("text");
        assert!(!text.contains(&format!("\"seq\":{},", newest + 2)), "{text}");
        assert!(text.ends_with("0\r\n\r\n"), "the last chunk is told: {text}");
    });
}

#[test]
fn an_agent_that_sees_all_and_loses_nothing_is_ready() {
    block_on(async {
        let mut bench = Bench::new();
        assert_eq!(bench.get("/readyz").await.status, 200);
        let now = bench.app.views.health.get().await.expect("an answer").now;
        let gap = ChangeKind::Gap { what: Loss::LifecycleRing, count: 1, lasted: None };
        bench.ring.on_change(
            &crate::model::change::Change { at: now, ..rings::change(bench.ring.newest() + 1, "x", gap) },
            &rings::label(),
        );
        let lost = bench.get("/readyz").await;
        assert_eq!((lost.status, &*lost.text()), (503, "records were lost in the last minute\n"));
        let agent = &bench.get("/v1/doctor").await.json()["agent"];
        assert_eq!(agent["ready"], false);
        assert_eq!(agent["capabilities"], serde_json::json!(["bpf"]));
        let cost = serde_json::json!({ "cpu_ns": "4000", "rss_bytes": "7340032", "threads": 5 });
        assert_eq!(agent["cost"], cost);
        // The agent is alive anyway.
        assert_eq!(bench.get("/healthz").await.status, 200);
    });
}

#[test]
fn an_agent_that_does_not_see_a_signal_is_not_ready() {
    block_on(async {
        let blind = Bench::seeing("exec", None).get("/readyz").await;
        let said =
            "exec is not seen: no hook for it is attached; it needs CAP_EXAMPLE\nto see more: ask for it\n";
        assert_eq!((blind.status, &*blind.text()), (503, said));
        // No finding depends on this signal.
        assert_eq!(Bench::seeing("listening", None).get("/readyz").await.status, 200);
    });
}

#[test]
fn every_path_is_described_and_answers_are_as_described() {
    block_on(async {
        let document: Value = serde_json::from_str(&DOCUMENT).expect("JSON");
        let described: Vec<&str> =
            document["paths"].as_object().expect("paths").keys().map(String::as_str).collect();
        // The files that the page loads are listed by the page itself.
        let mut served: Vec<&str> = ROUTES.iter().map(|(path, _)| *path).chain(["/"]).collect();
        served.sort_unstable();
        let mut sorted = described.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, served);

        let bench = Bench::new();
        let leak = "/v1/findings/leaked_address";
        for (path, of) in [
            ("/v1/findings?state=all", "/v1/findings"),
            (leak, "/v1/findings/{key}"),
            ("/v1/incidents?state=all", "/v1/incidents"),
            ("/v1/pods", "/v1/pods"),
            ("/v1/pools", "/v1/pools"),
            ("/v1/boot", "/v1/boot"),
            ("/v1/doctor", "/v1/doctor"),
            ("/v1/state", "/v1/state"),
            ("/v1/openapi.json", "/v1/openapi.json"),
            ("/v1/nothing", "error"),
            ("/v1/events?since=7777777&follow=false", "/v1/events"),
        ] {
            let (response, kind) = match of {
                "error" => (&document["components"]["responses"]["Error"], "application/json"),
                "/v1/events" => (&document["paths"][of]["get"]["responses"]["200"], "application/x-ndjson"),
                _ => (&document["paths"][of]["get"]["responses"]["200"], "application/json"),
            };
            let mut schema = response["content"][kind]["schema"].clone();
            assert!(schema.is_object(), "{of} has no schema");
            schema["components"] = document["components"].clone();
            let validator = jsonschema::draft202012::new(&schema).expect("a schema");
            let answer = bench.get(path).await;
            assert!(answer.head.contains(kind), "{}", answer.head);
            let answers = if of == "/v1/events" { answer.lines() } else { vec![answer.json()] };
            for answer in answers {
                schema::matches(&validator, &answer);
            }
        }
    });
}
