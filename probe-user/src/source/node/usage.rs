//! Reads what this process costs the node, as the kernel counts it.

use std::{fs, io, time::Duration};

use nix::{
    sys::resource::{Resource, UsageWho, getrlimit, getrusage},
    sys::time::TimeVal,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// The CPU time of all its threads, in user and kernel mode. An eBPF program's time is counted for the
    /// task that hits the hook.
    pub(crate) cpu: Duration,
    /// Resident memory in bytes.
    pub(crate) resident: u64,
    pub(crate) memory: Memory,
    pub(crate) virtual_size: u64,
    pub(crate) threads: u64,
    pub(crate) open_fds: u64,
    pub(crate) max_fds: u64,
    /// The effective capabilities of the main thread, as bits.
    pub(crate) capabilities: u64,
}

/// Resident memory in bytes, by the mapped file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The program's own file: code, constants, and what the start relocated.
    pub(crate) program: u64,
    /// The maps of the hooks, which are the kernel's memory too.
    pub(crate) maps: u64,
    pub(crate) rest: u64,
}

impl Usage {
    pub(crate) fn read() -> io::Result<Self> {
        let used = getrusage(UsageWho::RUSAGE_SELF)?;
        let (max_fds, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let status = fs::read_to_string("/proc/self/status")?;
        // One descriptor is this directory's.
        let open = fs::read_dir("/proc/self/fd")?.count().saturating_sub(1);
        Ok(Self {
            cpu: span(used.user_time()) + span(used.system_time()),
            max_fds,
            open_fds: u64::try_from(open).unwrap_or(u64::MAX),
            memory: Memory::read()?,
            ..of_status(&status)
        })
    }
}

impl Memory {
    pub(crate) fn read() -> io::Result<Self> {
        let program = fs::read_link("/proc/self/exe")?;
        Ok(Self::of_mappings(&fs::read_to_string("/proc/self/smaps")?, &program.to_string_lossy()))
    }

    /// Parses `/proc/PID/smaps`: a line with the name of each mapping at its end, and lines with its sizes in
    /// kB.
    fn of_mappings(text: &str, program: &str) -> Self {
        let mut memory = Self::default();
        let mut owner = &mut memory.rest;
        for line in text.lines() {
            if let Some(size) = line.strip_prefix("Rss:") {
                let kilobytes: u64 = size.trim().trim_end_matches(" kB").parse().unwrap_or(0);
                *owner += kilobytes * 1024;
            } else if line.split(' ').next().is_some_and(|range| range.contains('-')) {
                owner = if line.ends_with(program) {
                    &mut memory.program
                } else if line.ends_with("bpf-map") {
                    &mut memory.maps
                } else {
                    &mut memory.rest
                };
            }
        }
        memory
    }
}

fn span(time: TimeVal) -> Duration {
    let micros = time.tv_sec().saturating_mul(1_000_000).saturating_add(time.tv_usec());
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Parses `/proc/PID/status`, whose sizes are in units of 1,024 bytes.
fn of_status(text: &str) -> Usage {
    Usage {
        resident: number(text, "VmRSS").saturating_mul(1024),
        virtual_size: number(text, "VmSize").saturating_mul(1024),
        threads: number(text, "Threads"),
        capabilities: word(text, "CapEff").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0),
        ..Usage::default()
    }
}

/// Returns the first word of the line with this name.
fn word<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_whitespace().next()
}

fn number(status: &str, name: &str) -> u64 {
    word(status, name).and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Memory, Usage, of_status};

    #[test]
    fn this_process_is_read() {
        let usage = Usage::read().expect("/proc");
        assert!(usage.resident > 0 && usage.virtual_size >= usage.resident, "{usage:?}");
        assert!(usage.memory.program > 0 && usage.memory.rest > 0, "{usage:?}");
        assert!(usage.threads > 0 && usage.open_fds >= 3 && usage.max_fds >= usage.open_fds, "{usage:?}");
    }

    #[test]
    fn memory_is_that_of_the_mapping_above_it() {
        let text = "\
55d0-55e0 r-xp 00000000 fe:00 12   /usr/bin/sandprobe\nSize: 64 kB\nRss:       40 kB\nVmFlags: rd ex\n\
55e0-55f0 rw-p 00010000 fe:00 12   /usr/bin/sandprobe\nRss:        2 kB\n\
7f00-7f10 rw-s 00000000 00:0e 33   anon_inode:bpf-map\nRss:        8 kB\n\
7f20-7f30 rw-p 00000000 00:00 0\nRss:       16 kB\nPss:       16 kB\n\
7f40-7f50 rw-p 00000000 00:00 0    [stack]\nRss:       much\n";
        let memory = Memory::of_mappings(text, "/usr/bin/sandprobe");
        assert_eq!(memory, Memory { program: 42 << 10, maps: 8 << 10, rest: 16 << 10 });
    }

    #[test]
    fn sizes_are_in_kibibytes_and_capabilities_a_mask() {
        let text =
            "Name:\tsandprobe\nVmSize:\t  100 kB\nVmRSS:\t   7 kB\nThreads:\t3\nCapEff:\t000001c000201000\n";
        let usage = of_status(text);
        assert_eq!((usage.virtual_size, usage.resident, usage.threads), (102_400, 7_168, 3));
        assert_eq!(usage.capabilities, 0x1c0_0020_1000);
        assert_eq!(of_status("VmRSS: much\nCapEff:\tx\n"), Usage::default());
    }
}
