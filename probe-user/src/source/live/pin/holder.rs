//! Finds the process that holds a lock.

use std::{
    fmt,
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
};

use nix::{
    sys::{
        signal::{Signal, kill},
        stat::{major, minor},
    },
    unistd::Pid,
};

/// The kernel's list of locks (proc_locks(5)).
const LOCKS: &str = "/proc/locks";

/// The process that holds a lock; `None` if this process cannot see it, as in another pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder(Option<u32>);

impl Holder {
    /// Finds the holder of the `flock(2)` lock on this file.
    pub(super) fn of(file: &File) -> Self {
        Self(pid(file))
    }

    /// Returns whether this process can see it.
    pub(super) fn is_seen(self) -> bool {
        self.0.is_some()
    }

    /// Returns whether this may be the same process as `other`. A process that cannot be seen may be.
    pub(super) fn may_be(self, other: Self) -> bool {
        self == other || self.0.is_none()
    }

    /// Asks the process to end, as `systemctl stop` does.
    pub(super) fn end(self) -> Result<(), String> {
        let pid = self.0.ok_or("it cannot be seen from here")?;
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).map_err(|error| error.to_string())?;
        let own = fs::read_to_string("/proc/self/comm").map_err(|error| error.to_string())?;
        if comm != own {
            return Err(format!("process {pid} is {}", comm.trim_end()));
        }
        let pid = i32::try_from(pid).map_err(|error| error.to_string())?;
        kill(Pid::from_raw(pid), Signal::SIGTERM).map_err(|error| error.to_string())
    }
}

impl Holder {
    /// Returns whether the process is ending and will release the lock in a moment. A process that cannot be
    /// seen may be.
    pub(super) fn may_be_ending(self) -> bool {
        let Some(pid) = self.0 else { return true };
        match fs::read_to_string(format!("/proc/{pid}/status")) {
            Ok(status) => is_ending(&status),
            Err(_) => true,
        }
    }
}

fn pid(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let device = metadata.dev();
    let id = format!("{:02x}:{:02x}:{}", major(device), minor(device), metadata.ino());
    holder(&fs::read_to_string(LOCKS).ok()?, &id)
}

/// Returns whether a process was killed, frees its memory, or waits only for its parent, by
/// `/proc/PID/status`.
fn is_ending(status: &str) -> bool {
    value(status, "State:").is_none_or(|state| state.starts_with(['Z', 'X']))
        || value(status, "VmSize:").is_none()
        || ["SigPnd:", "ShdPnd:"].into_iter().any(|name| has_kill(value(status, name)))
}

fn value<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Returns whether a set of signals has `SIGKILL`.
fn has_kill(set: Option<&str>) -> bool {
    let set = set.and_then(|set| u64::from_str_radix(set, 16).ok());
    set.is_some_and(|set| set & (1 << (libc::SIGKILL - 1)) != 0)
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |pid| write!(f, " (process {pid})"))
    }
}

/// Parses `1: FLOCK  ADVISORY  WRITE 708 00:1b:12345 0 EOF`. A line with `->` after its number is for a
/// process that waits.
fn holder(locks: &str, id: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let kind = words.next()?;
        let pid = words.nth(2)?;
        let file = words.next()?;
        (kind == "FLOCK" && file == id).then(|| pid.parse().ok())?.filter(|pid| *pid > 0)
    })
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        process::{self, Command},
        thread,
        time::Duration,
    };

    use super::{Holder, holder, is_ending};

    #[test]
    fn the_holder_is_found_by_the_file() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 00:1b:5 0 EOF\n2: FLOCK  ADVISORY  WRITE 8 00:1b:5 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 00:1b:5 0 EOF\n3: FLOCK  ADVISORY  WRITE 0 00:1b:6 0 EOF\n";
        assert_eq!(holder(locks, "00:1b:5"), Some(8));
        assert_eq!(holder(locks, "00:1b:6"), None, "a process of another pid namespace");
        assert_eq!(holder(locks, "00:1b:7"), None);
    }

    #[test]
    fn a_process_that_was_killed_is_ending() {
        let status = |state: &str, memory: &str, own: &str, shared: &str| {
            format!("Name:\tsandprobe\nState:\t{state}\n{memory}SigPnd:\t{own}\nShdPnd:\t{shared}\n")
        };
        let (memory, none, kill) = ("VmSize:\t  9 kB\n", "0000000000000000", "0000000000000100");
        assert!(!is_ending(&status("S (sleeping)", memory, none, none)));
        assert!(!is_ending(&status("D (disk sleep)", memory, none, "0000000000004000")), "SIGTERM");
        for ending in [
            status("Z (zombie)", "", none, none),
            status("X (dead)", memory, none, none),
            status("R (running)", "", none, none),
            status("D (disk sleep)", memory, kill, none),
            status("D (disk sleep)", memory, none, kill),
            String::new(),
        ] {
            assert!(is_ending(&ending), "{ending}");
        }
    }

    #[test]
    fn whoever_cannot_be_seen_may_be_ending() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
        let holder = Holder(Some(child.id()));
        assert!(!holder.may_be_ending());
        child.kill().expect("a process");
        let status = format!("/proc/{}/status", child.id());
        while !fs::read_to_string(&status).expect("a zombie at least").contains("State:\tZ") {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(holder.may_be_ending());
        child.wait().expect("it has ended");
        assert!(holder.may_be_ending(), "it is gone");
        assert!(Holder(None).may_be_ending());
        assert!(!Holder(Some(process::id())).may_be_ending());
    }

    #[test]
    fn this_process_finds_itself() {
        let place = tempfile::tempdir().expect("a folder");
        let held = File::open(place.path()).expect("the folder");
        held.try_lock().expect("nobody else has it");
        let other = File::open(place.path()).expect("the folder");
        other.try_lock().expect_err("it is held");
        assert_eq!(Holder::of(&other), Holder(Some(process::id())));
    }
}
