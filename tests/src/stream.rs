//! A `sandprobe` that runs beside a test, and the stream of events that it told.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{cgroupfs, guard::cgroup::CgroupGuard, machine, refusal, skipped};
use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

/// How long the agent may wait for a pod's name: a test is about the name, however long a busy machine takes to give
/// it.
const HOLD: &str = "30s";

/// What a gap of runs that the kernel itself skipped is in.
pub const SKIPPED: &str = "skipped_run";

/// A running agent. Dropped, it is killed; [`Stream::end`] is the orderly way.
pub struct Stream {
    child: Child,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
    pub told: Told,
}

/// All that was told so far.
#[derive(Default)]
pub struct Told {
    pub bytes: String,
    pub events: Vec<Value>,
    /// Runs of its hooks that the kernel had counted as skipped when it was told to end.
    skipped: u64,
}

impl Stream {
    /// Starts `sandprobe` with these arguments and waits until its hooks are seen to fire.
    pub fn start(arguments: &[&str]) -> Result<Self> {
        let mut child = Command::new("sandprobe")
            .args(arguments)
            .args(["-o", "json", "--hold", HOLD])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start sandprobe: is it built and in PATH? cargo xtask test does both")?;
        let stdout = child.stdout.take().context("its standard output was asked for")?;
        let mut stderr = child.stderr.take().context("its standard error was asked for")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let stderr = thread::spawn(move || {
            let mut said = String::new();
            stderr.read_to_string(&mut said).ok();
            said
        });
        let mut stream = Self { child, lines, stderr: Some(stderr), told: Told::default() };
        stream.wait_ready()?;
        Ok(stream)
    }

    /// Makes cgroups until one is told of.
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
                let said = self.stderr.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
                bail!("sandprobe ended with {status}: {}", said.trim());
            }
        }
        bail!("sandprobe told of no cgroup within {patience:?}")
    }

    /// Whether such an event is told from now on within `limit`.
    fn wait_for(&mut self, limit: Duration, wanted: impl Fn(&Value) -> bool) -> bool {
        let mut deadline = Instant::now() + limit;
        loop {
            let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) else {
                return false;
            };
            let Some(event) = self.told.take(&line) else { continue };
            if wanted(event) {
                return true;
            }
            if event["gap"]["what"] == SKIPPED {
                deadline = deadline.min(Instant::now() + skipped::PATIENCE);
            }
        }
    }

    /// Waits until such an event was told, now or before.
    pub fn until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<()> {
        self.until_after(Duration::ZERO, what, wanted)
    }

    /// The same for what can be told only after such a time.
    pub fn until_after(
        &mut self,
        delay: Duration,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        if self.told.events.iter().any(&wanted) {
            return Ok(());
        }
        let patience = delay + machine::patience();
        ensure!(
            self.wait_for(patience, wanted),
            "{what} was not told within {patience:?}:\n{}",
            self.told.bytes
        );
        Ok(())
    }

    /// The resident memory of the agent, bytes: its own and the rings that it has mapped. The pages of its program's file
    /// do not count: the kernel shares them, and maps more or fewer of them by how the page cache holds the file.
    pub fn memory(&self) -> Result<u64> {
        let process = format!("/proc/{}", self.child.id());
        let program = fs::read_link(format!("{process}/exe"))?;
        let program = program.to_str().context("the program's path is not UTF-8")?;
        let mut is_program = false;
        let mut kib = 0;
        for line in fs::read_to_string(format!("{process}/smaps"))?.lines() {
            if let Some(size) = line.strip_prefix("Rss:") {
                let size: u64 = size.trim().trim_end_matches(" kB").parse()?;
                kib += if is_program { 0 } else { size };
            } else if line.starts_with(|first: char| first.is_ascii_hexdigit() && !first.is_ascii_uppercase())
            {
                is_program = line.ends_with(program);
            }
        }
        ensure!(kib > 0, "{process}/smaps has no resident memory");
        Ok(kib * 1024)
    }

    /// Asks it to end as ctrl-C does, and gives all that it told and what it said on standard error.
    pub fn end(mut self) -> Result<(Told, String)> {
        self.told.skipped = skipped::of_process(self.child.id())?;
        skipped::detached(self.told.skipped);
        kill(Pid::from_raw(i32::try_from(self.child.id())?), Signal::SIGINT)?;
        while let Ok(line) = self.lines.recv_timeout(machine::patience()) {
            self.told.take(&line);
        }
        let status = self.child.wait()?;
        let said = self.stderr.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        ensure!(status.success(), "sandprobe ended with {status}: {said}");
        refusal::check(&said)?;
        Ok((std::mem::take(&mut self.told), said))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Nothing to be done about one that has ended already.
        skipped::detached(skipped::of_process(self.child.id()).unwrap_or(0));
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Told {
    /// Keeps a line; a line that is no event fails what looks for it, with the bytes shown.
    fn take(&mut self, line: &str) -> Option<&Value> {
        self.bytes.push_str(line);
        self.bytes.push('\n');
        let event = serde_json::from_str(line).ok()?;
        self.events.push(event);
        self.events.last()
    }

    /// What was told of one pod.
    pub fn of_pod(&self, uid: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["pod"]["uid"] == uid).collect()
    }

    /// How much is told to be lost: nothing but runs that the kernel itself skipped, and no fewer than it says.
    pub fn lost(&self) -> Result<u64> {
        let mut losses = self.losses()?;
        let lost = losses.remove(SKIPPED).unwrap_or(0);
        ensure!(losses.is_empty(), "something was lost: {losses:?}");
        Ok(lost)
    }

    /// How much is told to be lost of what, where that is anything: no fewer runs than the kernel itself skipped.
    pub fn losses(&self) -> Result<BTreeMap<&str, u64>> {
        let mut losses = BTreeMap::new();
        for event in self.named("gap") {
            let gap = &event["gap"];
            let (what, count) = (gap["what"].as_str(), gap["count"].as_str());
            let count: u64 = count.context("a gap without its count")?.parse()?;
            *losses.entry(what.context("a gap of nothing")?).or_default() += count;
        }
        let skipped = losses.get(SKIPPED).copied().unwrap_or(0);
        ensure!(skipped >= self.skipped, "{} runs were skipped, told of {skipped}", self.skipped);
        Ok(losses)
    }

    /// Events of a name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |event| event["event"] == name)
    }
}
