//! Which process holds a lock.

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
    /// The holder of the `flock(2)` lock on this file.
    pub(super) fn of(file: &File) -> Self {
        let found = || {
            let metadata = file.metadata().ok()?;
            let device = metadata.dev();
            let id = format!("{:02x}:{:02x}:{}", major(device), minor(device), metadata.ino());
            holder(&fs::read_to_string(LOCKS).ok()?, &id)
        };
        Self(found())
    }

    pub(super) fn is_seen(self) -> bool {
        self.0.is_some()
    }

    /// Tells it to end, as `systemctl stop` does.
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
    /// Whether it is ending and lets go of the lock in a moment. One that cannot be seen may be.
    pub(super) fn may_be_ending(self) -> bool {
        let status = |pid| fs::read_to_string(format!("/proc/{pid}/status"));
        self.0.is_none_or(|pid| status(pid).map_or(true, |status| is_ending(&status)))
    }
}

/// Whether it was killed, gives back its memory, or waits only for its parent, by `/proc/PID/status`.
fn is_ending(status: &str) -> bool {
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let kill = 1 << (libc::SIGKILL - 1);
    let is_killed = |name| {
        value(name).and_then(|set| u64::from_str_radix(set, 16).ok()).is_some_and(|set| set & kill != 0)
    };
    value("State:").is_none_or(|state| state.starts_with(['Z', 'X']))
        || value("VmSize:").is_none()
        || is_killed("SigPnd:")
        || is_killed("ShdPnd:")
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |pid| write!(f, " (process {pid})"))
    }
}

/// `1: FLOCK  ADVISORY  WRITE 708 00:1b:12345 0 EOF`. A line that begins with `->` behind its number is of a process that waits.
fn holder(locks: &str, id: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (kind, pid, file) = (words.next()?, words.nth(2)?, words.next()?);
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
