//! Finds network namespaces by inode and opens them. An open namespace cannot end, so all requests about it
//! are about this one and not about a later one with the same inode.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, Metadata},
    io, iter,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use probe_common::runtime::{self, NETNS};

use crate::model::fact::Task;

/// Searches the node for namespaces.
#[derive(Debug)]
pub(super) struct Search {
    /// Where the node's root is mounted.
    root: PathBuf,
    /// The files that the last search found in the folders of mounted namespaces. Most of them have not
    /// changed, and a namespace that is searched for is mostly new, so they are read after the others.
    mounts: BTreeSet<PathBuf>,
}

impl Search {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, mounts: BTreeSet::new() }
    }

    /// Opens the namespace with this inode; `None` if it is not found.
    pub(super) fn open(&mut self, inode: u32, by: &Task) -> io::Result<Option<File>> {
        Ok(self.open_all([(inode, by)])?.remove(&inode))
    }

    /// Opens the namespaces with these inodes that can be found, in one search of the node.
    ///
    /// `by` was in the namespace when it was made, so it is searched first. The inode may have been reused,
    /// but not while that task is alive and in the namespace. A runtime's thread leaves the namespace to a
    /// mount and ends. All processes of the node are searched last, because `by` may have passed the
    /// namespace to a child.
    pub(super) fn open_all<'a>(
        &mut self,
        wanted: impl IntoIterator<Item = (u32, &'a Task)>,
    ) -> io::Result<BTreeMap<u32, File>> {
        let proc = self.root.join("proc");
        let device = fs::metadata(proc.join("self/ns/net"))?.dev();
        let mut missing = BTreeSet::new();
        let mut own = Vec::new();
        for (inode, by) in wanted {
            missing.insert(inode);
            let process = proc.join(by.key.pid.to_string());
            own.extend([
                process.join("task").join(by.tid.to_string()).join("ns/net"),
                process.join("ns/net"),
            ]);
        }
        let folders = [NETNS].iter().chain(runtime::of_runtimes(|row| row.netns));
        let mounts: BTreeSet<PathBuf> =
            folders.flat_map(|folder| entries(&self.root.join(folder.trim_start_matches('/')))).collect();
        let (old, new): (Vec<_>, Vec<_>) = mounts.iter().partition(|path| self.mounts.contains(*path));
        let all = iter::once_with(|| entries(&proc)).flatten().filter(|path| is_number(path));
        let mounted = new.into_iter().chain(old).cloned();
        let mut found = BTreeMap::new();
        for path in own.into_iter().chain(mounted).chain(all.map(|path| path.join("ns/net"))) {
            if missing.is_empty() {
                break;
            }
            // The inode is read before the open, because opening another file may have effects.
            let Ok(found_at) = fs::metadata(&path) else { continue };
            let Some(it) = inode(&found_at, device) else { continue };
            if missing.contains(&it)
                && let Ok(file) = File::open(&path)
                && file.metadata().is_ok_and(|opened| inode(&opened, device) == Some(it))
            {
                missing.remove(&it);
                found.insert(it, file);
            }
        }
        self.mounts = mounts;
        Ok(found)
    }
}

/// Returns the inode of a namespace's file; `None` if the file is on another device, and so is not a
/// namespace.
fn inode(metadata: &Metadata, device: u64) -> Option<u32> {
    if metadata.dev() == device { u32::try_from(metadata.ino()).ok() } else { None }
}

/// Returns the entries of a directory; none if it cannot be read. Most nodes have one of several directories.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn is_number(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        os::unix::fs::{MetadataExt as _, symlink},
    };

    use super::{BTreeMap, Search};
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
            let found =
                Search::new("/".into()).open(own_inode(), &by).expect("procfs").expect("we are in it");
            assert_eq!(found.metadata().expect("open").ino(), u64::from(own_inode()));
        }
    }

    #[test]
    fn several_are_found_by_one_look_and_those_that_are_gone_are_not() {
        let nobody = Task::default();
        let wanted = [(1, &nobody), (own_inode(), &nobody), (2, &nobody)];
        let found = Search::new("/".into()).open_all(wanted).expect("procfs");
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [own_inode()]);
    }

    #[test]
    fn no_other_namespace_passes_for_one_that_is_gone() {
        let own =
            Task { key: TaskKey::new(std::process::id(), 0), tid: std::process::id(), ..Task::default() };
        assert!(Search::new("/".into()).open(1, &own).expect("procfs").is_none());
    }

    /// A file that an earlier search has seen may hold another namespace by now.
    #[test]
    fn a_namespace_is_found_at_a_new_mount_and_at_an_old_one() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        for folder in ["proc/self/ns", "run/netns"] {
            fs::create_dir_all(at(folder)).expect("directories");
        }
        symlink("/proc/self/ns/net", at("proc/self/ns/net")).expect("a link");
        let mut search = Search::new(root.path().to_owned());
        let mut found = |name: &str| {
            symlink("/proc/self/ns/net", at("run/netns").join(name)).expect("a link");
            let found: BTreeMap<u32, File> =
                search.open_all([(own_inode(), &Task::default())]).expect("procfs");
            fs::remove_file(at("run/netns").join(name)).expect("removed");
            fs::write(at("run/netns").join(name), "").expect("a file");
            let gone = search.open(own_inode(), &Task::default()).expect("procfs");
            fs::remove_file(at("run/netns").join(name)).expect("removed");
            (found.len(), gone.is_some())
        };
        assert_eq!([found("a"), found("a"), found("b")], [(1, false); 3]);
    }

    #[test]
    fn without_procfs_it_says_so() {
        assert!(Search::new("/proc/self/fdinfo".into()).open(own_inode(), &Task::default()).is_err());
    }
}
