//! The rights that the shipped agent has given up, read from each of its threads.

mod operation;

use std::{collections::BTreeMap, fs, time::Instant};

use anyhow::{Context as _, Result, bail, ensure};
use probe_user::confine::{Measure, State, survey};
use tests::{machine, program};

use crate::agent::Agent;

const DAC_READ_SEARCH: u64 = 1 << 2;
const NET_ADMIN: u64 = 1 << 12;
const SYS_PTRACE: u64 = 1 << 19;
const BPF: u64 = 1 << 39;

/// The threads that a run with a state directory has on every kernel.
const THREADS: [&str; 6] = ["sandprobe", "files", "runtimes", "stream", "findings", "history"];

/// The lines of `/proc/PID/task/TID/status` of one thread.
type Status = BTreeMap<String, String>;

#[test]
fn every_thread_has_what_it_needs_and_no_more() -> Result<()> {
    let mut agent = Agent::start(&program::agent()?)?;
    let printed = agent.says("confined: ")?;
    ensure!(!printed.contains("not system calls") && !printed.contains("not capabilities"), "{printed}");
    let threads = settled(agent.pid())?;
    for (name, status) in &threads {
        let is = |key: &str, value: u64| -> Result<()> {
            let found = status.get(key).with_context(|| format!("{name}: no {key}"))?;
            let number = u64::from_str_radix(found, 16)?;
            ensure!(number == value, "{name}: {key} is {found} and not {value:x}: {printed}");
            Ok(())
        };
        let kept = match name.as_str() {
            "netlink" => SYS_PTRACE | DAC_READ_SEARCH | NET_ADMIN,
            "files" | "reader" | "runtimes" => SYS_PTRACE | DAC_READ_SEARCH,
            "sandprobe" if counters_need_a_capability()? => BPF,
            _ => 0,
        };
        for (key, value) in [("CapEff", kept), ("CapPrm", kept), ("CapInh", 0), ("CapBnd", 0), ("CapAmb", 0)]
        {
            is(key, value)?;
        }
        is("NoNewPrivs", 1)?;
        // SECCOMP_MODE_FILTER
        is("Seccomp", 2)?;
    }
    agent.end()?;
    Ok(())
}

/// Whether this kernel can confine file access.
pub(crate) fn has_landlock() -> Result<bool> {
    let lacks =
        |(measure, state): &(Measure, State)| *measure == Measure::Files && matches!(state, State::Absent(_));
    Ok(!survey()?.measures.iter().any(lacks))
}

/// Returns the threads by name. Waits until the last one exists, each has its name, and the main one has
/// given up the rights with which it started them.
fn settled(pid: u32) -> Result<Vec<(String, Status)>> {
    let limit = Instant::now() + machine::patience();
    loop {
        let threads = threads(pid)?;
        let there = |name: &str| threads.iter().find(|(it, _)| it == name);
        let begun = THREADS.into_iter().all(|name| there(name).is_some()) && there("nursery").is_none();
        // A new thread has the main one's name at first.
        let unnamed = threads.iter().filter(|(name, _)| name == "sandprobe").count() != 1;
        let main = there("sandprobe").and_then(|(_, status)| status.get("CapEff"));
        let done =
            main.is_some_and(|held| u64::from_str_radix(held, 16).is_ok_and(|held| held & SYS_PTRACE == 0));
        if begun && done && !unnamed {
            return Ok(threads);
        }
        if Instant::now() > limit {
            bail!("the threads do not settle: {threads:#?}");
        }
        std::thread::yield_now();
    }
}

/// Returns the status of each thread. A thread that ends meanwhile is left out.
fn threads(pid: u32) -> Result<Vec<(String, Status)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(text) = fs::read_to_string(entry?.path().join("status")) else { continue };
        let lines = text.lines().filter_map(|line| line.split_once(":\t"));
        let status: Status = lines.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        found.push((status.get("Name").context("no Name")?.clone(), status));
    }
    Ok(found)
}

/// Before 5.19, a kernel that closed a part of bpf(2) to unprivileged processes closed all of it
/// (`__sys_bpf`).
fn counters_need_a_capability() -> Result<bool> {
    let closed = fs::read_to_string("/proc/sys/kernel/unprivileged_bpf_disabled")?;
    Ok(closed.trim() != "0" && machine::kernel()? < (5, 19))
}
