//! Reads the node's files, below the directory at which the node's root is mounted (`/`, or `/host` in a
//! container).
//!
//! The authors of these files may be wrong or hostile, so this module is the only way to read them.
//!
//! **Invariant:** no path leads out of the root; only plain files are read, never more than a bounded length,
//! and nothing waits for the writer of a fifo.

pub(crate) mod memo;
pub(crate) mod mountinfo;
mod plain;
mod resolve;
pub mod skipped;
pub(crate) mod watch;

use std::{
    fs::File,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::UNIX_EPOCH,
};

use nix::{
    dir::{Dir, Type},
    errno::Errno,
    fcntl::{self, AtFlags, OFlag},
    sys::{
        stat::{self, Mode, SFlag},
        statfs::{self, FsType},
    },
    unistd,
};

use watch::Reader;

/// The longest plain file that is read, bytes.
pub(crate) const FILE: usize = 4 << 20;
/// The longest line that is read, bytes.
pub(crate) const LINE: usize = 1 << 20;
/// The most entries of a directory that are read.
pub(crate) const ENTRIES: usize = 1 << 16;

/// Opens a directory only as a base for further paths.
const PLACE: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
const DIRECTORY: OFlag = PLACE.union(OFlag::O_DIRECTORY);
/// `NSFS_MAGIC` of linux/magic.h.
const NSFS: FsType = FsType(0x6e73_6673);
/// The link to a process's root directory. It is followed, although it is not a path.
const PROCESS_ROOT: &str = "root";
/// The link to a process's program, which is followed too.
const PROGRAM: &str = "exe";

/// The node's root directory.
#[derive(Debug)]
pub struct HostRoot(Folder);

/// The node's root directory cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the host's root {path}: {why}; mount the node's / there or give another --host-root")]
pub struct HostRootError {
    path: PathBuf,
    why: Errno,
}

impl HostRoot {
    pub fn open(path: &Path) -> Result<Self, HostRootError> {
        // The user gave this path, so its links are followed.
        let fd = fcntl::open(path, DIRECTORY.difference(OFlag::O_NOFOLLOW), Mode::empty())
            .map_err(|why| HostRootError { path: path.to_owned(), why })?;
        Ok(Self(Folder { fd, path: PathBuf::from("/"), reader: None }))
    }

    /// Opens the root again, with a `reader` that records which file is being read.
    pub(crate) fn watched(&self, reader: Arc<Reader>) -> Result<Self, ReadError> {
        let fd = self.0.fd.try_clone()?;
        Ok(Self(Folder { fd, path: self.0.path.clone(), reader: Some(reader) }))
    }

    /// Opens the root again, for another thread or task.
    pub(crate) fn again(&self) -> Result<Self, ReadError> {
        let fd = self.0.fd.try_clone()?;
        Ok(Self(Folder { fd, path: self.0.path.clone(), reader: None }))
    }

    /// Opens a directory by its path on the node. Links in the path are resolved below the node's root.
    pub(crate) fn folder(&self, path: impl AsRef<Path>) -> Result<Folder, ReadError> {
        let path = path.as_ref();
        self.0.enter(path)?;
        let fd = resolve::directory(&self.0.fd, path).map_err(ReadError::from)?;
        Ok(Folder { fd, path: path.to_owned(), reader: self.0.reader.clone() })
    }

    /// Opens the files as a process sees them; `process` is its folder in `/proc`. The process may have
    /// mounts that no other process has. Needs `CAP_SYS_PTRACE` for processes of other users.
    pub(crate) fn of_process(process: &Folder) -> Result<Self, ReadError> {
        let flags = if process.is_kernels()? { DIRECTORY.difference(OFlag::O_NOFOLLOW) } else { DIRECTORY };
        let fd = fcntl::openat(&process.fd, PROCESS_ROOT, flags, Mode::empty())?;
        Ok(Self(Folder { fd, path: PathBuf::from("/"), reader: process.reader.clone() }))
    }

    /// Reads a whole plain file by its path on the node.
    pub(crate) fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, ReadError> {
        let path = path.as_ref();
        let parent = path.parent().ok_or(ReadError::NotPlain)?;
        let name = path.file_name().and_then(|name| name.to_str()).ok_or(ReadError::NotPlain)?;
        self.folder(parent)?.read(name, FILE)
    }
}

/// An open directory of the node. Its entries are opened by name, and links are not followed.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    /// The reader, if one is supervised.
    reader: Option<Arc<Reader>>,
}

/// Why a file could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It does not exist, or no longer exists. This is an answer, not a failure.
    #[error("not there")]
    Absent,
    #[error("{0}")]
    Unreadable(Errno),
    #[error("larger than {0} bytes")]
    TooLarge(usize),
    /// A link, a fifo, a device, or a directory in place of a file.
    #[error("not a regular file or directory")]
    NotPlain,
    #[error("more than {0} entries")]
    TooMany(usize),
    #[error("its name is not UTF-8")]
    NotUtf8,
    #[error("not in a form that is known")]
    Malformed,
    /// A socket did not answer, or a read hangs at a file.
    #[error("gave no answer")]
    Unanswered,
}

impl From<Errno> for ReadError {
    fn from(errno: Errno) -> Self {
        match errno {
            // A process that ends during the read gives ESRCH, and a removed cgroup ENODEV.
            Errno::ENOENT | Errno::ESRCH | Errno::ENODEV => Self::Absent,
            Errno::ELOOP | Errno::ENOTDIR | Errno::EISDIR | Errno::ENXIO | Errno::EXDEV => Self::NotPlain,
            other => Self::Unreadable(other),
        }
    }
}

/// The entries of a directory, sorted by name.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub entries: Vec<Entry>,
    /// The names that are not UTF-8, with the invalid bytes replaced. They are for messages: no file can be
    /// opened by them.
    pub not_utf8: Vec<String>,
    /// The number of entries that were not read.
    pub left_out: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub name: String,
    pub inode: u64,
    /// It may be a directory. Some file systems do not report the type.
    pub directory: bool,
}

impl Folder {
    /// Records that the reader is about to open or read something at or below this path.
    fn enter(&self, name: impl AsRef<Path>) -> Result<(), ReadError> {
        self.reader.as_ref().map_or(Ok(()), |reader| reader.enter(self.path.join(name)))
    }

    /// Returns the directory's path on the node.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its inode number.
    pub(crate) fn inode(&self) -> Result<u64, ReadError> {
        Ok(stat::fstat(&self.fd)?.st_ino)
    }

    /// Returns when the directory was made: wall clock, ns since the epoch. Some file systems do not record
    /// it.
    pub(crate) fn born(&self) -> Option<i64> {
        let made = File::from(self.fd.try_clone().ok()?).metadata().ok()?.created().ok()?;
        i64::try_from(made.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
    }

    /// Returns when an entry was last removed: wall clock, ns since the epoch. `None` if the latest change
    /// was not a removal, because making and renaming an entry set the directory's time too.
    pub(crate) fn emptied(&self) -> Result<Option<i64>, ReadError> {
        let about = stat::fstat(&self.fd)?;
        let changed = nanoseconds(about.st_mtime, about.st_mtime_nsec);
        for entry in self.entries()?.entries {
            let about = stat::fstatat(&self.fd, entry.name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW)?;
            if nanoseconds(about.st_ctime, about.st_ctime_nsec) >= changed {
                return Ok(None);
            }
        }
        Ok(Some(changed))
    }

    pub(crate) fn folder(&self, name: &str) -> Result<Self, ReadError> {
        self.enter(name)?;
        let fd = fcntl::openat(&self.fd, single(name)?, DIRECTORY, Mode::empty())?;
        Ok(Self { fd, path: self.path.join(name), reader: self.reader.clone() })
    }

    /// Returns whether the program of a process is setuid; this folder is the process's in `/proc`. Needs
    /// `CAP_SYS_PTRACE` for processes of other users.
    pub(crate) fn is_setuid(&self) -> Result<bool, ReadError> {
        self.enter(PROGRAM)?;
        let flags = if self.is_kernels()? { AtFlags::empty() } else { AtFlags::AT_SYMLINK_NOFOLLOW };
        let about = stat::fstatat(&self.fd, PROGRAM, flags)?;
        Ok(about.st_mode & Mode::S_ISUID.bits() != 0)
    }

    /// Returns whether the folder is in a real `/proc`, whose links lead to open objects. In a copy of a
    /// node's files the same links would lead out of the copy.
    fn is_kernels(&self) -> Result<bool, ReadError> {
        Ok(statfs::fstatfs(&self.fd)?.filesystem_type() == statfs::PROC_SUPER_MAGIC)
    }

    /// Reads a whole plain file, if it has at most `limit` bytes.
    pub(crate) fn read(&self, name: &str, limit: usize) -> Result<Vec<u8>, ReadError> {
        // One more byte shows whether the file is longer.
        let bytes = self.head(name, limit.saturating_add(1))?;
        if bytes.len() > limit { Err(ReadError::TooLarge(limit)) } else { Ok(bytes) }
    }

    /// Reads the first `limit` bytes of a plain file, or all of a shorter one.
    pub(crate) fn head(&self, name: &str, limit: usize) -> Result<Vec<u8>, ReadError> {
        Ok(self.start(name, limit)?.0)
    }

    fn start(&self, name: &str, limit: usize) -> Result<(Vec<u8>, OwnedFd), ReadError> {
        self.enter(name)?;
        let file = plain::open(&self.fd, single(name)?)?;
        let mut bytes = Vec::new();
        let mut chunk = [0; 16 << 10];
        while bytes.len() < limit {
            let room = chunk.len().min(limit - bytes.len());
            match unistd::read(&file, &mut chunk[..room]) {
                Ok(0) => break,
                Ok(n) => bytes.extend_from_slice(&chunk[..n]),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok((bytes, file))
    }

    /// Returns a path by which this process can connect to a socket in the folder, while the folder is open.
    pub(crate) fn socket(&self, name: &str) -> Result<PathBuf, ReadError> {
        let about = stat::fstatat(&self.fd, single(name)?, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        if !is(SFlag::S_IFSOCK, &about) {
            return Err(ReadError::NotPlain);
        }
        // The path is short enough for a socket's address (unix(7)), and no link on the way can change it.
        Ok(Path::new("/proc/self/fd").join(self.fd.as_raw_fd().to_string()).join(name))
    }

    /// Returns whether an entry belongs to the owner of the folder.
    pub(crate) fn owns(&self, name: &str) -> Result<bool, ReadError> {
        let about = stat::fstatat(&self.fd, single(name)?, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        Ok(about.st_uid == stat::fstat(&self.fd)?.st_uid)
    }

    /// Returns the target of a link, which is not followed. `path` may go through directories of `/proc/PID`.
    pub(crate) fn link(&self, path: &str) -> Result<String, ReadError> {
        self.enter(path)?;
        fcntl::readlinkat(&self.fd, path)?.into_string().map_err(|_not_text| ReadError::Malformed)
    }

    /// Returns the inode of the namespace that is mounted at the file `name`; `None` if the file is not a
    /// namespace.
    pub(crate) fn namespace(&self, name: &str) -> Result<Option<u64>, ReadError> {
        self.enter(name)?;
        let file = fcntl::openat(&self.fd, single(name)?, PLACE, Mode::empty())?;
        let nsfs = statfs::fstatfs(&file)?.filesystem_type() == NSFS;
        Ok(if nsfs { Some(stat::fstat(&file)?.st_ino) } else { None })
    }

    pub(crate) fn entries(&self) -> Result<Entries, ReadError> {
        self.enter("")?;
        let mut found = Entries::default();
        let readable = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        for entry in Dir::openat(&self.fd, ".", readable, Mode::empty())?.iter() {
            let entry = entry?;
            let name = match entry.file_name().to_str() {
                Ok("." | "..") => continue,
                _ if found.entries.len() + found.not_utf8.len() >= ENTRIES => {
                    found.left_out += 1;
                    continue;
                }
                Ok(name) => name.to_owned(),
                Err(_) => {
                    found.not_utf8.push(entry.file_name().to_string_lossy().into_owned());
                    continue;
                }
            };
            let directory = entry.file_type().is_none_or(|kind| kind == Type::Directory);
            found.entries.push(Entry { name, inode: entry.ino(), directory });
        }
        found.entries.sort_unstable();
        found.not_utf8.sort_unstable();
        Ok(found)
    }
}

/// Checks that a name is one path component, and not `..`.
fn single(name: &str) -> Result<&str, ReadError> {
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        return Err(ReadError::NotPlain);
    }
    Ok(name)
}

fn nanoseconds(seconds: i64, ns: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(ns)
}

fn is(kind: SFlag, about: &stat::FileStat) -> bool {
    SFlag::from_bits_truncate(about.st_mode) & SFlag::S_IFMT == kind
}

/// Returns the lines of a file, without those that are too long. Bytes that are not UTF-8 are replaced.
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = std::borrow::Cow<'_, str>> {
    bytes.split(|byte| *byte == b'\n').filter(|line| line.len() <= LINE).map(String::from_utf8_lossy)
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::OsStr,
        fs,
        os::unix::{ffi::OsStrExt as _, fs::symlink},
        process, thread,
        time::Duration,
    };

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::{HostRoot, ReadError};

    #[test]
    fn only_plain_files_below_the_root_are_read() {
        let outside = tempfile::tempdir().expect("a directory");
        fs::write(outside.path().join("secret"), "s").expect("a file");
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("a/b")).expect("directories");
        fs::write(at("a/b/plain"), "0123456789").expect("a file");
        symlink("b/plain", at("a/near")).expect("a link");
        symlink(outside.path().join("secret"), at("a/far")).expect("a link");
        symlink(outside.path(), at("out")).expect("a link");
        symlink("../../../../..", at("up")).expect("a link");
        symlink("/a", at("absolute")).expect("a link");
        symlink("loop", at("loop")).expect("a link");
        mkfifo(&at("a/fifo"), Mode::S_IRUSR).expect("a fifo");

        let host = HostRoot::open(root.path()).expect("the root");
        assert_eq!(host.read("/a/b/plain").as_deref(), Ok(&b"0123456789"[..]));
        // A link to a directory is resolved below the node's own root.
        assert_eq!(host.read("/absolute/b/plain").as_deref(), Ok(&b"0123456789"[..]));
        assert_eq!(host.read("/up/a/b/plain").as_deref(), Ok(&b"0123456789"[..]));
        assert_eq!(host.read("/out/secret"), Err(ReadError::Absent));
        assert_eq!(host.read("/../../a/b/plain").as_deref(), Ok(&b"0123456789"[..]));
        assert_eq!(host.folder("/loop").map(|_| ()), Err(ReadError::NotPlain));

        let a = host.folder("/a").expect("a folder");
        for name in ["near", "far", "fifo", "b", "../a", "", ".."] {
            assert_eq!(a.read(name, 100), Err(ReadError::NotPlain), "{name}");
        }
        let b = a.folder("b").expect("a folder");
        assert_eq!(b.read("plain", 10).as_deref(), Ok(&b"0123456789"[..]));
        assert_eq!(b.read("plain", 9), Err(ReadError::TooLarge(9)));
        assert_eq!(b.head("plain", 3).as_deref(), Ok(&b"012"[..]));
        assert_eq!(b.read("gone", 9), Err(ReadError::Absent));
    }

    #[test]
    fn a_process_has_a_root_of_its_own() {
        let host = HostRoot::open("/".as_ref()).expect("the root");
        let this = host.folder(format!("/proc/{}", process::id())).expect("this process");
        let root = HostRoot::of_process(&this).expect("its root");
        let inode = |root: &HostRoot| root.folder("/").and_then(|folder| folder.inode());
        assert_eq!(inode(&root), inode(&host));
        // A link that is not the kernel's own is not followed.
        let copy = tempfile::tempdir().expect("a directory");
        let at = |name: &str| copy.path().join(name);
        fs::create_dir_all(at("proc/7/root/etc")).expect("directories");
        fs::create_dir(at("proc/8")).expect("a directory");
        symlink("/", at("proc/8/root")).expect("a link");
        let host = HostRoot::open(copy.path()).expect("the root");
        let root = |path: &str| HostRoot::of_process(&host.folder(path)?);
        assert!(root("/proc/7").and_then(|root| root.folder("/etc")).is_ok());
        assert_eq!(root("/proc/8").map(|_| ()), Err(ReadError::NotPlain));
        assert_eq!(root("/proc").map(|_| ()), Err(ReadError::Absent));
    }

    #[test]
    fn entries_come_in_the_order_of_names() {
        let root = tempfile::tempdir().expect("a directory");
        for name in ["z", "a", "m"] {
            fs::write(root.path().join(name), "").expect("a file");
        }
        fs::create_dir(root.path().join("d")).expect("a directory");
        let host = HostRoot::open(root.path()).expect("the root");
        let found = host.folder("/").expect("the root").entries().expect("entries");
        let names: Vec<_> = found.entries.iter().map(|e| (e.name.as_str(), e.directory)).collect();
        assert_eq!(names, [("a", false), ("d", true), ("m", false), ("z", false)]);
        assert_eq!((found.left_out, found.not_utf8.len()), (0, 0));
    }

    #[test]
    fn entries_whose_names_are_not_utf8_are_told_apart_from_too_many() {
        let root = tempfile::tempdir().expect("a directory");
        for name in [&b"a"[..], b"\xff\xfe", b"\xffx.conf"] {
            fs::write(root.path().join(OsStr::from_bytes(name)), "").expect("a file");
        }
        let host = HostRoot::open(root.path()).expect("the root");
        let found = host.folder("/").expect("the root").entries().expect("entries");
        let names: Vec<_> = found.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!((names, found.left_out), (vec!["a"], 0));
        assert_eq!(found.not_utf8, ["\u{fffd}x.conf", "\u{fffd}\u{fffd}"]);
    }

    #[test]
    fn a_directory_is_dated_by_what_went_and_not_by_what_came() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        let emptied = || {
            let host = HostRoot::open(root.path()).expect("the root");
            host.folder("/").expect("the root").emptied().expect("a date")
        };
        // File times have the resolution of the timer tick.
        let tick = || thread::sleep(Duration::from_millis(20));
        for name in ["state.json", "exec.fifo"] {
            fs::write(at(name), "").expect("a file");
        }
        assert_eq!(emptied(), None);
        tick();
        fs::remove_file(at("exec.fifo")).expect("removed");
        let gone = emptied().expect("something went");
        tick();
        assert_eq!(emptied(), Some(gone));
        fs::write(at("new"), "").expect("a file");
        fs::rename(at("new"), at("state.json")).expect("renamed");
        assert_eq!(emptied(), None);
    }

    #[test]
    fn a_root_that_is_not_there_is_one_clear_line() {
        let error = HostRoot::open("/nowhere/at/all".as_ref()).expect_err("no such directory").to_string();
        assert!(error.starts_with("cannot open the host's root /nowhere/at/all: "), "{error}");
        assert!(!error.contains('\n'));
    }
}
