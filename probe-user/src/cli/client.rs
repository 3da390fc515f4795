//! Sends requests to the agent of this node over its socket.
//!
//! It uses HTTP/1.0 (RFC 1945): the response is complete when the connection ends, and is not chunked.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use clap::Args;

use super::args::{SOCKET, SOCKET_VARIABLE, is_typed};

/// The deadline of a request: longer than the server waits for the agent's loop (`docs/api.md`).
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest response that is read, bytes.
const LONGEST: u64 = 256 << 20;

#[derive(Debug, Args)]
pub(in crate::cli) struct AgentArgs {
    /// The socket on which the running agent answers; "none" to ask no agent
    /// [default: /run/sandprobe/sandprobe.sock]
    #[arg(long, value_name = "PATH", env = SOCKET_VARIABLE)]
    socket: Option<PathBuf>,
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

    /// The agent's response. The error has a reason if it is to be reported: a given socket has no agent, or the
    /// agent cannot be asked. The caller then reads files instead.
    pub(in crate::cli) fn ask_or_why(&self, path: &str) -> Result<Vec<u8>, Option<String>> {
        match self.ask(path) {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) if self.socket.is_some() && self.socket().is_some() => {
                Err(Some("no agent answers there".to_owned()))
            }
            Ok(None) => Err(None),
            Err(error) => Err(Some(format!("{error:#}"))),
        }
    }

    /// The agent's response at `path`; `None` if no agent listens. An error means that one listens but cannot be
    /// asked.
    pub(in crate::cli) fn ask(&self, path: &str) -> anyhow::Result<Option<Vec<u8>>> {
        self.answer(path, &["200"])
    }

    /// Like `ask`, of a path whose status 503 is an answer too: no.
    pub(in crate::cli) fn ask_whether(&self, path: &str) -> anyhow::Result<Option<Vec<u8>>> {
        self.answer(path, &["200", "503"])
    }

    fn answer(&self, path: &str, expected: &[&str]) -> anyhow::Result<Option<Vec<u8>>> {
        let Some(socket) = self.socket() else { return Ok(None) };
        let whom = socket.display();
        let answer = match within(PATIENCE, socket, path) {
            Ok(answer) => answer,
            Err(error) if is_nobody(&error) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Err(anyhow!(
                    "the agent on {whom} has not answered within {} s: it may be stopped or hang; look at the state of \
                     its process (ps -C sandprobe -o pid,stat,args) and at its log",
                    PATIENCE.as_secs()
                ));
            }
            Err(error) => return Err(error).with_context(|| format!("cannot ask the agent on {whom}")),
        };
        body(&answer, expected)
            .map(|body| Some(body.to_vec()))
            .with_context(|| format!("the agent on {whom}"))
    }
}

/// The whole response. Each step, `connect` too, may wait for an agent that is stopped; together they have this much
/// time.
fn within(patience: Duration, socket: &Path, path: &str) -> io::Result<Vec<u8>> {
    let (told, answer) = mpsc::channel();
    let (socket, path) = (socket.to_owned(), path.to_owned());
    thread::Builder::new().name("ask".to_owned()).spawn(move || {
        told.send(UnixStream::connect(&socket).and_then(|stream| talk(stream, &path))).ok();
    })?;
    answer.recv_timeout(patience).unwrap_or_else(|_late| Err(io::ErrorKind::TimedOut.into()))
}

/// The socket does not exist, or no process listens to it.
fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn talk(mut stream: UnixStream, path: &str) -> io::Result<Vec<u8>> {
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer)?;
    Ok(answer)
}

/// The body of a response with one of these status codes.
fn body<'a>(answer: &'a [u8], expected: &[&str]) -> anyhow::Result<&'a [u8]> {
    const END: &[u8] = b"\r\n\r\n";
    let end = answer.windows(END.len()).position(|window| window == END);
    let (head, rest) = answer.split_at(end.ok_or_else(|| anyhow!("its answer is no HTTP"))?);
    let body = rest.get(END.len()..).unwrap_or_default();
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let status =
        lines.next().and_then(|line| line.strip_prefix("HTTP/1.")).and_then(|rest| rest.split(' ').nth(1));
    match status {
        Some(status) if expected.contains(&status) => {}
        Some(status) => return Err(anyhow!("it answers {status}: {}", String::from_utf8_lossy(body).trim())),
        None => return Err(anyhow!("its answer is no HTTP")),
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

    use super::{body, within};

    /// The server reads nothing at all, or sends a byte now and then.
    #[test]
    fn who_does_not_answer_in_time_is_given_up_for_all_that_it_sends() {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("agent.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let late = |what: &str| {
            let begun = Instant::now();
            let error = within(Duration::from_millis(300), &socket, "/").expect_err("no answer");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{what}");
            assert!(begun.elapsed() < Duration::from_secs(3), "{what}: {:?}", begun.elapsed());
        };
        late("not accepted");
        let (unanswered, _) = listener.accept().expect("a client");
        let drips = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.read_exact(&mut [0]).expect("a request");
            for _ in 0..100 {
                stream.write_all(b"x").expect("it reads on");
                thread::sleep(Duration::from_millis(10));
            }
        });
        late("dripping");
        drop(unanswered);
        drips.join().expect("no panic");
    }

    #[test]
    fn an_answer_is_whole_or_an_error() {
        let why = |answer: &[u8]| body(answer, &["200"]).expect_err("no answer").to_string();
        assert_eq!(body(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", &["200"]).expect("whole"), b"ok");
        assert_eq!(body(b"HTTP/1.1 200 OK\r\n\r\n\r\n\r\n", &["200"]).expect("whole"), b"\r\n\r\n");
        assert_eq!(why(b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nok"), "its answer was cut off");
        assert_eq!(
            why(b"HTTP/1.0 503 x\r\n\r\n{\"error\":\"late\"}\n"),
            "it answers 503: {\"error\":\"late\"}"
        );
        let whether = body(b"HTTP/1.0 503 x\r\n\r\nno", &["200", "503"]);
        assert_eq!(whether.expect("an answer"), b"no");
        for strange in [&b""[..], b"\r\n\r\n", b"SSH-2.0\r\n\r\n", b"HTTP/1.0\r\n\r\n", b"HTTP/1.0 200 OK"] {
            assert_eq!(why(strange), "its answer is no HTTP", "{strange:?}");
        }
    }
}
