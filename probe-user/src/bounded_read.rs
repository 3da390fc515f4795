//! Reads whole files: those that the user names for settings and secrets, and those that sandprobe keeps.
//!
//! **Invariant:** whatever is at the path, reading it ends soon and takes little memory.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// The longest file of the user's that is read, bytes. All certificate authorities of a system take less.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// Reads a file of the user's.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_bounded(path, MAX_BYTES)
}

/// Reads the whole file, which must be a regular one of at most `longest` bytes. A symbolic link to one is
/// fine: the files of a Secret are such links.
pub(crate) fn read_bounded(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    // Opening a fifo would wait until somebody writes to it.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if about.len() > longest {
        return Err(too_long(longest));
    }
    let mut bytes = Vec::new();
    // The file may grow meanwhile.
    file.take(longest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest { Err(too_long(longest)) } else { Ok(bytes) }
}

fn too_long(longest: u64) -> io::Error {
    io::Error::other(format!("it is longer than {longest} bytes"))
}

/// Reads the file as UTF-8 text.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_not_utf8| io::Error::other("it is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::{MAX_BYTES, read, read_text};

    #[test]
    fn only_plain_files_of_a_fair_size_are_read() {
        let folder = tempfile::tempdir().expect("a directory");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("token"), "abc\n").expect("a file");
        symlink("token", at("link")).expect("a link");
        assert_eq!(read_text(&at("link")).expect("a plain file behind it"), "abc\n");
        mkfifo(&at("fifo"), Mode::S_IRWXU).expect("a fifo");
        fs::write(at("long"), vec![b'#'; usize::try_from(MAX_BYTES).expect("small") + 1]).expect("a file");
        fs::write(at("bytes"), [0xff]).expect("a file");
        let plain = "it is not a regular file";
        for (path, told) in [
            (Path::new("/dev/zero"), plain),
            (&at("fifo"), plain),
            (folder.path(), plain),
            (&at("long"), "it is longer than 1048576 bytes"),
            (&at("bytes"), "it is not UTF-8 text"),
        ] {
            let why = read_text(path).expect_err("it is none").to_string();
            assert_eq!(why, told, "{}", path.display());
        }
        assert_eq!(read(&at("bytes")).expect("a plain file"), [0xff]);
    }
}
