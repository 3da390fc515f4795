//! `sandprobe top` in a terminal, with a stand-in for the agent: keys, sizes, an agent that hangs or is gone,
//! and how the terminal is given back. Needs no root.
#![cfg(feature = "live")]

#[path = "../src/cli/top/tests/node.rs"]
mod node;
#[path = "../src/cli/top/tests/pty.rs"]
mod pty;

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use pty::Pty;

const PROGRAM: &str = env!("CARGO_BIN_EXE_sandprobe");

/// A stand-in for the agent.
struct Agent {
    folder: tempfile::TempDir,
    /// Whether it takes requests and does not answer.
    hangs: Arc<AtomicBool>,
    /// How many requests it got.
    asked: Arc<AtomicU64>,
}

impl Agent {
    fn start(pods: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let agent = Self { folder, hangs: Arc::default(), asked: Arc::default() };
        agent.listen(pods);
        agent
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("agent.sock")
    }

    fn listen(&self, pods: u64) {
        let listener = UnixListener::bind(self.socket()).expect("a socket");
        let (hangs, asked) = (Arc::clone(&self.hangs), Arc::clone(&self.asked));
        let documents = node::documents(pods);
        thread::spawn(move || {
            let mut waiting = Vec::new();
            for client in listener.incoming() {
                let client = client.expect("a client");
                asked.fetch_add(1, Ordering::Relaxed);
                if hangs.load(Ordering::Relaxed) {
                    waiting.push(client);
                    continue;
                }
                // A view that has ended reads no more.
                if answer(client, &documents).unwrap_or(false) {
                    return;
                }
            }
        });
    }

    /// Nobody listens any more.
    fn end(&self) {
        self.hangs.store(false, Ordering::Relaxed);
        let mut last = UnixStream::connect(self.socket()).expect("it listens");
        last.write_all(b"END / HTTP/1.0\r\n\r\n").expect("it reads");
        fs::remove_file(self.socket()).expect("the socket");
    }
}

/// Answers a request; returns whether it is the last one.
fn answer(mut client: UnixStream, documents: &[(&str, u16, serde_json::Value)]) -> io::Result<bool> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        request.extend(byte);
    }
    let request = String::from_utf8(request).expect("text");
    let Some(path) = request.strip_prefix("GET ").and_then(|rest| rest.split(' ').next()) else {
        return Ok(true);
    };
    let (_, status, body) = documents.iter().find(|(known, ..)| *known == path).expect(path);
    let body = body.to_string();
    let head = format!("HTTP/1.0 {status} x\r\ncontent-length: {}\r\n\r\n", body.len());
    client.write_all((head + &body).as_bytes())?;
    Ok(false)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path")
}

fn top(agent: &Agent, variables: &[(&str, &str)]) -> Pty {
    let socket = agent.socket();
    Pty::start(PROGRAM, &["top", "--interval", "200ms", "--socket", text(&socket)], variables)
}

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdin(Stdio::null()).output().expect("the program was built")
}

#[test]
fn keys_and_sizes_do_what_they_say() {
    let agent = Agent::start(5);
    let mut top = top(&agent, &[]);
    let all = top.until_text("4 SIGNALS 10, 3 degraded");
    assert!(
        all.contains("NOT OK") && all.contains("1 FINDINGS 7") && all.contains("2 STARTS 3 now"),
        "{all}"
    );
    assert!(!top.is_as_before(), "keys come one by one");
    top.press("j\r");
    top.until_text("stage      confirmed, severity critical");
    top.press("q22");
    top.until("the whole screen", |screen| !screen.contents().contains("SIGNALS"));
    top.press("/cart");
    top.until_text("/cart_");
    top.press("\r");
    top.until_text("1 of 3 now, 5 past");
    top.press("\x1b");
    top.until("all are shown", |screen| !screen.contents().contains(" of 3 now"));
    top.resize(20, 5);
    top.until_text("too small: 20x5");
    top.resize(120, 40);
    top.until_text("batch/report-28391020-qx7fd");
    top.press("p");
    top.until_text("PAUSED at 12:34:56 UTC");
    top.press("q");
    assert_eq!(top.ended_and_given_back(), Some(0));
    let drawn = String::from_utf8_lossy(&top.bytes);
    assert!(drawn.contains("evil\\u{1b}["), "the pod's name stands there in letters");
    // A raw name would arrive whole, or without what the terminal's library leaves out of it.
    for raw in ["evil\x1b", "evil[", "\u{202e}"] {
        assert!(!drawn.contains(raw), "a pod's name does nothing to the terminal: {raw:?}");
    }
}

#[test]
fn a_held_key_does_not_keep_the_agent_busy() {
    let agent = Agent::start(5);
    let begun = Instant::now();
    let mut top = top(&agent, &[]);
    top.until_text("NOT OK");
    for _ in 0..100 {
        top.press("r");
        thread::sleep(Duration::from_millis(10));
    }
    // Five documents at first, then three each time.
    let asked = agent.asked.load(Ordering::Relaxed);
    let most = 5 + 3 * (begun.elapsed().as_millis() / 200 + 1);
    assert!((8..=most).contains(&u128::from(asked)), "{asked} requests, and at most {most} are meant");
    top.press("q");
    assert_eq!(top.ended_and_given_back(), Some(0));
}

#[test]
fn every_end_gives_the_terminal_back() {
    let agent = Agent::start(0);
    type End = fn(&mut Pty);
    let ends: [(&str, End); 5] = [
        ("ctrl-C", |top| top.press("\x03")),
        ("SIGTERM", |top| top.signal(Signal::SIGTERM)),
        ("SIGHUP", |top| top.signal(Signal::SIGHUP)),
        ("SIGINT", |top| top.signal(Signal::SIGINT)),
        ("SIGQUIT", |top| top.signal(Signal::SIGQUIT)),
    ];
    for (what, end) in ends {
        let mut top = top(&agent, &[]);
        top.until_text("nothing was found");
        end(&mut top);
        assert_eq!(top.ended_and_given_back(), Some(0), "{what}");
    }
}

#[test]
fn it_ends_with_its_terminal() {
    let agent = Agent::start(0);
    let mut top = top(&agent, &[]);
    top.until_text("nothing was found");
    let code = top.hang_up();
    assert!(matches!(code, Some(0 | 2)), "{code:?}");
}

/// A terminal that the shell had meanwhile is taken again. A process that no shell could continue does not
/// stop.
#[test]
fn it_goes_on_after_a_stop() {
    let agent = Agent::start(0);
    let mut top = top(&agent, &[]);
    top.until_text("nothing was found");
    top.signal(Signal::SIGSTOP);
    top.set_as_before();
    top.signal(Signal::SIGCONT);
    let until = Instant::now() + Duration::from_secs(20);
    while top.is_as_before() {
        assert!(Instant::now() < until, "keys are its own again");
        thread::sleep(Duration::from_millis(10));
    }
    top.press("\x1a?");
    top.until_text("HELP");
    top.press("qq");
    assert_eq!(top.ended_and_given_back(), Some(0));
}

#[test]
fn an_agent_that_hangs_or_ends_stops_no_key() {
    let agent = Agent::start(5);
    let mut top = top(&agent, &[]);
    top.until_text("NOT OK");
    agent.hangs.store(true, Ordering::Relaxed);
    top.until_text("AGENT SILENT");
    let pressed = Instant::now();
    top.press("?");
    top.until_text("HELP");
    assert!(pressed.elapsed() < Duration::from_secs(4), "{:?}", pressed.elapsed());
    top.press("q");
    top.until_text("AGENT AWAY");
    agent.end();
    let away = top.until_text("no agent answers on");
    assert!(away.contains("AGENT AWAY") && away.contains("data of 12:34:56 UTC"), "{away}");
    assert!(away.contains("1 FINDINGS 7"), "the last data stay: {away}");
    agent.listen(0);
    top.until_text("nothing was found");
    top.press("q");
    assert_eq!(top.ended_and_given_back(), Some(0));
}

#[test]
fn colors_are_for_terminals_that_want_them() {
    let agent = Agent::start(5);
    for (variables, is_colored) in [(&[][..], true), (&[("NO_COLOR", "1")], false)] {
        let mut top = top(&agent, variables);
        top.until_text("SIGNALS");
        top.press("q");
        assert_eq!(top.ended_and_given_back(), Some(0));
        let drawn = String::from_utf8_lossy(&top.bytes);
        // 30 to 37 and 40 to 47 are colors; 38;5 and 48;5 begin those of 256.
        let is_color = |part: &str| {
            let codes = part.split('m').next().unwrap_or_default();
            codes.starts_with("38;5;")
                || codes.starts_with("48;5;")
                || codes.len() == 2 && codes.starts_with(['3', '4']) && !matches!(codes, "39" | "49")
        };
        assert_eq!(drawn.split("\x1b[").any(is_color), is_colored, "{variables:?}");
    }
}

#[test]
fn without_a_terminal_it_prints_once_or_says_why_not() {
    let agent = Agent::start(5);
    let socket = agent.socket();
    let refused = run(&["top", "--socket", text(&socket)]);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).expect("text");
    assert_eq!(said, "sandprobe: top needs a terminal: sandprobe top --once prints the same as text\n");
    let once = run(&["top", "--once", "--socket", text(&socket)]);
    assert_eq!(once.status.code(), Some(0));
    let frame = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/top/5-pods-80x24.txt");
    let kept = fs::read_to_string(frame).expect("the frame");
    assert_eq!(String::from_utf8(once.stdout).expect("text"), kept);
    let small = run(&["top", "--once", "--size", "100x30", "--socket", text(&socket)]);
    assert_eq!(String::from_utf8(small.stdout).expect("text").lines().count(), 30);
    let mut dumb = Pty::start(PROGRAM, &["top", "--socket", text(&socket)], &[("TERM", "dumb")]);
    dumb.until_text("sandprobe top --once prints the same as text");
    assert_eq!(dumb.ended(), Some(2));
}

#[test]
fn bad_input_is_one_line() {
    let missing = tempfile::tempdir().expect("a folder").path().join("none.sock");
    let cases: [(&[&str], &str); 4] = [
        (&["top", "--once", "--socket", text(&missing)], "no agent answers on"),
        (&["top", "--interval", "1ms"], "is not from 200ms to 1h"),
        (&["top", "--once", "--size", "0x9"], "is not a size such as 80x24"),
        (&["top", "--size", "80x24"], "--once"),
    ];
    for (arguments, expected) in cases {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(said.contains(expected) && said.lines().count() == 1, "{arguments:?}: {said}");
    }
}
