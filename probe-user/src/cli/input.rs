//! Opens files that are read from beginning to end. Waits for a pipe that nobody writes to, and names it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, BufReader},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::anyhow;

use super::say;

/// How long a pipe may have no writer before that is reported.
const MAX_WRITER_WAIT: Duration = Duration::from_secs(3);

/// The first bytes of files of gzip, zstd and xz.
const PACKED: [&[u8]; 3] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0"];

pub(super) fn open(file: &Path) -> io::Result<BufReader<File>> {
    let is_pipe = fs::metadata(file).is_ok_and(|about| about.file_type().is_fifo());
    let opened = if is_pipe {
        open_pipe(file, MAX_WRITER_WAIT, || {
            say(&format!(
                "{} is a pipe that nobody writes to yet: waiting; ctrl-C ends this",
                file.display()
            ));
        })
    } else {
        File::open(file)
    };
    Ok(BufReader::with_capacity(64 << 10, opened?))
}

/// Opens a pipe, which waits until somebody opens it for writing. Calls `on_wait` if that takes longer than
/// `patience`.
fn open_pipe(file: &Path, patience: Duration, on_wait: impl FnOnce()) -> io::Result<File> {
    let (send, opened) = mpsc::channel();
    let path = file.to_owned();
    thread::Builder::new().name("pipe".to_owned()).spawn(move || send.send(File::open(path)))?;
    let opened = opened.recv_timeout(patience).or_else(|_nobody| {
        on_wait();
        opened.recv()
    });
    opened.map_err(io::Error::other)?
}

/// Returns the device and the inode of what is read under this name; "-" is standard input. A file may have
/// several names.
pub(super) fn identity(file: &Path) -> Option<(u64, u64)> {
    let file = if file == Path::new("-") { Path::new("/dev/stdin") } else { file };
    fs::metadata(file).ok().map(|found| (found.dev(), found.ino()))
}

/// Refuses a file that is given twice, under whatever names: it would count twice, or be a pipe that is empty
/// by then.
pub(super) fn refuse_twice(files: &[PathBuf]) -> anyhow::Result<()> {
    let mut names = BTreeSet::new();
    let mut seen = BTreeMap::new();
    for file in files {
        if !names.insert(file) {
            return Err(anyhow!("{} is given twice", file.display()));
        }
        if let Some(other) = identity(file).and_then(|it| seen.insert(it, file)) {
            return Err(anyhow!(
                "{} and {} are the same file: give one of them",
                other.display(),
                file.display()
            ));
        }
    }
    Ok(())
}

/// Returns the error for a file that begins with `head`, if it is compressed.
pub(super) fn packed(file: &Path, head: &[u8]) -> Option<anyhow::Error> {
    let is_packed = PACKED.iter().any(|magic| head.starts_with(magic));
    is_packed.then(|| {
        anyhow!("{} is compressed: give it as <(zcat FILE), <(zstdcat FILE) or <(xzcat FILE)", file.display())
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, io, os::unix::fs::symlink, path::PathBuf, thread, time::Duration};

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::{open_pipe, refuse_twice};

    #[test]
    fn a_pipe_that_nobody_writes_to_is_told_of_and_waited_for() {
        let dir = tempfile::tempdir().expect("a folder");
        let pipe = dir.path().join("pipe");
        mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
        let mut writer = None;
        let opened = open_pipe(&pipe, Duration::from_millis(20), || {
            let pipe = pipe.clone();
            writer = Some(thread::spawn(move || fs::write(pipe, "late")));
        });
        let read = io::read_to_string(opened.expect("it is opened")).expect("text");
        writer.expect("it was told").join().expect("no panic").expect("it is read");
        assert_eq!(read, "late");
    }

    /// Nothing is read: a pipe would be empty afterwards.
    #[test]
    fn a_file_that_is_given_twice_is_refused_by_whatever_names() {
        let dir = tempfile::tempdir().expect("a folder");
        let [file, hard, soft, pipe, absent] =
            ["file", "hard", "soft", "pipe", "absent"].map(|name| dir.path().join(name));
        fs::write(&file, "").expect("a file");
        fs::hard_link(&file, &hard).expect("a link");
        mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
        symlink("pipe", &soft).expect("a link");
        let refused = |files: &[&PathBuf]| {
            let files: Vec<PathBuf> = files.iter().map(|file| (*file).clone()).collect();
            refuse_twice(&files).err().map(|why| why.to_string())
        };
        let input = PathBuf::from("-");
        for twice in [&input, &pipe, &absent, &file] {
            let said = format!("{} is given twice", twice.display());
            assert_eq!(refused(&[twice, &dir.path().join("other"), twice]), Some(said));
        }
        for (one, other) in [(&file, &hard), (&pipe, &soft), (&input, &PathBuf::from("/dev/stdin"))] {
            let said =
                format!("{} and {} are the same file: give one of them", one.display(), other.display());
            assert_eq!(refused(&[one, other]), Some(said));
        }
        assert_eq!(refused(&[&file, &pipe, &absent, &input]), None);
    }
}
