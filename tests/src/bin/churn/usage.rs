//! The resources that a process has used until now, as the kernel counts them.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context as _, Result};
use nix::{
    time::{clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};

pub(crate) struct Usage {
    /// The CPU time of all its threads, ended ones included.
    pub(crate) cpu: Duration,
    /// How often one of its threads slept and was woken.
    pub(crate) wakeups: f64,
    /// The bytes of its write(2) calls to files, pipes and sockets.
    pub(crate) written: f64,
    /// The CPU time of its live threads by name, in ns.
    pub(crate) threads: BTreeMap<String, f64>,
}

impl Usage {
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid)?))?;
        let io = read(pid, "io")?;
        let (mut wakeups, mut threads) = (0.0, BTreeMap::new());
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let thread = thread?.path();
            let read = |file| fs::read_to_string(thread.join(file));
            // A thread may end meanwhile.
            let (Ok(status), Ok(name), Ok(times)) = (read("status"), read("comm"), read("schedstat")) else {
                continue;
            };
            wakeups += number(&status, "voluntary_ctxt_switches")?;
            let ran = times.split_whitespace().next().context("no time in schedstat")?;
            *threads.entry(name.trim().to_owned()).or_insert(0.0) += ran.parse::<f64>()?;
        }
        Ok(Self { cpu: clock_gettime(clock)?.into(), wakeups, written: number(&io, "wchar")?, threads })
    }

    /// Returns the CPU time of each thread that ran, in ms, divided by `by`.
    pub(crate) fn by_thread(&self, by: f64) -> impl Iterator<Item = (&str, f64)> {
        self.threads.iter().filter(|(_, ran)| **ran > 0.0).map(move |(name, ran)| (&**name, ran / 1e6 / by))
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            wakeups: self.wakeups - before.wakeups,
            written: self.written - before.written,
            threads: self
                .threads
                .iter()
                .map(|(name, ran)| (name.clone(), ran - before.threads.get(name).unwrap_or(&0.0)))
                .collect(),
        }
    }
}

/// Returns a value of its memory by its name in `/proc/PID/status`, in MB.
pub(crate) fn memory(pid: u32, name: &str) -> Result<f64> {
    Ok(number(&read(pid, "status")?, name)? * 1024.0 / 1e6)
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).with_context(|| format!("read {path}"))
}

/// Returns the number after `NAME:`.
fn number(text: &str, name: &str) -> Result<f64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = value.and_then(|value| value.split_whitespace().next());
    Ok(value.with_context(|| format!("no {name}"))?.parse()?)
}
