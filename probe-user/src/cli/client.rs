//! Sends requests to the agent of this node over its socket.
//!
//! It uses HTTP/1.0 (RFC 1945): the response is complete when the connection ends, and is not chunked.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use clap::Args;

use super::args::{SOCKET, SOCKET_VARIABLE, is_typed};

/// The deadline of a request, longer than the server waits for the agent's loop (`docs/api.md`).
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest response that is read, MiB. A command in the agent's pod shares the pod's memory limit.
const MAX_RESPONSE_MIB: usize = 64;
/// How much of a response one read takes, bytes.
const READ_SIZE: usize = 64 << 10;
/// The path of what the agent can see, and of its own state.
pub(in crate::cli) const DOCTOR: &str = "/v1/doctor";
/// The path of its findings and starts.
pub(in crate::cli) const STATE: &str = "/v1/state";
/// The path of the boots that it has kept.
pub(in crate::cli) const HISTORY: &str = "/v1/history";
/// The path of the pods of the node.
pub(in crate::cli) const PODS: &str = "/v1/pods";
/// The path of its open findings.
pub(in crate::cli) const FINDINGS: &str = "/v1/findings";
/// The path of the address pools, and of its CNI plugins.
pub(in crate::cli) const POOLS: &str = "/v1/pools";
/// The path of its verdict.
pub(in crate::cli) const VERDICT: &str = "/v1/verdict";

/// The status code of a response.
pub(in crate::cli) const OK: [&str; 1] = ["200"];
/// The status codes of a response for which 503 is an answer too: no.
pub(in crate::cli) const OR_NOT: [&str; 2] = ["200", "503"];

#[derive(Debug, Default, Args)]
pub(in crate::cli) struct AgentArgs {
    /// The socket on which the running agent answers; "none" to ask no agent
    /// [default: /run/sandprobe/sandprobe.sock]
    #[arg(long, value_name = "PATH", env = SOCKET_VARIABLE)]
    socket: Option<PathBuf>,
}

/// Why the agent has not answered.
pub(in crate::cli) enum Unanswered {
    /// Nobody listens. There is a reason to report only if the socket was given.
    Nobody(Option<String>),
    /// An agent listens, but has not answered in time.
    Late(String),
    /// An agent has answered with an error, or cannot be asked.
    Silent(String),
}

/// The agent on this socket has not answered in time.
#[derive(Debug, thiserror::Error)]
#[error(
    "the agent on {0} has not answered within {timeout} s: it may be stopped or hang; look at the state of its process \
     (ps -C sandprobe -o pid,stat,args) and at its log",
    timeout = TIMEOUT.as_secs()
)]
struct Late(String);

impl Unanswered {
    /// Returns the reason, if it is to be reported.
    pub(in crate::cli) fn why(self) -> Option<String> {
        match self {
            Self::Nobody(why) => why,
            Self::Late(why) | Self::Silent(why) => Some(why),
        }
    }
}

impl AgentArgs {
    /// Whether the socket was typed.
    pub(in crate::cli) fn is_typed(&self) -> bool {
        is_typed(self.socket.as_deref(), SOCKET_VARIABLE)
    }

    fn socket(&self) -> Option<&Path> {
        let given = self.socket.as_deref().unwrap_or(SOCKET.as_ref());
        Some(given).filter(|path| path.as_os_str() != "none")
    }

    /// The agent's response. Without one the caller reads files instead.
    pub(in crate::cli) fn ask_or_why(&self, path: &str) -> Result<Vec<u8>, Unanswered> {
        match self.ask(path) {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => {
                let is_given = self.socket.is_some() && self.socket().is_some();
                Err(Unanswered::Nobody(is_given.then(|| self.nobody())))
            }
            Err(error) => {
                let why = format!("{error:#}");
                Err(if error.is::<Late>() { Unanswered::Late(why) } else { Unanswered::Silent(why) })
            }
        }
    }

    /// Returns the agent's response at `path`; `None` if no agent listens. An error means that one listens
    /// but cannot be asked.
    pub(in crate::cli) fn ask(&self, path: &str) -> anyhow::Result<Option<Vec<u8>>> {
        self.answer(path, &OK, within)
    }

    /// Like `ask`, for a path whose status 503 is an answer too: no.
    pub(in crate::cli) fn ask_whether(&self, path: &str) -> anyhow::Result<Option<Vec<u8>>> {
        self.answer(path, &OR_NOT, within)
    }

    /// Like `ask`, but waits until the agent accepts the connection. For a thread that asks again and again:
    /// `ask` leaves a thread behind for each request that a stopped agent does not accept.
    pub(in crate::cli) fn ask_patiently(
        &self,
        path: &str,
        expected: &[&str],
    ) -> anyhow::Result<Option<Vec<u8>>> {
        self.answer(path, expected, here)
    }

    /// Returns the message that no agent answers: where, and what to do.
    pub(in crate::cli) fn nobody(&self) -> String {
        match self.socket() {
            Some(socket) => {
                format!("no agent answers on {}: start sandprobe run, or give --socket", socket.display())
            }
            None => "no agent is asked: give its --socket".to_owned(),
        }
    }

    /// Names the agent's answer at `path`, for an error message.
    pub(in crate::cli) fn answer_at(&self, path: &str) -> String {
        let socket = self.socket().unwrap_or(SOCKET.as_ref());
        format!("what the agent on {} answers at {path}", socket.display())
    }

    /// Returns the message that the agent's answer at `path` cannot be read.
    pub(in crate::cli) fn unreadable_at(&self, path: &str) -> String {
        format!("cannot read {}: it may be of another version", self.answer_at(path))
    }

    fn answer(&self, path: &str, expected: &[&str], ask: Ask) -> anyhow::Result<Option<Vec<u8>>> {
        let Some(socket) = self.socket() else { return Ok(None) };
        let whom = socket.display();
        let answer = match ask(TIMEOUT, socket, path) {
            Ok(answer) => answer,
            Err(error) if is_nobody(&error) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Err(Late(whom.to_string()).into());
            }
            Err(error) => return Err(error).with_context(|| format!("cannot ask the agent on {whom}")),
        };
        body(answer, expected).map(Some).with_context(|| format!("the agent on {whom}"))
    }
}

/// How a request is sent, and its whole response received.
type Ask = fn(Duration, &Path, &str) -> io::Result<Vec<u8>>;

/// Sends a request from a thread of its own, because each step, `connect` too, may wait for a stopped agent.
/// All steps together have this much time.
fn within(patience: Duration, socket: &Path, path: &str) -> io::Result<Vec<u8>> {
    let (sender, answer) = mpsc::channel();
    let socket = socket.to_owned();
    let path = path.to_owned();
    thread::Builder::new().name("ask".to_owned()).spawn(move || {
        sender.send(here(patience, &socket, &path)).ok();
    })?;
    answer.recv_timeout(patience).unwrap_or_else(|_late| Err(io::ErrorKind::TimedOut.into()))
}

/// Sends a request. All steps after `connect` together have this much time.
fn here(patience: Duration, socket: &Path, path: &str) -> io::Result<Vec<u8>> {
    talk(UnixStream::connect(socket)?, path, patience)
}

/// Whether the socket does not exist, or no process listens to it.
fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn talk(mut stream: UnixStream, path: &str, patience: Duration) -> io::Result<Vec<u8>> {
    let begun = Instant::now();
    stream.set_write_timeout(Some(patience))?;
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(late)?;
    let mut answer = Vec::new();
    let mut part = vec![0; READ_SIZE];
    loop {
        let left = patience.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(answer),
            Ok(length) => answer.extend_from_slice(part.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(late(error)),
        }
        if answer.len() > MAX_RESPONSE_MIB << 20 {
            return Err(io::Error::other(format!(
                "its answer at {path} is longer than {MAX_RESPONSE_MIB} MiB"
            )));
        }
    }
}

/// Translates the kernel's error for a socket's deadline, `WouldBlock`.
fn late(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

/// Returns the body of a response with one of these status codes.
fn body(mut answer: Vec<u8>, expected: &[&str]) -> anyhow::Result<Vec<u8>> {
    const END: &[u8] = b"\r\n\r\n";
    let end = answer.windows(END.len()).position(|window| window == END);
    let end = end.ok_or_else(|| anyhow!("its answer is not HTTP"))?;
    // A long body is moved, not copied.
    let head: Vec<u8> = answer.drain(..end + END.len()).collect();
    let body = answer;
    let head = String::from_utf8_lossy(&head);
    let mut lines = head.lines();
    let status =
        lines.next().and_then(|line| line.strip_prefix("HTTP/1.")).and_then(|rest| rest.split(' ').nth(1));
    match status {
        Some(status) if expected.contains(&status) => {}
        Some(status) => {
            let said = String::from_utf8_lossy(&body);
            return Err(match said.trim() {
                "" => anyhow!(
                    "it answers {status} without a reason: it may be of another version, or not sandprobe"
                ),
                said => anyhow!("it answers {status}: {said}"),
            });
        }
        None => return Err(anyhow!("its answer is not HTTP")),
    }
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    match length {
        Some(length) if length != body.len() => Err(anyhow!("its answer was cut off")),
        Some(_) | None => Ok(body),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Read as _, Write as _},
        os::unix::net::UnixListener,
        thread,
        time::{Duration, Instant},
    };

    use super::{body, here, within};

    /// The server reads nothing at all, or sends a byte now and then. No thread goes on reading.
    #[test]
    fn who_does_not_answer_in_time_is_given_up_for_all_that_it_sends() {
        for ask in [within, here] {
            let dir = tempfile::tempdir().expect("a folder");
            let socket = dir.path().join("agent.sock");
            let listener = UnixListener::bind(&socket).expect("a socket");
            let late = |what: &str| {
                let begun = Instant::now();
                let error = ask(Duration::from_millis(300), &socket, "/").expect_err("no answer");
                assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{what}");
                assert!(begun.elapsed() < Duration::from_secs(3), "{what}: {:?}", begun.elapsed());
            };
            late("not accepted");
            let (unanswered, _) = listener.accept().expect("a client");
            let drips = thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("a client");
                stream.read_exact(&mut [0]).expect("a request");
                while stream.write_all(b"x").is_ok() {
                    thread::sleep(Duration::from_millis(10));
                }
            });
            late("dripping");
            drop(unanswered);
            drips.join().expect("the client closes");
        }
    }

    /// A command in the agent's pod must not get the agent killed.
    #[test]
    fn an_endless_answer_is_given_up_far_below_the_limit_of_the_pod() {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("agent.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut sent = 0;
            while let Ok(length) = stream.write(&[b'x'; 1 << 16]) {
                sent += length;
            }
            sent
        });
        let error = here(Duration::from_secs(60), &socket, "/v1/state").expect_err("no end");
        assert_eq!(error.to_string(), "its answer at /v1/state is longer than 64 MiB");
        let sent = server.join().expect("the client closes");
        let values = include_str!("../../../deploy/helm/sandprobe/values.yaml");
        let limit = values.split_once("limits: {memory: ").and_then(|(_, rest)| rest.split_once("Mi}"));
        let limit: usize = limit.and_then(|(limit, _)| limit.parse().ok()).expect("the chart's limit");
        assert!(sent < (limit / 2) << 20, "{sent} bytes of {limit} MiB");
    }

    #[test]
    fn an_answer_is_whole_or_an_error() {
        let body = |answer: &[u8], expected: &[&str]| body(answer.to_vec(), expected);
        let why = |answer: &[u8]| body(answer, &["200"]).expect_err("no answer").to_string();
        assert_eq!(body(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", &["200"]).expect("whole"), b"ok");
        assert_eq!(body(b"HTTP/1.1 200 OK\r\n\r\n\r\n\r\n", &["200"]).expect("whole"), b"\r\n\r\n");
        for empty in
            [&b"HTTP/1.0 404 Not Found\r\n\r\n"[..], b"HTTP/1.0 404 Not Found\r\ncontent-length: 1\r\n\r\n\n"]
        {
            assert_eq!(
                why(empty),
                "it answers 404 without a reason: it may be of another version, or not sandprobe"
            );
        }
        assert_eq!(why(b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nok"), "its answer was cut off");
        assert_eq!(
            why(b"HTTP/1.0 503 x\r\n\r\n{\"error\":\"late\"}\n"),
            "it answers 503: {\"error\":\"late\"}"
        );
        let whether = body(b"HTTP/1.0 503 x\r\n\r\nno", &["200", "503"]);
        assert_eq!(whether.expect("an answer"), b"no");
        for strange in [&b""[..], b"\r\n\r\n", b"SSH-2.0\r\n\r\n", b"HTTP/1.0\r\n\r\n", b"HTTP/1.0 200 OK"] {
            assert_eq!(why(strange), "its answer is not HTTP", "{strange:?}");
        }
    }
}
