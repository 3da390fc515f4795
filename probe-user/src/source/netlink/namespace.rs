//! Finds network namespaces by inode and opens them. An open namespace cannot end, so all requests about it are about
//! this one and not about a later one with the same inode.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use probe_common::runtime::{self, NETNS};

use crate::model::fact::Task;

/// Opens the namespace with this inode; `None` if nothing is found that holds it.
pub(super) fn open(root: &Path, inode: u32, by: &Task) -> io::Result<Option<File>> {
    Ok(open_all(root, [(inode, by)])?.remove(&inode))
}

/// Opens the namespaces with these inodes that can be found, in one search of the node.
///
/// `by` was in the namespace when it was made, so it is searched first. The inode may have been reused, but not while
/// that task is alive and in the namespace. A runtime's thread leaves the namespace to a mount and ends. All
/// processes of the node are searched last, because `by` may have passed it on to a child.
pub(super) fn open_all<'a>(
    root: &Path,
    wanted: impl IntoIterator<Item = (u32, &'a Task)>,
) -> io::Result<BTreeMap<u32, File>> {
    let proc = root.join("proc");
    let device = fs::metadata(proc.join("self/ns/net"))?.dev();
    let mut missing = BTreeSet::new();
    let mut own = Vec::new();
    for (inode, by) in wanted {
        missing.insert(inode);
        let process = proc.join(by.key.pid.to_string());
        own.extend([process.join("task").join(by.tid.to_string()).join("ns/net"), process.join("ns/net")]);
    }
    let mounts = [NETNS].iter().chain(runtime::of_runtimes(|row| row.netns));
    let mounts = mounts.flat_map(|mounts| entries(&root.join(mounts.trim_start_matches('/'))));
    let all = entries(&proc).filter(|path| is_number(path)).map(|path| path.join("ns/net"));
    let mut found = BTreeMap::new();
    for path in own.into_iter().chain(mounts).chain(all) {
        if missing.is_empty() {
            break;
        }
        let inode = |found: &Metadata| u32::try_from(found.ino()).ok().filter(|_| found.dev() == device);
        // The inode is read before the open, because opening another file may have effects.
        let Some(it) = fs::metadata(&path).ok().as_ref().and_then(inode) else { continue };
        if missing.contains(&it)
            && let Ok(file) = File::open(&path)
            && file.metadata().is_ok_and(|opened| inode(&opened) == Some(it))
        {
            missing.remove(&it);
            found.insert(it, file);
        }
    }
    Ok(found)
}

/// The entries of a directory; none if it cannot be read. Most nodes have one of several directories.
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
    use crate::model::{fact::Task, id::TaskKey};

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
    fn several_are_found_by_one_look_and_those_that_are_gone_are_not() {
        let nobody = Task::default();
        let wanted = [(1, &nobody), (own_inode(), &nobody), (2, &nobody)];
        let found = super::open_all(Path::new("/"), wanted).expect("procfs");
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [own_inode()]);
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
