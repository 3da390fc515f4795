//! A disk that hangs while the state is read keeps no agent from starting, and damages nothing.

use std::{
    fs::{self, File},
    io::Write as _,
    sync::mpsc,
    thread,
    time::Duration,
};

use nix::{sys::stat::Mode, unistd::mkfifo};

use super::{
    FILE, NOW, SECOND, TRIES, Timestamp, block_on, files, header, leave, no_hooks, open,
    resume::{self, Last, Resumed},
    session,
};
use crate::sink::state::state_writes::StateWrites;

/// Whatever file the agent opens first.
#[test]
fn an_agent_starts_without_what_the_disk_does_not_give() {
    let hanging: Vec<_> = [".engine.lock", TRIES, FILE]
        .into_iter()
        .map(|name| {
            let dir = tempfile::tempdir().expect("a folder");
            drop(leave(dir.path(), 2, 3));
            let path = dir.path().join(name);
            fs::remove_file(&path).ok();
            // Opening it takes as long as nobody else has opened it.
            mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).expect("a fifo");
            let (tell, opened) = mpsc::channel();
            let of = dir.path().to_owned();
            thread::spawn(move || {
                tell.send(resume::open(&of, &header("b"), StateWrites::default())).ok();
            });
            (name, dir, opened)
        })
        .collect();
    for (name, dir, opened) in hanging {
        let opened = opened.recv_timeout(Duration::from_secs(30));
        let (_checkpoint, last) = opened.unwrap_or_else(|_| panic!("{name} holds it up")).expect("a thread");
        assert!(matches!(last, Last::Lost(None)), "{name}");
        assert!(!files(dir.path()).contains(&format!("{FILE}.damaged")), "{name}");
        // Let the threads go.
        File::options().read(true).write(true).open(dir.path().join(name)).expect("a fifo");
    }
}

#[test]
fn a_state_that_the_disk_gives_in_part_is_lost_from_there_on_and_is_not_set_aside() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(leave(dir.path(), 2, 3));
    let path = dir.path().join(FILE);
    let whole = fs::read(&path).expect("a file");
    fs::remove_file(&path).expect("it is there");
    mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).expect("a fifo");
    let mut disk = File::options().read(true).write(true).open(&path).expect("a fifo");
    disk.write_all(&whole).expect("there is room");
    let (checkpoint, kept) = open(dir.path());
    let resumed =
        kept.expect("it begins").resume(&mut session(), &no_hooks(), NOW).expect("it is not recorded");
    let last = Some(Timestamp(5 * SECOND));
    assert_eq!(resumed, Resumed { last, lost_since: last });
    assert_eq!(files(dir.path()), [".engine.lock", TRIES, FILE].map(str::to_owned));
    drop(disk);
    block_on(checkpoint.writer.finish(None));
}
