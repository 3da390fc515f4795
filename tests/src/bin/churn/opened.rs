//! Counts the files that a process opens, with strace. A traced process is slower, so nothing else is
//! measured at that time.

use std::{
    fs,
    process::{Child, Command},
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tests::clock;

const LIMIT: Duration = Duration::from_secs(20);

/// The number of files that the process opens or tries to open while `work` runs.
pub(crate) fn count(pid: u32, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let place = tempfile::tempdir()?;
    let report = place.path().join("report");
    let strace = Command::new("strace")
        .args(["-f", "-qq", "-c", "--trace=open,openat,openat2", "-p", &pid.to_string(), "-o"])
        .arg(&report)
        .spawn()
        .context("start strace")?;
    let mut tracer = Tracer(strace);
    clock::poll("strace is attached", LIMIT, || Ok(is_traced(pid)?.then_some(())))?;
    work()?;
    tracer.end()?;
    calls(&fs::read_to_string(&report)?)
}

/// Whether every thread is traced.
fn is_traced(pid: u32) -> Result<bool> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(status) = fs::read_to_string(thread?.path().join("status")) else { continue };
        if status.lines().any(|line| line.split_whitespace().eq(["TracerPid:", "0"])) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the sum in the last line of the table. Without any call there is no table.
fn calls(report: &str) -> Result<f64> {
    let Some(total) = report.lines().find(|line| line.trim_end().ends_with(" total")) else { return Ok(0.0) };
    let calls = total.split_whitespace().nth(3).context("strace's report has no calls")?;
    Ok(calls.parse()?)
}

/// A running strace. Dropping this detaches it from the process.
struct Tracer(Child);

impl Tracer {
    fn end(&mut self) -> Result<()> {
        kill(Pid::from_raw(i32::try_from(self.0.id())?), Signal::SIGINT)?;
        self.0.wait().context("wait for strace")?;
        Ok(())
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // It still runs only after an error.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
