//! Where the findings, and the starts of pods, lie for whoever asks: a file, replaced as a whole by a thread of its own
//! when one changed.
//!
//! Who reads it learns two things beside it: the directory is locked (`flock(2)`) as long as an agent lives, in
//! whatever namespace; and the file's time of modification is the last at which that agent was at work.
//!
//! **Invariant:** a directory that cannot be written costs a warning, never the agent.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use crate::{
    engine::time::Timestamp,
    recording::{
        Header,
        state::{self, About, Known},
    },
    sink::folder,
};

/// The file below the state directory.
pub const FILE: &str = "findings.json";

/// The file is not written more often.
const EVERY: Duration = Duration::from_secs(1);

/// How often an agent that has nothing new shows that it is at work.
const BEAT: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub struct Shelf {
    about: About,
    /// The revision of what lies there.
    kept: Option<u64>,
    /// When the last job was given.
    at: Option<Timestamp>,
    jobs: mpsc::Sender<Job>,
    /// What was to lie there does not.
    failed: Arc<AtomicBool>,
    ended: oneshot::Receiver<()>,
}

#[derive(Debug)]
enum Job {
    Put(Vec<u8>),
    /// Nothing is new.
    Beat,
}

impl Shelf {
    /// Keeps findings in `dir`, which is made if it is not there.
    pub fn open(dir: &Path, header: &Header, pid: u32) -> io::Result<Self> {
        let about = About {
            made_by: header.made_by.clone(),
            node: header.node.clone(),
            boot_id: header.boot_id.clone(),
            boot_wall_ns: header.boot_wall_ns,
            pid,
            written_at: Timestamp::ZERO,
            ended: false,
        };
        // One at a time: what comes meanwhile is newer, and goes next.
        let (jobs, waiting) = mpsc::channel(1);
        let (end, ended) = oneshot::channel();
        let failed = Arc::new(AtomicBool::new(false));
        let place = Place { dir: dir.to_owned(), lock: None, warned: false, failed: Arc::clone(&failed) };
        thread::Builder::new().name("findings".to_owned()).spawn(move || {
            place.work(waiting);
            end.send(()).ok();
        })?;
        Ok(Self { about, kept: None, at: None, jobs, failed, ended })
    }

    /// When `keep` has something to do.
    #[must_use]
    pub fn due(&self, revision: u64) -> Timestamp {
        let wait = if self.is_kept(revision) { BEAT } else { EVERY };
        self.at.map_or(Timestamp::ZERO, |at| at + wait)
    }

    /// Puts down what has changed, if it is time to.
    pub fn keep<'a>(
        &mut self,
        now: Timestamp,
        boot_wall_ns: i64,
        revision: u64,
        known: impl FnOnce() -> Known<'a>,
    ) {
        if now < self.due(revision) {
            return;
        }
        self.at = Some(now);
        self.about.boot_wall_ns = boot_wall_ns;
        self.about.written_at = now;
        // No room: the thread is still busy with what was before, and this is tried again.
        let Ok(room) = self.jobs.try_reserve() else { return };
        if self.kept == Some(revision) && !self.failed.swap(false, Ordering::Relaxed) {
            room.send(Job::Beat);
        } else if let Ok(bytes) = state::write(&self.about, &known()) {
            self.kept = Some(revision);
            room.send(Job::Put(bytes));
        }
    }

    /// Puts down the last of it; returns when it lies there, or cannot.
    pub async fn finish(mut self, now: Timestamp, known: &Known<'_>) {
        self.about.written_at = now;
        self.about.ended = true;
        if let Ok(bytes) = state::write(&self.about, known) {
            self.jobs.send(Job::Put(bytes)).await.ok();
        }
        // The thread ends when the last sender is gone.
        drop(self.jobs);
        self.ended.await.ok();
    }

    fn is_kept(&self, revision: u64) -> bool {
        self.kept == Some(revision) && !self.failed.load(Ordering::Relaxed)
    }
}

/// The directory, as the thread has it.
struct Place {
    dir: PathBuf,
    /// Held as long as the agent lives.
    lock: Option<File>,
    warned: bool,
    failed: Arc<AtomicBool>,
}

impl Place {
    fn work(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(job) = jobs.blocking_recv() {
            let done = self.lock().and_then(|()| match &job {
                Job::Put(bytes) => folder::replace(&self.dir, FILE, bytes),
                Job::Beat => self.beat(),
            });
            self.failed.store(done.is_err(), Ordering::Relaxed);
            match done {
                Ok(()) => self.warned = false,
                Err(_) if self.warned => {}
                Err(error) => {
                    self.warned = true;
                    let dir = self.dir.display();
                    warn!(%error, %dir, "findings cannot be kept for other commands to read (--state-dir)");
                }
            }
        }
    }

    fn lock(&mut self) -> io::Result<()> {
        if self.lock.is_none() {
            folder::make(&self.dir)?;
            self.lock = Some(folder::lock(File::open(&self.dir)?)?);
        }
        Ok(())
    }

    fn beat(&self) -> io::Result<()> {
        File::options().write(true).open(self.dir.join(FILE))?.set_modified(SystemTime::now())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, time::Duration};

    use tokio::runtime;

    use super::{FILE, Shelf};
    use crate::{
        engine::{Settings, time::Timestamp},
        recording::{
            Header,
            state::{self, Known},
        },
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

    fn finish(shelf: Shelf) {
        let runtime = runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(shelf.finish(Timestamp(9), &Known::default()));
    }

    fn open(dir: &Path) -> Shelf {
        Shelf::open(dir, &header(), 7).expect("a thread")
    }

    #[test]
    fn the_last_of_it_lies_there_at_the_end() {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path().join("deep/er");
        let mut shelf = open(&dir);
        shelf.keep(Timestamp(1), 5, 0, Known::default);
        assert_eq!(shelf.due(0), Timestamp(1) + Duration::from_secs(15));
        assert_eq!(shelf.due(1), Timestamp(1) + Duration::from_secs(1));
        finish(shelf);
        let (about, kept) = state::read(&fs::read(dir.join(FILE)).expect("a file")).expect("a state");
        assert!(about.ended && about.pid == 7 && about.boot_wall_ns == 5 && kept.findings.is_empty());
        assert_eq!(fs::read_dir(&dir).expect("a folder").count(), 1, "nothing else is left");
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
    fn a_place_that_cannot_be_written_harms_nobody() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("file");
        fs::write(&file, "").expect("a file");
        finish(open(&file.join("below")));
    }
}
