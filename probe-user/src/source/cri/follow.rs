//! Follows the runtimes whose sockets were found when the node was listed. Each runtime has its own task.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    thread::{self, JoinHandle},
};

use tokio::{runtime, sync::watch, task::JoinSet};

use super::session::Session;
use crate::{
    model::{change::Question, fact::Fact},
    source::{
        host::HostRoot,
        task::channel::{Batch, BatchSender, CancellationToken, QuestionReceiver},
    },
};

/// At most this many runtimes are followed. A node has one, or two while it is moved to another.
const MAX_RUNTIMES: usize = 8;

/// The sockets at which a runtime answered, or at which a process listens that did not answer.
pub(crate) type Sockets = watch::Receiver<BTreeSet<PathBuf>>;

/// Finds the node's runtimes in the listings.
#[derive(Clone, Debug)]
pub(crate) struct Finder(watch::Sender<BTreeSet<PathBuf>>);

/// Makes a finder, and the receiver of what it finds. `known`: the runtimes that the last agent followed.
#[must_use]
pub(crate) fn finder(known: BTreeSet<PathBuf>) -> (Finder, Sockets) {
    let (finds, sockets) = watch::channel(known);
    (Finder(finds), sockets)
}

impl Finder {
    /// Searches a listing of the node for runtimes.
    pub(crate) fn search(&self, batch: &Batch) {
        let found = batch.iter().filter_map(|seen| match &seen.fact {
            // A runtime may hang when the agent starts.
            Fact::RuntimeRead(it) if it.place.ends_with(".sock") => Some(PathBuf::from(&it.place)),
            _ => None,
        });
        for socket in found {
            self.0.send_if_modified(|all| all.len() < MAX_RUNTIMES && all.insert(socket));
        }
    }

    /// Forgets a runtime that is no longer followed. It is followed again when it answers again.
    fn forget(&self, socket: &PathBuf) {
        self.0.send_if_modified(|all| {
            all.remove(socket);
            false
        });
    }
}

/// Follows every runtime that is found, until `stop` is requested.
pub(crate) fn start(
    root: HostRoot,
    (finder, sockets): (Finder, Sockets),
    feed: BatchSender,
    questions: QuestionReceiver,
    stop: CancellationToken,
) -> io::Result<JoinHandle<()>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("runtimes".to_owned()).spawn(move || {
        runtime.block_on(follow(&root, &finder, sockets, &feed, questions, stop));
    })
}

async fn follow(
    root: &HostRoot,
    finder: &Finder,
    mut sockets: Sockets,
    feed: &BatchSender,
    mut questions: QuestionReceiver,
    mut stop: CancellationToken,
) {
    let (asks, asked) = watch::channel(0_u64);
    let mut followed = BTreeMap::new();
    let mut tasks = JoinSet::new();
    loop {
        for socket in sockets.borrow_and_update().iter() {
            if !followed.contains_key(socket)
                && let Ok(root) = root.again()
            {
                let session = Session::new(root, socket.clone(), feed.clone(), asked.clone());
                let task = tasks.spawn(session.run());
                followed.insert(socket.clone(), task.id());
            }
        }
        tokio::select! {
            () = stop.requested() => return,
            Some(ended) = tasks.join_next_with_id() => {
                let id = ended.map_or_else(|error| error.id(), |(id, _)| id);
                let over = followed.iter().find(|(_, task)| **task == id).map(|(socket, _)| socket.clone());
                if let Some(socket) = over {
                    followed.remove(&socket);
                    finder.forget(&socket);
                }
            }
            question = questions.next() => match question {
                Some(Question::Statuses) => asks.send_modify(|count| *count = count.wrapping_add(1)),
                // Other sources answer the other questions.
                Some(_) => {}
                None => return,
            },
            changed = sockets.changed() => if changed.is_err() { return },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::PathBuf};

    use super::finder;
    use crate::model::{
        fact::{Fact, Observation, Origin, RuntimeRead},
        time::Timestamp,
    };

    #[test]
    fn a_runtime_that_does_not_answer_when_it_is_found_is_followed_too() {
        let (finder, sockets) = finder(BTreeSet::new());
        let read = |place: &str, complete| {
            let (place, sandboxes) = (place.to_owned(), Vec::new());
            let fact = Fact::RuntimeRead(RuntimeRead { place, kind: None, sandboxes, complete, unread: 0 });
            Observation { at: Timestamp(1), origin: Origin::Listed, fact }
        };
        finder.search(&vec![read("/run/a.sock", true), read("/run/b.sock", false), read("/var/lib/a", true)]);
        let expected = ["/run/a.sock", "/run/b.sock"].map(PathBuf::from);
        assert_eq!(*sockets.borrow(), BTreeSet::from(expected));
    }
}
