//! An agent whose standard output goes to a file on a full disk runs on.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::Value;
use tempfile::TempDir;
use tests::{clock, guard::cgroup::CgroupGuard, live::Shared, machine};

use super::client::{Agent, get};

const DROPPED: &str = "sandprobe_stream_events_dropped_total{why=\"slow\"} ";

/// A file system of its own. It is unmounted when this is dropped.
struct Disk(TempDir);

impl Disk {
    fn mount(size: &str) -> Result<Self> {
        let disk = Self(tempfile::tempdir()?);
        disk.resize(size, MsFlags::empty())?;
        Ok(disk)
    }

    fn resize(&self, size: &str, flags: MsFlags) -> Result<()> {
        let options = format!("size={size}");
        mount(Some("tmpfs"), self.0.path(), Some("tmpfs"), flags, Some(options.as_str()))
            .context("mount a tmpfs")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The directory could not be removed otherwise.
        let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_full_disk_behind_standard_output_does_not_stop_the_agent() -> Result<()> {
    let hierarchy = Shared::start()?.hierarchy().clone();
    let disk = Disk::mount("64k")?;
    let file = disk.path("events");
    let agent = Agent::with_output(File::create(&file)?.into())?;
    let dropped = || -> Result<u64> {
        let text = get(agent.address, "/metrics")?;
        let line = text.lines().find_map(|line| line.strip_prefix(DROPPED));
        Ok(line.context("the counter is missing")?.parse()?)
    };
    // The memory queue takes some thousand events before the first is dropped.
    let begun = Instant::now();
    while dropped()? < 1000 {
        for _ in 0..500 {
            CgroupGuard::create(&hierarchy)?.end()?;
        }
        ensure!(begun.elapsed() < machine::patience() * 4, "nothing was dropped");
    }
    ensure!(get(agent.address, "/healthz")?.starts_with("ok"), "the agent is not alive");
    disk.resize("64m", MsFlags::MS_REMOUNT)?;
    clock::poll("the stream reports missed events", machine::patience(), || {
        CgroupGuard::create(&hierarchy)?.end()?;
        Ok((missed(&file)? > 0).then_some(()))
    })?;
    let (status, stderr) = agent.ended()?;
    let expected = format!("{} events were not written to standard output", missed(&file)?);
    ensure!(status.code() == Some(1) && stderr.contains(&expected), "{status} {stderr}, not {expected}");
    let messages = stderr.lines().filter(|line| line.contains("cannot write to standard output")).count();
    ensure!(messages == 1, "the message is printed {messages} times: {stderr}");
    let text = fs::read_to_string(&file)?;
    for line in text.lines() {
        serde_json::from_str::<Value>(line).with_context(|| format!("{line} is no whole line"))?;
    }
    ensure!(text.ends_with('\n'), "the last line is cut off");
    Ok(())
}

/// Returns the number of missed events that the stream itself reports.
fn missed(file: &Path) -> Result<u64> {
    let text = fs::read_to_string(file)?;
    let lines = text.lines().filter(|line| line.contains("\"stream.missed\""));
    let missed = |line: &str| -> Option<u64> {
        serde_json::from_str::<Value>(line).ok()?["stream"]["missed"].as_str()?.parse().ok()
    };
    Ok(lines.filter_map(missed).sum())
}
