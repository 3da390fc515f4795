//! Those who watch programs begin: their eBPF programs, and how long each has run, as the kernel counts it.

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
/// An observer has all its programs in the kernel by then.
const LIMIT: Duration = Duration::from_secs(60);
/// When in so long no further program of it came, it has all.
const QUIET: Duration = Duration::from_secs(2);

/// How long a program has run, and how often.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    pub(super) nanoseconds: f64,
    pub(super) count: f64,
}

/// One that has all its programs in the kernel. It ends when it is dropped.
pub(super) struct Observer {
    child: Option<Child>,
    programs: BTreeMap<u64, String>,
}

impl Observer {
    /// `None`: nobody watches.
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

    /// What its programs did until now, by name. Programs of one name are counted together.
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
            // It ends by itself, so that no program of it stays in the kernel.
            let _ = root::command("kill").args(["-INT", &child.id().to_string()]).status();
            let _ = child.wait();
        }
    }
}

/// Every program in the kernel.
fn programs() -> Result<BTreeMap<u64, (String, Run)>> {
    let text = workspace::output(root::command("bpftool").args(["prog", "show", "--json"]))?;
    let all: Vec<Value> = serde_json::from_str(&text).context("bpftool tells no JSON")?;
    let program = |it: &Value| {
        let number = |name: &str| it[name].as_f64().unwrap_or(0.0);
        let run = Run { nanoseconds: number("run_time_ns"), count: number("run_cnt") };
        Some((it["id"].as_u64()?, (it["name"].as_str().unwrap_or("?").to_owned(), run)))
    };
    Ok(all.iter().filter_map(program).collect())
}

/// One who may watch.
pub(super) struct Candidate {
    pub(super) name: String,
    /// Whether its program is installed.
    pub(super) is_here: bool,
    words: &'static [&'static str],
}

impl Candidate {
    /// `None`: nobody watches.
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

/// The first is nobody, the last is ours. Where a program is not installed and cannot be, its name says so.
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
