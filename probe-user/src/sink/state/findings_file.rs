//! Writes the findings and the starts of pods to a file of the state directory, for commands that run while
//! no agent answers. A thread of its own replaces the whole file when something changed.
//!
//! A reader learns two more things from the directory. It is locked (`flock(2)`) while an agent lives, in any
//! namespace. The file's modification time is the last time at which that agent worked.
//!
//! **Invariant:** a directory that cannot be written is reported ([`StateWrites`]) and never stops the agent.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::{
    model::{finding::Revision, time::Timestamp},
    recording::{
        Header,
        state::{self, About, Snapshot},
    },
    sink::state::{
        background::{BackgroundWriter, Failed},
        file::blame,
        folder,
        state_writes::{StateFile, StateWrites},
    },
};

/// The name of the file in the state directory.
pub(crate) const FILE: &str = "findings.json";

/// The shortest time between two writes when a finding was opened, confirmed or closed. An agent that is
/// killed loses the findings of this time.
const STAGE_INTERVAL: Duration = Duration::from_secs(1);

/// The larger the file, the less often it is written: [`STAGE_INTERVAL`] is multiplied by the number of these
/// units, up to [`CHANGE_INTERVAL`].
const SIZE_UNIT: u64 = 1 << 20;

/// The shortest time between two writes when the text of a finding changed or a start is complete. A change
/// of counters alone waits for another change.
const CHANGE_INTERVAL: Duration = Duration::from_secs(10);

/// How often an agent without changes shows that it works.
const BEAT_INTERVAL: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct FindingsFile {
    about: About,
    /// The revision that the file has.
    kept: Option<Revision>,
    /// When the thread last got the file to write, and its size in bytes.
    written: Option<(Timestamp, u64)>,
    /// When the thread last got a job.
    at: Option<Timestamp>,
    writer: BackgroundWriter<Job>,
}

#[derive(Debug)]
enum Job {
    Put(Vec<u8>),
    /// Only update the modification time.
    Beat,
}

impl FindingsFile {
    /// Writes findings to `dir`, which is made if it does not exist.
    pub(crate) fn open(dir: &Path, header: &Header, pid: u32, writes: StateWrites) -> io::Result<Self> {
        let about = About {
            made_by: header.made_by.clone(),
            node: header.node.clone(),
            boot_id: header.boot_id.clone(),
            boot_wall_ns: header.boot_wall_ns,
            pid,
            written_at: Timestamp::ZERO,
            ended: false,
        };
        let mut place = Place { dir: dir.to_owned(), lock: None, was_removed: false };
        let writer = spawn(dir, writes, move |job| place.write(job))?;
        Ok(Self { about, kept: None, written: None, at: None, writer })
    }

    /// When [`Self::update`] has something to do.
    #[must_use]
    pub(crate) fn due(&self, revision: Revision) -> Timestamp {
        let beat = self.at.map_or(Timestamp::ZERO, |at| at + BEAT_INTERVAL);
        let Some((written, bytes)) = self.written else { return Timestamp::ZERO };
        let soon = STAGE_INTERVAL * u32::try_from(1 + bytes / SIZE_UNIT).unwrap_or(u32::MAX);
        match self.kept {
            Some(_) if self.writer.failed().get() => written + CHANGE_INTERVAL,
            Some(kept) if kept.stages != revision.stages => written + soon.min(CHANGE_INTERVAL),
            Some(kept) if kept != revision => written + CHANGE_INTERVAL,
            Some(_) => beat,
            None => written + STAGE_INTERVAL,
        }
    }

    /// Writes the file if something changed and enough time has passed.
    pub(crate) fn update<'a>(
        &mut self,
        now: Timestamp,
        boot_wall_ns: i64,
        revision: Revision,
        known: impl FnOnce() -> Snapshot<'a>,
    ) {
        if now < self.due(revision) {
            return;
        }
        self.about.boot_wall_ns = boot_wall_ns;
        self.about.written_at = now;
        let is_kept = self.kept == Some(revision) && !self.writer.failed().get();
        self.at = Some(now);
        // Without room the thread still has the job before, and the next call tries again.
        let room = self.writer.reserve();
        if is_kept {
            if let Some(room) = room {
                room.send(Job::Beat);
            }
            return;
        }
        let mut length = 0;
        if let Some(room) = room
            && let Ok(bytes) = state::write(&self.about, &known())
        {
            length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            self.kept = Some(revision);
            self.writer.failed().set(false);
            room.send(Job::Put(bytes));
        }
        self.written = Some((now, length));
    }

    /// Writes the file for the last time; returns when that is done or has failed.
    pub(crate) async fn finish(mut self, now: Timestamp, known: &Snapshot<'_>) {
        self.about.written_at = now;
        self.about.ended = true;
        let last = state::write(&self.about, known).ok().map(Job::Put);
        self.writer.finish(last).await;
    }
}

/// Starts the thread, which calls `write` for each job.
fn spawn(
    dir: &Path,
    writes: StateWrites,
    mut write: impl FnMut(&Job) -> io::Result<()> + Send + 'static,
) -> io::Result<BackgroundWriter<Job>> {
    BackgroundWriter::spawn(StateFile::Findings, dir, writes, move |job: Job, failed: &Failed| {
        let done = write(&job);
        // If the modification time could not be set, the file may be gone. If it could, the last write may
        // still have failed.
        if done.is_err() || matches!(job, Job::Put(_)) {
            failed.set(done.is_err());
        }
        done
    })
}

/// The directory and the file, owned by the thread that writes.
struct Place {
    dir: PathBuf,
    /// Held while the agent lives.
    lock: Option<File>,
    /// The locked directory was removed.
    was_removed: bool,
}

impl Place {
    fn write(&mut self, job: &Job) -> io::Result<()> {
        self.lock()?;
        match job {
            Job::Put(bytes) => folder::replace(&self.dir, FILE, bytes),
            Job::Beat => self.beat(),
        }
    }

    fn lock(&mut self) -> io::Result<()> {
        if self.lock.as_ref().is_some_and(|lock| !folder::is_there(lock, &self.dir)) {
            self.lock = None;
            self.was_removed = true;
        }
        if self.lock.is_none() {
            let locked = folder::make(&self.dir).and_then(|()| folder::lock(File::open(&self.dir)?));
            self.lock =
                Some(locked.map_err(|error| if self.was_removed { folder::removed(&error) } else { error })?);
            self.was_removed = false;
        }
        Ok(())
    }

    fn beat(&self) -> io::Result<()> {
        let path = self.dir.join(FILE);
        let opened = File::options().write(true).open(&path).map_err(|error| blame(&path, error))?;
        opened.set_modified(SystemTime::now())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io, path::Path, sync::mpsc, time::Duration};

    use tokio::runtime;

    use super::{FILE, FindingsFile, Job, spawn};
    use crate::{
        engine::Settings,
        model::{finding::Revision, time::Timestamp},
        recording::{
            Header,
            state::{self, Snapshot},
        },
        sink::state::state_writes::{StateFile, StateWrites},
    };

    fn header() -> Header {
        Header {
            made_by: "0".to_owned(),
            node: "n".to_owned(),
            boot_id: "b".to_owned(),
            kernel: "6".to_owned(),
            boot_wall_ns: 1,
            settings: Settings::default(),
        }
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
    }

    fn finish(file: FindingsFile) {
        block_on(file.finish(Timestamp(9), &Snapshot::default()));
    }

    fn open(dir: &Path) -> FindingsFile {
        open_with(dir, StateWrites::default())
    }

    fn open_with(dir: &Path, writes: StateWrites) -> FindingsFile {
        FindingsFile::open(dir, &header(), 7, writes).expect("a thread")
    }

    #[test]
    fn the_last_state_is_in_the_file_at_the_end() {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path().join("deep/er");
        let mut file = open(&dir);
        let revision = Revision::default();
        file.update(Timestamp(1), 5, revision, Snapshot::default);
        assert_eq!(file.due(revision), Timestamp(1) + Duration::from_secs(15));
        finish(file);
        let (about, kept) = state::read(&fs::read(dir.join(FILE)).expect("a file")).expect("a state");
        assert!(about.ended && about.pid == 7 && about.boot_wall_ns == 5 && kept.findings.is_empty());
        assert_eq!(fs::read_dir(&dir).expect("a folder").count(), 1, "nothing else is left");
    }

    #[test]
    fn a_new_stage_is_written_soon_and_another_change_later() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut file = open(dir.path());
        let at = |seconds: u64| Timestamp(seconds * 1_000_000_000);
        let revision = |stages, meaning| Revision { stages, meaning };
        assert_eq!(file.due(revision(0, 0)), Timestamp::ZERO);
        file.update(at(100), 5, revision(0, 0), Snapshot::default);
        assert_eq!(file.due(revision(0, 1)), at(110));
        assert_eq!(file.due(revision(1, 1)), at(101));
        // Showing that the agent works does not delay the next write.
        file.update(at(115), 5, revision(0, 0), Snapshot::default);
        assert_eq!(file.due(revision(0, 0)), at(130));
        assert_eq!(file.due(revision(0, 1)), at(110));
        assert_eq!(file.due(revision(1, 1)), at(101));
        // A larger file is written less often, but at least every ten seconds.
        file.written = Some((at(200), 3 << 20));
        assert_eq!(file.due(revision(1, 1)), at(204));
        file.written = Some((at(200), 300 << 20));
        assert_eq!(file.due(revision(1, 1)), at(210));
        finish(file);
    }

    #[test]
    fn a_second_agent_does_not_write_over_the_first() {
        let dir = tempfile::tempdir().expect("a folder");
        let first = fs::File::open(dir.path()).expect("a folder");
        first.try_lock().expect("free");
        finish(open(dir.path()));
        assert!(!dir.path().join(FILE).exists());
        first.unlock().expect("held");
        finish(open(dir.path()));
        assert!(dir.path().join(FILE).exists());
    }

    #[test]
    fn a_place_that_cannot_be_written_is_told_of_until_it_can_be() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("file");
        fs::write(&file, "").expect("a file");
        let writes = StateWrites::default();
        let mut kept = open_with(&file.join("below"), writes.clone());
        kept.update(Timestamp(1), 5, Revision::default(), Snapshot::default);
        assert!(!block_on(writes.has_begun(StateFile::Findings)));
        let troubles = writes.troubles();
        assert!(troubles[0].contains("/file/below (--state-dir): Not a directory"), "{troubles:?}");
        assert!(troubles[0].ends_with("; name a directory") && troubles.len() == 1, "{troubles:?}");
        fs::remove_file(&file).expect("it is there");
        finish(kept);
        assert_eq!(writes.troubles(), [""; 0]);
        assert!(file.join("below").join(FILE).exists());
    }

    /// A file whose jobs hang until their outcome is sent. Also returns the channel of outcomes and that of
    /// the jobs' names.
    fn hanging(dir: &Path) -> (FindingsFile, mpsc::Sender<bool>, mpsc::Receiver<&'static str>) {
        let (outcomes, outcome) = mpsc::channel();
        let (tell, jobs) = mpsc::channel();
        let write = move |job: &Job| {
            tell.send(if matches!(job, Job::Beat) { "beat" } else { "put" }).map_err(io::Error::other)?;
            let is_done = outcome.recv().map_err(io::Error::other)?;
            if is_done { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EIO)) }
        };
        let mut file = open(dir);
        file.writer = spawn(dir, StateWrites::default(), write).expect("a thread");
        (file, outcomes, jobs)
    }

    #[test]
    fn what_was_not_written_is_written_though_the_time_of_the_file_was_set() {
        let dir = tempfile::tempdir().expect("a folder");
        let (mut file, outcomes, jobs) = hanging(dir.path());
        let revision = Revision::default();
        let look = |file: &mut FindingsFile| {
            let due = file.due(revision);
            file.update(due, 5, revision, Snapshot::default);
        };
        // A write hangs, and the update of the file's time waits for it.
        look(&mut file);
        assert_eq!(jobs.recv(), Ok("put"));
        look(&mut file);
        assert!(file.writer.is_busy());
        for is_done in [false, true] {
            outcomes.send(is_done).expect("it waits");
        }
        assert_eq!(jobs.recv(), Ok("beat"));
        while file.writer.done().count() < 2 {
            std::thread::yield_now();
        }
        look(&mut file);
        assert_eq!(jobs.recv(), Ok("put"));
        outcomes.send(true).expect("it waits");
        while file.writer.done().count() < 3 {
            std::thread::yield_now();
        }
        look(&mut file);
        assert_eq!(jobs.recv(), Ok("beat"));
        drop(outcomes);
        finish(file);
    }

    #[test]
    fn a_failure_is_not_forgotten_while_the_thread_has_no_room() {
        let dir = tempfile::tempdir().expect("a folder");
        let (mut file, outcomes, jobs) = hanging(dir.path());
        let look = |file: &mut FindingsFile, n| {
            let revision = Revision { stages: n, meaning: n };
            let due = file.due(revision);
            file.update(due, 5, revision, Snapshot::default);
        };
        look(&mut file, 1);
        assert_eq!(jobs.recv(), Ok("put"));
        look(&mut file, 2);
        assert!(file.writer.is_busy());
        // The first one has failed, and the thread is about to take the second one.
        file.writer.failed().set(true);
        look(&mut file, 2);
        assert!(file.writer.failed().get());
        drop(outcomes);
        finish(file);
    }

    #[test]
    fn a_file_that_is_removed_is_written_anew() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut file = open(dir.path());
        let revision = Revision::default();
        for n in 1..4 {
            let due = file.due(revision);
            file.update(due, 5, revision, Snapshot::default);
            while file.writer.done().count() < n {
                std::thread::yield_now();
            }
            if n == 1 {
                fs::remove_file(dir.path().join(FILE)).expect("it is there");
            }
        }
        assert!(dir.path().join(FILE).exists());
        finish(file);
    }

    #[test]
    fn a_directory_in_the_place_of_the_file_is_named_with_what_to_do() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::create_dir(dir.path().join(FILE)).expect("a folder");
        let writes = StateWrites::default();
        finish(open_with(dir.path(), writes.clone()));
        let trouble = writes.troubles().pop().expect("a trouble");
        assert!(
            trouble.contains("(--state-dir): findings.json is a directory, not a regular file ("),
            "{trouble}"
        );
        assert!(
            trouble.ends_with("; remove or rename it, and sandprobe makes a new file there"),
            "{trouble}"
        );
    }

    /// This holds for an agent that is not confined. A confined agent may not write to the new directory.
    #[test]
    fn a_directory_that_is_removed_is_made_and_locked_anew() {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path().join("state");
        let writes = StateWrites::default();
        let mut kept = open_with(&dir, writes.clone());
        kept.update(Timestamp(1), 5, Revision::default(), Snapshot::default);
        assert!(block_on(writes.has_begun(StateFile::Findings)));
        fs::remove_dir_all(&dir).expect("it is there");
        let now = Timestamp(1) + Duration::from_secs(20);
        kept.update(now, 5, Revision { stages: 1, meaning: 1 }, Snapshot::default);
        while kept.writer.is_busy() || !dir.join(FILE).exists() {
            assert!(writes.outcomes()[&StateFile::Findings].failures == 0, "{:?}", writes.troubles());
            std::thread::yield_now();
        }
        let second = fs::File::open(&dir).expect("a folder");
        assert!(second.try_lock().is_err(), "nobody has locked the new one");
        finish(kept);
    }
}
