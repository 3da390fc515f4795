//! A directory of the agent's own: made if it is not there, locked against a second agent, its files for their owner
//! alone, since they name what ran on the node and have the arguments of processes.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
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
        Err(TryLockError::WouldBlock) => Err(io::Error::other("another sandprobe keeps its own there")),
    }
}

/// Opens, and makes, files that nobody else may read.
pub(super) fn own(options: &mut OpenOptions) -> &OpenOptions {
    options.create(true).mode(0o600)
}

/// Replaces a file as a whole, or leaves it as it is.
pub(super) fn replace(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = dir.join(format!(".{name}.new"));
    let mut file = own(File::options().write(true).truncate(true)).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, dir.join(name))?;
    File::open(dir)?.sync_all()
}
