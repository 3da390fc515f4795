//! Finds a network namespace by its inode and opens it: an open one cannot end, so what is asked about it while it
//! is open is about this one and no later one with the same number.

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::engine::fact::Task;

/// Where namespaces are mounted: by iproute2 and most container runtimes, and by Docker.
const MOUNTS: [&str; 2] = ["run/netns", "run/docker/netns"];

/// The namespace with this inode, or `None` if nothing is found that holds it.
///
/// `by` was in it when it was made, which is where to look first: the inode may be another one's by now, but not
/// as long as that task is alive and in it. A runtime's thread leaves it to a mount and ends. Last comes
/// everyone on the node, for what `by` has passed on to a child.
pub(super) fn open(root: &Path, inode: u32, by: &Task) -> io::Result<Option<File>> {
    let proc = root.join("proc");
    let device = fs::metadata(proc.join("self/ns/net"))?.dev();
    let is_it = |found: &Metadata| found.ino() == u64::from(inode) && found.dev() == device;

    let process = proc.join(by.key.pid.to_string());
    let own = [process.join("task").join(by.tid.to_string()).join("ns/net"), process.join("ns/net")];
    let mounts = MOUNTS.iter().flat_map(|mounts| entries(&root.join(mounts)));
    let all = entries(&proc).filter(|path| is_number(path)).map(|path| path.join("ns/net"));
    Ok(own.into_iter().chain(mounts).chain(all).find_map(|path| {
        // Looked at before it is opened: opening a stranger's file may have effects.
        fs::metadata(&path).ok().filter(&is_it)?;
        let file = File::open(&path).ok()?;
        file.metadata().is_ok_and(|found| is_it(&found)).then_some(file)
    }))
}

/// Nothing if it is no directory that can be read: most nodes have one of several.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn is_number(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

    use super::open;
    use crate::engine::{fact::Task, id::TaskKey};

    fn own_inode() -> u32 {
        let metadata = fs::metadata("/proc/self/ns/net").expect("procfs");
        u32::try_from(metadata.ino()).expect("inode numbers of namespaces are 32 bits")
    }

    #[test]
    fn a_namespace_is_found_by_its_task_and_without_it() {
        let own =
            Task { key: TaskKey::new(std::process::id(), 0), tid: std::process::id(), ..Task::default() };
        for by in [own, Task::default()] {
            let found = open(Path::new("/"), own_inode(), &by).expect("procfs").expect("we are in it");
            assert_eq!(found.metadata().expect("open").ino(), u64::from(own_inode()));
        }
    }

    #[test]
    fn no_other_namespace_passes_for_one_that_is_gone() {
        let own =
            Task { key: TaskKey::new(std::process::id(), 0), tid: std::process::id(), ..Task::default() };
        assert!(open(Path::new("/"), 1, &own).expect("procfs").is_none());
    }

    #[test]
    fn without_procfs_it_says_so() {
        assert!(open(Path::new("/proc/self/fdinfo"), own_inode(), &Task::default()).is_err());
    }
}
