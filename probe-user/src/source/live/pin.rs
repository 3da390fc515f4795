//! Makes hooks outlive their agent. Links, programs and maps of one set of hooks are pinned (`BPF_OBJ_PIN` of
//! `bpf(2)`) in a folder of a BPF file system. As long as the pins exist, the hooks run and write to their
//! rings.
//!
//! **Invariant:** a set has its name only once all of it is pinned. If an agent dies before, the next agent
//! removes its folder.
//!
//! **Invariant:** only one agent at a time has the folder: it holds a lock on it (`flock(2)`).

mod holder;

use std::{
    fmt, fs,
    fs::{DirBuilder, File, Permissions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::statfs::{BPF_FS_MAGIC, statfs},
    unistd::geteuid,
};
use probe_common::reader_page::VERSION;
use tracing::warn;

pub use self::holder::Holder;

/// The default folder.
pub const PIN_DIR: &str = "/sys/fs/bpf/sandprobe";

/// How long an agent may take to end when another takes over.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// How long to wait for the lock if its holder was killed: a supervisor starts the next agent at once.
pub(crate) const DYING: Duration = Duration::from_secs(2);
/// How often the lock is tried meanwhile.
pub(crate) const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// The name of a set that is not complete.
const INCOMPLETE: &str = "incomplete";

/// Why there can be no pins.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// Another agent has the folder.
    #[error(
        "sandprobe runs here already{0}, with its hooks in {1}: end it first; \"run --take-over\" goes on in its place, \
         \"run --no-pin\" runs beside it"
    )]
    Taken(Holder, PathBuf),
    #[error(
        "the sandprobe that runs here{0} did not end within {n} s, so it is stopped or hangs: end it with SIGKILL, then start \
         this one again",
        n = END_TIMEOUT.as_secs()
    )]
    Stays(Holder),
    #[error(
        "the sandprobe that ran here{0} was killed and does not end: most likely the disk that it writes to hangs; start this one \
         again once it has ended"
    )]
    Dying(Holder),
    #[error("cannot end the sandprobe that has {1}{0}: {2}")]
    Unending(Holder, PathBuf, String),
    #[error(
        "{} is not in a BPF file system: on the node, mount -t bpf -o mode=0700 bpf /sys/fs/bpf; in a container, mount the node's \
         /sys/fs/bpf at that path", .0.display()
    )]
    Elsewhere(PathBuf),
    #[error("cannot use {}: {source}", path.display())]
    Unusable { path: PathBuf, source: io::Error },
    #[error("cannot pin {what}: {why}")]
    Refused { what: String, why: String },
}

/// The folder, which this process has locked.
#[derive(Debug)]
pub struct Pins {
    dir: PathBuf,
    _lock: File,
}

/// A set of hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PinnedSet {
    path: PathBuf,
    pub(super) name: SetName,
}

/// The name of a set: which agents can read its records, what it does, and which set it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SetName {
    /// `probe_common::reader_page::VERSION`.
    pub version: u32,
    /// Equal for sets that do the same: a hash of the programs and of their settings.
    pub identity: u64,
    /// The kernel's id of the lifecycle ring.
    pub hooks: u32,
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}-{:016x}-{}", self.version, self.identity, self.hooks)
    }
}

impl SetName {
    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix('v')?.split('-');
        let version = parts.next()?.parse().ok()?;
        let identity = u64::from_str_radix(parts.next()?, 16).ok()?;
        let hooks = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Self { version, identity, hooks })
    }
}

impl Pins {
    /// Opens the folder and locks it. Makes the folder if it does not exist, accessible to root alone. Waits
    /// for an agent that is ending, and for one that cannot be seen, which may be gone already.
    pub fn open(dir: &Path) -> Result<Self, PinError> {
        // A holder that is ending stays ending, even if that does not show for a moment.
        let mut ending = None;
        let opened = Self::once_free(dir, DYING, |holder| {
            ending =
                ending.filter(|known| *known == holder).or_else(|| holder.may_be_ending().then_some(holder));
            ending.is_some()
        });
        match opened {
            Err(PinError::Taken(holder, _)) if ending == Some(holder) && holder.is_seen() => {
                Err(PinError::Dying(holder))
            }
            other => other,
        }
    }

    /// Tries to open the folder until this time is over, as long as `is_waited_for` accepts its holder.
    fn once_free(
        dir: &Path,
        patience: Duration,
        mut is_waited_for: impl FnMut(Holder) -> bool,
    ) -> Result<Self, PinError> {
        let deadline = Instant::now() + patience;
        loop {
            match Self::try_open(dir) {
                Err(PinError::Taken(holder, _)) if Instant::now() < deadline && is_waited_for(holder) => {
                    thread::sleep(BETWEEN_TRIES);
                }
                other => return other,
            }
        }
    }

    fn try_open(dir: &Path) -> Result<Self, PinError> {
        let parent = dir.parent().unwrap_or(dir);
        let is_there = dir.try_exists().map_err(|error| unusable(dir, error))?;
        let place = statfs(if is_there { dir } else { parent });
        if place.is_ok_and(|place| place.filesystem_type() != BPF_FS_MAGIC) || place.is_err() {
            return Err(PinError::Elsewhere(dir.to_owned()));
        }
        loop {
            match DirBuilder::new().mode(0o700).create(dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(unusable(dir, error));
                }
                Ok(()) | Err(_) => {}
            }
            let lock = match open_folder(dir) {
                // It was removed in between.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                lock => lock.map_err(|error| unusable(dir, error))?,
            };
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(PinError::Taken(Holder::of(&lock), dir.to_owned()));
                }
                Err(TryLockError::Error(error)) => return Err(unusable(dir, error)),
            }
            // A lock on a folder that was removed meanwhile has no effect.
            if is_at(&lock, dir).map_err(|error| unusable(dir, error))? {
                let pins = Self { dir: dir.to_owned(), _lock: lock };
                pins.remove_incomplete();
                return Ok(pins);
            }
        }
    }

    /// Opens the folder like [`Self::open`]. Asks an agent that has the folder to end, and waits for it.
    pub fn take_over(dir: &Path) -> Result<Self, PinError> {
        let holder = match Self::open(dir) {
            Err(PinError::Taken(holder, _)) => holder,
            // It frees its memory, or a disk is slow.
            Err(PinError::Dying(holder)) => {
                return match Self::once_free(dir, END_TIMEOUT, |now| now.may_be(holder)) {
                    Err(PinError::Taken(now, _)) if now.may_be(holder) => Err(PinError::Dying(now)),
                    other => other,
                };
            }
            other => return other,
        };
        holder.end().map_err(|why| PinError::Unending(holder, dir.to_owned(), why))?;
        // Another agent may take the folder first, and that one was not asked to end.
        match Self::once_free(dir, END_TIMEOUT, |now| now.may_be(holder)) {
            Err(PinError::Taken(now, _)) if now.may_be(holder) => Err(PinError::Stays(now)),
            other => other,
        }
    }

    /// Opens the folder like [`Self::open`], once no agent has it.
    pub fn wait_for(dir: &Path) -> Result<Self, PinError> {
        loop {
            match Self::once_free(dir, END_TIMEOUT, |_| true) {
                Err(PinError::Taken(..)) => {}
                other => return other,
            }
        }
    }

    /// Removes all sets. Returns how many there were. The error is the first one; the other sets are removed
    /// nevertheless.
    pub(crate) fn clear(&self) -> Result<usize, PinError> {
        let removed: Vec<Result<(), PinError>> = self.sets().into_iter().map(PinnedSet::remove).collect();
        let count = removed.len();
        removed.into_iter().collect::<Result<(), PinError>>().map(|()| count)
    }

    /// Removes all sets, and the folder. Returns how many sets there were.
    pub fn remove(self) -> Result<usize, PinError> {
        let count = self.clear()?;
        fs::remove_dir(&self.dir).map_err(|error| unusable(&self.dir, error))?;
        Ok(count)
    }

    /// Returns the complete sets.
    pub(crate) fn sets(&self) -> Vec<PinnedSet> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let named = entries.filter_map(|entry| {
            let name = SetName::parse(entry.file_name().to_str()?)?;
            Some(PinnedSet { path: entry.path(), name })
        });
        named.collect()
    }

    fn incomplete(&self) -> PathBuf {
        self.dir.join(INCOMPLETE)
    }

    fn remove_incomplete(&self) {
        let path = self.incomplete();
        if path.exists()
            && let Err(error) = remove_folder(&path)
        {
            warn!(%error, "what an agent left while it pinned its hooks stays there");
        }
    }

    /// Pins a new set: `pin` fills its folder.
    pub(super) fn add<T>(
        &self,
        name: SetName,
        pin: impl FnOnce(&Folder) -> Result<T, PinError>,
    ) -> Result<T, PinError> {
        let new = self.incomplete();
        let path = self.dir.join(name.to_string());
        DirBuilder::new().mode(0o700).create(&new).map_err(|error| unusable(&new, error))?;
        let pinned = pin(&Folder(new.clone())).and_then(|pinned| {
            fs::rename(&new, &path).map_err(|error| unusable(&path, error))?;
            Ok(pinned)
        });
        if pinned.is_err() {
            self.remove_incomplete();
        }
        pinned
    }
}

fn unusable(path: &Path, source: io::Error) -> PinError {
    PinError::Unusable { path: path.to_owned(), source }
}

impl PinnedSet {
    /// Returns whether this program can read the set's records.
    pub(super) fn is_readable(&self) -> bool {
        self.name.version == VERSION
    }

    pub(super) fn folder(&self) -> Folder {
        Folder(self.path.clone())
    }

    /// Removes the pins. Hooks that no other process holds end. A set that is removed only in part is no
    /// longer complete.
    pub(crate) fn remove(self) -> Result<(), PinError> {
        let going = self.path.with_file_name(INCOMPLETE);
        let removed = match fs::rename(&self.path, &going) {
            Ok(()) => remove_folder(&going),
            // Another incomplete set is still there.
            Err(_) => remove_folder(&self.path),
        };
        removed.map_err(|error| unusable(&self.path, error))
    }
}

/// Opens the folder, and makes it accessible to root alone. If any user may make folders beside it, it may
/// belong to another user.
fn open_folder(dir: &Path) -> io::Result<File> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let folder = File::options().read(true).custom_flags(flags).open(dir)?;
    let owner = folder.metadata()?.uid();
    if owner != geteuid().as_raw() {
        return Err(io::Error::other(format!("it belongs to user {owner}; remove it")));
    }
    folder.set_permissions(Permissions::from_mode(0o700))?;
    Ok(folder)
}

/// Returns whether this path leads to this folder.
fn is_at(folder: &File, path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) => {
            let own = folder.metadata()?;
            Ok((found.dev(), found.ino()) == (own.dev(), own.ino()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn remove_folder(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        fs::remove_file(entry?.path())?;
    }
    fs::remove_dir(path)
}

/// The folder of one set, and the names in it.
#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn map(&self, name: &str) -> PathBuf {
        self.0.join(format!("map_{name}"))
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.0.join(format!("program_{name}"))
    }

    pub(super) fn link(&self, name: &str) -> PathBuf {
        self.0.join(format!("link_{name}"))
    }

    /// Returns whether each program has its link here. False if the folder cannot be read.
    pub(super) fn has_all_links(&self) -> bool {
        let Ok(entries) = fs::read_dir(&self.0) else { return false };
        let names = entries.filter_map(Result::ok).filter_map(|entry| entry.file_name().into_string().ok());
        names
            .filter_map(|name| name.strip_prefix("program_").map(|program| self.link(program)))
            .all(|link| link.exists())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Folder, PinError, Pins, SetName};

    #[test]
    fn a_name_tells_what_it_was_made_of() {
        let name = SetName { version: 1, identity: 0xab, hooks: 42 };
        assert_eq!(name.to_string(), "v1-00000000000000ab-42");
        assert_eq!(SetName::parse(&name.to_string()), Some(name));
        for other in ["", "incomplete", "v1", "v1-zz-1", "v1-00-1-2", "vx-00-1", "00000000000000ab"] {
            assert_eq!(SetName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_program_without_a_pinned_link_ended_with_its_agent() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder(place.path().to_owned());
        for made in [folder.map("A"), folder.program("a"), folder.link("a"), folder.program("b")] {
            fs::write(made, "").expect("a file");
        }
        assert!(!folder.has_all_links());
        fs::write(folder.link("b"), "").expect("a file");
        assert!(folder.has_all_links());
    }

    #[test]
    fn an_ordinary_folder_is_refused_and_left_alone() {
        let place = tempfile::tempdir().expect("a folder");
        let dir = place.path().join("sandprobe");
        let error = Pins::open(&dir).expect_err("not a BPF file system");
        assert!(matches!(error, PinError::Elsewhere(_)), "{error}");
        assert!(!dir.exists());
    }
}
