//! The commands that ask the running agent, with a stand-in for it that gives one answer. Needs no root.
#![cfg(unix)]

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixListener,
    path::Path,
    process::{Command, Output, Stdio},
    thread::{self, JoinHandle},
};

#[cfg(feature = "live")]
use probe_user::model::hash::fnv;
use probe_user::{
    model::time::Timestamp,
    recording::state::{self, About, Snapshot},
};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandprobe"));
    command.args(arguments).stdin(Stdio::null()).output().expect("the program was built")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path")
}

fn state() -> Vec<u8> {
    let about = About {
        made_by: "0.1.0".to_owned(),
        node: "n".to_owned(),
        boot_id: "b".to_owned(),
        boot_wall_ns: 1_795_000_000_000_000_000,
        pid: 7,
        written_at: Timestamp(5_000_000_000),
        ended: false,
    };
    state::write(&about, &Snapshot::default()).expect("JSON")
}

/// Answers one request; returns its first line.
fn stand_in(socket: &Path, status: &str, body: &[u8]) -> JoinHandle<String> {
    answers(UnixListener::bind(socket).expect("a socket"), status, body)
}

fn answers(listener: UnixListener, status: &str, body: &[u8]) -> JoinHandle<String> {
    let answer =
        [format!("HTTP/1.0 {status}\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes(), body].concat();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a request");
            request.extend(byte);
        }
        stream.write_all(&answer).expect("it listens");
        text(&request).lines().next().expect("a line").to_owned()
    })
}

#[test]
fn findings_are_the_running_agent_s() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("agent.sock");
    let agent = stand_in(&socket, "200 OK", &state());
    let output = run(&["findings", "--socket", path(&socket)]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "no findings\n"));
    assert_eq!(text(&output.stderr), "", "it speaks for itself");
    assert_eq!(agent.join().expect("no panic"), "GET /v1/state HTTP/1.0");
}

#[test]
fn that_nothing_was_found_says_little_where_not_all_is_seen() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("agent.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let first = answers(listener.try_clone().expect("the socket"), "200 OK", &state());
    let then = thread::spawn(move || {
        first.join().expect("no panic");
        let reasons = br#"{"version":"0.1.0","agent":{"reasons":["exec is not seen"]}}"#;
        answers(listener, "200 OK", reasons).join().expect("no panic")
    });
    let output = run(&["findings", "--socket", path(&socket)]);
    let told = (output.status.code(), text(&output.stdout), text(&output.stderr));
    let said = "sandprobe: not all can be seen: exec is not seen\n";
    assert_eq!(told, (Some(0), "no findings, as far as sandprobe can see\n", said));
    assert_eq!(then.join().expect("no panic"), "GET /v1/doctor HTTP/1.0");
}

#[test]
fn without_an_agent_there_is_what_was_kept() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("findings.json"), state()).expect("a file");
    let absent = dir.path().join("absent.sock");
    let output = run(&["findings", "--socket", path(&absent), "--state-dir", path(dir.path())]);
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), "no findings, as far as sandprobe can see\n")
    );
    let said = text(&output.stderr);
    assert!(
        said.lines().next().is_some_and(|line| line.contains(&format!(
            "no agent answers on {}: start sandprobe run, or give --socket; ",
            path(&absent)
        ))),
        "{said}"
    );
    // Nobody asked for an agent.
    let output = run(&["findings", "--state-dir", path(dir.path())]);
    assert!(!text(&output.stderr).contains("no agent answers"), "{}", text(&output.stderr));
}

/// As in the agent's pod, whose environment says where the agent is: nothing must be typed.
#[test]
fn the_environment_says_where_the_agent_is() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("agent.sock");
    let kept = dir.path().join("kept");
    std::fs::create_dir(&kept).expect("a folder");
    let run_there = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandprobe"));
        command.env("SANDPROBE_SOCKET", &socket).env("SANDPROBE_STATE_DIR", &kept);
        command.args(arguments).stdin(Stdio::null()).output().expect("the program was built")
    };
    let agent = stand_in(&socket, "200 OK", &state());
    let output = run_there(&["findings"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    agent.join().expect("no panic");
    std::fs::remove_file(&socket).expect("the socket");
    // Without the agent, the command reads what it kept, in the folder of the environment.
    let output = run_there(&["findings"]);
    let said = text(&output.stderr);
    assert!(said.contains(&format!("no findings are stored in {}", path(&kept))), "{said}");
    // A typed flag wins over the environment: then no agent is asked.
    let other = dir.path().join("other");
    std::fs::create_dir(&other).expect("a folder");
    let output = run_there(&["findings", "--state-dir", path(&other)]);
    let said = text(&output.stderr);
    assert!(said.starts_with(&format!("sandprobe: no findings are stored in {}", path(&other))), "{said}");
    // A recording can be read in the pod too; asking for both is a mistake there as elsewhere.
    let absent = path(&other).to_owned() + "/absent.jsonl";
    let output = run_there(&["findings", "--recording", &absent]);
    assert!(text(&output.stderr).contains("absent.jsonl"), "{}", text(&output.stderr));
    let output = run_there(&["findings", "--recording", &absent, "--state-dir", path(&other)]);
    assert!(text(&output.stderr).contains("exclude each other"), "{}", text(&output.stderr));
}

#[test]
fn an_agent_that_cannot_answer_is_told_of() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("findings.json"), state()).expect("a file");
    let socket = dir.path().join("agent.sock");
    let agent = stand_in(&socket, "503 Service Unavailable", b"{\"error\":\"late\"}\n");
    let output = run(&["findings", "--socket", path(&socket), "--state-dir", path(dir.path())]);
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), "no findings, as far as sandprobe can see\n")
    );
    let said = text(&output.stderr);
    assert!(said.contains("it answers 503: {\"error\":\"late\"}"), "{said}");
    agent.join().expect("no panic");
}

#[test]
fn a_state_that_cannot_be_read_may_be_of_another_version() {
    let whom = |socket: &Path| format!("what the agent on {} answers at /v1/state: ", path(socket));
    for (body, before, why) in [
        ("{}", "cannot read ", "it may be of another version: not a file of sandprobe's findings: "),
        (r#"{"schema":99}"#, "", "written in format 99 by a newer sandprobe; "),
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("agent.sock");
        let agent = stand_in(&socket, "200 OK", body.as_bytes());
        let output = run(&["findings", "--socket", path(&socket)]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.starts_with(&format!("sandprobe: {before}{}{why}", whom(&socket))), "{said}");
        agent.join().expect("no panic");
    }
}

/// Files would show less than this agent knows, and nobody would notice.
#[test]
#[cfg(feature = "live")]
fn a_history_that_cannot_be_read_is_no_missing_one() {
    let newer = r#"{"schema":99,"anything":"else"}"#;
    let newer = format!("{{\"sum\":\"{:016x}\",\"boot\":{newer}}}\n", fnv(newer.as_bytes()));
    let nested = "[".repeat(100_000);
    for (body, why) in [
        ("not JSON\n", "line 1 is not as it was written"),
        ("{}\n", "line 1 is not as it was written"),
        (&*nested, "line 1 was cut off while it was written"),
        (&newer, "line 1 is in format 99 of a newer sandprobe"),
        ("", "no boot, not even its own"),
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("agent.sock");
        let said = format!("sandprobe: what the agent on {} answers at /v1/history: {why}\n", path(&socket));
        let agent = stand_in(&socket, "200 OK", body.as_bytes());
        let output = run(&["boot", "--socket", path(&socket), "--state-dir", path(dir.path())]);
        let told = (output.status.code(), text(&output.stdout), text(&output.stderr));
        assert_eq!(told, (Some(2), "", &*said));
        assert_eq!(agent.join().expect("no panic"), "GET /v1/history HTTP/1.0");
        // An export without boots would look like one of a node that was never restarted.
        std::fs::remove_file(&socket).expect("the socket");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let first = answers(listener.try_clone().expect("the socket"), "200 OK", &state());
        let body = body.to_owned();
        let then = thread::spawn(move || {
            first.join().expect("no panic");
            answers(listener, "200 OK", body.as_bytes()).join().expect("no panic")
        });
        let output = run(&["export", "--socket", path(&socket), "--parquet", path(&dir.path().join("new"))]);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), &*said));
        assert_eq!(then.join().expect("no panic"), "GET /v1/history HTTP/1.0");
    }
}

#[test]
fn where_nothing_can_be_told_one_line_says_why() {
    let dir = tempfile::tempdir().expect("a folder");
    let absent = dir.path().join("absent.sock");
    for arguments in [&["findings"][..], &["explain", "x"]] {
        let given = ["--socket", path(&absent), "--state-dir", path(dir.path())];
        let output = run(&[arguments, &given].concat());
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        let nobody =
            format!("no agent answers on {}: start sandprobe run, or give --socket; ", path(&absent));
        assert!(said.contains(&(nobody + "no findings are stored in")), "{said}");
    }
}
