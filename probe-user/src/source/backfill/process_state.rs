//! Reads what a process does: the state of each of its threads, and the kernel function in which each waits.
//!
//! `wchan` has only `0` for a thread that runs, for one that this process may not inspect
//! (`ptrace_may_access`), and if the kernel has no names of its functions.

use std::collections::BTreeMap;

use super::proc;
use crate::{
    model::{
        fact::{ProcessState, RunState, ThreadState},
        id::{TICK, TaskKey},
    },
    source::host::{Folder, HostRoot},
};

/// The most threads that are read.
const MAX_THREADS: usize = 512;
/// The most groups of threads that are reported.
const MAX_GROUPS: usize = 8;
/// The most bytes of a function's name.
const MAX_NAME_BYTES: usize = 128;

/// Reads what a process does. `None` if it is gone.
pub(crate) fn process_state(root: &HostRoot, process: TaskKey) -> Option<ProcessState> {
    let folder = root.folder(format!("/proc/{}", process.pid)).ok()?;
    let stat = proc::stat(&folder.head("stat", 4096).ok()?)?;
    // A hook's time is exact; the file's is rounded down to a tick.
    if stat.start != process.start - process.start % TICK {
        return None;
    }
    let mut groups: BTreeMap<(RunState, Option<String>), u32> = BTreeMap::new();
    let threads = folder.folder("task").ok()?;
    for entry in threads.entries().ok()?.entries.iter().take(MAX_THREADS) {
        // A thread may end meanwhile.
        if let Some(does) = threads.folder(&entry.name).ok().as_ref().and_then(thread) {
            *groups.entry(does).or_default() += 1;
        }
    }
    let mut threads: Vec<ThreadState> =
        groups.into_iter().map(|((state, function), count)| ThreadState { state, function, count }).collect();
    threads.sort_by_key(|it| std::cmp::Reverse(it.count));
    threads.truncate(MAX_GROUPS);
    Some(ProcessState { process, state: RunState::of(stat.state), threads })
}

fn thread(folder: &Folder) -> Option<(RunState, Option<String>)> {
    let stat = proc::stat(&folder.head("stat", 4096).ok()?)?;
    let name = folder.head("wchan", MAX_NAME_BYTES).unwrap_or_default();
    let name = String::from_utf8_lossy(&name).trim().to_owned();
    Some((RunState::of(stat.state), Some(name).filter(|name| !name.is_empty() && name != "0")))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::{ProcessState, RunState, ThreadState, process_state};
    use crate::{model::id::TaskKey, source::host::HostRoot};

    fn thread(folder: &Path, state: char, wchan: &str) {
        fs::create_dir_all(folder).expect("a folder");
        let stat = format!("7 (containerd) {state} 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 300 9 10\n");
        fs::write(folder.join("stat"), stat).expect("a file");
        fs::write(folder.join("wchan"), wchan).expect("a file");
    }

    #[test]
    fn threads_that_do_the_same_are_counted_and_the_most_come_first() {
        let root = tempfile::tempdir().expect("a folder");
        let process = root.path().join("proc/7");
        thread(&process, 'D', "0");
        thread(&process.join("task/7"), 'D', "rpc_wait_bit_killable");
        for (number, wchan) in [(8, "futex_wait_queue"), (9, "futex_wait_queue"), (10, "0")] {
            thread(&process.join(format!("task/{number}")), 'S', wchan);
        }
        let root = HostRoot::open(root.path()).expect("the root");
        let started = 3_000_000_000;
        let threads = [
            (RunState::Sleeping, Some("futex_wait_queue"), 2),
            (RunState::Sleeping, None, 1),
            (RunState::Uninterruptible, Some("rpc_wait_bit_killable"), 1),
        ];
        let threads = threads.map(|(state, function, count)| ThreadState {
            state,
            function: function.map(str::to_owned),
            count,
        });
        let process = TaskKey::new(7, started + 123);
        let state = RunState::Uninterruptible;
        let expected = ProcessState { process, state, threads: threads.to_vec() };
        assert_eq!(process_state(&root, process), Some(expected));
        assert_eq!(process_state(&root, TaskKey::new(7, started + 1_000_000_000)), None, "another one");
        assert_eq!(process_state(&root, TaskKey::new(8, started)), None);
    }

    #[test]
    fn this_process_is_read() {
        let root = HostRoot::open(Path::new("/")).expect("the root");
        let stat = fs::read("/proc/self/stat").expect("a file");
        let started = super::proc::stat(&stat).expect("a process").start;
        let process = TaskKey::new(std::process::id(), started);
        let read = process_state(&root, process).expect("it runs");
        assert!(!read.threads.is_empty(), "{read:?}");
    }
}
