//! `sandprobe verdict` as node-problem-detector runs it: by the configuration in `deploy/`, with the protocol
//! of its custom plugins (pkg/custompluginmonitor/plugin/plugin.go). A stand-in answers for the agent.
#![cfg(unix)]

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::{net::UnixListener, process::CommandExt as _},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;

/// The members that node-problem-detector knows (pkg/custompluginmonitor/types/config.go).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    plugin: String,
    #[serde(rename = "pluginConfig")]
    global: Global,
    source: String,
    #[serde(rename = "metricsReporting")]
    _metrics: bool,
    conditions: Vec<Condition>,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Global {
    invoke_interval: String,
    timeout: String,
    max_output_length: usize,
    #[serde(rename = "concurrency")]
    _concurrency: u32,
    #[serde(rename = "enable_message_change_based_condition_update")]
    _messages: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Condition {
    r#type: String,
    reason: String,
    message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    r#type: String,
    condition: String,
    reason: String,
    path: String,
    args: Vec<String>,
    timeout: String,
}

/// The new state of the condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// The condition is false: no problem.
    Ok,
    NotOk,
    Unknown,
}

fn config() -> Config {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/node-problem-detector/sandprobe.json");
    serde_json::from_slice(&fs::read(path).expect("the configuration")).expect("its members")
}

fn seconds(text: &str) -> Duration {
    Duration::from_secs(text.strip_suffix('s').and_then(|text| text.parse().ok()).expect("seconds"))
}

/// Runs the rule in a process group of its own, which is killed when the time is over. Output beyond the
/// limit is cut off.
fn invoke(socket: &Path, timeout: Duration) -> (Told, String) {
    let config = config();
    let rule = &config.rules[0];
    let socket = socket.to_str().expect("a path");
    let args = rule.args.iter().map(|it| if it == "/run/sandprobe/sandprobe.sock" { socket } else { it });
    let mut child = Command::new(env!("CARGO_BIN_EXE_sandprobe"))
        .args(args)
        .env_clear()
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("its state") {
            break status;
        }
        if begun.elapsed() > timeout {
            child.kill().expect("it is ours");
            child.wait().expect("its end");
            return (Told::Unknown, "Timeout when running plugin".to_owned());
        }
        thread::sleep(Duration::from_millis(10));
    };
    let mut output = Vec::new();
    child.stdout.take().expect("a pipe").read_to_end(&mut output).expect("its output");
    let output = String::from_utf8(output).expect("text").trim().to_owned();
    assert!(output.len() <= config.global.max_output_length, "{output:?} would be cut off");
    assert!(!output.is_empty() && !output.contains('\n'), "{output:?}");
    let told = match status.code() {
        Some(0) => Told::Ok,
        Some(1) => Told::NotOk,
        _ => Told::Unknown,
    };
    (told, output)
}

fn asked(socket: &Path) -> (Told, String) {
    invoke(socket, seconds(&config().rules[0].timeout))
}

/// Returns what node-problem-detector makes of this answer.
fn answered(status: &str, body: &str) -> (Told, String) {
    answering(status, body, asked)
}

/// Returns the result of a question to an agent with this answer.
fn answering<T>(status: &str, body: &str, ask: impl FnOnce(&Path) -> T) -> T {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("agent.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let answer = format!("HTTP/1.0 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let agent = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a request");
            request.extend(byte);
        }
        assert!(request.starts_with(b"GET /v1/verdict HTTP/1.0\r\n"));
        stream.write_all(answer.as_bytes()).expect("it listens");
    });
    let told = ask(&socket);
    agent.join().expect("no panic");
    told
}

#[test]
fn node_problem_detector_accepts_the_configuration() {
    let config = config();
    assert_eq!(config.plugin, "custom");
    assert_eq!(config.source, "sandprobe-monitor");
    assert!(seconds(&config.global.invoke_interval) > Duration::ZERO);
    for rule in &config.rules {
        assert!(seconds(&rule.timeout) <= seconds(&config.global.timeout), "NPD refuses that");
        // The program gives up by itself after five seconds, and says so.
        assert!(seconds(&rule.timeout) > Duration::from_secs(6));
        assert_eq!(rule.r#type, "permanent");
        let condition = config.conditions.iter().find(|it| it.r#type == rule.condition);
        let condition = condition.expect("a condition of the rule, or NPD refuses it");
        assert_ne!(condition.reason, rule.reason);
        assert_eq!(condition.message, "no critical finding is confirmed");
        assert_eq!(rule.path, "/plugins/sandprobe", "where the init container copies it");
    }
}

#[test]
fn the_condition_follows_the_verdict() {
    let body = |status: &str, message: &str| {
        format!(r#"{{"schema":1,"node":"n","status":"{status}","reasons":[],"message":"{message}"}}"#)
    };
    let ok = answered("200 OK", &body("ok", "no critical finding is confirmed"));
    assert_eq!(ok, (Told::Ok, "no critical finding is confirmed".to_owned()));
    let not = answered("503 Service Unavailable", &body("not_ok", "critical: CniFailing"));
    assert_eq!(not, (Told::NotOk, "critical: CniFailing".to_owned()));
    let unknown = answered("503 Service Unavailable", &body("unknown", "the node has not been listed yet"));
    assert_eq!(unknown, (Told::Unknown, "the node has not been listed yet".to_owned()));
}

#[test]
fn without_a_verdict_the_condition_is_unknown() {
    let dir = tempfile::tempdir().expect("a folder");
    let away = asked(&dir.path().join("absent.sock"));
    assert_eq!(away, (Told::Unknown, "no agent answers on this node".to_owned()));
    let late = answered("503 Service Unavailable", r#"{"error":"the agent did not answer within 3 s"}"#);
    assert_eq!(late, (Told::Unknown, "the agent did not answer within 3 s".to_owned()));
    let older = answered("404 Not Found", r#"{"error":"there is nothing at this path"}"#);
    assert_eq!(older, (Told::Unknown, "the agent does not answer".to_owned()));
    for strange in ["", "[]", "nonsense", r#"{"status":"fine","message":"x"}"#, r#"{"status":"ok"}"#] {
        assert_eq!(answered("200 OK", strange).0, Told::Unknown, "{strange}");
    }
}

#[test]
fn a_fault_is_one_line_on_standard_error() {
    for (status, body, words) in [
        ("200 OK", "nonsense", "answers at /v1/verdict is not a verdict: it may be of another version"),
        ("404 Not Found", "", "it answers 404 without a reason"),
        ("503 Service Unavailable", r#"{"error":"the agent did not answer within 3 s"}"#, "within 3 s"),
    ] {
        let output = answering(status, body, |socket| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sandprobe"));
            command.args(["verdict", "-o", "json", "--socket"]).arg(socket);
            command.stdin(Stdio::null()).output().expect("the program was built")
        });
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(
            (output.status.code(), output.stdout.len(), said.lines().count()),
            (Some(2), 0, 1),
            "{said}"
        );
        assert!(said.contains(words), "no {words:?} in {said}");
    }
}

/// An answer of another agent: nothing in it breaks the line.
#[test]
fn a_long_or_strange_message_stays_one_short_line() {
    let long = "\u{e4}".repeat(100);
    let body = format!(r#"{{"status":"not_ok","message":"a\nb{long}"}}"#);
    let (told, message) = answered("503 Service Unavailable", &body);
    assert_eq!(told, Told::NotOk);
    assert!(message.starts_with("a\\nb") && message.len() >= 79, "{message}");
}

#[test]
fn an_agent_that_hangs_makes_the_condition_unknown() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("agent.sock");
    let _listener = UnixListener::bind(&socket).expect("a socket");
    // It ends by itself, before node-problem-detector would kill it.
    assert_eq!(asked(&socket), (Told::Unknown, "the agent does not answer".to_owned()));
    // With less time than it takes, it is killed.
    assert_eq!(invoke(&socket, Duration::from_millis(200)).0, Told::Unknown);
}

/// The init container has no shell and no cp: the program copies itself.
#[test]
fn the_program_copies_itself_for_the_plugin() {
    let dir = tempfile::tempdir().expect("a folder");
    let copy = dir.path().join("sandprobe");
    let run = |program: &Path, arguments: &[&str]| {
        Command::new(program).args(arguments).stdin(Stdio::null()).output().expect("a program")
    };
    let own = Path::new(env!("CARGO_BIN_EXE_sandprobe"));
    let target = copy.to_str().expect("a path");
    // Run twice: a restarted pod finds the copy of the last one.
    for _ in 0..2 {
        let made = run(own, &["verdict", "--copy-to", target]);
        assert!(made.status.success() && made.stdout.is_empty(), "{made:?}");
    }
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1, "nothing else is left");
    assert_eq!(run(&copy, &["--version"]).stdout, run(own, &["--version"]).stdout);
    let refused = run(own, &["verdict", "--copy-to", "/proc/none/sandprobe"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}
