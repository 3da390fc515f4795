//! Keeps which Events were reported, in a file of the state directory. So the next agent of the same boot can
//! end those whose findings are over, and needs nothing else from the API server.
//!
//! A separate thread reads and writes, because a disk may be slow.
//!
//! **Invariant:** a directory that cannot be written is reported ([`StateWrites`]) and never stops the agent.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{sync::oneshot, time};
use tracing::warn;

use super::plan::{Entry, Ledger};
use crate::{
    recording::Header,
    sink::state::{
        background::BackgroundWriter,
        file::{self, blame, is_absent},
        folder,
        state_writes::{StateFile, StateWrites},
    },
};

/// The name of the file in the state directory.
const FILE: &str = "events.json";
/// Locked while an agent lives.
const LOCK: &str = ".events.lock";
/// The version of the format.
const SCHEMA: u32 = 1;
/// How long reading may take.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The handle of the thread.
#[derive(Debug)]
pub(crate) struct Store {
    boot_id: String,
    node: String,
    last: Option<oneshot::Receiver<Ledger>>,
    writer: BackgroundWriter<Job>,
}

#[derive(Debug)]
enum Job {
    Read(oneshot::Sender<Ledger>),
    Put(Vec<u8>),
}

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    schema: u32,
    boot_id: String,
    /// The name of the node's object.
    node: String,
    events: Vec<Entry>,
}

impl Store {
    /// Uses the file in `dir`, which is made if it does not exist, and begins to read it.
    pub(crate) fn open(dir: &Path, header: &Header, writes: StateWrites) -> io::Result<Self> {
        let boot_id = header.boot_id.clone();
        let node = header.node.clone();
        let place = Place { dir: dir.to_owned(), boot_id: boot_id.clone(), node: node.clone() };
        let mut lock = None;
        let writer = BackgroundWriter::spawn(StateFile::Events, dir, writes, move |job, failed| {
            let done = place.lock(&mut lock).and_then(|()| place.work(job));
            failed.set(done.is_err());
            done
        })?;
        let (read, last) = oneshot::channel();
        if let Some(room) = writer.reserve() {
            room.send(Job::Read(read));
        }
        Ok(Self { boot_id, node, last: Some(last), writer })
    }

    /// Returns what the last agent of this boot reported; only the first call returns it.
    pub(super) fn last(&mut self) -> Option<impl Future<Output = Ledger> + use<>> {
        let last = self.last.take()?;
        Some(async {
            // If the disk hangs, nothing is known.
            time::timeout(READ_TIMEOUT, last).await.ok().and_then(Result::ok).unwrap_or_default()
        })
    }

    /// Whether the last write failed. Only the first call after each write returns true.
    pub(super) fn has_failed(&self) -> bool {
        self.writer.failed().take()
    }

    /// Gives the ledger to the thread, if it has room. Returns whether it had.
    pub(super) fn keep(&self, ledger: &Ledger) -> bool {
        let Some(room) = self.writer.reserve() else { return false };
        room.send(self.put(ledger));
        true
    }

    /// Writes for the last time, if there is anything to write, and returns when that is done or has failed.
    pub(super) async fn finish(self, ledger: Option<Ledger>) {
        let last = ledger.map(|ledger| self.put(&ledger));
        self.writer.finish(last).await;
    }

    fn put(&self, ledger: &Ledger) -> Job {
        let kept = Kept {
            schema: SCHEMA,
            boot_id: self.boot_id.clone(),
            node: self.node.clone(),
            events: ledger.entries(),
        };
        // This cannot fail: the keys are strings, and a vector accepts every write.
        Job::Put(serde_json::to_vec(&kept).unwrap_or_default())
    }
}

/// The directory, and the boot and the node whose Events count.
struct Place {
    dir: PathBuf,
    boot_id: String,
    node: String,
}

impl Place {
    /// Makes the directory if it does not exist, and locks the file against a second agent.
    fn lock(&self, held: &mut Option<File>) -> io::Result<()> {
        if held.is_none() {
            folder::make(&self.dir)?;
            let path = self.dir.join(LOCK);
            let opened = folder::own(File::options().write(true)).open(&path);
            *held = Some(folder::lock(opened.map_err(|error| blame(&path, error))?)?);
        }
        Ok(())
    }

    fn work(&self, job: Job) -> io::Result<()> {
        match job {
            Job::Read(last) => {
                // The receiver may have stopped waiting.
                last.send(self.read()).ok();
                Ok(())
            }
            Job::Put(bytes) => folder::replace(&self.dir, FILE, &bytes),
        }
    }

    /// Reads the file. If it cannot be read, nothing counts as reported.
    fn read(&self) -> Ledger {
        let bytes = file::read(&self.dir.join(FILE));
        match bytes.and_then(|bytes| Ok(serde_json::from_slice::<Kept>(&bytes)?)) {
            Ok(kept) if kept.schema == SCHEMA && kept.boot_id == self.boot_id && kept.node == self.node => {
                Ledger::of(kept.events)
            }
            Ok(_of_others) => Ledger::default(),
            Err(error) => {
                if !is_absent(&error) {
                    warn!(%error, "cannot read {FILE}: Events of the last agent do not end before their time is over");
                }
                Ledger::default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::{FILE, Store};
    use crate::{
        engine::Settings,
        model::finding::{FindingKind, Key},
        recording::Header,
        sink::{
            kubernetes::plan::{EventAction, Ledger, Object, Step},
            state::state_writes::StateWrites,
        },
    };

    fn header(boot_id: &str, node: &str) -> Header {
        Header {
            made_by: "test".to_owned(),
            node: node.to_owned(),
            boot_id: boot_id.to_owned(),
            kernel: "7.0".to_owned(),
            boot_wall_ns: 0,
            settings: Settings::default(),
        }
    }

    async fn read(dir: &Path, header: &Header) -> Ledger {
        let mut store = Store::open(dir, header, StateWrites::default()).expect("a thread");
        let last = store.last().expect("it is asked once").await;
        assert!(store.last().is_none());
        store.finish(None).await;
        last
    }

    #[tokio::test]
    async fn the_next_agent_of_the_boot_has_what_the_last_one_told() {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path().join("state");
        let of = header("b1", "n1");
        assert_eq!(read(&dir, &of).await, Ledger::default());
        let mut ledger = Ledger::default();
        let key = Key::parse("leaked_address/net/10.0.0.7").expect("a key");
        for action in [EventAction::Begin, EventAction::End] {
            let step =
                Step::new((Object::Node, key.clone()), FindingKind::LeakedAddress, "a".to_owned(), action);
            ledger.done(step, Some(3));
            let store = Store::open(&dir, &of, StateWrites::default()).expect("a thread");
            store.finish(Some(ledger)).await;
            ledger = read(&dir, &of).await;
            assert_eq!(ledger.entries().len(), 1);
        }
        assert_eq!(read(&dir, &header("b2", "n1")).await, Ledger::default(), "of another boot");
        assert_eq!(read(&dir, &header("b1", "n2")).await, Ledger::default(), "of another node");
        fs::write(dir.join(FILE), "{\"schema\":1,").expect("a file");
        assert_eq!(read(&dir, &of).await, Ledger::default(), "torn");
    }
}
