//! A log file with rotation. When it is full, `FILE` becomes `FILE.1`, `FILE.1` becomes `FILE.2`, the oldest
//! file is removed, and a new `FILE` begins. Programs that follow a log recognize renamed files by their
//! inode.
//!
//! If somebody else renames or removes the file, as logrotate does, a new one begins too. While that is not
//! possible, nothing is written, because a file without a name would be lost.
//!
//! **Invariant:** every line is whole in one file. So a file exceeds its size by less than one line.

use std::{
    borrow::Cow,
    ffi::OsString,
    fmt::Display,
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io::{self, Read, Seek as _, SeekFrom, Write},
    mem,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::unistd::geteuid;
use tracing::warn;

/// How often it is checked, while lines come, that the file still has its name.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Only the owner may read it: arguments of processes may hold secrets.
const MODE: u32 = 0o600;
/// The beginning of each event's line.
const EVENT: &[u8] = br#"{"schema":"#;
/// Every line is shorter, bytes.
const MAX_LINE: u64 = 1 << 20;

/// When a file is full, and how many full files are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    /// The size of a full file, bytes, at least 1.
    pub(crate) size: u64,
    pub(crate) keep: u32,
}

#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    /// The user who must own the file. The confined thread may not ask for its own user.
    user: u32,
    rotation: Rotation,
    file: File,
    /// The length of the file, bytes.
    len: u64,
    /// The length from which the file is full. It exceeds `rotation.size` after the file could not be
    /// renamed.
    full_at: u64,
    /// The beginning of a line whose end has not come yet.
    begun: Vec<u8>,
    /// How many bytes of the lines that are being written are already in the file.
    done: usize,
    /// When to check that the file still has its name.
    look_due: Instant,
    /// It was logged that the file cannot be renamed.
    warned: bool,
}

impl LogFile {
    /// Opens or creates the file. An event's line that was cut off, by a kill or a full disk, is removed: an
    /// agent that goes on with the state of the last one writes the event again.
    pub(crate) fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        let user = geteuid().as_raw();
        let mut file = create(path, user)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(io::Error::other("another agent writes it")),
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => {}
        }
        file.set_permissions(Permissions::from_mode(MODE))?;
        end_line(&mut file)?;
        let len = file.metadata()?.len();
        let log = Self {
            path: path.to_owned(),
            user,
            rotation,
            file,
            len,
            full_at: rotation.size,
            begun: Vec::new(),
            done: 0,
            look_due: Instant::now() + LOOK_PERIOD,
            warned: false,
        };
        log.tidy();
        Ok(log)
    }

    /// Tries the operations that beginning a new file needs, with the rights of the calling thread.
    pub(crate) fn try_rights(&self) -> io::Result<()> {
        let tried = self.beside("try");
        let renamed = self.beside("tried");
        fs::remove_file(&tried).or_else(ignore_absence)?;
        create(&tried, self.user)?;
        fs::rename(&tried, &renamed)?;
        fs::remove_file(&renamed)
    }

    /// Removes the files beyond those that are kept. A file that cannot be removed does not prevent the
    /// start.
    fn tidy(&self) {
        for number in self.rotation.keep + 1.. {
            let path = self.numbered(number);
            match fs::remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Err(error) => {
                    warn!("{} is one file too many and cannot be removed: {error}", path.display());
                    return;
                }
                Ok(()) => {}
            }
        }
    }

    /// Renames the file and the older ones, and begins a new one. If one of them cannot be renamed, none is.
    fn rotate(&mut self) -> io::Result<()> {
        let keep = self.rotation.keep;
        if keep == 0 {
            fs::remove_file(&self.path)?;
            return self.begin();
        }
        let mut moved = Vec::new();
        if let Err(error) = self.shift(&mut moved) {
            // In reverse order, because each renamed file freed its name for the next one.
            let undone = moved.iter().rev().try_for_each(|(from, to)| fs::rename(to, from));
            return Err(undone.err().unwrap_or(error));
        }
        self.begin()?;
        // If it cannot be removed, the next rotation replaces it.
        fs::remove_file(self.numbered(keep + 1)).or_else(ignore_absence).ok();
        Ok(())
    }

    /// Renames the file to `FILE.1`. The older files make room, up to the first number that is free; the
    /// oldest one is kept until all are renamed. `moved` gets the renamed files, in this order.
    fn shift(&self, moved: &mut Vec<(PathBuf, PathBuf)>) -> io::Result<()> {
        let keep = self.rotation.keep;
        let free = (1..=keep)
            .find(|number| fs::symlink_metadata(self.numbered(*number)).is_err())
            .unwrap_or(keep + 1);
        for number in (1..=free).rev() {
            let from = if number == 1 { self.path.clone() } else { self.numbered(number - 1) };
            let to = self.numbered(number);
            if !fs::symlink_metadata(&from).map_err(|error| named(&from, &error))?.is_file() {
                return Err(named(&from, &"it is not a regular file"));
            }
            fs::rename(&from, &to).map_err(|error| named(&from, &error))?;
            moved.push((from, to));
        }
        Ok(())
    }

    /// Begins a new file, or goes on in one that somebody has put there.
    fn begin(&mut self) -> io::Result<()> {
        let mut file = create(&self.path, self.user)?;
        if is_open_to_others(&file)? {
            // The confined thread may not change modes, and somebody may already have the file open.
            if file.metadata()?.len() > 0 {
                return Err(io::Error::other("others than its owner may read it: remove or rename it"));
            }
            fs::remove_file(&self.path)?;
            file = create(&self.path, self.user)?;
            if is_open_to_others(&file)? {
                return Err(io::Error::other(
                    "somebody makes it anew, and lets others than its owner read it",
                ));
            }
        }
        // Only a starting agent must know whether another one writes the file.
        file.try_lock().ok();
        self.len = file.metadata()?.len();
        self.file = file;
        self.full_at = self.rotation.size;
        self.warned = false;
        Ok(())
    }

    /// The path of a renamed file, such as `FILE.3`.
    fn numbered(&self, number: u32) -> PathBuf {
        self.beside(&number.to_string())
    }

    fn beside(&self, end: &str) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(".");
        name.push(end);
        name.into()
    }

    /// Whether the file still has its name.
    fn is_named(&mut self) -> io::Result<bool> {
        let own = self.file.metadata()?;
        // Somebody may also have truncated it.
        self.len = own.len();
        match fs::symlink_metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (own.dev(), own.ino())),
            Err(error) => ignore_absence(error).map(|()| false),
        }
    }

    /// Writes the rest of these lines. After an error, the next call goes on where this one stopped.
    fn put(&mut self, lines: &[u8]) -> io::Result<()> {
        while self.done < lines.len() {
            if self.look_due <= Instant::now() {
                if !self.is_named()? {
                    self.begin()?;
                    // A line that was begun in the previous file is written whole in this one.
                    self.done = begin_of_line(lines, self.done);
                }
                self.look_due = Instant::now() + LOOK_PERIOD;
            }
            if self.len >= self.full_at && self.done == begin_of_line(lines, self.done) {
                self.renew();
                continue;
            }
            // Write up to the end of the line with which the file is full.
            let rest = lines.get(self.done..).unwrap_or_default();
            let room = usize::try_from(self.full_at.saturating_sub(self.len)).unwrap_or(usize::MAX).max(1);
            let behind = rest.get(room - 1..).unwrap_or_default();
            let end = behind.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| room + at);
            let written = self.file.write(rest.get(..end).unwrap_or(rest))?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.done += written;
            self.len += u64::try_from(written).unwrap_or_default();
        }
        Ok(())
    }

    /// Begins a new file. If the full one cannot be renamed, the lines go on into it.
    fn renew(&mut self) {
        let Err(error) = self.rotate() else { return };
        self.full_at = self.len.saturating_add(self.rotation.size);
        // The file may no longer have its name.
        self.look_due = Instant::now();
        if !self.warned {
            warn!("{} cannot be renamed and begun anew: {error}; it grows", self.path.display());
            self.warned = true;
        }
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1) else {
            self.begun.extend(bytes);
            return Ok(bytes.len());
        };
        let begun = mem::take(&mut self.begun);
        let whole = bytes.get(..end).unwrap_or(bytes);
        let lines =
            if begun.is_empty() { Cow::Borrowed(whole) } else { Cow::Owned([&begun, whole].concat()) };
        if let Err(error) = self.put(&lines) {
            // The caller writes the same bytes again.
            self.begun = begun;
            self.look_due = Instant::now();
            return Err(error);
        }
        self.done = 0;
        Ok(end)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The beginning of the line that has the byte before `at`, or `at` if that byte ends a line.
fn begin_of_line(lines: &[u8], at: usize) -> usize {
    let before = lines.get(..at).unwrap_or(lines);
    before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

/// Opens or creates the file. `user` must own it.
fn create(path: &Path, user: u32) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(MODE).custom_flags(flags);
    let file = options.open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    refuse_foreign(about.uid(), user)?;
    Ok(file)
}

fn named(path: &Path, why: &dyn Display) -> io::Error {
    io::Error::other(format!("{}: {why}", path.display()))
}

fn is_open_to_others(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.mode() & 0o077 != 0)
}

/// Refuses a file of another user, who could read it whatever its mode is.
fn refuse_foreign(owner: u32, user: u32) -> io::Result<()> {
    if owner == user {
        return Ok(());
    }
    Err(io::Error::other(format!("it belongs to the user {owner}, who could read it: remove or rename it")))
}

fn ignore_absence(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Removes the beginning of an event after the last whole line. Anything else there was written by somebody
/// else, and becomes a line.
fn end_line(file: &mut File) -> io::Result<()> {
    let len = file.metadata()?.len();
    let begin = len.saturating_sub(MAX_LINE);
    file.seek(SeekFrom::Start(begin))?;
    let mut end = Vec::new();
    Read::by_ref(file).take(MAX_LINE).read_to_end(&mut end)?;
    let whole = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let rest = end.get(whole..).unwrap_or_default();
    let is_at_begin = begin == 0 || whole > 0;
    if rest.is_empty() {
        Ok(())
    } else if is_at_begin && rest.iter().zip(EVENT).all(|(one, other)| one == other) {
        file.set_len(begin + u64::try_from(whole).unwrap_or_default())
    } else {
        file.write_all(b"\n")
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        io::Write as _,
        os::unix::fs::{PermissionsExt as _, chown},
        path::{Path, PathBuf},
        time::Instant,
    };

    use nix::unistd::geteuid;

    use super::{LogFile, Rotation, refuse_foreign};

    const ROTATION: Rotation = Rotation { size: 100, keep: 3 };

    fn open(path: &Path) -> LogFile {
        LogFile::open(path, ROTATION).expect("a directory that can be written")
    }

    /// Returns the lines of the files, the oldest first. Each file has whole lines and is not larger than
    /// allowed.
    fn lines(path: &Path, keep: u32) -> Vec<String> {
        let named = |number: u32| PathBuf::from(format!("{}.{number}", path.display()));
        assert!(!named(keep + 1).exists(), "one too many is kept");
        let files = (1..=keep).rev().map(named).filter(|file| file.exists()).chain([path.to_owned()]);
        let text = |file: PathBuf| {
            let text = fs::read_to_string(file).expect("readable");
            assert!(text.is_empty() || text.ends_with('\n'), "a line is cut: {text:?}");
            assert!(text.len() < 100 + 40, "{} bytes", text.len());
            text
        };
        files.map(text).collect::<String>().lines().map(str::to_owned).collect()
    }

    #[test]
    fn each_line_is_whole_in_one_file_and_the_oldest_files_go() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("events");
        let mut file = Some(open(&path));
        let event =
            |number: usize| r#"{"schema":1,"#.to_owned() + &"x".repeat(number % 17) + &number.to_string();
        let told: Vec<String> = (0..60).map(event).collect();
        let text: String = told.iter().map(|line| format!("{line}\n")).collect();
        // In pieces of any length, as a write may take only a part of a line.
        for (number, piece) in text.as_bytes().chunks(53).enumerate() {
            file.as_mut().expect("open").write_all(piece).expect("written");
            if number == 11 {
                drop(file.take());
                let mut next = open(&path);
                // The part that was cut off comes again.
                let whole = lines(&path, 3).last().expect("a line").clone();
                let rest = &text[text.find(&format!("{whole}\n")).expect("it was told") + whole.len() + 1..];
                let upto = 53 * (number + 1) - (text.len() - rest.len());
                next.write_all(&rest.as_bytes()[..upto]).expect("written");
                file = Some(next);
            }
        }
        let kept = lines(&path, 3);
        assert!(kept.len() > 10 && told.ends_with(&kept), "{kept:?}");
        assert!(kept.len() < told.len(), "all are kept");
    }

    #[test]
    fn an_event_that_was_cut_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("events");
        for (before, after) in [
            ("", ""),
            ("a\n", "a\n"),
            ("a\n{\"schema\":1,\"no", "a\n"),
            ("{\"s", ""),
            ("a\nb", "a\nb\n"),
            ("{}", "{}\n"),
        ] {
            fs::write(&path, before).expect("written");
            open(&path).write_all(b"c\n").expect("written");
            let all = fs::read_to_string(&path).expect("readable");
            assert_eq!(all, format!("{after}c\n"));
        }
    }

    #[test]
    fn a_file_that_somebody_renamed_or_removed_is_begun_anew() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("events");
        let mut file = open(&path);
        let mut write = |line: &str| {
            file.look_due = Instant::now();
            file.write_all(line.as_bytes()).expect("written");
        };
        write("a\n");
        fs::rename(&path, folder.path().join("elsewhere")).expect("renamed");
        write("b\n");
        assert_eq!(fs::read_to_string(&path).expect("readable"), "b\n");
        fs::remove_file(&path).expect("removed");
        write("c\n");
        assert_eq!(fs::read_to_string(&path).expect("readable"), "c\n");
    }

    /// A directory is at the new path of each file in turn.
    #[test]
    fn a_file_that_cannot_be_renamed_grows_and_the_older_ones_stay() {
        for obstacle in 1..=4 {
            let folder = tempfile::tempdir().expect("a directory");
            let path = folder.path().join("events");
            let mut file = open(&path);
            let named = |number: u32| folder.path().join(format!("events.{number}"));
            let older: Vec<u32> = (1..=3).filter(|number| *number != obstacle).collect();
            let kept = |number: u32| fs::read_to_string(named(number)).ok();
            older.iter().for_each(|number| fs::write(named(*number), number.to_string()).expect("written"));
            fs::create_dir(named(obstacle)).expect("a directory in its way");
            let mut told = String::new();
            let mut write = |count: usize| {
                for _ in 0..count {
                    let line = format!("{:029}\n", told.len());
                    file.write_all(line.as_bytes()).expect("written");
                    told += &line;
                }
                (told.clone(), file.warned)
            };
            let (told, warned) = write(20);
            assert!(warned, "{obstacle}: nothing is said");
            assert_eq!(fs::read_to_string(&path).expect("readable"), told, "{obstacle}: a line is gone");
            for number in &older {
                assert_eq!(kept(*number), Some(number.to_string()), "{obstacle}");
            }
            fs::remove_dir(named(obstacle)).expect("removed");
            let (told, warned) = write(3);
            assert!(!warned, "{obstacle}: it does not heal");
            let now = fs::read_to_string(&path).expect("readable");
            let before = kept(1).expect("it is renamed");
            assert!(now.len() < 200 && told == before + &now, "{obstacle}: it is begun anew");
            let first_free = if obstacle == 4 { 3 } else { obstacle };
            let moved: Vec<Option<String>> = (2..=first_free).map(kept).collect();
            let expected: Vec<Option<String>> =
                (1..first_free).map(|number| Some(number.to_string())).collect();
            assert_eq!(moved, expected, "{obstacle}");
            assert_eq!(kept(4), None, "{obstacle}: one too many is kept");
        }
    }

    /// A directory is in the place of a file to remove, and of each file to keep.
    #[test]
    fn what_cannot_be_removed_keeps_no_agent_from_starting() {
        for obstacle in 1..=5 {
            let folder = tempfile::tempdir().expect("a directory");
            let path = folder.path().join("events");
            fs::create_dir(folder.path().join(format!("events.{obstacle}"))).expect("a directory in its way");
            let mut file = LogFile::open(&path, ROTATION).expect("it is opened all the same");
            file.try_rights().expect("they are there");
            file.write_all(b"a\n").expect("written");
            assert_eq!(fs::read_to_string(&path).expect("readable"), "a\n", "{obstacle}");
        }
    }

    /// A line that a full disk cut is written whole in the new file.
    #[test]
    fn as_long_as_the_file_cannot_be_begun_anew_nothing_is_written() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("events");
        let mut file = open(&path);
        file.write_all(b"a\n").expect("written");
        file.done = 3;
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("a directory in its way");
        file.look_due = Instant::now();
        for _ in 0..2 {
            file.write(b"b\nccc\n").expect_err("it would be lost");
        }
        fs::remove_dir(&path).expect("removed");
        file.write_all(b"b\nccc\n").expect("written");
        assert_eq!(fs::read_to_string(&path).expect("readable"), "ccc\n");
    }

    /// logrotate makes files with the mode from its configuration.
    #[test]
    fn only_the_owner_may_read_the_file_whoever_has_begun_it_anew() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("events");
        let mode = || fs::metadata(&path).expect("there").permissions().mode() & 0o777;
        let put = |text: &str| {
            fs::rename(&path, folder.path().join("events.old")).expect("renamed");
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("changed");
        };
        let mut file = open(&path);
        for line in ["a\n", "b\n"] {
            put("");
            file.look_due = Instant::now();
            file.write_all(line.as_bytes()).expect("written");
            assert_eq!((mode(), &*fs::read_to_string(&path).expect("readable")), (0o600, line));
        }
        // The bytes that somebody else wrote there are not removed.
        put("theirs\n");
        file.look_due = Instant::now();
        let why = file.write(b"c\n").expect_err("others could read it").to_string();
        assert_eq!(why, "others than its owner may read it: remove or rename it");
        assert_eq!(fs::read_to_string(&path).expect("readable"), "theirs\n");
        fs::remove_file(&path).expect("removed");
        file.write_all(b"c\n").expect("written");
        assert_eq!((mode(), &*fs::read_to_string(&path).expect("readable")), (0o600, "c\n"));
    }

    #[test]
    fn a_second_agent_is_refused_and_fewer_files_are_kept() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("events");
        let first = open(&path);
        let refused = LogFile::open(&path, ROTATION).expect_err("refused").to_string();
        assert_eq!(refused, "another agent writes it");
        drop(first);
        let older = |number: u32| folder.path().join(format!("events.{number}"));
        (1..=6).for_each(|number| fs::write(older(number), number.to_string()).expect("written"));
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("changed");
        open(&path).try_rights().expect("root's");
        let kept: Vec<_> = (0..=7).map(|number| fs::read_to_string(older(number)).ok()).collect();
        let expected = [None, Some("1"), Some("2"), Some("3"), None, None, None, None];
        assert_eq!(kept, expected.map(|text| text.map(str::to_owned)));
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!((mode & 0o777, fs::read_dir(folder.path()).expect("readable").count()), (0o600, 4));
    }

    #[test]
    fn another_kind_of_file_is_refused() {
        let folder = tempfile::tempdir().expect("a directory");
        let refused = |path: &Path| LogFile::open(path, ROTATION).expect_err("refused").to_string();
        refused(folder.path());
        assert_eq!(refused(Path::new("/dev/null")), "it is not a regular file");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("target"), &link).expect("a link");
        refused(&link);
        assert!(!folder.path().join("target").exists());
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        refuse_foreign(7, 7).expect("its own");
        let why = refuse_foreign(7, 0).expect_err("refused").to_string();
        assert!(why.starts_with("it belongs to the user 7, who could read it"), "{why}");
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("events");
        fs::write(&path, "a\n").expect("written");
        let given = chown(&path, Some(65534), None);
        assert_eq!(given.is_ok(), geteuid().is_root(), "only root gives files away");
        let opened = LogFile::open(&path, ROTATION).map(drop).map_err(|why| why.to_string());
        assert_eq!(
            opened.err(),
            given.ok().and_then(|()| refuse_foreign(65534, 0).err()).map(|why| why.to_string())
        );
        assert_eq!(fs::read_to_string(&path).expect("readable"), "a\n", "it is left as it was");
    }
}
