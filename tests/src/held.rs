//! The resources of a running agent.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};

/// The kernel's resources of a process at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// In bytes.
    pub memory: u64,
    pub descriptors: usize,
    pub threads: usize,
    /// The kernel memory of its eBPF maps, in bytes. For maps that are not preallocated each entry counts.
    pub maps: u64,
}

impl Held {
    pub fn of(pid: u32) -> Result<Self> {
        let count = |what: &str| Ok::<_, anyhow::Error>(fs::read_dir(format!("/proc/{pid}/{what}"))?.count());
        Ok(Self {
            memory: memory(pid)?,
            descriptors: count("fd")?,
            threads: count("task")?,
            maps: maps(pid)?,
        })
    }
}

/// Returns the resident memory of a process in bytes: its own memory and its mapped rings. The pages of its
/// program file do not count, because the kernel shares them and the page cache decides how many are mapped.
pub fn memory(pid: u32) -> Result<u64> {
    let process = format!("/proc/{pid}");
    let program = fs::read_link(format!("{process}/exe"))?;
    let program = program.to_str().context("the program's path is not UTF-8")?;
    let mut is_program = false;
    let mut kib = 0;
    for line in fs::read_to_string(format!("{process}/smaps"))?.lines() {
        if let Some(size) = line.strip_prefix("Rss:") {
            let size: u64 = size.trim().trim_end_matches(" kB").parse()?;
            kib += if is_program { 0 } else { size };
        } else if line.starts_with(|first: char| first.is_ascii_hexdigit() && !first.is_ascii_uppercase()) {
            is_program = line.ends_with(program);
        }
    }
    ensure!(kib > 0, "{process}/smaps has no resident memory");
    Ok(kib * 1024)
}

fn maps(pid: u32) -> Result<u64> {
    let mut all = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // A descriptor may be closed meanwhile.
        let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
        all += map(&text)?.unwrap_or(0);
    }
    ensure!(all > 0, "{} shows no map", Path::new("/proc").join(pid.to_string()).join("fdinfo").display());
    Ok(all)
}

/// Returns the size of a map, if the descriptor is of one (`bpf_map_show_fdinfo`).
fn map(fdinfo: &str) -> Result<Option<u64>> {
    let value = |name: &str| fdinfo.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let Some(size) = value("memlock:").filter(|_| value("map_type:").is_some()) else { return Ok(None) };
    Ok(Some(size.parse()?))
}

/// How much of the program's file a release has in memory at most, kB.
const FILE_KB: u64 = 17_500;

/// Returns an agent's memory size in kB by its name in `/proc/PID/status`. The program that is built quickly
/// has a file three times as large; what it has of the file in memory counts only up to [`FILE_KB`].
pub fn kilobytes(pid: u32, member: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let excess = size(&status, "RssFile")?.saturating_sub(FILE_KB);
    Ok(size(&status, member)?.saturating_sub(excess))
}

fn size(status: &str, member: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(member)?.strip_prefix(':'));
    let size = line.and_then(|size| size.trim().strip_suffix(" kB"));
    Ok(size.with_context(|| format!("no {member}"))?.parse()?)
}
