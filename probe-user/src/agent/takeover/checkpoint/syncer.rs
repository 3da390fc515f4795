//! Syncs files on a thread of its own: a disk that hangs in a sync blocks nobody who writes.
//!
//! **Invariant:** the files are synced one after the other, in the order in which they were given.

use std::{
    fs::File,
    io,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread,
};

/// The number of one sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u64);

#[derive(Debug)]
pub(super) struct Syncer {
    files: Sender<(Ticket, Arc<File>)>,
    done: Receiver<(Ticket, io::Result<()>)>,
    last: Ticket,
}

impl Syncer {
    /// Starts the thread. `sync` returns once what was written to the file is on the disk.
    pub(super) fn spawn(sync: impl Fn(&File) -> io::Result<()> + Send + 'static) -> io::Result<Self> {
        let (files, given) = mpsc::channel::<(Ticket, Arc<File>)>();
        let (tell, done) = mpsc::channel();
        thread::Builder::new().name("state-sync".to_owned()).spawn(move || {
            for (ticket, file) in given {
                if tell.send((ticket, sync(&file))).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { files, done, last: Ticket(0) })
    }

    /// Begins to sync a file. The result comes with the returned number.
    pub(super) fn begin(&mut self, file: &Arc<File>) -> io::Result<Ticket> {
        self.last.0 += 1;
        self.files.send((self.last, Arc::clone(file))).map_err(|_ended| ended())?;
        Ok(self.last)
    }

    /// Returns a result if there is one.
    pub(super) fn poll(&mut self) -> Option<(Ticket, io::Result<()>)> {
        self.done.try_recv().ok()
    }

    /// Waits for a result.
    pub(super) fn wait(&mut self) -> io::Result<(Ticket, io::Result<()>)> {
        self.done.recv().map_err(|_ended| ended())
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread that syncs it has ended")
}
