//! The allocated addresses: a directory with a file for each, and beside it the counts of the plugin's calls.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    io::{self, Write as _},
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use super::{Attachment, Range};

/// The counts of the plugin's calls since the store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub adds: u64,
    /// How many of them were made to fail.
    pub adds_failed: u64,
    /// How many DELs with a namespace succeeded, and how many DELs had none.
    pub dels: u64,
    pub dels_blind: u64,
    pub dels_failed: u64,
    /// The address after which the search for a free one goes on.
    last: Option<Ipv4Addr>,
}

impl Counts {
    /// Returns the calls since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            adds: self.adds - before.adds,
            adds_failed: self.adds_failed - before.adds_failed,
            dels: self.dels - before.dels,
            dels_failed: self.dels_failed - before.dels_failed,
            dels_blind: self.dels_blind - before.dels_blind,
            last: self.last,
        }
    }
}

/// The store, locked for one call.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    counts: Counts,
    _lock: File,
}

impl Store {
    /// Waits for the lock, and makes the store if there is none.
    pub fn lock(directory: &Path) -> Result<Self> {
        fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
        let path = beside(directory, "lock");
        let lock = File::create(&path).with_context(|| format!("make {}", path.display()))?;
        lock.lock().with_context(|| format!("lock {}", path.display()))?;
        let counts = Self::counted(directory)?;
        Ok(Self { directory: directory.to_owned(), counts, _lock: lock })
    }

    /// Returns the holder of each address, read without the lock.
    pub fn read(directory: &Path) -> Result<BTreeMap<Ipv4Addr, Attachment>> {
        let mut held = BTreeMap::new();
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(held),
            entries => entries.with_context(|| format!("list {}", directory.display()))?,
        };
        for entry in entries {
            let entry = entry?;
            // host-local has its lock and its last address in this directory too.
            let Some(address) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let path = entry.path();
            let text = match fs::read_to_string(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                text => text.with_context(|| format!("read {}", path.display()))?,
            };
            let mut lines = text.lines().map(|line| line.trim().to_owned());
            let mut line = || lines.next().unwrap_or_default();
            held.insert(address, Attachment { container: line(), interface: line() });
        }
        Ok(held)
    }

    /// Returns the counts so far. They are zero if there is no store.
    pub fn counted(directory: &Path) -> Result<Counts> {
        let path = beside(directory, "counts");
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Counts::default()),
            bytes => {
                let bytes = bytes.with_context(|| format!("read {}", path.display()))?;
                serde_json::from_slice(&bytes).with_context(|| format!("understand {}", path.display()))
            }
        }
    }

    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(super) fn count(&mut self, change: impl FnOnce(&mut Counts)) -> Result<()> {
        change(&mut self.counts);
        let (path, fresh) = (beside(&self.directory, "counts"), beside(&self.directory, "counts.new"));
        fs::write(&fresh, serde_json::to_vec(&self.counts)?)
            .and_then(|()| fs::rename(&fresh, &path))
            .with_context(|| format!("write {}", path.display()))
    }

    /// Returns the next free address.
    pub(super) fn free(&self, range: Range) -> Result<Ipv4Addr> {
        for address in range.after(self.counts.last) {
            if !self.directory.join(address.to_string()).exists() {
                return Ok(address);
            }
        }
        bail!("every address of {range} is taken")
    }

    pub(super) fn reserve(&mut self, range: Range, container: &str, interface: &str) -> Result<Ipv4Addr> {
        let address = self.free(range)?;
        let path = self.directory.join(address.to_string());
        File::create_new(&path)
            .and_then(|mut file| write!(file, "{container}\n{interface}\n"))
            .with_context(|| format!("write {}", path.display()))?;
        self.count(|counts| counts.last = Some(address))?;
        Ok(address)
    }

    pub(super) fn release(&self, address: Ipv4Addr) -> Result<()> {
        let path = self.directory.join(address.to_string());
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }
}

/// Returns a path beside the directory, because the directory itself holds only addresses.
fn beside(directory: &Path, what: &str) -> PathBuf {
    let mut name = OsString::from(directory.file_name().unwrap_or_default());
    name.push(".");
    name.push(what);
    directory.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_address_is_not_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("addresses");
        let range = "10.9.0.0/29".parse().unwrap();
        let mut store = Store::lock(&directory).unwrap();
        let mut reserve = || store.reserve(range, "a", "eth0").map(|address| address.octets()[3]);
        assert_eq!([reserve().unwrap(), reserve().unwrap()], [2, 3]);
        store.release("10.9.0.2".parse().unwrap()).unwrap();
        // A second release changes nothing.
        store.release("10.9.0.2".parse().unwrap()).unwrap();
        let mut reserve = || store.reserve(range, "b", "eth1").map(|address| address.octets()[3]);
        assert_eq!(
            [reserve().unwrap(), reserve().unwrap(), reserve().unwrap(), reserve().unwrap()],
            [4, 5, 6, 2]
        );
        assert!(reserve().unwrap_err().to_string().contains("every address"));
        let held = Store::read(&directory).unwrap();
        let holder = |text: &str| held[&text.parse().unwrap()].clone();
        assert_eq!(holder("10.9.0.3").container, "a");
        assert_eq!(
            holder("10.9.0.2"),
            Attachment { container: "b".to_owned(), interface: "eth1".to_owned() }
        );
        assert_eq!(held.len(), 5);
    }

    #[test]
    fn counts_survive_the_call() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("addresses");
        assert_eq!(Store::counted(&directory).unwrap(), Counts::default());
        for _ in 0..2 {
            Store::lock(&directory).unwrap().count(|counts| counts.adds += 1).unwrap();
        }
        assert_eq!(Store::counted(&directory).unwrap().adds, 2);
    }

    #[test]
    fn host_locals_files_are_read_too() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in
            [("10.88.0.2", "sandbox\r\neth0"), ("lock", ""), ("last_reserved_ip.0", "10.88.0.2")]
        {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let held = Store::read(folder.path()).unwrap();
        let expected = Attachment { container: "sandbox".to_owned(), interface: "eth0".to_owned() };
        assert_eq!(held, BTreeMap::from([("10.88.0.2".parse().unwrap(), expected)]));
    }
}
