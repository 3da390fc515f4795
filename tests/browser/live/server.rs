//! The fake server of an agent: its documents, and its event stream, which can resume (docs/api.md).

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

use serde_json::{Value, json};
use tests::site::{Answer, Body, Request, Site};

use super::node::Node;

/// The header that the agent sends with every answer.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe-user/src/sink/serve/page");
/// The style that all pages share.
const COMMON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe-user/src/sink/render/page/style.css");

pub(super) struct Server {
    site: Site,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    node: Node,
    instance: u32,
    seq: u64,
    /// The events in the ring buffer.
    events: Vec<(u64, Value)>,
    is_down: bool,
    is_over: bool,
    token: Option<String>,
    asked: BTreeMap<String, usize>,
}

/// Returns each file of the page with its name.
pub(super) fn files() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(PAGE).expect("the page's folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("text");
        let text = if name == "style.css" { fs::read_to_string(COMMON).expect("text") + &text } else { text };
        files.push((name, text));
    }
    files
}

impl Server {
    pub(super) fn start(node: Node) -> Self {
        let state = State {
            node,
            instance: 1,
            seq: 0,
            events: Vec::new(),
            is_down: false,
            is_over: false,
            token: None,
            asked: BTreeMap::new(),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let (files, served) = (files(), Arc::clone(&shared));
        let site = Site::serve(move |asked| answer(&served, &files, asked)).expect("a site");
        Self { site, shared }
    }

    pub(super) fn url(&self) -> String {
        self.site.url()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("no thread panicked")
    }

    fn with(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.shared.changed.notify_all();
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Node)) {
        self.with(|state| change(&mut state.node));
    }

    /// Sends an event with the current time.
    pub(super) fn send(&self, event: Value) {
        self.with(|state| {
            state.seq += 1;
            let mut whole = json!({ "schema": 1, "node": "edge-1", "seq": state.seq, "at": "2026-11-21T09:49:27.156243747Z",
                "boot_ns": "19062295926031", "origin": "kernel" });
            let (Some(whole_members), Value::Object(members)) = (whole.as_object_mut(), event) else { return };
            let own = members.into_iter().filter(|(name, _)| name != "seq");
            whole_members.extend(own);
            state.events.push((state.seq, whole));
        });
    }

    pub(super) fn go_down(&self) {
        self.with(|state| state.is_down = true);
    }

    pub(super) fn come_back(&self) {
        self.with(|state| state.is_down = false);
    }

    /// Drops all events of the ring buffer.
    pub(super) fn forget(&self) {
        self.with(|state| state.events.clear());
    }

    pub(super) fn restart(&self) {
        self.with(|state| {
            state.instance += 1;
            state.seq = 0;
            state.events.clear();
        });
    }

    pub(super) fn ask_for(&self, token: &str) {
        self.with(|state| state.token = Some(token.to_owned()));
    }

    /// Returns the number of requests for this path.
    pub(super) fn asked(&self, path: &str) -> usize {
        self.state().asked.get(path).copied().unwrap_or(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.with(|state| state.is_over = true);
    }
}

fn answer(shared: &Arc<Shared>, files: &[(String, String)], asked: &Request) -> Answer {
    let mut state = shared.state.lock().expect("no thread panicked");
    if state.is_down || state.is_over {
        return Answer { status: 0, headers: Vec::new(), body: Body::HangUp };
    }
    *state.asked.entry(asked.path.clone()).or_default() += 1;
    let mut answer = match asked.path.strip_prefix("/v1/") {
        Some(_) if state.is_refused(asked) => {
            Answer::new(401, "application/json", json!({ "error": "this needs the token" }).to_string())
        }
        Some("events") => {
            let (shared, since) = (Arc::clone(shared), since(&state, &asked.query));
            let body = Body::Stream(Box::new(move |out| stream(&shared, since, out)));
            Answer { status: 200, headers: vec![("Content-Type", "application/x-ndjson".to_owned())], body }
        }
        Some(document) => match state.node.document(document) {
            Some(it) => Answer::new(200, "application/json", it.to_string()),
            None => Answer::new(404, "application/json", json!({ "error": "nothing here" }).to_string()),
        },
        None => file(files, asked.path.trim_start_matches('/')),
    };
    answer.headers.push(("Content-Security-Policy", POLICY.to_owned()));
    answer.headers.push(("X-Content-Type-Options", "nosniff".to_owned()));
    answer
}

fn file(files: &[(String, String)], name: &str) -> Answer {
    let name = if name.is_empty() { "index.html" } else { name };
    let Some((_, text)) = files.iter().find(|(is, _)| is == name) else {
        return Answer::new(404, "text/plain", "no such file\n");
    };
    let kind = match PathBuf::from(name).extension().and_then(|it| it.to_str()) {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        _ => "text/html; charset=utf-8",
    };
    Answer::new(200, kind, text.clone())
}

impl State {
    fn is_refused(&self, asked: &Request) -> bool {
        let received = asked.header("authorization");
        self.token.as_ref().is_some_and(|token| received != Some(&format!("Bearer {token}")))
    }

    fn stream_event(&self, event: &str, place: u64, about: &Value) -> Value {
        let mut stream =
            json!({ "instance": self.instance.to_string(), "since": format!("{}:{place}", self.instance) });
        if let (Some(stream), Some(about)) = (stream.as_object_mut(), about.as_object()) {
            stream.extend(about.clone());
        }
        json!({ "schema": 1, "event": event, "stream": stream })
    }
}

/// Returns the position at which a stream begins, and whether the client's position belongs to another run.
fn since(state: &State, query: &str) -> (u64, bool) {
    let Some(since) = query.strip_prefix("since=") else { return (state.seq, false) };
    let since = since.replace("%3A", ":");
    let (instance, seq) = since.split_once(':').expect("INSTANCE:SEQ");
    let seq: u64 = seq.parse().expect("a number");
    if instance == state.instance.to_string() { (seq, false) } else { (0, true) }
}

fn stream(shared: &Shared, (mut place, is_other): (u64, bool), out: &mut dyn Write) -> io::Result<()> {
    let mut write = |it: &Value| out.write_all(format!("{it}\n").as_bytes());
    let mut state = shared.state.lock().expect("no thread panicked");
    let instance = state.instance;
    write(&state.stream_event("stream.opened", place, &json!({})))?;
    if is_other {
        write(&state.stream_event("stream.missed", place, &json!({ "why": "other_run" })))?;
    }
    loop {
        if state.is_down || state.is_over || state.instance != instance {
            return Ok(());
        }
        let first = state.events.first().map_or(state.seq + 1, |(seq, _)| *seq);
        if place + 1 < first {
            write(&state.stream_event(
                "stream.missed",
                first - 1,
                &json!({ "why": "late", "missed": (first - 1 - place).to_string() }),
            ))?;
            place = first - 1;
        }
        let from = place;
        for (seq, event) in state.events.iter().filter(|(seq, _)| *seq > from) {
            write(event)?;
            place = *seq;
        }
        let waited = shared.changed.wait_timeout(state, Duration::from_secs(5)).expect("no thread panicked");
        state = waited.0;
    }
}
