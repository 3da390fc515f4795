//! Makes the self-test's namespace and cgroup, and removes both.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
};

use nix::sched::{CloneFlags, unshare};
use tokio::sync::oneshot;

/// Makes a network namespace and lets it end; returns its inode. A separate thread does this and ends with
/// the namespace. The other threads of this process stay in their namespace.
pub(super) async fn netns() -> io::Result<u32> {
    let (sender, made) = oneshot::channel();
    thread::Builder::new().name("self-test".to_owned()).spawn(move || {
        // If the receiver is gone, the deadline has passed.
        sender.send(in_new_netns()).ok();
    })?;
    made.await.map_err(|_gone| io::Error::other("the thread that makes a network namespace panicked"))?
}

fn in_new_netns() -> io::Result<u32> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let inode = fs::metadata("/proc/thread-self/ns/net")?.ino();
    u32::try_from(inode).map_err(io::Error::other)
}

/// Makes a cgroup directory in `hierarchy` and removes it; returns its id.
pub(super) fn cgroup(hierarchy: &Path) -> io::Result<u64> {
    let directory = Directory::make(hierarchy.join(format!("sandprobe-selftest-{}", std::process::id())))?;
    let id = fs::metadata(&directory.0)?.ino();
    directory.remove()?;
    Ok(id)
}

/// A directory that is removed in any case.
struct Directory(PathBuf);

impl Directory {
    fn make(path: PathBuf) -> io::Result<Self> {
        match fs::create_dir(&path) {
            // A killed process with this pid left the directory.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_dir(&path)?;
                fs::create_dir(&path)?;
            }
            other => other?,
        }
        Ok(Self(path))
    }

    fn remove(self) -> io::Result<()> {
        fs::remove_dir(&self.0)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // This fails if the directory was already removed.
        fs::remove_dir(&self.0).ok();
    }
}
