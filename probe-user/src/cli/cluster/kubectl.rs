//! Runs kubectl, for a limited time.

use std::{
    io::{self, Read},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

/// The longest output that is read, bytes.
const MAX_OUTPUT_BYTES: u64 = 64 << 20;
/// How often to check whether kubectl has ended, once its output has.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// What kubectl prints if the command in the pod ended with a code other than 0. Without this line, such a
/// code is kubectl's own.
const TERMINATED: &str = "command terminated with exit code ";

/// kubectl's own flags.
pub(super) struct Kubectl {
    pub(super) context: Option<String>,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) namespace: String,
}

/// How the command of a pod has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) stdout: String,
    /// Without kubectl's own line about the code.
    pub(super) stderr: String,
    pub(super) code: u8,
}

impl Kubectl {
    /// The output of a command of kubectl itself.
    pub(super) fn output(&self, words: &[&str], patience: Duration) -> Result<String, String> {
        let mut command = self.command();
        command.args(words);
        let (stdout, stderr, code) = run(command, patience)?;
        if code == Some(0) { Ok(stdout) } else { Err(failure(&stderr, code)) }
    }

    /// Runs `sandprobe` in a pod, where the image has it.
    pub(super) fn exec(
        &self,
        pod: &str,
        container: &str,
        words: &[String],
        patience: Duration,
    ) -> Result<Ended, String> {
        let mut command = self.command();
        command.args(["exec", pod, "-c", container, "--", "/sandprobe"]).args(words);
        let (stdout, stderr, code) = run(command, patience)?;
        ended(stdout, &stderr, code)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("kubectl");
        if let Some(context) = &self.context {
            command.arg("--context").arg(context);
        }
        if let Some(kubeconfig) = &self.kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        command.arg("--namespace").arg(&self.namespace);
        command
    }
}

fn ended(stdout: String, stderr: &str, code: Option<i32>) -> Result<Ended, String> {
    let remote = stderr.lines().find_map(|line| line.strip_prefix(TERMINATED)?.trim().parse::<u8>().ok());
    let code = match (code, remote) {
        (Some(0), _) => 0,
        // 126 and 127: the command could not be run.
        (Some(_), Some(remote)) if remote < 126 => remote,
        (code, _) => return Err(failure(stderr, code)),
    };
    let said = stderr.lines().filter(|line| !line.starts_with(TERMINATED));
    Ok(Ended { stdout, stderr: said.collect::<Vec<_>>().join("\n"), code })
}

/// Returns why kubectl failed: its last line, which names the error. The line that the command ended does not
/// say why, so it is returned only if there is no other.
fn failure(stderr: &str, code: Option<i32>) -> String {
    let mut lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let said = lines.clone().rfind(|line| !line.starts_with(TERMINATED)).or_else(|| lines.next_back());
    match (said, code) {
        (Some(line), _) => line.to_owned(),
        (None, Some(code)) => format!("kubectl ended with exit code {code}"),
        (None, None) => "kubectl was killed".to_owned(),
    }
}

type Output = (String, String, Option<i32>);

/// Runs the command until it and its output have ended, and kills it when its time is over.
fn run(mut command: Command, patience: Duration) -> Result<Output, String> {
    let until = Instant::now() + patience;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            "kubectl is not in PATH".to_owned()
        } else {
            format!("cannot run kubectl: {error}")
        }
    })?;
    let output = collected(&mut child, until);
    if output.is_err() {
        // The child is ours, and may have ended by now. What it started may hold the pipes: nobody waits for
        // their end.
        child.kill().ok();
        child.wait().ok();
    }
    output.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => format!("it has not answered within {} s", patience.as_secs()),
        _ => format!("cannot read what kubectl prints: {error}"),
    })
}

fn collected(child: &mut Child, until: Instant) -> io::Result<Output> {
    let stdout = reading(child.stdout.take())?;
    let stderr = reading(child.stderr.take())?;
    let stdout = text(&stdout, until)?;
    let stderr = text(&stderr, until)?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((stdout, stderr, status.code()));
        }
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn text(bytes: &Receiver<io::Result<Vec<u8>>>, until: Instant) -> io::Result<String> {
    let left = until.saturating_duration_since(Instant::now());
    let bytes = bytes.recv_timeout(left).map_err(|_late| io::Error::from(io::ErrorKind::TimedOut))??;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads to the end in a thread of its own, so that neither pipe fills up while the other is read.
fn reading(pipe: Option<impl Read + Send + 'static>) -> io::Result<Receiver<io::Result<Vec<u8>>>> {
    let pipe = pipe.ok_or_else(|| io::Error::other("it has no output"))?;
    let (sender, bytes) = mpsc::channel();
    thread::Builder::new().name("kubectl".to_owned()).spawn(move || {
        let mut bytes = Vec::new();
        let read =
            pipe.take(MAX_OUTPUT_BYTES + 1).read_to_end(&mut bytes).and_then(|_| match bytes.len() as u64 {
                ..=MAX_OUTPUT_BYTES => Ok(bytes),
                _ => Err(io::Error::other(format!("it is longer than {} MiB", MAX_OUTPUT_BYTES >> 20))),
            });
        // Nobody waits any more once the time is over.
        sender.send(read).ok();
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{Ended, ended};

    #[test]
    fn the_code_of_the_command_is_told_from_kubectl_s_own() {
        let of = |stderr: &str, code| ended("out\n".to_owned(), stderr, code);
        let told =
            |stderr: &str, code| Ok(Ended { stdout: "out\n".to_owned(), stderr: stderr.to_owned(), code });
        assert_eq!(of("", Some(0)), told("", 0));
        assert_eq!(of("sandprobe: x\n", Some(0)), told("sandprobe: x", 0));
        assert_eq!(of("a\ncommand terminated with exit code 1\n", Some(1)), told("a", 1));
        let why = |stderr: &str, code| of(stderr, code).expect_err("it failed");
        assert_eq!(
            why("Error from server (NotFound): pods \"x\" not found\n", Some(1)),
            "Error from server (NotFound): pods \"x\" not found"
        );
        assert_eq!(
            why("exec failed: no sandprobe\ncommand terminated with exit code 127\n", Some(127)),
            "exec failed: no sandprobe"
        );
        assert_eq!(
            why("command terminated with exit code 127\n", Some(127)),
            "command terminated with exit code 127"
        );
        assert_eq!(why("", Some(1)), "kubectl ended with exit code 1");
        assert_eq!(why("\n", None), "kubectl was killed");
    }
}
