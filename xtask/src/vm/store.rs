//! Results that are made once and stored below `target/vm`, each in a folder named for a hash of its inputs.
//!
//! Invariant: a folder with its final name is complete: it is made under another name and renamed.
//!
//! Invariant: if two processes need the same result, it is made once: the second waits for the first.

use crate::{root as superuser, workspace};
use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A hash of all inputs of a result.
#[derive(Clone)]
pub(super) struct Key(Sha256);

impl Key {
    pub(super) fn new() -> Self {
        Self(Sha256::new())
    }

    /// Adds an input with its length, so that two different lists of inputs never hash the same bytes.
    pub(super) fn with(mut self, input: impl AsRef<[u8]>) -> Self {
        let input = input.as_ref();
        self.0.update(input.len().to_le_bytes());
        self.0.update(input);
        self
    }

    /// Adds a result of this store by its name, which has the hash of its inputs.
    pub(super) fn with_entry(self, path: &Path) -> Self {
        let name = path.strip_prefix(root()).unwrap_or(path);
        self.with(name.as_os_str().as_encoded_bytes())
    }

    /// Returns twelve hexadecimal digits: enough for the few results that are kept here.
    fn digits(&self) -> String {
        self.0.clone().finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }
}

pub(super) fn root() -> PathBuf {
    workspace::target_dir().join("vm")
}

/// Returns the folder `name-KEY` of this kind: the existing one, or a new one that `make` fills. Removes
/// folders of the same name from other inputs.
pub(super) fn entry(
    kind: &str,
    name: &str,
    key: &Key,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let kind = root().join(kind);
    let done = kind.join(format!("{name}-{}", key.digits()));
    if done.is_dir() {
        return Ok(done);
    }
    let _lock = lock(&kind, name)?;
    if done.is_dir() {
        return Ok(done);
    }
    remove_others(&kind, name)?;
    let part = kind.join(format!("{name}-part"));
    fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
    make(&part)?;
    fs::rename(&part, &done).with_context(|| format!("cannot make {}", done.display()))?;
    Ok(done)
}

/// Takes a lock, which is held until the file is dropped.
pub(super) fn lock(dir: &Path, name: &str) -> Result<File> {
    let path = dir.join(format!(".{name}.lock"));
    locked(dir, &path).with_context(|| format!("cannot lock {}", path.display()))
}

fn locked(dir: &Path, path: &Path) -> io::Result<File> {
    fs::create_dir_all(dir)?;
    let file = File::create(path)?;
    file.lock()?;
    Ok(file)
}

fn remove_others(kind: &Path, name: &str) -> Result<()> {
    for found in fs::read_dir(kind).with_context(|| format!("cannot read {}", kind.display()))? {
        let found = found?;
        if is_of(name, &found.file_name().to_string_lossy()) {
            let path = found.path();
            // If making it was interrupted, root may own some of it.
            if fs::remove_dir_all(&path).is_err() {
                workspace::run(superuser::command("rm").args(["-rf", "--one-file-system"]).arg(&path))?;
            }
        }
    }
    Ok(())
}

/// Reports whether the folder is one of `name`, with any key: "5.10-0123456789ab", or "5.10-part".
fn is_of(name: &str, folder: &str) -> bool {
    let Some(rest) = folder.strip_prefix(name).and_then(|rest| rest.strip_prefix('-')) else { return false };
    rest == "part" || (rest.len() == 12 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_lists_apart() {
        let of = |inputs: &[&str]| inputs.iter().fold(Key::new(), |key, input| key.with(input)).digits();
        assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
        assert_ne!(of(&["a", "b"]), of(&["b", "a"]));
        assert_ne!(of(&["ab", ""]), of(&["a", "b"]));
        assert_eq!(of(&[]).len(), 12);
    }

    #[test]
    fn only_folders_of_the_name_are_replaced() {
        assert!(is_of("6.1", "6.1-0123456789ab"));
        assert!(is_of("6.1", "6.1-part"));
        assert!(!is_of("6.1", "6.12-0123456789ab"));
        assert!(!is_of("6.1", "6.1-containerd-1.7-0123456789ab"));
        assert!(!is_of("6.1", "6.1-aarch64-0123456789ab"));
        assert!(!is_of("6.1", ".6.1.lock"));
    }
}
