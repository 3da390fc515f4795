//! Tests when files are remembered, and when they are read again.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tempfile::TempDir;

use super::{MAX_FILES, Memo, QUIET_NS, ReadError};
use crate::source::host::HostRoot;

const HOUR: Duration = Duration::from_secs(3600);

fn wall_ns(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).expect("a time after 1970");
    i64::try_from(since.as_nanos()).expect("a time before 2262")
}

/// A folder of a node, and its memo.
struct Read {
    root: TempDir,
    memo: Memo<String>,
    parsed: usize,
}

impl Read {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir(root.path().join("d")).expect("a directory");
        Self { root, memo: Memo::default(), parsed: 0 }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.root.path().join("d").join(name), text).expect("a file");
    }

    /// Begins a reading that is late enough for every file to be old.
    fn later(&mut self) {
        self.memo.begin(wall_ns(SystemTime::now() + HOUR));
    }

    /// Reads a file. Returns its content, and whether it was opened. A file that begins with `{` is torn.
    fn read(&mut self, name: &str) -> (Result<String, ReadError>, bool) {
        let root = self.root.path().to_path_buf();
        self.read_in(&root, name)
    }

    fn read_in(&mut self, root: &Path, name: &str) -> (Result<String, ReadError>, bool) {
        let Self { memo, parsed, .. } = self;
        let folder = HostRoot::open(root).expect("the root").folder("/d").expect("the folder");
        let before = *parsed;
        let read = memo.of(&folder).read(name, 16, |bytes, _| {
            *parsed += 1;
            let text = String::from_utf8_lossy(bytes).into_owned();
            (!text.starts_with('{')).then_some(text)
        });
        (read, *parsed > before)
    }
}

/// File times have the resolution of the timer tick.
fn tick() {
    thread::sleep(Duration::from_millis(20));
}

#[test]
fn a_file_is_opened_once_until_it_changes() {
    let mut it = Read::new();
    it.write("a", "one");
    it.later();
    assert_eq!(it.read("a"), (Ok("one".to_owned()), true));
    for _ in 0..2 {
        it.later();
        assert_eq!(it.read("a"), (Ok("one".to_owned()), false));
    }
    // The file is written in place, with the same size.
    tick();
    it.write("a", "two");
    it.later();
    assert_eq!(it.read("a"), (Ok("two".to_owned()), true));
    // The modification time is set back to the old one; the change time cannot be set.
    let file = fs::File::open(it.root.path().join("d/a")).expect("the file");
    let written = file.metadata().and_then(|about| about.modified()).expect("its time");
    tick();
    it.write("a", "six");
    file.set_modified(written).expect("its time is set");
    it.later();
    assert_eq!(it.read("a"), (Ok("six".to_owned()), true));
    fs::remove_file(it.root.path().join("d/a")).expect("removed");
    it.later();
    assert_eq!(it.read("a"), (Err(ReadError::Absent), false));
}

/// The second write may leave all times as they are.
#[test]
fn a_file_that_was_just_written_is_opened_each_time() {
    let mut it = Read::new();
    it.write("a", "one");
    for text in ["one", "two", "two"] {
        it.write("a", text);
        it.memo.begin(wall_ns(SystemTime::now()));
        assert_eq!(it.read("a"), (Ok(text.to_owned()), true));
    }
    let about = fs::metadata(it.root.path().join("d/a")).expect("the file");
    let written = wall_ns(about.modified().expect("its time"));
    for (wall_ns, is_opened) in
        [(written + QUIET_NS - 1, true), (written + QUIET_NS, true), (written + QUIET_NS, false)]
    {
        it.memo.begin(wall_ns);
        assert_eq!(it.read("a"), (Ok("two".to_owned()), is_opened), "{}", wall_ns - written);
    }
}

/// Either the file's time is wrong, or the clock was set back after it was written.
#[test]
fn a_file_from_the_future_is_opened_each_time() {
    let mut it = Read::new();
    it.write("a", "one");
    let file = fs::File::open(it.root.path().join("d/a")).expect("the file");
    file.set_modified(SystemTime::now() + 2 * HOUR).expect("its time is set");
    for _ in 0..2 {
        it.later();
        assert_eq!(it.read("a"), (Ok("one".to_owned()), true));
    }
    file.set_modified(SystemTime::now() - HOUR).expect("its time is set");
    // Now its change time is in the future.
    for _ in 0..2 {
        it.memo.begin(wall_ns(SystemTime::now() - HOUR / 2));
        assert_eq!(it.read("a"), (Ok("one".to_owned()), true));
    }
}

#[test]
fn a_torn_file_is_opened_once_until_it_is_whole() {
    let mut it = Read::new();
    it.write("a", "{");
    it.later();
    assert_eq!(it.read("a"), (Err(ReadError::Malformed), true));
    it.later();
    assert_eq!(it.read("a"), (Err(ReadError::Malformed), false));
    tick();
    it.write("a", "whole");
    it.later();
    assert_eq!(it.read("a"), (Ok("whole".to_owned()), true));
}

#[test]
fn a_file_that_cannot_be_read_is_tried_each_time() {
    let mut it = Read::new();
    it.write("long", "more than the limit");
    symlink("long", it.root.path().join("d/link")).expect("a link");
    fs::create_dir(it.root.path().join("d/folder")).expect("a folder");
    for _ in 0..2 {
        it.later();
        assert_eq!(it.read("long").0, Err(ReadError::TooLarge(16)));
        assert_eq!(it.read("link").0, Err(ReadError::NotPlain));
        assert_eq!(it.read("folder").0, Err(ReadError::NotPlain));
        assert_eq!(it.read("gone").0, Err(ReadError::Absent));
        assert_eq!(it.read("../d/long").0, Err(ReadError::NotPlain));
    }
    tick();
    it.write("long", "short");
    it.later();
    assert_eq!(it.read("long"), (Ok("short".to_owned()), true));
}

/// A file system may be mounted over the folder, or the folder may have been replaced.
#[test]
fn another_file_at_the_same_path_is_opened() {
    let mut it = Read::new();
    let other = Read::new();
    let written = SystemTime::now() - HOUR;
    for (of, text) in [(&it, "one"), (&other, "two")] {
        of.write("a", text);
        let file = fs::File::open(of.root.path().join("d/a")).expect("the file");
        file.set_modified(written).expect("its time is set");
    }
    for (root, text) in [(it.root.path().to_owned(), "one"), (other.root.path().to_owned(), "two")] {
        it.later();
        assert_eq!(it.read_in(&root, "a"), (Ok(text.to_owned()), true));
        it.later();
        assert_eq!(it.read_in(&root, "a"), (Ok(text.to_owned()), false));
    }
}

#[test]
fn a_file_that_is_gone_is_forgotten() {
    let mut it = Read::new();
    for name in ["a", "b"] {
        it.write(name, name);
    }
    it.later();
    it.read("a").0.expect("read");
    it.read("b").0.expect("read");
    assert_eq!(it.memo.count, 2);
    it.later();
    it.read("a").0.expect("read");
    it.later();
    assert_eq!(it.memo.count, 1);
    assert_eq!(it.read("a"), (Ok("a".to_owned()), false));
    assert_eq!(it.read("b"), (Ok("b".to_owned()), true));
    it.later();
    it.later();
    assert_eq!((it.memo.count, it.memo.folders.len()), (0, 0));
}

#[test]
fn no_more_files_are_remembered_than_there_is_room_for() {
    let mut it = Read::new();
    it.write("0", "x");
    let folder = it.root.path().join("d");
    for n in 1..=MAX_FILES {
        fs::hard_link(folder.join("0"), folder.join(n.to_string())).expect("a link");
    }
    it.later();
    let opened = (0..=MAX_FILES).filter(|n| it.read(&n.to_string()).1).count();
    assert_eq!((opened, it.memo.count), (MAX_FILES + 1, MAX_FILES));
    it.later();
    let opened = (0..=MAX_FILES).filter(|n| it.read(&n.to_string()).1).count();
    assert_eq!((opened, it.memo.count), (1, MAX_FILES));
}
