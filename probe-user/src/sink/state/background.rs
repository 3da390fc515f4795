//! A thread that writes one file of the state directory, since a disk may be slow.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use tokio::sync::{Notify, mpsc, oneshot};

use super::state_writes::{StateFile, StateWrites};

/// The agent's end of the thread. `J` is one job: the bytes to write, and where.
#[derive(Debug)]
pub(crate) struct BackgroundWriter<J> {
    jobs: mpsc::Sender<J>,
    failed: Failed,
    done: Arc<Done>,
    ended: oneshot::Receiver<()>,
}

/// How many jobs were done or have failed.
#[derive(Debug, Default)]
pub(crate) struct Done {
    count: AtomicU64,
    changed: Notify,
}

impl Done {
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Returns once another job is done after the last return.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn add(&self) {
        self.count.fetch_add(1, Ordering::Release);
        self.changed.notify_one();
    }
}

/// Whether the last write failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failed(Arc<AtomicBool>);

impl Failed {
    pub(crate) fn set(&self, failed: bool) {
        self.0.store(failed, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Clears it and returns its value.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl<J: Send + 'static> BackgroundWriter<J> {
    /// Starts the thread. `write` does one job and sets whether it failed. Every result is reported to
    /// `writes`.
    pub(crate) fn spawn(
        file: StateFile,
        dir: &Path,
        writes: StateWrites,
        mut write: impl FnMut(J, &Failed) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        // Room for one job. Later changes go into the next job.
        let (jobs, mut waiting) = mpsc::channel(1);
        let (end, ended) = oneshot::channel();
        let failed = Failed::default();
        let done = Arc::new(Done::default());
        let shared = failed.clone();
        let counted = Arc::clone(&done);
        let dir = dir.to_owned();
        thread::Builder::new().name(file.as_str().to_owned()).spawn(move || {
            while let Some(job) = waiting.blocking_recv() {
                let writing = writes.begin(file, &dir);
                let result = write(job, &shared);
                drop(writing);
                counted.add();
                writes.note(file, &dir, result);
            }
            // Whoever waits for the end may open the file at once, so the lock is released first.
            drop(write);
            end.send(()).ok();
        })?;
        Ok(Self { jobs, failed, done, ended })
    }

    pub(crate) fn done(&self) -> &Done {
        &self.done
    }

    pub(crate) fn failed(&self) -> &Failed {
        &self.failed
    }

    /// Reserves room for a job; `None` while the thread has not taken the previous job.
    pub(crate) fn reserve(&self) -> Option<mpsc::OwnedPermit<J>> {
        self.jobs.clone().try_reserve_owned().ok()
    }

    /// Whether the thread has a job that it has not begun.
    #[cfg(test)]
    pub(crate) fn is_busy(&self) -> bool {
        self.jobs.capacity() == 0
    }

    /// Gives the thread its last job, and returns when that is done or has failed.
    pub(crate) async fn finish(self, last: Option<J>) {
        if let Some(job) = last {
            self.jobs.send(job).await.ok();
        }
        // The thread ends when the last sender is gone.
        drop(self.jobs);
        self.ended.await.ok();
    }
}
