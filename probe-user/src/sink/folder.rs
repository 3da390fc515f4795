//! A directory of the agent's own: made if it is not there, locked against a second agent, its files for their owner
//! alone, since they name what ran on the node and have the arguments of processes.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt as _, OpenOptionsExt},
    path::Path,
};

pub(super) fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Of two agents the second keeps nothing. The lock (`flock(2)`) is held as long as what this gives back.
pub(super) fn lock(file: File) -> io::Result<File> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::Error(error)) => Err(error),
        Err(TryLockError::WouldBlock) => Err(io::Error::other(
            "another sandprobe keeps its own there; end that one, or give this one a directory of its own",
        )),
    }
}

/// Whether what was opened is still what lies there: it may have been removed, or another put in its place.
pub(super) fn is_there(opened: &File, path: &Path) -> bool {
    let id = |found: fs::Metadata| (found.dev(), found.ino());
    opened.metadata().map(id).ok().is_some_and(|own| fs::metadata(path).map(id).ok() == Some(own))
}

/// The error of an agent that had the directory and cannot use what lies in its place: one that is confined may write
/// only to the one that it found.
pub(super) fn removed(error: &io::Error) -> io::Error {
    io::Error::other(format!(
        "it was removed while sandprobe ran ({error}); start sandprobe again, which makes it anew"
    ))
}

/// Opens, and makes, files that nobody else may read.
pub(super) fn own(options: &mut OpenOptions) -> &OpenOptions {
    options.create(true).mode(0o600)
}

/// Replaces a file as a whole, or leaves it as it is. What was written in vain is removed: on a full disk it would take the
/// room that is missing.
pub(super) fn replace(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = dir.join(format!(".{name}.new"));
    let replaced = write(&new, bytes).and_then(|()| fs::rename(&new, dir.join(name)));
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
    fn what_was_written_in_vain_is_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("taken")).expect("a directory in its place");
        replace(dir.path(), "taken", b"all").expect_err("it cannot be replaced");
        replace(dir.path(), "free", b"all").expect("it can be written");
        let mut names: Vec<_> = fs::read_dir(dir.path())
            .expect("the directory")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["free", "taken"]);
    }
}
