//! The capabilities of the machine that the tests run on, and how much the tests can demand of it.

use std::{env, fs, path::Path, time::Duration};

use anyhow::{Context as _, Result};

/// Whether QEMU emulates this machine. Starting a program then takes a hundred times as long.
#[must_use]
pub fn is_emulated() -> bool {
    fs::read_to_string("/proc/cpuinfo").is_ok_and(|cpus| is_of_qemu(&cpus))
}

/// Whether it is QEMU's own CPU model: by its name, or on aarch64 by its part number, which is `Q`.
fn is_of_qemu(cpus: &str) -> bool {
    let has = |wanted: &str| cpus.lines().any(|line| line.replace('\t', "") == wanted);
    cpus.contains("QEMU TCG CPU") || (has("CPU implementer: 0x00") && has("CPU part: 0x051"))
}

/// Whether the agent is compiled without optimization, as `cargo xtask test` says. Its costs are not a
/// release's.
#[must_use]
pub fn is_quick() -> bool {
    env::var_os("SANDPROBE_QUICK").is_some()
}

/// Whether tests may take their full time: `cargo xtask test --soak`.
#[must_use]
pub fn is_soak() -> bool {
    env::var_os("SANDPROBE_SOAK").is_some()
}

/// `count`, or a fifth of it on an emulated machine.
#[must_use]
pub fn share_of(count: usize) -> usize {
    if is_emulated() { count.div_ceil(5) } else { count }
}

/// How long to wait for something that must happen. Only a failing test waits that long.
#[must_use]
pub fn patience() -> Duration {
    Duration::from_secs(if is_emulated() { 120 } else { 30 })
}

/// Returns the first two numbers of the kernel's release.
pub fn kernel() -> Result<(u32, u32)> {
    let path = "/proc/sys/kernel/osrelease";
    let release = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let mut next = || numbers.next().context("the release has fewer than two numbers");
    Ok((next()??, next()??))
}

/// Whether this kernel has kprobes. A distribution kernel with kprobes has fentry too, since 5.10.
#[must_use]
pub fn has_kprobes() -> bool {
    Path::new("/sys/bus/event_source/devices/kprobe").exists()
}

/// Returns the kernel's restriction of perf events. Debian and Ubuntu have levels above 2.
pub fn perf_event_paranoid() -> Result<i32> {
    let path = "/proc/sys/kernel/perf_event_paranoid";
    let text = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    text.trim().parse().with_context(|| format!("{path} is not a number: {text}"))
}

/// Whether root has `CAP_SYS_RESOURCE` here and can give it to others. Containers that run tests often lack
/// it.
pub fn has_sys_resource() -> Result<bool> {
    /// `include/uapi/linux/capability.h`
    const SYS_RESOURCE: u64 = 1 << 24;
    let path = "/proc/self/status";
    let status = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let bounds = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    let bounds = u64::from_str_radix(bounds.context("no CapBnd")?.trim(), 16)?;
    Ok(bounds & SYS_RESOURCE != 0)
}

/// Returns the number of processes that the OOM killer has killed since the boot, in any cgroup.
pub fn oom_kills() -> Result<u64> {
    let path = "/proc/vmstat";
    let counters = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let count = counters.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.with_context(|| format!("{path} has no oom_kill"))?.parse().context("read the count of oom_kill")
}

#[cfg(test)]
mod tests {
    use super::is_of_qemu;

    #[test]
    fn qemus_own_cpus_are_known() {
        assert!(is_of_qemu("processor\t: 0\nmodel name\t: QEMU TCG CPU version 2.5+\n"));
        let of = |implementer, part| {
            format!(
                "CPU implementer\t: {implementer}\nCPU architecture: 8\nCPU part\t: {part}\nCPU revision\t: 0\n"
            )
        };
        assert!(is_of_qemu(&of("0x00", "0x051")));
        assert!(!is_of_qemu(&of("0x41", "0xd0c")), "a Neoverse N1");
        assert!(!is_of_qemu("processor\t: 0\nmodel name\t: AMD EPYC\n"));
    }
}
