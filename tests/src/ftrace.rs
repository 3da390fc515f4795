//! The kernel's own trace of a run, to compare with the agent's events. It uses events of tracefs in an
//! instance of its own with times of `CLOCK_BOOTTIME`, and no BPF.
//!
//! Invariant: `parse` only reads text. Other code finds the owner of a process, cgroup or namespace.

mod parse;

use std::{
    fs::{self, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tempfile::TempDir;

pub use parse::{Event, Record};

use crate::{guard::unique_name, machine};

const PREFIX: &str = "sandprobe";

/// The buffer of each CPU. It holds a minute of a busy machine.
const BUFFER_KIB: u32 = 32 << 10;

/// The events of pods' lives.
pub const LIVES: &[&str] = &[
    "cgroup/cgroup_mkdir",
    "cgroup/cgroup_attach_task",
    EXECS,
    "sched/sched_process_exit",
    "task/task_newtask",
    NETNS,
];
pub const EXECS: &str = "sched/sched_process_exec";
/// The making of network namespaces, by probes of `copy_net_ns` if the kernel has kprobes.
const NETNS: &str = "netns";
/// The events for a kernel without kprobes. The call returns a moment after the namespace was made.
const UNSHARE: [&str; 2] = ["syscalls/sys_enter_unshare", "syscalls/sys_exit_unshare"];

/// A running trace, until it is ended or dropped.
#[derive(Debug)]
pub struct Trace {
    /// A private mount of tracefs.
    root: TempDir,
    name: String,
}

impl Trace {
    pub fn start(events: &[&str]) -> Result<Self> {
        let root = tempfile::tempdir()?;
        mount(Some("tracefs"), root.path(), Some("tracefs"), MsFlags::empty(), None::<&str>)
            .with_context(|| format!("mount tracefs on {}", root.path().display()))?;
        let trace = Self { root, name: unique_name(PREFIX).replace('-', "_") };
        trace.sweep()?;
        let instance = trace.instance();
        fs::create_dir(&instance).with_context(|| format!("make {}", instance.display()))?;
        write(&instance.join("trace_clock"), "boot")?;
        write(&instance.join("buffer_size_kb"), &BUFFER_KIB.to_string())?;
        for event in events {
            let events = if *event == NETNS { trace.netns()? } else { vec![(*event).to_owned()] };
            for event in events {
                write(&instance.join("events").join(event).join("enable"), "1")?;
            }
        }
        Ok(trace)
    }

    fn netns(&self) -> Result<Vec<String>> {
        if !machine::has_kprobes() {
            return Ok(UNSHARE.map(str::to_owned).into());
        }
        let probes = [("p", parse::COPYING, " flags=$arg1:x64"), ("r", parse::COPIED, "")];
        let define = |(kind, event, arguments)| {
            let event = format!("{}/{event}", self.name);
            self.define(&format!("{kind}:{event} copy_net_ns{arguments}"))?;
            Ok(event)
        };
        probes.into_iter().map(define).collect()
    }

    /// Ends the trace and returns all records, sorted by time. It fails if a record was overwritten.
    pub fn end(self) -> Result<Vec<Record>> {
        let instance = self.instance();
        write(&instance.join("tracing_on"), "0")?;
        for entry in fs::read_dir(instance.join("per_cpu"))? {
            let stats = fs::read_to_string(entry?.path().join("stats"))?;
            let overrun = stats.lines().find_map(|line| line.strip_prefix("overrun: "));
            ensure!(overrun == Some("0"), "the trace lost events: {stats}");
        }
        let path = instance.join("trace");
        let file = fs::File::open(&path).with_context(|| format!("read {}", path.display()))?;
        let mut parser = parse::Parser::default();
        let mut records = Vec::new();
        for line in BufReader::new(file).split(b'\n') {
            let line = line?;
            records.extend(parser.record(&String::from_utf8_lossy(&line))?);
        }
        records.sort_by_key(|record| record.at);
        Ok(records)
    }

    /// Removes what killed runs left behind.
    fn sweep(&self) -> Result<()> {
        for entry in fs::read_dir(self.root.path().join("instances"))? {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('_').nth(1));
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                self.remove(&name);
            }
        }
        Ok(())
    }

    /// Removes an instance and its probes. A probe can be removed only if no instance has enabled it.
    fn remove(&self, name: &str) {
        let _ = fs::remove_dir(self.root.path().join("instances").join(name));
        for event in [parse::COPYING, parse::COPIED] {
            let _ = self.define(&format!("-:{name}/{event}"));
        }
    }

    fn instance(&self) -> PathBuf {
        self.root.path().join("instances").join(&self.name)
    }

    fn define(&self, probe: &str) -> Result<()> {
        let path = self.root.path().join("kprobe_events");
        let mut file = OpenOptions::new().append(true).open(&path)?;
        file.write_all(probe.as_bytes()).with_context(|| format!("write {probe:?} to {}", path.display()))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // An error in drop cannot be reported. If tracefs is still mounted, the directory must not be removed
        // with its contents.
        self.remove(&self.name);
        if umount2(self.root.path(), MntFlags::MNT_DETACH).is_err() {
            self.root.disable_cleanup(true);
        }
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {text:?} to {}", path.display()))
}
