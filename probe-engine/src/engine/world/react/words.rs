//! Asks what the runtime and the kubelet say about a pod that waits, and takes in their answer.

use crate::{
    engine::world::{
        World,
        table::{pod::Words, sandbox::Group},
    },
    model::{
        change::Question,
        fact::{PodName, WordsFound},
        time::Timestamp,
    },
};

/// At most this many of the pod's sandboxes, the latest ones, are looked for in the logs.
const SANDBOXES: usize = 4;

/// Asks about the pod of this row, which has waited since then.
pub(crate) fn ask(world: &mut World, id: u64, since: Timestamp, now: Timestamp) {
    let mut sandboxes: Vec<_> =
        world.sandboxes.group(Group::Pod(id)).map(|row| (row.first_at, row.id.clone())).collect();
    sandboxes.sort_unstable();
    sandboxes.drain(..sandboxes.len().saturating_sub(SANDBOXES));
    let Some(row) = world.pods.rows.get_mut(&id) else { return };
    let PodName { namespace, name, uid: Some(uid) } = row.named.clone() else { return };
    // What was said before belongs to something that is over.
    let before = row.words.take().filter(|words| words.since == since);
    row.words = Some(Box::new(Words { since, asked_at: now, ..before.map(|it| *it).unwrap_or_default() }));
    world.ask(Question::Words {
        uid,
        namespace,
        name,
        sandboxes: sandboxes.into_iter().map(|(_, id)| id).collect(),
        since,
    });
}

/// Takes in the answer. Words that are no longer in the recent part of the logs stay, unless there are others.
pub(crate) fn found(world: &mut World, it: WordsFound) {
    let Some(row) = world.pods.by_uid(&it.uid).and_then(|id| world.pods.rows.get_mut(&id)) else { return };
    let Some(words) = &mut row.words else { return };
    if !it.said.is_empty() || words.said.is_empty() {
        words.said = it.said;
        words.unsaid = it.unsaid;
    }
}
