//! The engine's state is kept and resumed, whatever became of the file.

mod hang;
mod lost;

use std::{fs, path::Path, time::Duration};

use nix::{sys::stat::Mode, unistd::mkfifo};
use tokio::runtime;

use super::{
    ADDED_BYTES, Checkpoint, FILE, GATHER, MAX_WAITING_BYTES, RETRY,
    place::TRIES,
    resume::{self, Kept, Last, LeftHooks},
};
use crate::{
    engine::{Call, Settings},
    model::{
        fact::{Fact, Observation, Origin, RingsRead, Task},
        id::NetnsKey,
        time::Timestamp,
    },
    recording::{Header, Reader},
    session::Session,
    sink::{
        render::jsonl::Jsonl,
        select::filter::Filter,
        state::state_writes::{StateFile, StateWrites},
    },
};

const SECOND: u64 = 1_000_000_000;

/// When the next agent begins.
const NOW: Timestamp = Timestamp(10_000 * SECOND);

/// No hooks are left that would show how far the last agent had reported.
fn no_hooks() -> LeftHooks<'static> {
    LeftHooks {
        told: &|_| None,
        last_told: None,
        read_at: None,
        have_all_after: &|_| false,
        begins: RingsRead::default(),
        note_told: &|_| {},
    }
}

/// Hooks are left that show up to which event was reported.
fn told_until(told: &dyn Fn(Option<RingsRead>) -> Option<u64>) -> LeftHooks<'_> {
    LeftHooks { told, ..no_hooks() }
}

pub(crate) fn header(boot: &str) -> Header {
    Header {
        made_by: "0".to_owned(),
        node: "n".to_owned(),
        boot_id: boot.to_owned(),
        kernel: "6".to_owned(),
        boot_wall_ns: 1,
        settings: Settings::default(),
    }
}

fn session() -> Session {
    Session::new(&header("b"), Filter::default(), Box::new(Jsonl))
}

fn open(dir: &Path) -> (Checkpoint, Option<Kept>) {
    open_as(dir, "b", StateWrites::default())
}

fn open_as(dir: &Path, boot: &str, writes: StateWrites) -> (Checkpoint, Option<Kept>) {
    let (checkpoint, last) = resume::open(dir, &header(boot), writes).expect("a thread");
    let kept = match last {
        Last::Kept(kept) => Some(kept),
        Last::None | Last::Lost(_) => None,
    };
    (checkpoint, kept)
}

/// A network namespace is made, a second after the one before.
fn made(number: u32) -> [Call; 2] {
    let at = Timestamp(u64::from(number) * SECOND);
    let netns = NetnsKey::new(1000 + number, u64::from(number));
    let fact = Fact::NetnsCreated { netns, by: Task::default(), end_unseen: false };
    let passed = Observation { at, origin: Origin::Agent, fact: Fact::Watermark };
    [Call::Observe(Observation { at, origin: Origin::Kernel, fact }), Call::Observe(passed)]
}

fn call(session: &mut Session, calls: impl IntoIterator<Item = Call>) {
    calls.into_iter().for_each(|call| session.call(call).expect("it is not recorded"));
}

fn block_on(work: impl Future<Output = ()>) {
    runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work);
}

/// The agent is killed when everything that it did is written.
fn kill(mut checkpoint: Checkpoint, session: &mut Session) {
    while session.journal().is_some_and(|calls| !calls.is_empty()) {
        checkpoint.flush_soon();
        checkpoint.update(Timestamp(1), session, true);
        std::thread::yield_now();
    }
    block_on(checkpoint.writer.finish(None));
}

/// Returns what an agent leaves that sees `before` namespaces before it begins the file, and `after` later.
fn leave(dir: &Path, before: u32, after: u32) -> Session {
    let (mut checkpoint, _) = open(dir);
    let mut session = session();
    call(&mut session, (1..=before).flat_map(made));
    checkpoint.update(Timestamp(u64::from(before) * SECOND), &mut session, true);
    call(&mut session, (before + 1..=before + after).flat_map(made));
    kill(checkpoint, &mut session);
    session
}

fn resumed(dir: &Path) -> (Session, Option<Timestamp>) {
    // It is no agent after others that ended early.
    fs::remove_file(dir.join(TRIES)).ok();
    let (checkpoint, kept) = open(dir);
    let mut session = session();
    let last =
        kept.and_then(|it| it.resume(&mut session, &no_hooks(), NOW).expect("it is not recorded").last);
    kill(checkpoint, &mut session);
    (session, last)
}

/// A full ring, of which nothing is written before all of it was read.
#[test]
fn calls_that_are_more_than_may_wait_are_added_if_the_thread_has_room() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut checkpoint, _) = open(dir.path());
    let mut session = session();
    checkpoint.update(Timestamp(1), &mut session, true);
    while checkpoint.written() < checkpoint.given() {
        std::thread::yield_now();
    }
    let hangs = |number: u64| {
        let path = "x".repeat(MAX_WAITING_BYTES / 8);
        let fact = Fact::FileHangs { path, since: Timestamp(number), hangs: true };
        Call::Observe(Observation { at: Timestamp(number), origin: Origin::Agent, fact })
    };
    call(&mut session, (1..=9).map(hangs));
    assert!(session.journal().is_some_and(|calls| calls.len() > MAX_WAITING_BYTES));
    assert!(checkpoint.update(Timestamp(1), &mut session, true).is_some());
    assert_eq!(session.journal().map(|calls| calls.len()), Some(0), "they are added");
    kill(checkpoint, &mut session);
    assert_eq!(resumed(dir.path()).0.engine().hanging(), session.engine().hanging());
}

fn files(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a folder");
    let mut names: Vec<_> =
        entries.map(|it| it.expect("an entry").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

#[test]
fn the_next_agent_goes_on_with_the_state_and_repeats_no_event() {
    let dir = tempfile::tempdir().expect("a folder");
    let before = leave(dir.path(), 3, 4);
    let (mut after, last) = resumed(dir.path());
    assert_eq!(last, Some(Timestamp(7 * SECOND)));
    assert_eq!(after.engine().dump(), before.engine().dump());
    assert_eq!(after.output(), b"", "the last agent has told it");
    call(&mut after, made(8));
    let text = String::from_utf8(after.output().clone()).expect("text");
    assert!(text.contains("\"inode\":1008") && text.lines().count() == 1, "{text}");
}

/// Two readings of the clocks are never equal, and the clock may have been set since the agent began.
#[test]
fn an_event_that_is_told_again_has_the_same_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut checkpoint, _) = open(dir.path());
    let set = |at, boot_wall_ns| {
        let fact = Fact::Clock { boot_wall_ns };
        [Call::Observe(Observation { at: Timestamp(at * SECOND), origin: Origin::Agent, fact })]
    };
    let mut before = session();
    call(&mut before, set(1, 50).into_iter().chain(made(2)));
    before.output().clear();
    checkpoint.update(Timestamp(2 * SECOND), &mut before, true);
    call(&mut before, made(3).into_iter().chain(set(4, 70)).chain(made(5)));
    let told = before.output().clone();
    kill(checkpoint, &mut before);

    let (checkpoint, kept) = open(dir.path());
    let mut after =
        Session::new(&Header { boot_wall_ns: 71, ..header("b") }, Filter::default(), Box::new(Jsonl));
    kept.expect("it is there")
        .resume(&mut after, &told_until(&|_| Some(1)), NOW)
        .expect("it is not recorded");
    assert_eq!(String::from_utf8_lossy(after.output()), String::from_utf8_lossy(&told));
    assert_eq!(after.boot_wall_ns(), 71, "its own events have its own");
    kill(checkpoint, &mut after);
}

/// At the end the agent gives the engine a time in the future, so that it reports what it holds back. What it
/// does then may wait for a slow disk or a silent receiver, while nobody reads the rings.
#[test]
fn an_agent_that_ends_in_order_was_there_until_it_read_no_more() {
    for (seen_until, written_at) in [(9, 5), (5, 21)] {
        let dir = tempfile::tempdir().expect("a folder");
        let (checkpoint, _) = open(dir.path());
        let mut before = session();
        call(&mut before, (1..=3).flat_map(made));
        call(&mut before, [Call::Advance(Timestamp(seen_until * SECOND))]);
        block_on(checkpoint.finish(Timestamp(written_at * SECOND), &before));
        let (after, last) = resumed(dir.path());
        assert_eq!(last, Some(Timestamp(5 * SECOND)));
        assert_eq!(after.engine().dump(), before.engine().dump());
    }
}

#[test]
fn a_file_that_is_cut_off_loses_only_the_calls_behind_the_cut() {
    let dir = tempfile::tempdir().expect("a folder");
    leave(dir.path(), 2, 3);
    let path = dir.path().join(FILE);
    let whole = fs::read(&path).expect("a file");
    let state = whole.windows(9).position(|it| it == b"{\"advance").expect("the time of the state");
    let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
    let first_call = lines(&whole[..state]) + 1;
    // Each byte of the last two lines, and some of the others.
    let last = whole.len() - 600;
    for cut in (0..last).step_by(11).chain(last..whole.len()) {
        fs::write(&path, &whole[..cut]).expect("writable");
        let (session, last) = resumed(dir.path());
        // A line without its end is whole, too, if only that is missing.
        let calls = lines(&whole[..=cut]).checked_sub(first_call);
        // Two calls for each namespace; the first of them alone shows nothing yet, but its time counts.
        let seen = calls.map(|it| 2 + it.div_ceil(2) as u64).map(|it| Timestamp(it * SECOND));
        assert_eq!(last, seen, "cut at {cut}");
        let told = session.engine().counts().told.values().sum::<u64>();
        assert_eq!(told, calls.map_or(0, |it| it as u64 / 2), "cut at {cut}");
    }
}

#[test]
fn a_damaged_file_is_set_aside_and_named() {
    let dir = tempfile::tempdir().expect("a folder");
    leave(dir.path(), 2, 3);
    let path = dir.path().join(FILE);
    let whole = fs::read(&path).expect("a file");
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    for damaged in 0..lines.len() {
        let bytes: Vec<u8> = (0..lines.len())
            .flat_map(|line| if line == damaged { &b"{\"x\":\0}\n"[..] } else { lines[line] })
            .copied()
            .collect();
        fs::write(&path, &bytes).expect("writable");
        let (session, last) = resumed(dir.path());
        assert_eq!(
            files(dir.path()),
            [".engine.lock", TRIES, FILE, "engine.jsonl.damaged"],
            "line {damaged}"
        );
        for name in [FILE, "engine.jsonl.damaged"] {
            assert_eq!(fs::read(dir.path().join(name)).expect("a file"), bytes);
        }
        // Otherwise both names would be of one file in the next turn as well.
        fs::remove_file(&path).expect("it is there");
        // Six calls follow the state. What is before the damaged one is believed.
        let calls = (damaged + 6).checked_sub(lines.len());
        assert_eq!(last.is_some(), calls.is_some(), "line {damaged}");
        if calls.is_none() {
            assert_eq!(session.engine().dump(), self::session().engine().dump());
        }
    }
}

#[test]
fn another_boots_state_is_not_believed() {
    let dir = tempfile::tempdir().expect("a folder");
    leave(dir.path(), 2, 3);
    let (_, kept) = open_as(dir.path(), "c", StateWrites::default());
    assert!(kept.is_none());
}

#[test]
fn a_second_agent_neither_reads_nor_writes_the_file_of_the_first() {
    let dir = tempfile::tempdir().expect("a folder");
    leave(dir.path(), 2, 3);
    let written = fs::read(dir.path().join(FILE)).expect("a file");
    let first = open(dir.path());
    let writes = StateWrites::default();
    let (mut second, kept) = open_as(dir.path(), "b", writes.clone());
    assert!(kept.is_none());
    let mut session = session();
    second.update(Timestamp(1), &mut session, true);
    kill(second, &mut session);
    let troubles = writes.troubles();
    assert!(troubles[0].contains("another sandprobe keeps its own there"), "{troubles:?}");
    assert_eq!(fs::read(dir.path().join(FILE)).expect("a file"), written);
    drop(first);
}

#[test]
fn a_disk_that_hangs_does_not_let_calls_pile_up() {
    let dir = tempfile::tempdir().expect("a folder");
    // The thread hangs when it opens this.
    mkfifo(&dir.path().join(".engine.jsonl.new"), Mode::S_IRUSR | Mode::S_IWUSR).expect("a fifo");
    let (mut checkpoint, _) = open(dir.path());
    let mut session = session();
    let path = "x".repeat(ADDED_BYTES);
    let mut most = 0;
    // It begins, takes what it may add, and should begin anew.
    for number in 1..=40 {
        checkpoint.update(Timestamp(number), &mut session, true);
        let fact = Fact::CacheUnread { path: path.clone() };
        call(
            &mut session,
            [Call::Observe(Observation { at: Timestamp(number), origin: Origin::Listed, fact })],
        );
        most = session.journal().map_or(0, |calls| calls.len()).max(most);
    }
    assert!(most > MAX_WAITING_BYTES && most < MAX_WAITING_BYTES + 2 * ADDED_BYTES, "{most} bytes waited");
    assert!(session.journal().is_none(), "calls are still kept");
    // Without a reader the thread would hang forever.
    let reader = fs::File::options().read(true).write(true).open(dir.path().join(".engine.jsonl.new"));
    drop(checkpoint);
    drop(reader);
}

/// What a replay of the session's recording makes of it.
fn replayed(of: &mut Session) -> Session {
    let mut recorded = of.recorded().map(std::mem::take).expect("a recording");
    recorded.extend(of.end_recording().expect("an end"));
    let mut reader = Reader::open(recorded.as_slice()).expect("a recording");
    let mut again = session();
    while let Some(next) = reader.next_call().expect("a whole recording") {
        call(&mut again, [next]);
    }
    again
}

#[test]
fn a_recording_of_a_resumed_agent_begins_with_the_state() {
    let dir = tempfile::tempdir().expect("a folder");
    leave(dir.path(), 3, 4);
    let (_checkpoint, kept) = open(dir.path());
    let mut after = session();
    after.record(&header("b")).expect("a header");
    kept.expect("a state").resume(&mut after, &no_hooks(), NOW).expect("it can be recorded");
    call(&mut after, made(8));
    let mut again = replayed(&mut after);
    assert_eq!(again.output(), after.output());
    assert_eq!(again.engine().dump(), after.engine().dump());
}

#[test]
fn the_file_begins_anew_when_much_was_added_and_after_a_failure() {
    let dir = tempfile::tempdir().expect("a folder");
    let writes = StateWrites::default();
    let (mut checkpoint, _) = open_as(dir.path(), "b", writes.clone());
    let mut session = session();
    let path = dir.path().join(FILE);
    fs::create_dir(&path).expect("a folder in its place");
    let now = Timestamp(1);
    checkpoint.update(now, &mut session, true);
    while !writes.outcomes().contains_key(&StateFile::Checkpoint) {
        std::thread::yield_now();
    }
    checkpoint.update(now, &mut session, true);
    assert!(writes.troubles()[0].contains("engine.jsonl is a directory"), "{:?}", writes.troubles());
    assert!(session.journal().is_none(), "calls are kept that nobody writes");
    fs::remove_dir(&path).expect("it is empty");
    let mut now = now + RETRY;
    let added = |checkpoint: &Checkpoint| checkpoint.file.as_ref().map(|it| it.added);
    while checkpoint.file.is_none() {
        checkpoint.update(now, &mut session, true);
    }
    if let Some(file) = &mut checkpoint.file {
        file.limit = 64 << 10;
    }
    let mut number = 0;
    let mut most = 0;
    // It begins anew with nothing added, once much was.
    while added(&checkpoint) != Some(0) || most == 0 {
        number += 1;
        now = now + GATHER;
        call(&mut session, made(number));
        checkpoint.update(now, &mut session, true);
        most = added(&checkpoint).into_iter().fold(most, usize::max);
        std::thread::yield_now();
    }
    assert!(most > 64 << 10, "after {most} bytes");
    call(&mut session, made(number + 1));
    let before = session.engine().dump();
    kill(checkpoint, &mut session);
    assert_eq!(writes.troubles(), [""; 0]);
    assert_eq!(resumed(dir.path()).0.engine().dump(), before);
}

/// Each write wakes two threads, so calls that come close together share one.
#[test]
fn calls_are_gathered_and_none_waits_longer() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut checkpoint, _) = open(dir.path());
    let mut session = session();
    let begun = checkpoint.update(Timestamp(1), &mut session, true).expect("a file");
    let writes = |checkpoint: &Checkpoint, number| {
        while checkpoint.written() < number {
            std::thread::yield_now();
        }
    };
    writes(&checkpoint, begun);
    call(&mut session, made(1));
    let first = Timestamp(10);
    assert_eq!(checkpoint.update(first, &mut session, true), Some(begun + 1));
    assert_eq!((checkpoint.due(), session.journal().map(|calls| calls.len())), (None, Some(0)));
    writes(&checkpoint, begun + 1);
    for number in 2..5 {
        call(&mut session, made(number));
        assert_eq!(checkpoint.update(first + GATHER / number, &mut session, true), Some(begun + 2));
        assert_eq!(checkpoint.due(), Some(first + GATHER));
    }
    assert_eq!(checkpoint.update(first + GATHER, &mut session, true), Some(begun + 2));
    assert_eq!((checkpoint.due(), session.journal().map(|calls| calls.len())), (None, Some(0)));
    // An agent that ends waits for nothing.
    writes(&checkpoint, begun + 2);
    call(&mut session, made(5));
    checkpoint.flush_soon();
    checkpoint.update(first + GATHER, &mut session, true);
    assert_eq!(checkpoint.due(), None);
    kill(checkpoint, &mut session);
}

/// A state that ends each agent that reads it would keep all agents from working.
#[test]
fn a_state_that_nobody_could_take_over_is_set_aside() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(leave(dir.path(), 3, 4));
    for _ in 0..3 {
        let (checkpoint, kept) = open(dir.path());
        assert!(kept.is_some());
        // It ends before it begins a file.
        block_on(checkpoint.writer.finish(None));
    }
    let (checkpoint, kept) = open(dir.path());
    assert!(kept.is_none());
    block_on(checkpoint.writer.finish(None));
    assert!(files(dir.path()).contains(&format!("{FILE}.damaged")), "{:?}", files(dir.path()));
}

#[test]
fn an_agent_that_begins_a_file_ends_the_count() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(leave(dir.path(), 3, 4));
    for _ in 0..30 {
        let (mut checkpoint, kept) = open(dir.path());
        assert!(kept.is_some());
        let mut session = session();
        kept.and_then(|it| it.resume(&mut session, &no_hooks(), NOW).expect("it is not recorded").last);
        checkpoint.begin(NOW, &mut session);
        kill(checkpoint, &mut session);
    }
}

fn await_writes(checkpoint: &Checkpoint) {
    while checkpoint.written() < checkpoint.given() {
        std::thread::yield_now();
    }
}

/// What ends an agent after a minute, as a full disk does with some, is not the state.
#[test]
fn only_agents_that_ended_within_a_minute_are_counted() {
    for (seconds, is_kept) in [(61, true), (59, false)] {
        let dir = tempfile::tempdir().expect("a folder");
        drop(leave(dir.path(), 3, 4));
        fs::create_dir(dir.path().join(format!(".{FILE}.new"))).expect("a folder in its place");
        let mut found = Vec::new();
        for _ in 0..5 {
            let (mut checkpoint, kept) = open(dir.path());
            found.push(kept.is_some());
            let mut session = session();
            for after in [0, seconds] {
                checkpoint.begin(NOW + Duration::from_secs(after), &mut session);
                await_writes(&checkpoint);
            }
            block_on(checkpoint.writer.finish(None));
        }
        assert_eq!(found, [true, true, true, is_kept, is_kept], "after {seconds} s");
    }
}

/// No hooks are left, so only what the agent noted shows how far it has reported.
#[test]
fn no_number_is_given_again_after_a_disk_that_was_full() {
    for is_full_to_the_end in [true, false] {
        let dir = tempfile::tempdir().expect("a folder");
        let (path, aside) = (dir.path().join(FILE), dir.path().join("aside"));
        let new = dir.path().join(format!(".{FILE}.new"));
        let (mut checkpoint, _) = open(dir.path());
        let mut before = session();
        call(&mut before, (1..=2).flat_map(made));
        checkpoint.update(Timestamp(2 * SECOND), &mut before, true);
        await_writes(&checkpoint);
        // From here on nothing can be written, and the file stays.
        fs::rename(&path, &aside).expect("a file");
        for path in [&path, &new] {
            fs::create_dir(path).expect("a folder in its place");
        }
        call(&mut before, (3..=5).flat_map(made));
        checkpoint.will_tell(before.last_seq());
        checkpoint.flush_soon();
        checkpoint.update(Timestamp(5 * SECOND), &mut before, true);
        await_writes(&checkpoint);
        for path in [&path, &new] {
            fs::remove_dir(path).expect("it is empty");
        }
        fs::rename(&aside, &path).expect("a file");
        if !is_full_to_the_end {
            checkpoint.begin(Timestamp(6 * SECOND), &mut before);
        }
        block_on(checkpoint.writer.finish(None));

        let (checkpoint, last) =
            resume::open(dir.path(), &header("b"), StateWrites::default()).expect("a thread");
        let noted = checkpoint.told_before();
        assert_eq!(noted.is_some(), is_full_to_the_end);
        let told = |_: Option<RingsRead>| noted;
        let left = LeftHooks { last_told: noted, ..told_until(&told) };
        let mut after = session();
        let resumed = last.take_over(&mut after, &left, NOW).expect("it is not recorded");
        assert_eq!(resumed.lost_since.is_some(), is_full_to_the_end, "{resumed:?}");
        let first = after.engine().last_seq() + 1;
        call(&mut after, made(20_000));
        assert!(
            after.last_seq() >= first && first > before.last_seq(),
            "{first} after {}",
            before.last_seq()
        );
        assert!(is_full_to_the_end || first == before.last_seq() + 1, "{first}");
        block_on(checkpoint.writer.finish(None));
        // A note of another boot says nothing of this one.
        let (checkpoint, _) = open_as(dir.path(), "c", StateWrites::default());
        assert_eq!(checkpoint.told_before(), None);
        block_on(checkpoint.writer.finish(None));
    }
}

/// The clock of a boot does not go back: such a state is another's.
#[test]
fn a_state_of_the_future_is_set_aside() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(leave(dir.path(), 3, 4));
    let (checkpoint, kept) = open(dir.path());
    let mut session = session();
    let before = session.engine().dump();
    let last = kept
        .and_then(|it| it.resume(&mut session, &no_hooks(), Timestamp(1)).expect("it is not recorded").last);
    // A state a bit ahead is of an agent that reported at its end what it held back.
    assert_eq!(last, Some(Timestamp(7 * SECOND)));
    block_on(checkpoint.writer.finish(None));
    drop(leave(dir.path(), 3, 400));
    let (checkpoint, kept) = open(dir.path());
    let mut session = self::session();
    let last = kept
        .and_then(|it| it.resume(&mut session, &no_hooks(), Timestamp(1)).expect("it is not recorded").last);
    assert_eq!((last, session.engine().dump()), (None, before));
    block_on(checkpoint.writer.finish(None));
    assert!(files(dir.path()).contains(&format!("{FILE}.damaged")), "{:?}", files(dir.path()));
}

/// The state is lost, and the hooks show how far the last agent had reported.
#[test]
fn numbers_go_on_without_a_state() {
    let mut session = session();
    session.record(&header("b")).expect("a header");
    session.begin_after(41).expect("it can be recorded");
    assert_eq!((session.last_seq(), session.output().len()), (41, 0));
    call(&mut session, made(8));
    assert_eq!(session.last_seq(), 42);
    let mut again = replayed(&mut session);
    assert_eq!(String::from_utf8_lossy(again.output()), String::from_utf8_lossy(session.output()));
}

/// What the last agent had not reported is reported, with the numbers that it would have had.
#[test]
fn what_was_not_told_is_told_by_the_next_agent() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut before = leave(dir.path(), 3, 4);
    let (checkpoint, kept) = open(dir.path());
    let mut after = session();
    kept.and_then(|it| {
        it.resume(&mut after, &told_until(&|_| Some(5)), NOW).expect("it is not recorded").last
    })
    .expect("a state");
    let all = String::from_utf8(before.output().clone()).expect("text");
    let untold: String = all.split_inclusive('\n').skip(5).collect();
    assert_eq!(String::from_utf8(after.output().clone()).expect("text"), untold);
    block_on(checkpoint.writer.finish(None));
}
