//! QEMU's machine protocol (QMP), as far as it is needed to save and restore a VM: one line of JSON in each
//! direction.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How often to check whether QEMU has made its socket.
const STEP: Duration = Duration::from_millis(10);

/// A connection after QEMU's greeting.
pub(super) struct Monitor {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
    deadline: Instant,
}

impl Monitor {
    /// Waits for the socket, which QEMU makes soon after its start, and for the greeting.
    pub(super) fn connect(socket: &Path, deadline: Instant) -> Result<Self> {
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(_) if Instant::now() < deadline => thread::sleep(STEP),
                Err(error) => return Err(error).context("QEMU does not open its monitor"),
            }
        };
        let lines = BufReader::new(stream.try_clone()?);
        let mut monitor = Self { stream, lines, deadline };
        let greeting = monitor.receive()?;
        ensure!(greeting.get("QMP").is_some(), "QEMU's monitor says no greeting but {greeting}");
        monitor.execute("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// Sends a command and waits for its answer; skips events in between.
    pub(super) fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let line = json!({ "execute": command, "arguments": arguments });
        writeln!(self.stream, "{line}").with_context(|| format!("cannot tell QEMU to {command}"))?;
        loop {
            let mut answer = self.receive()?;
            if let Some(error) = answer.get("error") {
                bail!("QEMU refuses to {command}: {}", error["desc"].as_str().unwrap_or("no reason given"));
            }
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
        }
    }

    /// Waits until a migration, of either direction, has completed.
    pub(super) fn migrated(&mut self) -> Result<()> {
        loop {
            let message = self.receive()?;
            match migration(&message) {
                Some("completed") => return Ok(()),
                Some(bad @ ("failed" | "cancelled")) => bail!("QEMU's migration {bad}"),
                _ => {}
            }
        }
    }

    fn receive(&mut self) -> Result<Value> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        // A timeout of zero would mean none.
        self.stream.set_read_timeout(Some(left.max(STEP)))?;
        let mut line = String::new();
        let n = self.lines.read_line(&mut line).context("QEMU's monitor does not answer")?;
        ensure!(n > 0, "QEMU ended while it was asked something");
        serde_json::from_str(&line).with_context(|| format!("QEMU's monitor says no JSON but {line:?}"))
    }
}

/// Returns the new state of a migration, if the message has one.
fn migration(message: &Value) -> Option<&str> {
    (message["event"] == "MIGRATION").then(|| message["data"]["status"].as_str())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn states_of_a_migration() {
        assert_eq!(
            migration(&json!({ "event": "MIGRATION", "data": { "status": "active" } })),
            Some("active")
        );
        assert_eq!(migration(&json!({ "event": "STOP" })), None);
        assert_eq!(migration(&json!({ "return": {} })), None);
    }

    /// An answer is found among events, and a refusal is reported with QEMU's reason.
    #[test]
    fn answers_and_refusals() {
        let dir = std::env::temp_dir().join(format!("xtask-monitor-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let socket = dir.join("qmp");
        let listener = UnixListener::bind(&socket).unwrap();
        let qemu = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            writeln!(stream, r#"{{"QMP":{{}}}}"#).unwrap();
            for answer in [
                r#"{"return":{}}"#,
                "{\"event\":\"STOP\"}\n{\"return\":{\"a\":1}}",
                r#"{"error":{"desc":"no"}}"#,
            ] {
                lines.next().unwrap().unwrap();
                writeln!(stream, "{answer}").unwrap();
            }
        });
        let mut monitor = Monitor::connect(&socket, Instant::now() + Duration::from_secs(5)).unwrap();
        assert_eq!(monitor.execute("stop", &json!({})).unwrap(), json!({ "a": 1 }));
        let refused = monitor.execute("migrate", &json!({})).unwrap_err().to_string();
        assert_eq!(refused, "QEMU refuses to migrate: no");
        qemu.join().unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
