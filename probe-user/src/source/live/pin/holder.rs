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
    use std::{fs::File, process};

    use super::{Holder, holder};

    #[test]
    fn the_holder_is_found_by_the_file() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 00:1b:5 0 EOF\n2: FLOCK  ADVISORY  WRITE 8 00:1b:5 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 00:1b:5 0 EOF\n3: FLOCK  ADVISORY  WRITE 0 00:1b:6 0 EOF\n";
        assert_eq!(holder(locks, "00:1b:5"), Some(8));
        assert_eq!(holder(locks, "00:1b:6"), None, "a process of another pid namespace");
        assert_eq!(holder(locks, "00:1b:7"), None);
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
