//! Keeps the daemons that were found from one reading to the next. Searching every process of the node each
//! time would cost more than the rest of a reading.

use std::{collections::HashMap, mem, time::Duration};

use super::{Daemon, daemon};
use crate::{
    model::time::Timestamp,
    source::host::{Entry, Folder, HostRoot, ReadError},
};

/// How often every process is examined: an old one may have executed a daemon's program.
const FULL_SEARCH: Duration = Duration::from_secs(60);
/// A process that was first seen less than this ago is examined in each reading. It may be about to execute a
/// daemon's program, and a new daemon may not have opened all of its files yet.
const YOUNG: Duration = Duration::from_secs(10);

/// What is known of the node's processes.
#[derive(Debug, Default)]
pub(crate) struct Known {
    processes: HashMap<u32, Process>,
    daemons: HashMap<u32, Daemon>,
    /// When every process was last examined.
    all: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Process {
    /// The inode of its folder in `/proc`. A later process with the same pid has another one.
    inode: u64,
    first: Timestamp,
    /// It was examined when it was no longer young.
    is_settled: bool,
}

impl Known {
    /// Returns the daemons that run at the time `now`, in the order of their folders' names.
    pub(crate) fn find(&mut self, root: &HostRoot, now: Timestamp) -> Vec<Daemon> {
        let before = mem::take(self);
        let is_due = before.all.is_none_or(|all| now >= all + FULL_SEARCH);
        self.all = if is_due { Some(now) } else { before.all };
        let Ok((entries, proc)) = root.folder("/proc").and_then(|proc| Ok((proc.entries()?, proc))) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for entry in entries.entries {
            let Ok(pid) = entry.name.parse() else { continue };
            let process = before.processes.get(&pid).filter(|it| it.inode == entry.inode).copied();
            let process = process.unwrap_or(Process { inode: entry.inode, first: now, is_settled: false });
            let kept = before.daemons.get(&pid);
            // A part of its configuration may be readable by now.
            let is_known = process.is_settled && !is_due && kept.is_none_or(|kept| kept.unread.is_none());
            let daemon = match kept {
                Some(kept) if is_known => reopen(kept, &proc, &entry),
                None if is_known => Ok(None),
                Some(_) | None => proc.folder(&entry.name).and_then(|folder| daemon(root, &folder)),
            };
            let is_settled = daemon.is_ok() && now >= process.first + YOUNG;
            self.processes.insert(pid, Process { is_settled, ..process });
            if let Ok(Some(daemon)) = daemon {
                self.daemons.insert(pid, daemon.with(None));
                found.push(daemon);
            }
        }
        found
    }
}

/// Opens a known daemon's files as it sees them now. They are not kept open: that would keep file systems in
/// use.
fn reopen(kept: &Daemon, proc: &Folder, entry: &Entry) -> Result<Option<Daemon>, ReadError> {
    Ok(Some(kept.with(HostRoot::of_process(&proc.folder(&entry.name)?).ok())))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        os::unix::fs::symlink,
        path::{Path, PathBuf},
        process::{self, Command},
        time::Duration,
    };

    use super::{
        super::{find, is_root_by_itself},
        FULL_SEARCH, HostRoot, Known, Timestamp, YOUNG,
    };

    const BEGUN: Timestamp = Timestamp(1_000_000_000_000);

    /// Makes a process of the node, as `/proc` shows it.
    fn make(node: &Path, pid: &str, comm: &str, root: &str) {
        let folder = node.join("proc").join(pid);
        fs::create_dir_all(folder.join("ns")).expect("directories");
        symlink("net:[4026531840]", folder.join("ns/net")).expect("a link");
        fs::write(folder.join("cgroup"), "0::/system.slice/x.service\n").expect("a file");
        fs::write(folder.join("status"), "Uid:\t0\t0\t0\t0\n").expect("a file");
        turn_into(node, pid, comm, root);
    }

    /// Makes the process execute another program.
    fn turn_into(node: &Path, pid: &str, comm: &str, root: &str) {
        let folder = node.join("proc").join(pid);
        fs::write(folder.join("comm"), format!("{comm}\n")).expect("a file");
        fs::write(folder.join("cmdline"), format!("{comm}\0--root-dir={root}\0")).expect("a file");
    }

    #[test]
    fn every_process_is_looked_at_while_it_is_young_and_then_once_a_minute() {
        let node = tempfile::tempdir().expect("a directory");
        make(node.path(), "1", "init", "");
        make(node.path(), "20", "kubelet", "/a");
        let host = HostRoot::open(node.path()).expect("the root");
        let mut known = Known::default();
        let mut roots = |after: Duration| -> Vec<PathBuf> {
            known.find(&host, BEGUN + after).into_iter().filter_map(|daemon| daemon.root).collect()
        };
        let short = Duration::from_secs(1);
        assert_eq!(roots(Duration::ZERO), [Path::new("/a")]);
        // It is young: it may not have read its configuration.
        turn_into(node.path(), "20", "kubelet", "/b");
        assert_eq!(roots(short), [Path::new("/b")]);
        assert_eq!(roots(YOUNG), [Path::new("/b")]);
        // It is settled now, and so is init.
        turn_into(node.path(), "20", "kubelet", "/c");
        turn_into(node.path(), "1", "kubelet", "/d");
        // A process that is new is seen at once, also when it executes a daemon's program some time later.
        make(node.path(), "30", "sh", "");
        assert_eq!(roots(YOUNG + short), [Path::new("/b")]);
        turn_into(node.path(), "30", "kubelet", "/e");
        assert_eq!(roots(YOUNG + 2 * short), [Path::new("/b"), Path::new("/e")]);
        // A daemon that has ended is one no more.
        fs::rename(node.path().join("proc/30"), node.path().join("old")).expect("moved away");
        assert_eq!(roots(YOUNG + 3 * short), [Path::new("/b")]);
        // The pid is another process's now.
        make(node.path(), "30", "kubelet", "/f");
        assert_eq!(roots(YOUNG + 4 * short), [Path::new("/b"), Path::new("/f")]);
        assert_eq!(roots(FULL_SEARCH - short), [Path::new("/b"), Path::new("/f")]);
        assert_eq!(roots(FULL_SEARCH), [Path::new("/d"), Path::new("/c"), Path::new("/f")]);
        fs::remove_dir_all(node.path().join("proc")).expect("removed");
        assert_eq!(roots(FULL_SEARCH + short), Vec::<PathBuf>::new());
    }

    /// A configuration that could not be read may be readable soon.
    #[test]
    fn a_daemon_whose_settings_are_unknown_is_looked_at_each_time() {
        let node = tempfile::tempdir().expect("a directory");
        make(node.path(), "20", "containerd", "");
        fs::create_dir_all(node.path().join("etc/containerd")).expect("directories");
        let configuration = node.path().join("etc/containerd/config.toml");
        fs::write(&configuration, "root = ").expect("a file");
        let host = HostRoot::open(node.path()).expect("the root");
        let mut known = Known::default();
        let mut root =
            |after: Duration| known.find(&host, BEGUN + after).pop().and_then(|daemon| daemon.root);
        assert_eq!([root(Duration::ZERO), root(YOUNG), root(2 * YOUNG)], [None, None, None]);
        fs::write(&configuration, "root = '/r'").expect("a file");
        assert_eq!(root(3 * YOUNG).as_deref(), Some(Path::new("/r")));
        fs::write(&configuration, "root = '/s'").expect("a file");
        assert_eq!(root(4 * YOUNG).as_deref(), Some(Path::new("/r")));
    }

    /// A child of a daemon has the daemon's name until it executes its own program.
    #[test]
    fn a_child_that_executes_another_program_meanwhile_is_no_daemon() {
        let folder = tempfile::tempdir().expect("a directory");
        let program = folder.path().join("containerd");
        symlink("/bin/bash", &program).expect("a link");
        let script = "for i in {1..1000}; do /bin/true & /bin/true & /bin/true & /bin/true; done; wait";
        let mut command = Command::new(program);
        let mut runtime = command.args(["-c", script, "--root", "/own"]).spawn().expect("a process");
        let host = HostRoot::open("/".as_ref()).expect("the root");
        let mut roots = BTreeSet::new();
        while runtime.try_wait().expect("its state").is_none() {
            roots.extend(find(&host).into_iter().filter_map(|daemon| daemon.root));
        }
        assert!(!roots.contains(Path::new("/var/lib/containerd")), "{roots:?}");
        // Only root can run a daemon of the node.
        if is_root_by_itself(&host.folder("/proc/self").expect("this process")).expect("its user") {
            assert!(roots.contains(Path::new("/own")), "{roots:?}");
        }
    }

    #[test]
    fn a_process_keeps_the_inode_of_its_folder() {
        let host = HostRoot::open("/".as_ref()).expect("the root");
        let inode = |pid: u32| {
            let all = host.folder("/proc").and_then(|proc| proc.entries()).expect("the processes").entries;
            all.into_iter().find(|entry| entry.name == pid.to_string()).map(|entry| entry.inode)
        };
        let own = inode(process::id());
        assert!(own.is_some() && own == inode(process::id()));
    }
}
