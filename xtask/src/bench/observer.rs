//! Observers of programs that begin: their eBPF programs, and how long each has run, as the kernel counts it.

use crate::package::{self, Need};
use crate::{mounts, root, workspace};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The name of the observer that is the agent.
pub(super) const OURS: &str = "sandprobe";
/// The classic one-liner.
const ONE_LINER: &str = "tracepoint:syscalls:sys_enter_execve { printf(\"%d \", pid); join(args->argv); }";
/// Debian's packages, and the commands that run what is in them.
const OTHERS: [(&str, &[&str]); 2] =
    [("libbpf-tools", &["execsnoop"]), ("bpftrace", &["bpftrace", "-e", ONE_LINER])];
/// An observer has loaded all its programs within this time.
const LIMIT: Duration = Duration::from_secs(60);
/// If no further program came for this long, the observer has loaded all.
const QUIET: Duration = Duration::from_secs(2);

/// How long a program has run, and how often.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    pub(super) nanoseconds: f64,
    pub(super) count: f64,
}

/// An observer that has loaded all its programs. It ends when it is dropped.
pub(super) struct Observer {
    child: Option<Child>,
    programs: BTreeMap<u64, String>,
}

impl Observer {
    /// Starts an observer; `None`: nobody watches.
    pub(super) fn begin(command: Option<Command>) -> Result<Self> {
        let Some(mut command) = command else {
            return Ok(Self { child: None, programs: BTreeMap::new() });
        };
        let before: BTreeSet<u64> = programs()?.into_keys().collect();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot start {}", workspace::line(&command)))?;
        let mut it = Self { child: Some(child), programs: BTreeMap::new() };
        let begun = Instant::now();
        let mut grown = begun;
        while it.programs.is_empty() || grown.elapsed() < QUIET {
            ensure!(begun.elapsed() < LIMIT, "{} has no programs in the kernel", workspace::line(&command));
            thread::sleep(Duration::from_millis(200));
            let mut now = programs()?;
            now.retain(|id, _| !before.contains(id));
            if now.len() != it.programs.len() {
                grown = Instant::now();
            }
            it.programs = now.into_iter().map(|(id, (name, _))| (id, name)).collect();
        }
        Ok(it)
    }

    /// Returns the runs of its programs until now, by name. Programs of one name are counted together.
    pub(super) fn runs(&self) -> Result<BTreeMap<String, Run>> {
        let mut runs: BTreeMap<String, Run> = BTreeMap::new();
        for (id, (_, run)) in programs()? {
            if let Some(name) = self.programs.get(&id) {
                let sum = runs.entry(name.clone()).or_default();
                sum.nanoseconds += run.nanoseconds;
                sum.count += run.count;
            }
        }
        Ok(runs)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // SIGINT lets it end by itself, so that none of its programs stays in the kernel.
            let _ = root::command("kill").args(["-INT", &child.id().to_string()]).status();
            let _ = child.wait();
        }
    }
}

/// Lists every program in the kernel.
fn programs() -> Result<BTreeMap<u64, (String, Run)>> {
    let text = workspace::output(root::command("bpftool").args(["prog", "show", "--json"]))?;
    let all: Vec<Value> = serde_json::from_str(&text).context("bpftool prints no JSON")?;
    let mut programs = BTreeMap::new();
    for it in &all {
        let Some(id) = it["id"].as_u64() else { continue };
        let name = it["name"].as_str().unwrap_or("?").to_owned();
        let nanoseconds = it["run_time_ns"].as_f64().unwrap_or(0.0);
        let count = it["run_cnt"].as_f64().unwrap_or(0.0);
        programs.insert(id, (name, Run { nanoseconds, count }));
    }
    Ok(programs)
}

/// An observer that may be installed.
pub(super) struct Candidate {
    pub(super) name: String,
    /// Whether its program is installed.
    pub(super) is_here: bool,
    words: &'static [&'static str],
}

impl Candidate {
    /// Returns the command that starts it; `None`: nobody watches.
    pub(super) fn command(&self, agent: &Path) -> Result<Option<Command>> {
        if self.words.is_empty() {
            return Ok(None);
        }
        let mut command = mounts::command(&[])?;
        if self.name == OURS {
            command.arg(agent);
        }
        command.args(self.words);
        Ok(Some(command))
    }
}

/// Returns all observers: the first is nobody, the last is ours. The name says if a program could not be
/// installed.
pub(super) fn all() -> Result<Vec<Candidate>> {
    let mut all = vec![Candidate { name: "nobody".to_owned(), is_here: true, words: &[] }];
    for (package, words) in OTHERS {
        let is_here = package::ensure(&[Need::any(&words[..1], package)]).is_ok();
        let name = if is_here { words[0].to_owned() } else { format!("{} (not installed)", words[0]) };
        all.push(Candidate { name, is_here, words });
    }
    all.push(Candidate { name: OURS.to_owned(), is_here: true, words: &["watch"] });
    Ok(all)
}
