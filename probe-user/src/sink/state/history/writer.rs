//! Writes the history of boots: appends a line when something changed in this boot, and regularly writes a
//! heartbeat. A thread of its own writes, because a disk may be slow.
//!
//! **Invariant:** a directory that cannot be written is reported ([`StateWrites`]) and never stops the agent.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{BOOTS, HEARTBEAT, append::LineAppender};
use crate::{
    model::{
        recovery::{LONGEST_SHUTDOWN, Recovery, RunningPods},
        time::Timestamp,
    },
    recording::{
        Header,
        history::{self, Heartbeat, Record},
    },
    sink::state::{
        background::{BackgroundWriter, Failed},
        file::{self, blame},
        folder,
        state_writes::{StateFile, StateWrites},
    },
};

/// The shortest time between two lines, except for the order of a restart, which cannot wait.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// The file is shortened after this many lines or bytes. A line of a full node has some 100 KiB.
const MAX_LINES: usize = 500;
const MAX_BYTES: usize = 2 << 20;
/// Locked while an agent lives.
const LOCK: &str = ".boots.lock";

#[derive(Debug)]
pub(crate) struct BootHistoryWriter {
    header: Header,
    /// The revision of the record in the file.
    written_revision: Option<u64>,
    /// Whether the record in the file has the order of a restart.
    has_order: bool,
    /// When the last job was due for the thread, which may have had no room for it, and when the last
    /// heartbeat was made.
    job_at: Option<Timestamp>,
    heartbeat_at: Option<Timestamp>,
    /// The thread had no room for the last job: the disk is slow or hangs.
    is_held_up: bool,
    writer: BackgroundWriter<Job>,
}

#[derive(Debug)]
struct Job {
    /// `None` if nothing changed.
    line: Option<Vec<u8>>,
    heartbeat: Vec<u8>,
}

/// This boot as the history records it.
pub(crate) struct CurrentBoot<'a> {
    pub(crate) recovery: &'a Recovery,
    pub(crate) boot_wall_ns: i64,
    pub(crate) running: RunningPods,
}

impl BootHistoryWriter {
    /// Writes the history to `dir`, which is made if it does not exist. The history has the last `boots`
    /// boots.
    pub(crate) fn open(dir: &Path, header: &Header, boots: usize, writes: StateWrites) -> io::Result<Self> {
        let mut files = HistoryFiles { dir: dir.to_owned(), boots, open: None, was_removed: false };
        let writer = BackgroundWriter::spawn(StateFile::History, dir, writes, move |job, failed| {
            files.write(&job, failed)
        })?;
        Ok(Self {
            header: header.clone(),
            written_revision: None,
            has_order: false,
            job_at: None,
            heartbeat_at: None,
            is_held_up: false,
            writer,
        })
    }

    /// When [`Self::update`] has something to do.
    #[must_use]
    pub(crate) fn due(&self, recovery: &Recovery) -> Timestamp {
        if self.is_written(recovery) {
            // While the disk hangs, the last heartbeat may be long ago.
            return after(self.heartbeat_at, HEARTBEAT_INTERVAL).max(after(self.job_at, LINE_INTERVAL));
        }
        let is_urgent = recovery.order.is_some() && !self.has_order && !self.is_held_up;
        after(self.job_at, if is_urgent { LINE_INTERVAL / 100 } else { LINE_INTERVAL })
    }

    /// Writes a line or a heartbeat, if it is time.
    pub(crate) fn update<'a>(
        &mut self,
        now: Timestamp,
        recovery: &Recovery,
        seen: impl FnOnce() -> CurrentBoot<'a>,
    ) {
        if now < self.due(recovery) {
            return;
        }
        self.job_at = Some(now);
        // Without room the thread still has the job before, and the next call tries again.
        let room = self.writer.reserve();
        self.is_held_up = room.is_none();
        let Some(room) = room else { return };
        if let Some(job) = self.job(now, &seen(), false) {
            room.send(job);
        }
    }

    /// Writes for the last time; returns when that is done or has failed.
    pub(crate) async fn finish(mut self, now: Timestamp, seen: CurrentBoot<'_>) {
        let last = self.job(now, &seen, true);
        self.writer.finish(last).await;
    }

    fn job(&mut self, now: Timestamp, seen: &CurrentBoot<'_>, ended: bool) -> Option<Job> {
        let recovery = seen.recovery;
        // During a shutdown the pods end too. The pods that ran when it was ordered are the ones that should
        // come back.
        let order = recovery.order.as_ref().filter(|order| now <= order.at + LONGEST_SHUTDOWN);
        let running = order.map_or(&seen.running, |order| &order.running);
        let heartbeat = Heartbeat {
            boot_id: self.header.boot_id.clone(),
            boot_wall_ns: seen.boot_wall_ns,
            at: now,
            ended,
            running: running.clone(),
        };
        let heartbeat = history::heartbeat(&heartbeat).ok()?;
        self.heartbeat_at = Some(now);
        if self.is_written(recovery) {
            return Some(Job { line: None, heartbeat });
        }
        self.writer.failed().set(false);
        let record = Record {
            made_by: self.header.made_by.clone(),
            node: self.header.node.clone(),
            recovery: recovery.clone(),
        };
        let line = history::line(&record).ok()?;
        self.written_revision = Some(recovery.revision);
        self.has_order = recovery.order.is_some();
        Some(Job { line: Some(line), heartbeat })
    }

    fn is_written(&self, recovery: &Recovery) -> bool {
        self.written_revision == Some(recovery.revision) && !self.writer.failed().get()
    }
}

fn after(at: Option<Timestamp>, wait: Duration) -> Timestamp {
    at.map_or(Timestamp::ZERO, |at| at + wait)
}

/// The directory and its files. The writing thread owns them.
struct HistoryFiles {
    dir: PathBuf,
    boots: usize,
    open: Option<OpenFiles>,
    /// The opened directory or file was removed.
    was_removed: bool,
}

struct OpenFiles {
    lines: LineAppender<File>,
    /// Lines and bytes that were written since the file was last shortened.
    n: usize,
    bytes: usize,
    lock: File,
}

impl OpenFiles {
    fn is_there(&self, dir: &Path) -> bool {
        folder::is_there(&self.lock, &dir.join(LOCK)) && folder::is_there(self.lines.file(), &dir.join(BOOTS))
    }
}

impl HistoryFiles {
    fn write(&mut self, Job { line, heartbeat }: &Job, failed: &Failed) -> io::Result<()> {
        let opened = self.open();
        let appended = match line {
            Some(line) => opened.and_then(|()| self.append(line)),
            None => opened,
        };
        // A failed heartbeat is followed by another one. A removed file may have held the line.
        if line.is_some() || self.was_removed {
            failed.set(line.is_none() || appended.is_err());
        }
        self.was_removed &= appended.is_err();
        appended?;
        folder::replace(&self.dir, HEARTBEAT, heartbeat)
    }

    fn open(&mut self) -> io::Result<()> {
        if self.open.as_ref().is_some_and(|open| !open.is_there(&self.dir)) {
            self.open = None;
            self.was_removed = true;
        }
        let was_removed = self.was_removed;
        self.open_or_shorten().map_err(|error| if was_removed { folder::removed(&error) } else { error })
    }

    fn open_or_shorten(&mut self) -> io::Result<()> {
        if self.open.as_ref().is_some_and(|open| open.n < MAX_LINES && open.bytes < MAX_BYTES) {
            return Ok(());
        }
        let lock = match self.open.take() {
            Some(open) => open.lock,
            None => {
                folder::make(&self.dir)?;
                let path = self.dir.join(LOCK);
                let opened = folder::own(File::options().write(true)).open(&path);
                folder::lock(opened.map_err(|error| blame(&path, error))?)?
            }
        };
        let path = self.dir.join(BOOTS);
        let mut bytes = match file::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(blame(&path, error)),
        };
        if let Some(less) = history::compact(&bytes, self.boots) {
            // If there is no room for the shorter file, the longer one stays.
            if folder::replace(&self.dir, BOOTS, &less).is_ok() {
                bytes = less;
            }
        }
        let opened = folder::own(File::options().append(true)).open(&path);
        let file = opened.map_err(|error| blame(&path, error))?;
        let torn = bytes.last().is_some_and(|byte| *byte != b'\n');
        self.open = Some(OpenFiles {
            lines: LineAppender::new(file, bytes.len() as u64, torn),
            n: 0,
            bytes: 0,
            lock,
        });
        Ok(())
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.n += 1;
        open.bytes += line.len();
        open.lines.append(line)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs, io,
        os::unix::fs::symlink,
        path::Path,
        sync::mpsc,
        time::{Duration, Instant},
    };

    use tokio::runtime;

    use super::{BootHistoryWriter, CurrentBoot, LOCK};
    use crate::{
        engine::Settings,
        model::{
            recovery::{BootRead, Kind, Order, Pod, Recovery, RunningPods},
            time::Timestamp,
        },
        recording::Header,
        sink::state::{
            background::{BackgroundWriter, Failed},
            history::{BOOTS, HEARTBEAT, read},
            state_writes::{StateFile, StateWrites},
        },
    };

    fn header(boot_id: &str) -> Header {
        Header {
            made_by: "0".to_owned(),
            node: "n".to_owned(),
            boot_id: boot_id.to_owned(),
            kernel: "6".to_owned(),
            boot_wall_ns: 1,
            settings: Settings::default(),
        }
    }

    fn recovery(boot_id: &str, revision: u64) -> Recovery {
        let boot = BootRead { boot_id: boot_id.to_owned(), ..BootRead::default() };
        Recovery { boot: Some(boot), revision, ..Recovery::default() }
    }

    fn pod(name: &str) -> Pod {
        let (namespace, name) = (Some("d".to_owned()), Some(name.to_owned()));
        Pod { namespace, name, uid: None, kind: Kind::Service, listens: false, interfaces: Vec::new() }
    }

    fn list(pods: Vec<Pod>) -> RunningPods {
        RunningPods { pods, pods_left_out: 0 }
    }

    fn finish(writer: BootHistoryWriter, recovery: &Recovery, running: Vec<Pod>) {
        let runtime = runtime::Builder::new_current_thread().build().expect("a runtime");
        let seen = CurrentBoot { recovery, boot_wall_ns: 1, running: list(running) };
        runtime.block_on(writer.finish(Timestamp(9), seen));
    }

    fn open(dir: &Path, boot_id: &str) -> BootHistoryWriter {
        BootHistoryWriter::open(dir, &header(boot_id), 3, StateWrites::default()).expect("a thread")
    }

    #[test]
    fn one_boot_after_the_other_is_written_and_the_first_are_forgotten() {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path().join("deep/er");
        for boot in ["a", "b", "c", "d", "e"] {
            finish(open(&dir, boot), &recovery(boot, 1), vec![pod("web")]);
        }
        let past = read(&dir);
        let ids: Vec<&str> = past.history.records.iter().map(|it| it.boot_id()).collect();
        // The last boot came after the file was shortened.
        assert_eq!(ids, ["b", "c", "d", "e"]);
        assert!(past.problems.is_empty(), "{:?}", past.problems);
        let before = past.before("f");
        assert_eq!((before.boot_id.as_deref(), before.pods), (Some("e"), Some(vec![pod("web")])));
        assert_eq!((before.ordered, before.alive_wall_ns), (None, Some(10)));
        // The agent was restarted within the boot.
        assert_eq!(past.before("e").boot_id.as_deref(), Some("d"));
        assert_eq!(past.before("e").pods, None);
    }

    /// A boot with a change every second, on a node with many pods.
    #[test]
    fn a_bad_boot_fills_no_disk() {
        const MOST: u64 = 8 << 20;
        let dir = tempfile::tempdir().expect("a folder");
        let mut known = recovery("a", 1);
        let pods = (0..1000).map(|n| pod(&format!("{n}-{}", "x".repeat(100)))).collect();
        known.order = Some(Order { at: Timestamp(5), by: "reboot".to_owned(), running: list(pods) });
        let path = dir.path().join(BOOTS);
        let (mut writer, mut now, mut largest) = (open(dir.path(), "a"), Timestamp(1), 0);
        // One line a second, some 14 MiB in all.
        for _ in 0..60 {
            known.revision += 1;
            now = now + Duration::from_secs(1);
            writer.update(now, &known, || CurrentBoot {
                recovery: &known,
                boot_wall_ns: 1,
                running: list(vec![]),
            });
            assert_eq!(writer.written_revision, Some(known.revision));
            while writer.writer.is_busy() {
                std::thread::yield_now();
            }
            largest = largest.max(fs::metadata(&path).map_or(0, |found| found.len()));
        }
        finish(writer, &known, vec![]);
        assert!((1 << 20..MOST).contains(&largest), "{largest}");
        let past = read(dir.path());
        assert_eq!((past.history.records.len(), past.problems.len()), (1, 0));
        assert_eq!(past.history.of("a").map(|it| it.recovery.revision), Some(known.revision));
    }

    #[test]
    fn an_order_is_written_at_once_with_its_pods() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut writer = open(dir.path(), "a");
        let mut known = recovery("a", 1);
        let seen = |recovery| CurrentBoot { recovery, boot_wall_ns: 1, running: list(vec![]) };
        assert_eq!(writer.due(&known), Timestamp::ZERO);
        writer.update(Timestamp(1), &known, || seen(&known));
        assert_eq!(writer.due(&known), Timestamp(1) + Duration::from_secs(10));
        known.revision = 2;
        assert_eq!(writer.due(&known), Timestamp(1) + Duration::from_secs(1));
        known.order =
            Some(Order { at: Timestamp(5), by: "reboot".to_owned(), running: list(vec![pod("web")]) });
        assert!(writer.due(&known) <= Timestamp(1) + Duration::from_millis(10));
        finish(writer, &known, vec![]);
        let past = read(dir.path());
        assert_eq!(past.heartbeat.as_ref().map(|it| it.running.pods.clone()), Some(vec![pod("web")]));
        let before = past.before("b");
        assert_eq!(before.ordered.map(|it| (it.by, it.wall_ns)), Some(("reboot".to_owned(), 5)));
    }

    #[test]
    fn a_disk_that_hangs_is_tried_again_once_a_second() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut writer = open(dir.path(), "a");
        let ((tell, begun), (end, ended)) = (mpsc::channel(), mpsc::channel::<()>());
        let hang = move |_job, _failed: &Failed| {
            tell.send(()).map_err(io::Error::other)?;
            ended.recv().map_err(io::Error::other)
        };
        let hanging = BackgroundWriter::spawn(StateFile::History, dir.path(), StateWrites::default(), hang);
        writer.writer = hanging.expect("a thread");
        let mut known = recovery("a", 1);
        let update = |writer: &mut BootHistoryWriter, now, known: &Recovery| {
            let seen = || CurrentBoot { recovery: known, boot_wall_ns: 1, running: list(vec![]) };
            writer.update(now, known, seen);
        };
        // One job hangs, and the next one waits.
        let mut now = Timestamp(1);
        update(&mut writer, now, &known);
        assert_eq!(begun.recv(), Ok(()));
        known.revision = 2;
        now = writer.due(&known);
        update(&mut writer, now, &known);
        assert!(writer.writer.is_busy());
        // First nothing has changed, then something has, and then a restart is ordered.
        for revision in [2, 3, 4] {
            known.revision = revision;
            if revision == 4 {
                let running = list(vec![pod("web")]);
                known.order = Some(Order { at: now, by: "reboot".to_owned(), running });
            }
            for _ in 0..20 {
                now = now.max(writer.due(&known));
                update(&mut writer, now, &known);
                assert!(writer.due(&known) >= now + Duration::from_secs(1), "{revision} {now:?}");
            }
        }
        drop((begun, end));
        finish(writer, &known, vec![]);
    }

    #[test]
    fn a_torn_line_is_reported_and_the_next_line_is_complete() {
        let dir = tempfile::tempdir().expect("a folder");
        finish(open(dir.path(), "a"), &recovery("a", 1), vec![]);
        let path = dir.path().join(BOOTS);
        let mut bytes = fs::read(&path).expect("the file");
        bytes.extend(b"{\"sum\":\"00");
        fs::write(&path, &bytes).expect("written");
        fs::write(dir.path().join("heartbeat.json"), b"\0\0\0").expect("written");
        let problems = read(dir.path()).problems;
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].ends_with("line 2 was cut off while it was written: it is passed over"));
        finish(open(dir.path(), "b"), &recovery("b", 1), vec![]);
        let past = read(dir.path());
        assert_eq!((past.history.records.len(), past.problems.len()), (2, 0));
    }

    #[test]
    fn a_path_that_is_not_a_regular_file_is_named_with_what_to_do() {
        let outside = tempfile::tempdir().expect("a folder");
        let why = io::Error::from_raw_os_error(libc::ELOOP);
        let is_link = format!("is a symbolic link, not a regular file ({why})");
        let cases = [
            (BOOTS, true, "boots.jsonl: it is a directory, not a regular file; remove or rename it"),
            (BOOTS, false, &format!("boots.jsonl {is_link}; remove or rename it")),
            (
                HEARTBEAT,
                true,
                "heartbeat.json is a directory, not a regular file (Is a directory (os error 21))",
            ),
            (LOCK, false, &format!(".boots.lock {is_link}; remove or rename it")),
        ];
        for (n, (name, is_directory, expected)) in cases.into_iter().enumerate() {
            let dir = outside.path().join(n.to_string());
            fs::create_dir(&dir).expect("a folder");
            let path = dir.join(name);
            let made = if is_directory { fs::create_dir(&path) } else { symlink(&path, &path) };
            made.expect("made");
            let writes = StateWrites::default();
            let writer = BootHistoryWriter::open(&dir, &header("a"), 3, writes.clone()).expect("a thread");
            finish(writer, &recovery("a", 1), vec![]);
            let trouble = writes.troubles().pop().expect("a trouble");
            assert!(trouble.contains(&format!("(--state-dir): {expected}")), "{trouble}");
        }
        // A reader of the history gets the message, too.
        let trouble = read(&outside.path().join("2")).problems.pop().expect("a trouble");
        assert!(
            trouble.ends_with(
                "heartbeat.json: it is a directory, not a regular file; remove or rename it, and \
            sandprobe makes a new file there"
            ),
            "{trouble}"
        );
    }

    /// This holds for an agent that is not confined. A confined agent may not write to the new directory.
    #[test]
    fn what_is_removed_is_written_anew() {
        let dir = tempfile::tempdir().expect("a folder");
        let (dir, known) = (dir.path().join("state"), recovery("a", 1));
        let seen = || CurrentBoot { recovery: &known, boot_wall_ns: 1, running: list(vec![]) };
        let mut writer = open(&dir, "a");
        let await_heartbeat = || {
            let late = Instant::now() + Duration::from_secs(10);
            while read(&dir).heartbeat.is_none() {
                assert!(Instant::now() < late, "nothing is written there");
                std::thread::yield_now();
            }
        };
        writer.update(Timestamp(1), &known, seen);
        await_heartbeat();
        fs::remove_dir_all(&dir).expect("it is there");
        // Nothing changed, but the line was lost with the directory.
        writer.update(Timestamp(1) + Duration::from_secs(20), &known, seen);
        await_heartbeat();
        finish(writer, &known, vec![]);
        assert_eq!(read(&dir).history.records.len(), 1);
    }

    #[test]
    fn a_second_agent_and_a_place_that_cannot_be_written_harm_nobody() {
        let dir = tempfile::tempdir().expect("a folder");
        let lock = fs::File::create(dir.path().join(".boots.lock")).expect("a file");
        lock.try_lock().expect("free");
        let writes = StateWrites::default();
        let second = BootHistoryWriter::open(dir.path(), &header("a"), 3, writes.clone()).expect("a thread");
        finish(second, &recovery("a", 1), vec![]);
        let why = writes.outcomes()[&StateFile::History].trouble.clone().expect("a trouble");
        assert!(why.starts_with("the history of boots cannot be kept in"), "{why}");
        assert!(why.contains("another sandprobe keeps its own there; end that one"), "{why}");
        assert!(!dir.path().join(BOOTS).exists());
        lock.unlock().expect("held");
        finish(open(&dir.path().join(".boots.lock/below"), "a"), &recovery("a", 1), vec![]);
        finish(open(dir.path(), "a"), &recovery("a", 1), vec![]);
        assert!(dir.path().join(BOOTS).exists());
    }
}
