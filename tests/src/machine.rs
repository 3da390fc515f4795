//! The capabilities of the machine that the tests run on, and how much the tests can demand of it.

use std::{env, fs, path::Path, time::Duration};

use anyhow::{Context as _, Result};

/// Whether it is one that QEMU emulates, where starting a program takes a hundred times as long.
#[must_use]
pub fn is_emulated() -> bool {
    fs::read_to_string("/proc/cpuinfo").is_ok_and(|cpus| cpus.contains("QEMU TCG CPU"))
}

/// Whether tests may take their full time: `cargo xtask test --soak`.
#[must_use]
pub fn is_soak() -> bool {
    env::var_os("SANDPROBE_SOAK").is_some()
}

/// `count`, or a fifth of it where everything takes long.
#[must_use]
pub fn share_of(count: usize) -> usize {
    if is_emulated() { count.div_ceil(5) } else { count }
}

/// How long to wait for a thing that is sure to come. Only a failing test waits that long.
#[must_use]
pub fn patience() -> Duration {
    Duration::from_secs(if is_emulated() { 120 } else { 30 })
}

/// The kernel's release: its first two numbers.
pub fn kernel() -> Result<(u32, u32)> {
    let path = "/proc/sys/kernel/osrelease";
    let release = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let mut next = || numbers.next().context("a release has two numbers");
    Ok((next()??, next()??))
}

/// Whether this kernel has kprobes: one that has them has fentry too, from 5.10 on and as distributions build it.
#[must_use]
pub fn has_kprobes() -> bool {
    Path::new("/sys/bus/event_source/devices/kprobe").exists()
}

/// How far the kernel keeps perf events to those with rights: Debian's and Ubuntu's know levels beyond 2.
pub fn perf_event_paranoid() -> Result<i32> {
    let path = "/proc/sys/kernel/perf_event_paranoid";
    let text = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    text.trim().parse().with_context(|| format!("{path} is no number: {text}"))
}

/// Whether root may have `CAP_SYS_RESOURCE` here, and give it to others: containers that run machines are often without.
pub fn has_sys_resource() -> Result<bool> {
    /// `include/uapi/linux/capability.h`
    const SYS_RESOURCE: u64 = 1 << 24;
    let path = "/proc/self/status";
    let status = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let bounds = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    let bounds = u64::from_str_radix(bounds.context("no CapBnd")?.trim(), 16)?;
    Ok(bounds & SYS_RESOURCE != 0)
}

/// How many processes the kernel has killed for want of memory, in whatever cgroup, since the boot.
pub fn oom_kills() -> Result<u64> {
    let path = "/proc/vmstat";
    let counters = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let count = counters.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.with_context(|| format!("{path} has no oom_kill"))?.parse().context("read the count of oom_kill")
}
