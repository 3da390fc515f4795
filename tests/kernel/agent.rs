//! The agent as a program: its start time, and its memory after many pods.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use tempfile::TempDir;
use tests::{cgroupfs::Hierarchy, guard::netns::MountedNetns, held, live::Shared, machine, program, refusal};

use crate::{
    cni::call::{Environment, Runtime},
    container::{Container, actor, new_id},
};

const START: Duration = Duration::from_secs(1);
const MEMORY_KB: u64 = 30_000;
/// The memory bound when the agent remembers as many namespaces as it may.
const STORM_KB: u64 = 40_000;

#[test]
fn its_memory_stays_small() -> Result<()> {
    let path = program::agent()?;
    let hierarchy = Shared::start()?.hierarchy().clone();

    let mut agent = Agent::start_in_time(&path)?;
    let pods = pods();
    let mut runtime = Runtime::start()?;
    for i in 0..pods {
        one_pod(i, &hierarchy, &mut runtime)?;
    }
    let (memory, written, summary) = agent.end()?;
    ensure!(memory < MEMORY_KB, "{memory} kB after {pods} pods: {summary}");
    ensure!(lost(&summary)? == 0 && written > 0, "{summary}");
    Ok(())
}

/// A container makes namespaces as fast as it can. Where hooks see everything, the agent has no netlink
/// thread. Where it has one, that thread spends hardly any CPU time. The namespaces give no finding.
#[test]
fn a_storm_of_namespaces_costs_little_and_leaves_no_verdict() -> Result<()> {
    let path = program::agent()?;
    let (hierarchy, is_needed) = {
        let live = Shared::start()?;
        (live.hierarchy().clone(), live.needs_netlink())
    };
    let container = Container::create(&hierarchy)?;
    let mut agent = Agent::start(&path)?;
    let storm = if machine::is_emulated() { "1000" } else { "4000" };
    let begun = Instant::now();
    let status = container.command(&[&actor()?, "unshare", storm])?.status()?;
    ensure!(status.success(), "the storm ended with {status}");
    let (spent, took) = (agent.spent_by("netlink")?, begun.elapsed());
    let (memory, _, summary) = agent.end()?;
    ensure!(spent.is_some() == is_needed, "netlink is needed: {is_needed}, and worked for {spent:?}");
    ensure!(spent.unwrap_or_default() < took / 10, "netlink worked for {spent:?} of {took:?}: {summary}");
    ensure!(memory < STORM_KB, "{memory} kB after the storm: {summary}");
    ensure!(!summary.contains("stuck_netns_teardown"), "{summary}");
    Ok(())
}

/// Returns the count of lost events in the agent's summary, without the hook runs that the kernel skipped.
/// The summary lists those by program.
fn lost(summary: &str) -> Result<u64> {
    let lost = summary
        .lines()
        .filter(|line| line.contains(" events, "))
        .find_map(|line| line.split(", ").find_map(|part| part.strip_suffix(" lost")));
    let lost = match lost.context("the summary does not count losses")? {
        "nothing" => 0,
        count => count.parse()?,
    };
    let skipped = summary.lines().find_map(|line| line.split_once("skipped, by program: "));
    let skipped = skipped.map_or("", |(_, programs)| programs).split(", ").filter(|one| !one.is_empty());
    skipped.into_iter().try_fold(lost, |lost: u64, one| {
        let (_, count) = one.rsplit_once(' ').context("a program without its count")?;
        lost.checked_sub(count.parse()?).context("more was skipped than lost")
    })
}

fn pods() -> usize {
    if machine::is_soak() {
        1000
    } else if machine::is_emulated() {
        5
    } else {
        100
    }
}

/// Does for one pod what a runtime and a kubelet do, as the kernel sees it.
fn one_pod(i: usize, hierarchy: &Hierarchy, runtime: &mut Runtime) -> Result<()> {
    let netns = MountedNetns::create()?;
    let container = Container::create(hierarchy)?;
    let path = netns.path().to_str().context("the path is no text")?;
    let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-{i}");
    let add = Environment::of_add(&new_id()?).with("CNI_NETNS", path).with("CNI_ARGS", &args);
    runtime.call(&add, &[])?;
    let mut child = container.idle()?;
    child.kill()?;
    child.wait()?;
    runtime.call(&add.with("CNI_COMMAND", "DEL"), &[])?;
    netns.end()
}

pub(crate) struct Agent {
    child: Child,
    /// The time from its start until all hooks were attached and tested.
    took: Duration,
    written: Option<JoinHandle<u64>>,
    rest: BufReader<std::process::ChildStderr>,
    /// The directory of its state.
    _state: TempDir,
}

impl Agent {
    /// Starts the agent a few times until one is attached in time. A busy machine can delay a single start.
    fn start_in_time(path: &Path) -> Result<Self> {
        const TRIES: usize = 3;
        let mut took = Vec::new();
        for _ in 0..TRIES {
            let agent = Self::start(path)?;
            // An emulated machine is slow.
            if machine::is_emulated() || agent.took < START {
                return Ok(agent);
            }
            took.push(agent.took);
        }
        bail!("attached after {took:?}")
    }

    pub(crate) fn start(path: &Path) -> Result<Self> {
        let state = tempfile::tempdir()?;
        let begun = Instant::now();
        let mut child = Command::new(path)
            .args(["run", "--no-pin", "--output", "json", "--all-execs", "--state-dir"])
            .arg(state.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", path.display()))?;
        let mut stdout = child.stdout.take().context("no output")?;
        let written = thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()).unwrap_or(0));
        let mut rest = BufReader::new(child.stderr.take().context("no output")?);
        let mut line = String::new();
        rest.read_line(&mut line)?;
        let took = begun.elapsed();
        ensure!(line.contains("hooks attached"), "the agent printed: {line}");
        Ok(Self { child, took, written: Some(written), rest, _state: state })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the CPU time of the thread with this name. `None` if there is no such thread.
    fn spent_by(&self, name: &str) -> Result<Option<Duration>> {
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            let stat = fs::read_to_string(thread?.path().join("stat"))?;
            let (comm, rest) = stat.rsplit_once(") ").context("no command in stat")?;
            if comm.ends_with(&format!("({name}")) {
                // The rest begins with the third field. User and system time are the 14th and 15th.
                let times = rest.split(' ').skip(11).take(2).map(str::parse::<u64>);
                let ticks: u64 = times.sum::<Result<_, _>>()?;
                return Ok(Some(Duration::from_millis(ticks * 10)));
            }
        }
        Ok(None)
    }

    /// Returns the next line of its standard error that begins with `begin`.
    pub(crate) fn says(&mut self, begin: &str) -> Result<String> {
        let mut before = String::new();
        loop {
            let mut line = String::new();
            ensure!(self.rest.read_line(&mut line)? > 0, "no {begin:?} in {before}");
            if line.starts_with(begin) {
                return Ok(line);
            }
            before += &line;
        }
    }

    /// Interrupts it. Returns its memory in kB, the bytes of events that it wrote, and its last lines.
    pub(crate) fn end(&mut self) -> Result<(u64, u64, String)> {
        let memory = held::kilobytes(self.child.id(), "VmRSS")?;
        signal::kill(Pid::from_raw(i32::try_from(self.child.id())?), Signal::SIGINT)?;
        let mut summary = String::new();
        self.rest.read_to_string(&mut summary)?;
        let ended = self.child.wait()?;
        ensure!(ended.success(), "the agent ended with {ended}: {summary}");
        refusal::check(&summary)?;
        let written = self.written.take().context("the agent has already ended")?;
        let written = written.join().map_err(|_panic| anyhow!("the reader panicked"))?;
        Ok((memory, written, summary))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The agent still runs only if a check has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
