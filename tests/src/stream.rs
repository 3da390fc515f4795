//! Runs `sandprobe` beside a test and reads its events.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    process::{Child, ChildStderr, Command, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    cgroupfs,
    guard::cgroup::CgroupGuard,
    held::Held,
    machine, refusal,
    skipped::{self, SKIPPED},
};
use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

/// How long the agent may wait for a pod's name. The tests are about the name, and a busy machine may take
/// long to give it.
const HOLD: &str = "30s";

/// A running agent. [`Stream::end`] ends it normally. Dropping it kills it.
pub struct Stream {
    child: Child,
    lines: Receiver<String>,
    said: Said,
    pub received: Received,
}

/// Whether this is a gap of netlink between two agents, or of an agent that was held up, where no hook sees
/// what netlink reports. Everything else is reported.
#[must_use]
pub fn is_unheard(event: &Value) -> bool {
    let gap = &event["gap"];
    gap["what"] == "netlink_socket" && gap["count"] == "0" && !gap["lasted_ns"].is_null()
}

/// The agent's standard error so far.
struct Said {
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Said {
    fn read(stderr: ChildStderr) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let own = Arc::clone(&text);
        let reader = thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut text = own.lock().expect("no reader panics with it");
                text.push_str(&line);
                text.push('\n');
            }
        });
        Self { text, reader: Some(reader) }
    }

    fn text(&self) -> String {
        self.text.lock().expect("no reader panics with it").clone()
    }

    /// Returns all of it after the agent's end.
    fn whole(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("it does not panic");
        }
        self.text()
    }
}

/// The events received so far.
#[derive(Default)]
pub struct Received {
    pub bytes: String,
    pub events: Vec<Value>,
    /// The hook runs that the kernel had counted as skipped when the agent was asked to end.
    skipped: u64,
}

impl Stream {
    /// Starts `sandprobe` with these arguments and waits until its hooks are seen to fire.
    pub fn start(arguments: &[&str]) -> Result<Self> {
        let mut child = Command::new("sandprobe")
            .args(arguments)
            .args(["-o", "json", "--hold", HOLD])
            // This agent must not use the state and the hooks of another test's agent.
            .env("SANDPROBE_STATE_DIR", "none")
            .env("SANDPROBE_PIN_DIR", "none")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start sandprobe: it must be built and in PATH. cargo xtask test does both")?;
        let stdout = child.stdout.take().context("its standard output was asked for")?;
        let stderr = child.stderr.take().context("its standard error was asked for")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let said = Said::read(stderr);
        let mut stream = Self { child, lines, said, received: Received::default() };
        stream.wait_ready()?;
        Ok(stream)
    }

    /// Makes cgroups until an event reports one.
    fn wait_ready(&mut self) -> Result<()> {
        const STEP: Duration = Duration::from_millis(200);
        let patience = machine::patience();
        let deadline = Instant::now() + patience;
        let hierarchies = cgroupfs::hierarchies()?;
        while Instant::now() < deadline {
            let mut made = Vec::new();
            for hierarchy in &hierarchies {
                made.push(CgroupGuard::create(hierarchy)?);
            }
            if self.wait_for(STEP, |event| {
                event["event"] == "cgroup.created"
                    && made.iter().any(|cgroup| event["cgroup"]["path"] == cgroup.path())
            }) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("sandprobe ended with {status}: {}", self.said.whole().trim());
            }
        }
        bail!("sandprobe reported no cgroup within {patience:?}")
    }

    /// Whether such an event arrives from now on within `limit`.
    fn wait_for(&mut self, limit: Duration, wanted: impl Fn(&Value) -> bool) -> bool {
        let mut deadline = Instant::now() + limit;
        loop {
            let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) else {
                return false;
            };
            let Some(event) = self.received.take(&line) else { continue };
            if wanted(event) {
                return true;
            }
            if event["gap"]["what"] == SKIPPED {
                deadline = deadline.min(Instant::now() + skipped::PATIENCE);
            }
        }
    }

    /// Waits until such an event has arrived, now or before.
    pub fn until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<()> {
        self.until_after(Duration::ZERO, what, wanted)
    }

    /// Like `until`, for an event that can arrive only after `delay`.
    pub fn until_after(
        &mut self,
        delay: Duration,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        if self.received.events.iter().any(&wanted) {
            return Ok(());
        }
        let patience = delay + machine::patience();
        ensure!(
            self.wait_for(patience, wanted),
            "{what} was not reported within {patience:?}: {}",
            self.last()
        );
        Ok(())
    }

    /// Returns the agent's status, its standard error, and its last lines.
    fn last(&mut self) -> String {
        const LINES: usize = 200;
        let status = self.child.try_wait().ok().flatten();
        let state =
            status.map_or("the agent runs".to_owned(), |status| format!("the agent ended with {status}"));
        let lines: Vec<&str> = self.received.bytes.lines().collect();
        let last = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("\n");
        format!("{state}\n{}\nthe last of {} lines:\n{last}", self.said.text(), lines.len())
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the agent's present resources.
    pub fn held(&self) -> Result<Held> {
        Held::of(self.child.id())
    }

    /// Interrupts it as ctrl-C does. Returns its events and its standard error.
    pub fn end(mut self) -> Result<(Received, String)> {
        self.received.skipped = skipped::of_process(self.child.id())?;
        skipped::detached(self.received.skipped);
        kill(Pid::from_raw(i32::try_from(self.child.id())?), Signal::SIGINT)?;
        while let Ok(line) = self.lines.recv_timeout(machine::patience()) {
            self.received.take(&line);
        }
        let status = self.child.wait()?;
        let stderr = self.said.whole();
        ensure!(status.success(), "sandprobe ended with {status}: {stderr}");
        refusal::check(&stderr)?;
        Ok((std::mem::take(&mut self.received), stderr))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // The agent may have ended already.
        skipped::detached(skipped::of_process(self.child.id()).unwrap_or(0));
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Received {
    /// Stores a line. A line that is not an event stays in `bytes`, which a failed wait prints.
    fn take(&mut self, line: &str) -> Option<&Value> {
        self.bytes.push_str(line);
        self.bytes.push('\n');
        let event = serde_json::from_str(line).ok()?;
        self.events.push(event);
        self.events.last()
    }

    /// Returns the events of one pod.
    pub fn of_pod(&self, uid: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["pod"]["uid"] == uid).collect()
    }

    /// Returns the number of skipped hook runs by the agent's gap events. Fails if anything else was lost.
    pub fn lost(&self) -> Result<u64> {
        let mut losses = self.losses()?;
        let lost = losses.remove(SKIPPED).unwrap_or(0);
        ensure!(losses.is_empty(), "something was lost: {losses:?}");
        Ok(lost)
    }

    /// Returns the number of losses of each kind by the agent's gap events, except [`is_unheard`]. Fails if
    /// they report fewer skipped runs than the kernel counted.
    pub fn losses(&self) -> Result<BTreeMap<&str, u64>> {
        let mut losses = BTreeMap::new();
        for event in self.named("gap").filter(|event| !is_unheard(event)) {
            let gap = &event["gap"];
            let (what, count) = (gap["what"].as_str(), gap["count"].as_str());
            let count: u64 = count.context("a gap without a count")?.parse()?;
            *losses.entry(what.context("a gap without a kind")?).or_default() += count;
        }
        let skipped = losses.get(SKIPPED).copied().unwrap_or(0);
        ensure!(skipped >= self.skipped, "{} runs were skipped, {skipped} are reported", self.skipped);
        Ok(losses)
    }

    /// Returns the events with this name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |event| event["event"] == name)
    }
}
