//! Asks what the runtime and the kubelet say about a pod that waits, or why they do not come up.

use crate::{
    engine::world::{World, table::sandbox::Group},
    model::{change::Question, fact::PodName, time::Timestamp},
};

/// At most this many of the pod's sandboxes, the latest ones, are looked for in the logs.
const SANDBOXES: usize = 4;

/// Asks about the pod of this row, which has waited since then. `container`: the container whose own log is
/// searched too.
pub(crate) fn ask(world: &mut World, id: u64, container: Option<String>, since: Timestamp, now: Timestamp) {
    let mut sandboxes: Vec<_> =
        world.sandboxes.group(Group::Pod(id)).map(|row| (row.first_at, row.id.clone())).collect();
    sandboxes.sort_unstable();
    sandboxes.drain(..sandboxes.len().saturating_sub(SANDBOXES));
    world.pods.words_asked(id, since, now);
    let Some(row) = world.pods.get(&id) else { return };
    let PodName { namespace, name, uid: Some(uid) } = row.named.clone() else { return };
    world.ask(Question::Words {
        uid,
        namespace,
        name,
        sandboxes: sandboxes.into_iter().map(|(_, id)| id).collect(),
        container,
        since,
    });
}

/// Asks about a daemon that has not come up since then.
pub(crate) fn ask_daemon(world: &mut World, comm: &str, since: Timestamp, now: Timestamp) {
    world.failing.words_asked(comm, since, now);
    world.ask(Question::DaemonWords { daemon: comm.to_owned(), since });
}
