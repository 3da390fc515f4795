//! The node's files, under whatever directory its root is seen at (`/`, or `/host` in a container).
//!
//! Whoever writes these files may be mistaken or hostile, so this is the only way to them.
//!
//! **Invariant:** no path leads out of the root; nothing but plain files is read, none as a whole beyond a bound, and
//! nothing waits for whoever holds the other end of a fifo.

pub mod mountinfo;
mod plain;
mod resolve;
pub mod skipped;
pub mod watch;

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

/// Longest plain file read, bytes.
pub const FILE: usize = 4 << 20;
/// Longest line of a file taken, bytes.
pub const LINE: usize = 1 << 20;
/// Most entries of one directory taken.
pub const ENTRIES: usize = 1 << 16;

/// Opened only as a place from which to go on.
const PLACE: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
const DIRECTORY: OFlag = PLACE.union(OFlag::O_DIRECTORY);
/// `NSFS_MAGIC` of linux/magic.h.
const NSFS: FsType = FsType(0x6e73_6673);
/// Followed to the process's root, which is no path but a place.
const PROCESS_ROOT: &str = "root";
/// The same of its program.
const PROGRAM: &str = "exe";

/// The directory that holds a node's root.
#[derive(Debug)]
pub struct HostRoot(Folder);

/// The host's root cannot be used at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the host's root {path}: {why}; mount the node's / there or give another --host-root")]
pub struct HostRootError {
    path: PathBuf,
    why: Errno,
}

impl HostRoot {
    pub fn open(path: &Path) -> Result<Self, HostRootError> {
        // This one path is the user's own word: its links are followed.
        let fd = fcntl::open(path, DIRECTORY.difference(OFlag::O_NOFOLLOW), Mode::empty())
            .map_err(|why| HostRootError { path: path.to_owned(), why })?;
        Ok(Self(Folder { fd, path: PathBuf::from("/"), reader: None }))
    }

    /// The same root, of which `reader` says at which file it is.
    pub fn watched(&self, reader: Arc<Reader>) -> Result<Self, ReadError> {
        let fd = self.0.fd.try_clone()?;
        Ok(Self(Folder { fd, path: self.0.path.clone(), reader: Some(reader) }))
    }

    /// A directory by its path on the node. Links on the way are followed, but as the node itself would follow them.
    pub fn folder(&self, path: impl AsRef<Path>) -> Result<Folder, ReadError> {
        let path = path.as_ref();
        self.0.enter(path)?;
        let fd = resolve::directory(&self.0.fd, path).map_err(ReadError::from)?;
        Ok(Folder { fd, path: path.to_owned(), reader: self.0.reader.clone() })
    }

    /// The files as a process sees them, whose folder in `/proc` this is: it may have mounts that nobody else has. Needs
    /// `CAP_SYS_PTRACE` for processes of others.
    pub fn of_process(process: &Folder) -> Result<Self, ReadError> {
        let flags = if process.is_kernels()? { DIRECTORY.difference(OFlag::O_NOFOLLOW) } else { DIRECTORY };
        let fd = fcntl::openat(&process.fd, PROCESS_ROOT, flags, Mode::empty())?;
        Ok(Self(Folder { fd, path: PathBuf::from("/"), reader: process.reader.clone() }))
    }

    /// The whole of a plain file by its path on the node.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, ReadError> {
        let path = path.as_ref();
        let parent = path.parent().ok_or(ReadError::NotPlain)?;
        let name = path.file_name().and_then(|name| name.to_str()).ok_or(ReadError::NotPlain)?;
        self.folder(parent)?.read(name, FILE)
    }
}

/// An open directory of the node. What is asked of it is asked by name, and links are not followed.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    /// Who reads, if somebody watches over it.
    reader: Option<Arc<Reader>>,
}

/// Why something could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It is not there, or no longer: that is an answer, not a failure.
    #[error("not there")]
    Absent,
    #[error("{0}")]
    Unreadable(Errno),
    #[error("larger than {0} bytes")]
    TooLarge(usize),
    /// A link, a fifo, a device, or a directory where a file should be.
    #[error("not a plain file or directory")]
    NotPlain,
    #[error("more than {0} entries")]
    TooMany(usize),
    #[error("not in a form that is known")]
    Malformed,
    /// Of a socket, or of a file at which reading hangs.
    #[error("gave no answer")]
    Unanswered,
}

impl From<Errno> for ReadError {
    fn from(errno: Errno) -> Self {
        match errno {
            // A process that ends while it is read gives ESRCH, a cgroup that is removed ENODEV.
            Errno::ENOENT | Errno::ESRCH | Errno::ENODEV => Self::Absent,
            Errno::ELOOP | Errno::ENOTDIR | Errno::EISDIR | Errno::ENXIO | Errno::EXDEV => Self::NotPlain,
            other => Self::Unreadable(other),
        }
    }
}

/// What a directory holds, in the order of names.
#[derive(Debug, Default)]
pub struct Entries {
    pub entries: Vec<Entry>,
    /// Entries left out: too many, or with a name that is no text.
    pub left_out: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub name: String,
    /// It may be a directory: some file systems do not say.
    pub directory: bool,
}

impl Folder {
    /// Something in it, or below, is about to be opened or read.
    fn enter(&self, name: impl AsRef<Path>) -> Result<(), ReadError> {
        self.reader.as_ref().map_or(Ok(()), |reader| reader.enter(self.path.join(name)))
    }

    /// Where it is on the node.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number by which its file system knows it.
    pub fn inode(&self) -> Result<u64, ReadError> {
        Ok(stat::fstat(&self.fd)?.st_ino)
    }

    /// By what a file in it is known to be the same that it was: its number, when it was last written, and its size.
    pub fn edition(&self, name: &str) -> Result<(u64, i64, i64), ReadError> {
        let about = stat::fstatat(&self.fd, single(name)?, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        let written = about.st_mtime.saturating_mul(1_000_000_000).saturating_add(about.st_mtime_nsec);
        Ok((about.st_ino, written, about.st_size))
    }

    /// When it was made: on the wall clock, ns since the epoch. Some file systems do not say.
    pub fn born(&self) -> Option<i64> {
        let made = File::from(self.fd.try_clone().ok()?).metadata().ok()?.created().ok()?;
        i64::try_from(made.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
    }

    /// When something in it was last removed: on the wall clock, ns since the epoch. `None` if what changed last is
    /// still there, since making and renaming an entry dates the directory too.
    pub fn emptied(&self) -> Result<Option<i64>, ReadError> {
        let ns = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
        let about = stat::fstat(&self.fd)?;
        let changed = ns(about.st_mtime, about.st_mtime_nsec);
        for entry in self.entries()?.entries {
            let about = stat::fstatat(&self.fd, entry.name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW)?;
            if ns(about.st_ctime, about.st_ctime_nsec) >= changed {
                return Ok(None);
            }
        }
        Ok(Some(changed))
    }

    pub fn folder(&self, name: &str) -> Result<Self, ReadError> {
        self.enter(name)?;
        let fd = fcntl::openat(&self.fd, single(name)?, DIRECTORY, Mode::empty())?;
        Ok(Self { fd, path: self.path.join(name), reader: self.reader.clone() })
    }

    /// Whether the program of the process whose folder in `/proc` this is lends whoever runs it the rights of its owner
    /// (setuid). Needs `CAP_SYS_PTRACE` for processes of others.
    pub fn is_setuid(&self) -> Result<bool, ReadError> {
        self.enter(PROGRAM)?;
        let flags = if self.is_kernels()? { AtFlags::empty() } else { AtFlags::AT_SYMLINK_NOFOLLOW };
        let about = stat::fstatat(&self.fd, PROGRAM, flags)?;
        Ok(about.st_mode & Mode::S_ISUID.bits() != 0)
    }

    /// Whether it is in a `/proc` of the kernel's own, whose links lead to what they stand for; in a copy of a node's files
    /// they would lead out of the copy.
    fn is_kernels(&self) -> Result<bool, ReadError> {
        Ok(statfs::fstatfs(&self.fd)?.filesystem_type() == statfs::PROC_SUPER_MAGIC)
    }

    /// The whole of a plain file, if it has at most `limit` bytes.
    pub fn read(&self, name: &str, limit: usize) -> Result<Vec<u8>, ReadError> {
        // One byte more shows that there is more.
        let bytes = self.head(name, limit.saturating_add(1))?;
        if bytes.len() > limit { Err(ReadError::TooLarge(limit)) } else { Ok(bytes) }
    }

    /// The whole of a plain file, and when it was last written: on the wall clock, ns since the epoch.
    pub fn read_dated(&self, name: &str, limit: usize) -> Result<(Vec<u8>, i64), ReadError> {
        let (bytes, file) = self.start(name, limit.saturating_add(1))?;
        if bytes.len() > limit {
            return Err(ReadError::TooLarge(limit));
        }
        let about = stat::fstat(&file)?;
        Ok((bytes, about.st_mtime.saturating_mul(1_000_000_000).saturating_add(about.st_mtime_nsec)))
    }

    /// The first `limit` bytes of a plain file, or all if it has fewer.
    pub fn head(&self, name: &str, limit: usize) -> Result<Vec<u8>, ReadError> {
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

    /// The way to a socket in it by which this process can connect, while the folder is open.
    pub fn socket(&self, name: &str) -> Result<PathBuf, ReadError> {
        let about = stat::fstatat(&self.fd, single(name)?, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        if !is(SFlag::S_IFSOCK, &about) {
            return Err(ReadError::NotPlain);
        }
        // Short enough for an address of its kind (unix(7)), and out of reach of links on the way.
        Ok(Path::new("/proc/self/fd").join(self.fd.as_raw_fd().to_string()).join(name))
    }

    /// What a link says, which is not followed. `path` may go through directories of `/proc/PID`.
    pub fn link(&self, path: &str) -> Result<String, ReadError> {
        self.enter(path)?;
        fcntl::readlinkat(&self.fd, path)?.into_string().map_err(|_not_text| ReadError::Malformed)
    }

    /// The inode of a namespace that is bound to the file `name`; `None` if that file is no namespace.
    pub fn namespace(&self, name: &str) -> Result<Option<u64>, ReadError> {
        self.enter(name)?;
        let file = fcntl::openat(&self.fd, single(name)?, PLACE, Mode::empty())?;
        let nsfs = statfs::fstatfs(&file)?.filesystem_type() == NSFS;
        Ok(if nsfs { Some(stat::fstat(&file)?.st_ino) } else { None })
    }

    pub fn entries(&self) -> Result<Entries, ReadError> {
        self.enter("")?;
        let mut found = Entries::default();
        let readable = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        for entry in Dir::openat(&self.fd, ".", readable, Mode::empty())?.iter() {
            let entry = entry?;
            let name = match entry.file_name().to_str() {
                Ok("." | "..") => continue,
                Ok(name) if found.entries.len() < ENTRIES => name.to_owned(),
                _ => {
                    found.left_out += 1;
                    continue;
                }
            };
            let directory = entry.file_type().is_none_or(|kind| kind == Type::Directory);
            found.entries.push(Entry { name, directory });
        }
        found.entries.sort_unstable();
        Ok(found)
    }
}

/// A name is one step down, never a way elsewhere.
fn single(name: &str) -> Result<&str, ReadError> {
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        return Err(ReadError::NotPlain);
    }
    Ok(name)
}

fn is(kind: SFlag, about: &stat::FileStat) -> bool {
    SFlag::from_bits_truncate(about.st_mode) & SFlag::S_IFMT == kind
}

/// The lines of a file, those left out that are longer than any real one; text that is no UTF-8 is kept lossily.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = std::borrow::Cow<'_, str>> {
    bytes.split(|byte| *byte == b'\n').filter(|line| line.len() <= LINE).map(String::from_utf8_lossy)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, process, thread, time::Duration};

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
        // A link to a directory is followed as the node would: from its own root.
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
        // Where it is no link of the kernel's it is not followed.
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
        assert_eq!(found.left_out, 0);
    }

    #[test]
    fn a_directory_is_dated_by_what_went_and_not_by_what_came() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        let emptied = || {
            let host = HostRoot::open(root.path()).expect("the root");
            host.folder("/").expect("the root").emptied().expect("a date")
        };
        // File systems date by the timer's tick.
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
