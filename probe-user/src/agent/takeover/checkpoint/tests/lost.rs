//! A state that is lost is reported with the time since when.

use std::{
    cell::Cell,
    fs::{self, File},
    os::unix::fs::symlink,
    path::Path,
    sync::{Mutex, mpsc},
    thread,
    time::{Duration, SystemTime},
};

use super::{
    FILE, GATHER, Last, NOW, SECOND, TRIES, Timestamp, block_on, call, files, header, kill, leave, made,
    no_hooks, replayed, session, told_until,
};
use crate::{
    agent::takeover::checkpoint::{
        self, Checkpoint,
        place::Place,
        resume::{self, LeftHooks, MAX_TRIES, Resumed},
    },
    engine::Call,
    model::fact::{Fact, Observation, Origin, RingsRead},
    recording::Header,
    sink::state::state_writes::StateWrites,
};

/// When the file was written.
const WRITTEN: Timestamp = Timestamp(9_000 * SECOND);

/// What the next agent finds. `at`: the time since boot at which it begins.
fn found(dir: &Path, header: &Header, at: Timestamp) -> Resumed {
    // The boot began a nanosecond after the epoch.
    let written = SystemTime::UNIX_EPOCH + Duration::from_nanos(WRITTEN.0 + 1);
    if let Ok(file) = File::options().write(true).open(dir.join(FILE)) {
        file.set_modified(written).expect("it is its owner's");
    }
    let (checkpoint, last) = resume::open(dir, header, StateWrites::default()).expect("a thread");
    block_on(checkpoint.writer.finish(None));
    match last {
        Last::Kept(kept) => kept.resume(&mut session(), &no_hooks(), at).expect("it is not recorded"),
        Last::Lost(since) => Resumed { last: None, lost_since: Some(since.unwrap_or(at)) },
        Last::None => Resumed::default(),
    }
}

fn of_boot() -> Header {
    header("b")
}

const LOST: Resumed = Resumed { last: None, lost_since: Some(WRITTEN) };

#[test]
fn a_state_that_cannot_be_read_is_lost_since_it_was_written() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 5] = [
        ("no header", |path| fs::write(path, "{\"x\":\0}\n").expect("writable")),
        ("a newer format", |path| fs::write(path, "{\"sandprobe_recording\":999}\n").expect("writable")),
        ("cut off within the state", |path| {
            let text = fs::read_to_string(path).expect("a file");
            let state = text.find("{\"advance").expect("the time of the state");
            fs::write(path, &text[..state]).expect("writable");
        }),
        ("a damaged state", |path| {
            let text = fs::read_to_string(path).expect("a file");
            fs::write(path, text.replacen("{\"restore", "{\"rest0re", 1)).expect("writable");
        }),
        ("three agents have tried", |path| {
            fs::write(path.with_file_name(TRIES), [b'.'; MAX_TRIES]).expect("writable")
        }),
    ];
    for (what, damage) in damages {
        let dir = tempfile::tempdir().expect("a folder");
        drop(leave(dir.path(), 2, 3));
        let path = dir.path().join(FILE);
        damage(&path);
        let bytes = fs::read(&path).expect("a file");
        let aside = || fs::read(dir.path().join(format!("{FILE}.damaged"))).expect("it is set aside");
        // An agent that is killed before it begins a file leaves all of it to the next one.
        for _ in 0..2 {
            assert_eq!(found(dir.path(), &of_boot(), NOW), LOST, "{what}");
            assert_eq!((fs::read(&path).expect("a file"), aside()), (bytes.clone(), bytes.clone()), "{what}");
        }
        let (mut checkpoint, _) =
            resume::open(dir.path(), &of_boot(), StateWrites::default()).expect("a thread");
        let mut session = session();
        checkpoint.begin(NOW, &mut session);
        kill(checkpoint, &mut session);
        assert_eq!(aside(), bytes, "{what}");
        assert_eq!(found(dir.path(), &of_boot(), NOW).last, Some(NOW), "{what}");
    }
}

/// A node without a battery begins at an old time, and gets the right one from a server.
#[test]
fn a_state_from_before_the_clock_was_set_is_lost_since_it_was_written() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(leave(dir.path(), 2, 3));
    let path = dir.path().join(FILE);
    let text = fs::read_to_string(&path).expect("a file");
    let state = text.find("{\"restore").expect("the state");
    fs::write(&path, format!("{}{{\"x\":\0}}\n", &text[..state])).expect("writable");
    let later = i64::try_from(WRITTEN.0 * 1000).expect("it fits");
    assert_eq!(found(dir.path(), &Header { boot_wall_ns: later, ..of_boot() }, NOW), LOST);
    fs::write(dir.path().join(TRIES), [b'.'; MAX_TRIES]).expect("writable");
    assert_eq!(found(dir.path(), &Header { boot_wall_ns: later, ..of_boot() }, NOW), LOST);
}

#[test]
fn a_state_of_the_future_is_lost_until_now() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(leave(dir.path(), 3, 400));
    let now = Timestamp(SECOND);
    assert_eq!(found(dir.path(), &of_boot(), now), Resumed { lost_since: Some(now), ..Resumed::default() });
}

/// What was before the damage is kept.
#[test]
fn a_damaged_call_loses_what_is_behind_it() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(leave(dir.path(), 2, 3));
    let path = dir.path().join(FILE);
    let text = fs::read_to_string(&path).expect("a file");
    let lines: Vec<&str> = text.lines().collect();
    let damaged = [&lines[..lines.len() - 2], &["{\"x\":\0}", ""]].concat().join("\n");
    fs::write(&path, damaged).expect("writable");
    let last = Some(Timestamp(4 * SECOND));
    // Each of these agents ends before it begins a file, perhaps because of what is before the damage.
    for _ in 0..MAX_TRIES {
        assert_eq!(found(dir.path(), &of_boot(), NOW), Resumed { last, lost_since: last });
    }
    assert_eq!(found(dir.path(), &of_boot(), NOW), LOST);
}

#[test]
fn nothing_is_lost_where_no_agent_kept_anything_of_this_boot() {
    let dir = tempfile::tempdir().expect("a folder");
    assert_eq!(found(dir.path(), &of_boot(), NOW), Resumed::default());
    drop(leave(dir.path(), 2, 3));
    assert_eq!(found(dir.path(), &Header { boot_id: "c".to_owned(), ..of_boot() }, NOW), Resumed::default());
    // It cannot be read, and was written before this boot.
    fs::write(dir.path().join(FILE), "x").expect("writable");
    let later = i64::try_from(WRITTEN.0 + 2).expect("it fits");
    let found = found(dir.path(), &Header { boot_wall_ns: later, ..of_boot() }, NOW);
    assert_eq!(found, Resumed::default());
}

#[test]
fn nothing_is_lost_where_no_directory_can_be() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("file");
    fs::write(&file, "x").expect("writable");
    assert_eq!(found(&file.join("state"), &of_boot(), NOW), Resumed::default());
}

/// As on a file system where a file has only one name.
#[test]
fn what_can_have_no_second_name_is_renamed() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join(FILE);
    fs::create_dir(&path).expect("a folder in the place of the file");
    let (checkpoint, last) = resume::open(dir.path(), &of_boot(), StateWrites::default()).expect("a thread");
    block_on(checkpoint.writer.finish(None));
    assert!(matches!(last, Last::Lost(_)));
    assert_eq!(files(dir.path()), [".engine.lock".to_owned(), format!("{FILE}.damaged")]);
}

/// Nothing shows when it was written.
#[test]
fn a_path_that_gives_an_error_is_lost_until_now() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(leave(dir.path(), 2, 3));
    let path = dir.path().join(FILE);
    fs::remove_file(&path).expect("a file");
    symlink(&path, &path).expect("a link to itself");
    assert_eq!(found(dir.path(), &of_boot(), NOW), Resumed { last: None, lost_since: Some(NOW) });
}

#[test]
fn a_state_that_is_read_whole_is_not_lost() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(leave(dir.path(), 2, 3));
    let last = Some(Timestamp(5 * SECOND));
    assert_eq!(found(dir.path(), &of_boot(), NOW), Resumed { last, lost_since: None });
}

#[test]
fn a_state_that_another_agent_has_is_lost() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(leave(dir.path(), 2, 3));
    let lock = File::open(dir.path().join(".engine.lock")).expect("a lock");
    lock.try_lock().expect("the last agent has ended");
    let before = fs::read(dir.path().join(FILE)).expect("a file");
    assert_eq!(found(dir.path(), &of_boot(), NOW), LOST);
    assert_eq!(fs::read(dir.path().join(FILE)).expect("a file"), before, "it is the other one's");
    fs::remove_file(dir.path().join(FILE)).expect("a file");
    assert_eq!(found(dir.path(), &of_boot(), NOW), Resumed::default(), "there is nothing to lose");
}

/// A supervisor starts the next agent while the one before is still ending.
#[test]
fn an_agent_that_still_ends_is_waited_for() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(leave(dir.path(), 2, 3));
    let lock = File::open(dir.path().join(".engine.lock")).expect("a lock");
    lock.try_lock().expect("the last agent has ended");
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        drop(lock);
    });
    let last = Some(Timestamp(5 * SECOND));
    assert_eq!(found(dir.path(), &of_boot(), NOW), Resumed { last, lost_since: None });
}

/// The file that an agent begins first is whole, so it has the loss: the agent may be killed at once.
#[test]
fn a_loss_is_in_the_first_file_and_told_before_it() {
    let begins = RingsRead { hooks: 9, ..RingsRead::default() };
    for keeps_some in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        drop(leave(dir.path(), 2, 3));
        let path = dir.path().join(FILE);
        let text = fs::read_to_string(&path).expect("a file");
        let lines: Vec<&str> = text.lines().collect();
        let kept = if keeps_some { lines.len() - 1 } else { 1 };
        fs::write(&path, [&lines[..kept], &["{\"x\":\0}", ""]].concat().join("\n")).expect("writable");

        let (mut checkpoint, last) =
            resume::open(dir.path(), &of_boot(), StateWrites::default()).expect("a thread");
        let (mut session, noted) = (session(), Cell::new(None));
        let note_told = |seq| noted.set(Some(seq));
        let left = LeftHooks { last_told: Some(41), begins, note_told: &note_told, ..no_hooks() };
        let resumed = last.take_over(&mut session, &left, NOW).expect("it is not recorded");
        assert_eq!((resumed.last.is_some(), resumed.lost_since.is_some()), (keeps_some, true));
        let told = String::from_utf8(session.output().clone()).expect("text");
        assert!(told.contains("\"what\":\"state\"") && told.lines().count() == 1, "{told}");
        assert_eq!(noted.get(), Some(session.last_seq() - 1), "the gap itself is not told yet");
        checkpoint::settles(&mut session);
        checkpoint.begin(NOW, &mut session);
        kill(checkpoint, &mut session);

        let (checkpoint, last) =
            resume::open(dir.path(), &of_boot(), StateWrites::default()).expect("a thread");
        let Last::Kept(kept) = last else { panic!("the file is whole") };
        let mut after = super::session();
        let resumed = kept.resume(&mut after, &no_hooks(), NOW).expect("it is not recorded");
        assert_eq!((resumed.last.is_some(), resumed.lost_since), (true, None));
        call(&mut after, [Call::Advance(NOW + Duration::from_secs(1))]);
        let found: Vec<_> = after.engine().findings().map(|it| it.key.to_string()).collect();
        assert_eq!(found, ["blind_spot/state"]);
        kill(checkpoint, &mut after);
    }
}

/// A disk that hangs, or fails whatever it is asked for.
#[test]
fn a_state_of_which_nothing_is_known_is_lost_since_hooks_were_read_or_since_now() {
    let read_at = Some(Timestamp(9 * SECOND));
    for (last_told, read_at, since) in [(Some(41), read_at, Timestamp(9 * SECOND)), (None, None, NOW)] {
        let left = LeftHooks { last_told, read_at, ..no_hooks() };
        let mut session = session();
        let resumed = Last::Lost(None).take_over(&mut session, &left, NOW).expect("it is not recorded");
        assert_eq!(resumed, Resumed { last: None, lost_since: Some(since) });
        let told = String::from_utf8(session.output().clone()).expect("text");
        assert!(told.contains("\"what\":\"state\""), "{told}");
    }
}

/// No file is there that would have been set aside, so nothing else says why.
#[test]
fn a_state_that_only_hooks_show_to_be_lost_is_in_the_log() {
    let missing = "an earlier agent reported events, but left no state";
    let taken_over = |last: Last, last_told| {
        let left = LeftHooks { last_told, read_at: Some(Timestamp(SECOND)), ..no_hooks() };
        logged(|| last.take_over(&mut session(), &left, NOW).expect("it is not recorded").lost_since)
    };
    let (lost_since, log) = taken_over(Last::None, Some(41));
    assert!(lost_since == Some(Timestamp(SECOND)) && log.contains(missing), "{log}");
    assert_eq!(taken_over(Last::None, None), (None, String::new()));
    // What was found of the file is in the log already.
    let (lost_since, log) = taken_over(Last::Lost(Some(WRITTEN)), Some(41));
    assert!(lost_since == Some(WRITTEN) && !log.contains(missing), "{log}");
}

/// Runs this, and returns what this thread logs meanwhile.
fn logged<T>(work: impl FnOnce() -> T) -> (T, String) {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let file = log.reopen().expect("it is there");
    let subscriber = tracing_subscriber::fmt().with_writer(Mutex::new(file)).finish();
    let done = tracing::subscriber::with_default(subscriber, work);
    (done, fs::read_to_string(log.path()).expect("text"))
}

/// Events wait for the calls that led to them to be in the file, and for no sync.
#[test]
fn a_disk_that_hangs_in_a_sync_holds_no_event_up() {
    let dir = tempfile::tempdir().expect("a folder");
    let (end, ends) = mpsc::channel::<()>();
    let sync = move |_: &File| {
        ends.recv().ok();
        Ok(())
    };
    end.send(()).expect("it listens");
    let place = Place::new(dir.path(), &header("b"), sync).expect("a thread");
    let mut checkpoint = Checkpoint::start(place, StateWrites::default()).expect("a thread");
    let mut session = session();
    let mut now = Timestamp(1);
    // The second file is never on the disk.
    for number in 1..40 {
        if let Some(file) = checkpoint.file.as_mut().filter(|_| number == 3) {
            file.limit = 0;
        }
        let awaited = checkpoint.update(now, &mut session, true).expect("it is kept");
        while checkpoint.written() < awaited {
            now = now + GATHER;
            checkpoint.update(now, &mut session, true);
            thread::yield_now();
        }
        call(&mut session, made(number));
    }
    assert!(dir.path().join(format!(".{FILE}.new")).exists());
    kill(checkpoint, &mut session);
    let (checkpoint, last) =
        resume::open(dir.path(), &header("b"), StateWrites::default()).expect("a thread");
    let Last::Kept(kept) = last else { panic!("the present file has all of it") };
    let mut after = super::session();
    kept.resume(&mut after, &no_hooks(), NOW).expect("it is not recorded");
    assert_eq!(after.engine().dump(), session.engine().dump());
    kill(checkpoint, &mut after);
    drop(end);
}

/// The disk was full, and the agent went on without a file.
#[test]
fn a_state_that_is_older_than_what_was_told_is_lost() {
    let last = Timestamp(5 * SECOND);
    let [earlier, later] = [2, 9].map(|second| Timestamp(second * SECOND));
    // The file leads to five events. An agent continues if the last one reported five or fewer.
    for (told, read_at, lost_since) in
        [(4, later, None), (5, later, None), (6, later, Some(later)), (6, earlier, Some(last))]
    {
        let dir = tempfile::tempdir().expect("a folder");
        drop(leave(dir.path(), 2, 3));
        // However often an agent ends before it can begin a file.
        for _ in 0..2 {
            let (checkpoint, found) =
                resume::open(dir.path(), &of_boot(), StateWrites::default()).expect("a thread");
            let of_hooks = |_| Some(told);
            let left = LeftHooks { last_told: Some(told), read_at: Some(read_at), ..told_until(&of_hooks) };
            let mut session = session();
            let resumed = found.take_over(&mut session, &left, NOW).expect("it is not recorded");
            let is_lost = lost_since.is_some();
            assert_eq!(resumed, Resumed { last: (!is_lost).then_some(last), lost_since }, "{told} told");
            let text = String::from_utf8(session.output().clone()).expect("text");
            let events = |what: &str| text.matches(what).count();
            let rest = usize::try_from(5_u64.saturating_sub(told)).expect("it fits");
            assert_eq!((events("netns.created"), events("\"what\":\"state\"")), (rest, usize::from(is_lost)));
            assert_eq!(session.last_seq(), told.max(5) + u64::from(is_lost));
            kill(checkpoint, &mut session);
        }
    }
}

/// This version may report fewer events for the same calls, if the last agent was killed. If more was read
/// than the calls have, what was reported of that would come twice.
#[test]
fn a_state_of_another_version_is_kept_if_the_rings_have_the_rest() {
    for has_rest in [true, false] {
        let dir = tempfile::tempdir().expect("a folder");
        let (mut checkpoint, _) = super::open(dir.path());
        let mut before = session();
        checkpoint.update(Timestamp(1), &mut before, true);
        let (at, fact) = (Timestamp(1), Fact::RingsRead(RingsRead::default()));
        call(&mut before, [Call::Observe(Observation { at, origin: Origin::Agent, fact })]);
        call(&mut before, (1..=5).flat_map(made));
        kill(checkpoint, &mut before);

        let header = Header { made_by: "1".to_owned(), ..of_boot() };
        let (checkpoint, found) =
            resume::open(dir.path(), &header, StateWrites::default()).expect("a thread");
        let have_all_after = |read| has_rest && read == RingsRead::default();
        let left =
            LeftHooks { last_told: Some(7), have_all_after: &have_all_after, ..told_until(&|_| Some(7)) };
        let mut after = session();
        after.record(&header).expect("a header");
        let resumed = found.take_over(&mut after, &left, NOW).expect("it can be recorded");
        let last = Timestamp(5 * SECOND);
        let lost_since = (!has_rest).then_some(last);
        assert_eq!(resumed, Resumed { last: has_rest.then_some(last), lost_since });
        call(&mut after, made(6));
        let text = String::from_utf8(after.output().clone()).expect("text");
        assert!(text.contains("\"seq\":8,") && !text.contains("\"seq\":7,"), "{text}");
        assert_eq!(String::from_utf8_lossy(replayed(&mut after).output()), text);
        kill(checkpoint, &mut after);
    }
}

/// What is before the damage would report again what was reported after it.
#[test]
fn what_is_before_the_damage_is_of_no_use_if_more_was_told() {
    for (told, is_kept) in [(4, true), (5, false)] {
        let dir = tempfile::tempdir().expect("a folder");
        drop(leave(dir.path(), 2, 3));
        let path = dir.path().join(FILE);
        let text = fs::read_to_string(&path).expect("a file");
        let lines: Vec<&str> = text.lines().collect();
        fs::write(&path, [&lines[..lines.len() - 2], &["{\"x\":\0}", ""]].concat().join("\n"))
            .expect("writable");
        let (checkpoint, found) =
            resume::open(dir.path(), &of_boot(), StateWrites::default()).expect("a thread");
        let of_hooks = |_| Some(told);
        let left = LeftHooks { last_told: Some(told), ..told_until(&of_hooks) };
        let mut session = session();
        let (resumed, log) =
            logged(|| found.take_over(&mut session, &left, NOW).expect("it is not recorded"));
        let last = Timestamp(4 * SECOND);
        assert_eq!(resumed, Resumed { last: is_kept.then_some(last), lost_since: Some(last) });
        assert!(log.contains(if is_kept { "with what was before" } else { "going on without it" }), "{log}");
        assert_eq!(session.last_seq(), told + 1, "the gap comes next");
        kill(checkpoint, &mut session);
    }
}

/// What a new agent's engine finds when it settles is reported before the agent has a file of its own.
#[test]
fn what_was_told_before_a_file_began_is_neither_told_again_nor_a_loss() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut checkpoint, _) = resume::open(dir.path(), &of_boot(), StateWrites::default()).expect("a thread");
    let mut session = session();
    checkpoint.update(Timestamp(1), &mut session, true);
    call(&mut session, (1..=20).flat_map(made));
    // Its blind spot is open by now.
    let (at, fact) = (Timestamp(5 * SECOND), Fact::AgentAway { since: Timestamp(4 * SECOND) });
    call(&mut session, [Call::Observe(Observation { at, origin: Origin::Agent, fact })]);
    let before = session.last_seq();
    kill(checkpoint, &mut session);
    checkpoint::settles(&mut session);
    let told = session.last_seq();
    assert!(told > before, "it settles nothing");

    let (checkpoint, found) = resume::open(dir.path(), &of_boot(), StateWrites::default()).expect("a thread");
    let of_hooks = |_| Some(told);
    let left = LeftHooks { last_told: Some(told), ..told_until(&of_hooks) };
    let mut after = super::session();
    let resumed = found.take_over(&mut after, &left, NOW).expect("it is not recorded");
    assert_eq!(resumed, Resumed { last: Some(Timestamp(20 * SECOND)), lost_since: None });
    checkpoint::settles(&mut after);
    assert_eq!(
        (String::from_utf8_lossy(after.output()).into_owned(), after.last_seq()),
        (String::new(), told)
    );
    kill(checkpoint, &mut after);
}
