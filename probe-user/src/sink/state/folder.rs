//! A directory of the agent: made if it does not exist, and locked against a second agent. Only its owner may
//! read its files, because they name what ran on the node and hold the arguments of processes.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt as _, OpenOptionsExt},
    path::Path,
};

use super::file::{blame, is_absent};

pub(crate) fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Locks the directory; a second agent gets an error. The lock (`flock(2)`) is held while the returned file
/// is open.
pub(crate) fn lock(file: File) -> io::Result<File> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::Error(error)) => Err(error),
        Err(TryLockError::WouldBlock) => Err(io::Error::other(
            "another sandprobe keeps its own there; end that one, or give this one a directory of its own",
        )),
    }
}

/// Whether the opened file is still the one at the path, and was not removed or replaced. On a disk that
/// fails it counts as there, and the next operation shows the failure.
pub(crate) fn is_there(opened: &File, path: &Path) -> bool {
    match (opened.metadata(), fs::metadata(path)) {
        (Ok(own), Ok(found)) => (own.dev(), own.ino()) == (found.dev(), found.ino()),
        (Err(error), _) | (_, Err(error)) => !is_absent(&error),
    }
}

/// The error if the directory was removed while the agent ran. A confined agent may write only to the
/// directory that it found at its start.
pub(crate) fn removed(error: &io::Error) -> io::Error {
    io::Error::other(format!(
        "it was removed while sandprobe ran ({error}); start sandprobe again, which makes it anew"
    ))
}

/// Sets options with which a new file can be read by its owner alone.
pub(crate) fn own(options: &mut OpenOptions) -> &OpenOptions {
    options.create(true).mode(0o600)
}

/// Replaces a whole file, or leaves it as it is. A temporary file that could not be completed is removed,
/// because on a full disk it would take room.
pub(crate) fn replace(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = dir.join(format!(".{name}.new"));
    let path = dir.join(name);
    let written = write(&new, bytes).map_err(|error| blame(&new, error));
    let replaced = written.and_then(|()| fs::rename(&new, &path).map_err(|error| blame(&path, error)));
    if let Err(error) = replaced {
        fs::remove_file(&new).ok();
        return Err(error);
    }
    File::open(dir)?.sync_all()
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = own(File::options().write(true).truncate(true)).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::replace;

    #[test]
    fn an_incomplete_file_is_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("taken")).expect("a directory in its place");
        let error = replace(dir.path(), "taken", b"all").expect_err("it cannot be replaced").to_string();
        assert!(error.starts_with("taken is a directory, not a regular file ("), "{error}");
        assert!(error.ends_with("; remove or rename it, and sandprobe makes a new file there"), "{error}");
        replace(dir.path(), "free", b"all").expect("it can be written");
        let mut names: Vec<_> = fs::read_dir(dir.path())
            .expect("the directory")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["free", "taken"]);
    }
}
