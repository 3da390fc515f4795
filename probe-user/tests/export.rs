//! `sandprobe export` of what the running agent has, with a stand-in for it. The export of files is tested in
//! `tests/fleet`.
#![cfg(all(unix, feature = "live"))]

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixListener,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
};

use probe_user::{
    recording::{
        Reader,
        history::{self, Record},
        state::{self, About},
    },
    session::Session,
    sink::{render::jsonl::Jsonl, select::filter::Filter},
};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandprobe"));
    command.args(arguments).stdin(Stdio::null()).output().expect("the program was built")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// The documents of an agent that has seen the whole demo.
fn documents() -> Vec<(&'static str, Vec<u8>)> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/recordings/demo.jsonl");
    let recording = fs::read(file).expect("the recording");
    let mut reader = Reader::open(&recording[..]).expect("a recording");
    let header = reader.header().clone();
    let mut session = Session::new(&header, Filter::default(), Box::new(Jsonl));
    while let Some(call) = reader.next_call().expect("a whole recording") {
        session.call(call).expect("nothing is recorded");
    }
    let about = About {
        made_by: "0.1.0".to_owned(),
        node: header.node.clone(),
        boot_id: header.boot_id.clone(),
        boot_wall_ns: header.boot_wall_ns,
        pid: 7,
        written_at: session.engine().now(),
        ended: false,
    };
    let mut recovery = session.recovery().clone();
    let boot = recovery.boot.get_or_insert_default();
    boot.boot_id.clone_from(&header.boot_id);
    boot.boot_wall_ns = header.boot_wall_ns;
    let record = Record { made_by: "0.1.0".to_owned(), node: header.node, recovery };
    let events = session.output().clone();
    vec![
        ("/v1/state", state::write(&about, &session.known()).expect("JSON")),
        ("/v1/history", history::line(&record).expect("JSON")),
        ("/v1/events?since=0&follow=false", events),
    ]
}

/// What an agent keeps is in its events too: each is one row.
#[test]
fn what_the_agent_has_is_exported_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("agent.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let documents = documents();
    let count = documents[2].1.split(|byte| *byte == b'\n').count() - 1;
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("a request");
                request.extend(byte);
            }
            let path = text(&request).split(' ').nth(1).expect("a path").to_owned();
            let (_, body) = documents.iter().find(|(known, _)| *known == path).expect("a document");
            let head = format!("HTTP/1.0 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(&[head.as_bytes(), body].concat()).expect("it listens");
        }
    });
    let tables = dir.path().join("tables");
    let arguments = ["export", "--socket", socket.to_str().expect("text"), "--parquet"];
    let export = || run(&[&arguments[..], &[tables.to_str().expect("text")]].concat());
    let Output { status, stdout, stderr } = export();
    assert_eq!((status.code(), text(&stderr)), (Some(0), ""));
    let told = text(&stdout);
    assert!(
        told.starts_with(&format!("1 boots, {count} events, 3 findings, 5 starts of 1 source, ")),
        "{told}"
    );
    let files = || {
        let days = fs::read_dir(&tables).expect("tables").map(|table| table.expect("a table").path());
        let days =
            days.flat_map(|table| fs::read_dir(table).expect("days")).map(|day| day.expect("a day").path());
        let files = days.flat_map(|day| fs::read_dir(day).expect("files"));
        let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        files.sort_unstable();
        files
    };
    let first = files();
    // For each table there is a file without rows, and one with rows for all but one: no daemon was
    // restarted.
    let count = fs::read_dir(&tables).expect("tables").count();
    let empty = first.iter().filter(|file| file.ends_with("date=1970-01-01/none.parquet")).count();
    assert_eq!((empty, first.len()), (count, 2 * count - 1), "{first:?}");
    assert!(first.iter().all(|file| fs::read(file).expect("a file").ends_with(b"PAR1")));
    // The agent has not moved on, so that the same files are written again.
    assert_eq!(export().status.code(), Some(0));
    assert_eq!(files(), first);
}

/// A log says itself that its writer did not keep up.
#[test]
fn events_that_a_log_misses_by_its_own_account_are_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let [_, _, (_, mut events)] = <[_; 3]>::try_from(documents()).expect("three");
    let export = || run(&["export", &path("log.jsonl"), "--parquet", &path("tables")]);
    fs::write(path("log.jsonl"), &events).expect("a log");
    assert_eq!(export().status.code(), Some(0));
    events.extend(br#"{"schema":1,"node":"n","boot_id":"b","event":"stream.missed","stream":{"why":"slow","missed":"50000"}}"#);
    events.push(b'\n');
    fs::write(path("log.jsonl"), &events).expect("a log");
    let Output { status, stderr, .. } = export();
    let said = format!("sandprobe: {} misses 50000 events, as it says itself\n", path("log.jsonl"));
    assert_eq!((status.code(), text(&stderr)), (Some(1), &*said));
}

#[test]
fn without_files_and_agent_it_says_what_to_give() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let output = run(&["export", "--socket", &path("absent.sock"), "--parquet", &path("tables")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no agent answers on /"), "{}", text(&output.stderr));
    for (what, told) in
        [("columns", "### `events`"), ("clickhouse", "CREATE TABLE"), ("duckdb", "CREATE OR REPLACE VIEW")]
    {
        let output = run(&["export", "--print", what]);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains(told), "{what}");
    }
}
