//! An agent's server, played: its documents, and its stream with a place to go on from (docs/api.md).

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

use super::given::Node;

/// As the agent sends it with everything.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe-user/src/sink/serve/page");
/// With what pages have in common.
const COMMON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe-user/src/sink/page/style.css");

pub(super) struct Fixture {
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
    /// What is in the ring.
    events: Vec<(u64, Value)>,
    is_down: bool,
    is_over: bool,
    token: Option<String>,
    asked: BTreeMap<String, usize>,
}

/// Each file of the page by its name.
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

impl Fixture {
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
        self.shared.state.lock().expect("nobody panicked")
    }

    fn with(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.shared.changed.notify_all();
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Node)) {
        self.with(|state| change(&mut state.node));
    }

    /// Tells an event, as one of now.
    pub(super) fn tell(&self, event: Value) {
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

    /// The ring has run over.
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

    /// How often this path was asked for.
    pub(super) fn asked(&self, path: &str) -> usize {
        self.state().asked.get(path).copied().unwrap_or(0)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.with(|state| state.is_over = true);
    }
}

fn answer(shared: &Arc<Shared>, files: &[(String, String)], asked: &Request) -> Answer {
    let mut state = shared.state.lock().expect("nobody panicked");
    if state.is_down || state.is_over {
        return Answer { status: 0, headers: Vec::new(), body: Body::HangUp };
    }
    *state.asked.entry(asked.path.clone()).or_default() += 1;
    let mut answer = match asked.path.strip_prefix("/v1/") {
        Some(_) if state.is_stranger(asked) => {
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
    fn is_stranger(&self, asked: &Request) -> bool {
        let given = asked.header("authorization");
        self.token.as_ref().is_some_and(|token| given != Some(&format!("Bearer {token}")))
    }

    fn word(&self, event: &str, place: u64, about: &Value) -> Value {
        let mut stream =
            json!({ "instance": self.instance.to_string(), "since": format!("{}:{place}", self.instance) });
        if let (Some(stream), Some(about)) = (stream.as_object_mut(), about.as_object()) {
            stream.extend(about.clone());
        }
        json!({ "schema": 1, "event": event, "stream": stream })
    }
}

/// Where a stream begins: the place, and whether what came before it was another run's.
fn since(state: &State, query: &str) -> (u64, bool) {
    let Some(since) = query.strip_prefix("since=") else { return (state.seq, false) };
    let since = since.replace("%3A", ":");
    let (instance, seq) = since.split_once(':').expect("INSTANCE:SEQ");
    let seq: u64 = seq.parse().expect("a number");
    if instance == state.instance.to_string() { (seq, false) } else { (0, true) }
}

fn stream(shared: &Shared, (mut place, is_other): (u64, bool), out: &mut dyn Write) -> io::Result<()> {
    let mut say = |it: &Value| out.write_all(format!("{it}\n").as_bytes());
    let mut state = shared.state.lock().expect("nobody panicked");
    let instance = state.instance;
    say(&state.word("stream.opened", place, &json!({})))?;
    if is_other {
        say(&state.word("stream.missed", place, &json!({ "why": "other_run" })))?;
    }
    loop {
        if state.is_down || state.is_over || state.instance != instance {
            return Ok(());
        }
        let first = state.events.first().map_or(state.seq + 1, |(seq, _)| *seq);
        if place + 1 < first {
            say(&state.word(
                "stream.missed",
                first - 1,
                &json!({ "why": "late", "missed": (first - 1 - place).to_string() }),
            ))?;
            place = first - 1;
        }
        let from = place;
        for (seq, event) in state.events.iter().filter(|(seq, _)| *seq > from) {
            say(event)?;
            place = *seq;
        }
        let waited = shared.changed.wait_timeout(state, Duration::from_secs(5)).expect("nobody panicked");
        state = waited.0;
    }
}
