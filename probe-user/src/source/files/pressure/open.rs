//! A cgroup whose files stay open: opening a file of a cgroup costs more than reading it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
};

use crate::source::host::Folder;

/// The longest file that is read, bytes. Each has a few lines.
const MAX_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct OpenCgroup {
    folder: Folder,
    files: BTreeMap<&'static str, File>,
    below: BTreeMap<String, Self>,
    is_gone: bool,
}

impl OpenCgroup {
    pub(super) fn new(folder: Folder) -> Self {
        Self { folder, files: BTreeMap::new(), below: BTreeMap::new(), is_gone: false }
    }

    /// Returns whether an open file could not be read again: the cgroup was removed.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    pub(super) fn read(&mut self, name: &'static str) -> Option<Vec<u8>> {
        if !self.files.contains_key(name) {
            self.files.insert(name, self.folder.plain(name).ok()?);
        }
        let read = self.folder.reread(name, self.files.get(name)?, MAX_BYTES);
        self.is_gone |= read.is_err();
        read.ok()
    }

    /// Returns the cgroups below it that exist now, at most `most`.
    pub(super) fn below(&mut self, most: usize) -> impl Iterator<Item = &mut Self> {
        let entries = self.folder.entries().unwrap_or_default().entries;
        let folders = entries.into_iter().filter(|entry| entry.directory).take(most);
        let names: BTreeSet<String> = folders.map(|entry| entry.name).collect();
        self.below.retain(|name, cgroup| names.contains(name) && !cgroup.is_gone);
        for name in names {
            if !self.below.contains_key(&name)
                && let Ok(folder) = self.folder.folder(&name)
            {
                self.below.insert(name, Self::new(folder));
            }
        }
        self.below.values_mut()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::OpenCgroup;
    use crate::source::host::HostRoot;

    #[test]
    fn an_open_file_says_what_it_says_now() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        fs::create_dir(at("a")).expect("a directory");
        fs::write(at("cpu.stat"), "one").expect("a file");
        let root_folder = HostRoot::open(root.path()).expect("the root").folder("/").expect("a folder");
        let mut cgroup = OpenCgroup::new(root_folder);
        assert_eq!(cgroup.read("cpu.stat").as_deref(), Some(&b"one"[..]));
        fs::write(at("cpu.stat"), "three").expect("a file");
        assert_eq!(cgroup.read("cpu.stat").as_deref(), Some(&b"three"[..]));
        assert_eq!(cgroup.read("memory.events"), None);
        assert!(!cgroup.is_gone());
        // The cgroups below come and go.
        fs::write(at("a/cpu.stat"), "a").expect("a file");
        let mut below = || cgroup.below(9).filter_map(|it| it.read("cpu.stat")).collect::<Vec<_>>();
        assert_eq!(below(), [b"a"]);
        fs::create_dir(at("b")).expect("a directory");
        fs::write(at("b/cpu.stat"), "b").expect("a file");
        assert_eq!(below(), [b"a", b"b"]);
        fs::remove_dir_all(at("a")).expect("removed");
        assert_eq!(below(), [b"b"]);
    }

    /// The files of a process that has ended fail to be read as those of a removed cgroup do.
    #[test]
    fn a_removed_cgroup_is_seen() {
        let mut child = Command::new("sleep").arg("100").spawn().expect("a process");
        let root = HostRoot::open("/".as_ref()).expect("the root");
        let folder = root.folder(format!("/proc/{}", child.id())).expect("its folder");
        let mut opened = OpenCgroup::new(folder);
        assert!(opened.read("stat").is_some() && !opened.is_gone());
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert_eq!(opened.read("stat"), None);
        assert!(opened.is_gone());
    }
}
