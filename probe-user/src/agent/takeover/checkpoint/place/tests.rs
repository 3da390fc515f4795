//! A disk that hangs or fails, and what is in the file then.

use std::{
    fs, io,
    path::Path,
    sync::mpsc::{self, Sender},
    thread,
    time::Instant,
};

use super::{FILE, Failure, Job, Place, SYNC};
use crate::{agent::takeover::checkpoint::tests::header, model::time::Timestamp, sink::state::file::number};

/// Returns a place on a disk whose syncs end when the sender says so, with this result.
fn place(dir: &Path) -> (Place, Sender<io::Result<()>>) {
    let (end, ends) = mpsc::channel();
    let sync = move |_: &fs::File| ends.recv().unwrap_or(Ok(()));
    (Place::new(dir, &header("b"), sync).expect("a thread"), end)
}

fn begin(at: u64, before: Option<&str>) -> Job {
    let before = before.map(|calls| calls.as_bytes().to_vec());
    Job::Begin { entries: Vec::new(), at: Timestamp(at), boot_wall_ns: 1, before }
}

fn add(calls: &str) -> Job {
    Job::Add(calls.as_bytes().to_vec())
}

/// Returns the lines after the header.
fn calls(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string(dir.join(FILE)).expect("a file");
    text.lines().skip(1).map(str::to_owned).collect()
}

fn is_pending(dir: &Path) -> bool {
    dir.join(format!(".{FILE}.new")).exists()
}

#[test]
fn a_sync_that_hangs_holds_no_calls_up_and_loses_none() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let (mut place, end) = place(dir);
    end.send(Ok(())).expect("it listens");
    place.write(begin(1, None)).expect("a disk");
    place.write(add("one\n")).expect("a disk");
    // These do not wait for the disk, and the present file has all of it meanwhile.
    place.write(begin(2, Some("two\n"))).expect("a disk");
    place.write(add("three\n")).expect("a disk");
    assert!(is_pending(dir));
    assert_eq!(calls(dir), ["{\"advance\":\"1\"}", "one", "two", "three"]);
    end.send(Ok(())).expect("it listens");
    while is_pending(dir) {
        place.write(add("")).expect("a disk");
        thread::yield_now();
    }
    assert_eq!(calls(dir), ["{\"advance\":\"2\"}", "three"]);
    // The sync of what was added does not block either.
    place.synced_at = Instant::now().checked_sub(SYNC).expect("the machine runs for longer");
    place.write(add("four\n")).expect("a disk");
    place.write(add("five\n")).expect("a disk");
    assert!(place.sync.is_some());
    assert_eq!(calls(dir), ["{\"advance\":\"2\"}", "three", "four", "five"]);
    end.send(Err(io::Error::from_raw_os_error(libc::EIO))).expect("it listens");
    let error = loop {
        if let Err(error) = place.write(add("")) {
            break error;
        }
        thread::yield_now();
    };
    assert_eq!((error.to_string(), number(&error)), (format!("{FILE}: {}", eio()), Some(libc::EIO)));
    // What the disk lost is not used further.
    end.send(Ok(())).expect("it listens");
    place.write(begin(3, Some("six\n"))).expect("a disk");
    assert_eq!((calls(dir), is_pending(dir)), (vec!["{\"advance\":\"3\"}".to_owned()], false));
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

#[test]
fn a_file_that_the_disk_does_not_take_is_named_and_replaces_none() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let (mut place, end) = place(dir);
    end.send(Ok(())).expect("it listens");
    place.write(begin(1, None)).expect("a disk");
    for (os, kind) in [(libc::EIO, eio().kind()), (libc::ENOSPC, io::ErrorKind::StorageFull)] {
        end.send(Err(io::Error::from_raw_os_error(os))).expect("it listens");
        let error = place.write(begin(2, None)).expect_err("the disk fails");
        assert_eq!((number(&error), error.kind()), (Some(os), kind));
        assert!(error.to_string().starts_with("engine.jsonl: "), "{error}");
        assert_eq!((calls(dir), is_pending(dir)), (vec!["{\"advance\":\"1\"}".to_owned()], false));
        let again = place.write(add("one\n")).expect_err("there is no file");
        assert_eq!((number(&again), again.to_string()), (Some(os), error.to_string()));
    }
}

#[test]
fn a_file_that_somebody_removed_is_told_as_that_and_begins_anew() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let (mut place, end) = place(dir);
    end.send(Ok(())).expect("it listens");
    place.write(begin(1, None)).expect("a disk");
    fs::remove_file(dir.join(FILE)).expect("it was there");
    for _ in 0..2 {
        let error = place.write(add("one\n")).expect_err("there is no file");
        let told = "engine.jsonl: it was removed or replaced while sandprobe ran";
        assert_eq!((error.to_string().as_str(), error.kind()), (told, io::ErrorKind::NotFound));
    }
    end.send(Ok(())).expect("it listens");
    place.write(begin(2, None)).expect("a disk");
    assert_eq!(calls(dir), ["{\"advance\":\"2\"}"]);
}

/// While a disk hangs, a file that grows too large waits for the one before it.
#[test]
fn no_more_than_one_file_waits_for_the_disk() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let (mut place, end) = place(dir);
    end.send(Ok(())).expect("it listens");
    place.write(begin(1, None)).expect("a disk");
    place.write(begin(2, Some("one\n"))).expect("a disk");
    thread::scope(|scope| {
        let third = scope.spawn(|| place.write(begin(3, Some("two\n"))));
        end.send(Ok(())).expect("it listens");
        third.join().expect("no panic").expect("a disk");
    });
    assert_eq!(calls(dir), ["{\"advance\":\"2\"}", "two"]);
    assert!(is_pending(dir));
}

/// Otherwise the log would name it twice, once without what to do.
#[test]
fn a_failure_is_the_same_when_it_is_told_again() {
    for error in
        [io::Error::from_raw_os_error(libc::EIO), io::ErrorKind::NotFound.into(), io::Error::other("no")]
    {
        let again = Failure::of(&error).again();
        assert_eq!((again.raw_os_error(), again.kind()), (error.raw_os_error(), error.kind()));
        assert_eq!(again.to_string(), error.to_string());
    }
}
