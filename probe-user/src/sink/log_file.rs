//! A file of whole lines that is renamed when it is full, and begun anew: `FILE` becomes `FILE.1`, that becomes `FILE.2`,
//! and the oldest is removed. Programs that follow a log know renamed files by their inode.
//!
//! If somebody else renames or removes the file, as logrotate does, it is begun anew too.
//!
//! **Invariant:** a line is never in two files. So a file is larger than its size by less than a line.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek as _, SeekFrom, Write},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tracing::warn;

/// How often the file is looked for under its name, while lines come.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// How each event's line begins.
const EVENT: &[u8] = br#"{"schema":"#;
/// A line is shorter.
const LONGEST: u64 = 1 << 20;

/// When a file is full, and how many full ones are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    /// In bytes, at least 1.
    pub(crate) size: u64,
    pub(crate) keep: u32,
}

#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    /// In bytes.
    len: u64,
    /// From this length on, the file is full. It is more than its size after it could not be renamed.
    full_at: u64,
    /// Whether the last line is whole.
    is_at_line_start: bool,
    /// When to look for the file under its name.
    look_due: Instant,
    /// A failure was logged already.
    warned: bool,
}

impl LogFile {
    /// Opens the file, or makes it for its owner alone: arguments of processes may hold secrets. An event's line that was cut
    /// off, as by a power loss, is removed: the event is told again.
    pub(crate) fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        let mut file = create(path)?;
        end_line(&mut file)?;
        let len = file.metadata()?.len();
        Ok(Self {
            path: path.to_owned(),
            rotation,
            file,
            len,
            full_at: rotation.size,
            is_at_line_start: true,
            look_due: Instant::now() + LOOK_PERIOD,
            warned: false,
        })
    }

    /// Renames the file and those before it, and begins a new one.
    fn rotate(&mut self) -> io::Result<()> {
        let Rotation { size, keep } = self.rotation;
        for number in (1..keep).rev() {
            rename(&self.numbered(number), &self.numbered(number + 1))?;
        }
        if keep == 0 {
            fs::remove_file(&self.path)?;
        } else {
            rename(&self.path, &self.numbered(1))?;
        }
        self.file = create(&self.path)?;
        (self.len, self.full_at, self.warned) = (0, size, false);
        Ok(())
    }

    /// `FILE.3`
    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(format!(".{number}"));
        name.into()
    }

    /// Begins the file anew if its name is gone, or is another file's.
    fn look(&mut self) -> io::Result<()> {
        let own = self.file.metadata()?;
        let is_own = match fs::symlink_metadata(&self.path) {
            Ok(named) => (named.dev(), named.ino()) == (own.dev(), own.ino()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if !is_own {
            self.file = create(&self.path)?;
            (self.len, self.full_at) = (self.file.metadata()?.len(), self.rotation.size);
        }
        Ok(())
    }

    /// Before the first byte of a line.
    fn begin_line(&mut self) {
        let mut done = Ok(());
        if self.look_due <= Instant::now() {
            self.look_due = Instant::now() + LOOK_PERIOD;
            done = self.look();
        }
        if done.is_ok() && self.len >= self.full_at {
            done = self.rotate();
            if done.is_err() {
                // The lines go on into the same file.
                self.full_at = self.len.saturating_add(self.rotation.size);
            }
        }
        if let Err(error) = done
            && !self.warned
        {
            warn!("{} cannot be renamed and begun anew: {error}; it grows", self.path.display());
            self.warned = true;
        }
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_at_line_start {
            self.begin_line();
        }
        // No further than the line with which it is full.
        let room = usize::try_from(self.full_at.saturating_sub(self.len)).unwrap_or(usize::MAX);
        let behind = bytes.get(room.saturating_sub(1)..).unwrap_or_default();
        let end = behind.iter().position(|byte| *byte == b'\n').map(|at| room.max(1) + at);
        let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(bytes);
        let written = self.file.write(part)?;
        self.len += u64::try_from(written).unwrap_or_default();
        if let Some(last) = written.checked_sub(1) {
            self.is_at_line_start = part.get(last) == Some(&b'\n');
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn create(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file =
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no plain file")) }
}

/// One that is not there needs no new name.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes the beginning of an event behind the last whole line. Anything else there becomes a line: it is somebody's.
fn end_line(file: &mut File) -> io::Result<()> {
    let len = file.metadata()?.len();
    let begin = len.saturating_sub(LONGEST);
    file.seek(SeekFrom::Start(begin))?;
    let mut end = Vec::new();
    Read::by_ref(file).take(LONGEST).read_to_end(&mut end)?;
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
        fs,
        io::Write as _,
        path::{Path, PathBuf},
        time::Instant,
    };

    use super::{LogFile, Rotation};

    const ROTATION: Rotation = Rotation { size: 100, keep: 3 };

    fn open(path: &Path) -> LogFile {
        LogFile::open(path, ROTATION).expect("a directory that can be written")
    }

    /// The lines of the files, the oldest first; each file has whole lines and is no larger than allowed.
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
        let mut file = open(&path);
        let event =
            |number: usize| r#"{"schema":1,"#.to_owned() + &"x".repeat(number % 17) + &number.to_string();
        let told: Vec<String> = (0..60).map(event).collect();
        let text: String = told.iter().map(|line| format!("{line}\n")).collect();
        // In pieces of any length, as a write may take only a part of a line.
        for (number, piece) in text.as_bytes().chunks(53).enumerate() {
            file.write_all(piece).expect("written");
            if number == 11 {
                file = open(&path);
                // What was cut off comes again.
                let whole = lines(&path, 3).last().expect("a line").clone();
                let rest = &text[text.find(&format!("{whole}\n")).expect("it was told") + whole.len() + 1..];
                let upto = 53 * (number + 1) - (text.len() - rest.len());
                file.write_all(&rest.as_bytes()[..upto]).expect("written");
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

    #[test]
    fn without_a_place_for_older_files_the_file_grows_and_no_line_is_lost() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("events");
        fs::create_dir(folder.path().join("events.1")).expect("a directory in its way");
        let mut file = LogFile::open(&path, Rotation { keep: 1, ..ROTATION }).expect("a directory");
        let line = "x".repeat(29) + "\n";
        for _ in 0..20 {
            file.write_all(line.as_bytes()).expect("written");
        }
        assert_eq!(fs::read_to_string(&path).expect("readable"), line.repeat(20));
        fs::remove_dir(folder.path().join("events.1")).expect("removed");
        for _ in 0..8 {
            file.write_all(line.as_bytes()).expect("written");
        }
        assert!(fs::read_to_string(&path).expect("readable").len() < 200, "it is begun anew");
    }

    #[test]
    fn what_is_no_plain_file_is_refused() {
        let folder = tempfile::tempdir().expect("a directory");
        let refused = |path: &Path| LogFile::open(path, ROTATION).expect_err("refused").to_string();
        refused(folder.path());
        assert_eq!(refused(Path::new("/dev/null")), "it is no plain file");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("target"), &link).expect("a link");
        refused(&link);
        assert!(!folder.path().join("target").exists());
    }
}
