//! Reads files of the state directory, and says what is wrong with a path that is not a regular file.

use std::{fs, io, path::Path};

use crate::bounded_read;

/// The longest file that is read, bytes. Files with many boots of many pods and many findings are far
/// shorter.
const MAX_BYTES: u64 = 256 << 20;

/// What to do about a path that is not a regular file.
const REMEDY: &str = "remove or rename it, and sandprobe makes a new file there";

/// Reads a whole file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    bounded_read::read_bounded(path, MAX_BYTES).map_err(|error| {
        // A socket cannot be opened.
        let is_about_type = error.kind() == io::ErrorKind::Other || error.raw_os_error() == Some(libc::ENXIO);
        match not_plain(path) {
            Some(is) if is_about_type => io::Error::other(format!("it is {is}; {REMEDY}")),
            _ => error,
        }
    })
}

/// Describes what is at the path instead of a regular file. A symbolic link is not followed.
pub(crate) fn not_plain(path: &Path) -> Option<&'static str> {
    let found = fs::symlink_metadata(path).ok()?.file_type();
    if found.is_file() {
        None
    } else if found.is_dir() {
        Some("a directory, not a regular file")
    } else if found.is_symlink() {
        Some("a symbolic link, not a regular file")
    } else {
        Some("a device, a pipe or a socket, not a regular file")
    }
}

/// Returns the error of an operation on this file, or what is wrong with the path if it is not a regular
/// file. (A confined agent may neither follow a link to another directory nor replace a directory: the kernel
/// then says "permission denied".)
pub(crate) fn blame(path: &Path, error: io::Error) -> io::Error {
    let name = path.file_name().unwrap_or_default().display();
    match (error.kind(), not_plain(path)) {
        // This error comes from `read`, which says why, but does not name the file.
        (io::ErrorKind::Other, _) => io::Error::other(format!("{name}: {error}")),
        (
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::ReadOnlyFilesystem,
            _,
        )
        | (_, None) => error,
        (_, Some(is)) => io::Error::other(format!("{name} is {is} ({error}); {REMEDY}")),
    }
}

/// The kernel's error of an operation on a file.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {error}")]
struct Named {
    name: String,
    error: io::Error,
}

/// Adds the name of the file to the error, unless its text has the name already.
pub(crate) fn named(path: &Path, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::Other => error,
        kind => {
            let name = path.file_name().unwrap_or_default().display().to_string();
            io::Error::new(kind, Named { name, error })
        }
    }
}

/// Returns the kernel's error number, also from an error to which [`named`] added a name.
pub(crate) fn number(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| error.get_ref()?.downcast_ref::<Named>()?.error.raw_os_error())
}

/// Whether the error means that nothing is at the path. After any other error, as of a failing disk, the file
/// may still be there.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::net::UnixListener, path::Path};

    use super::read;

    #[test]
    fn what_has_no_end_is_not_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let huge = dir.path().join("huge");
        File::create(&huge).and_then(|file| file.set_len(64 << 30)).expect("a sparse file");
        let socket = dir.path().join("socket");
        UnixListener::bind(&socket).expect("a socket");
        for (path, why) in [
            (&*socket, "it is a device, a pipe or a socket, not a regular file"),
            (Path::new("/dev/zero"), "it is a device, a pipe or a socket, not a regular file"),
            (dir.path(), "it is a directory, not a regular file; remove or rename it"),
            (&huge, "longer than 268435456 bytes"),
        ] {
            let error = read(path).expect_err("it is none").to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
