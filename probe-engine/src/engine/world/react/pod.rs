//! Pods appear, get their names, and go.

use std::time::Duration;

use crate::{
    engine::{
        queued_change::{Subject, Wait},
        world::{
            EventContext, World,
            table::{
                self,
                container::Container,
                hint::Name,
                netns::Netns,
                pod::{Pod, Start, State, Step},
            },
        },
    },
    model::{
        change::{ChangeKind, Question},
        fact::{NameSource, PodName},
        id::PodUid,
    },
};

/// A name is asked for at most this often: when the UID is first seen, and when the pod's first container is
/// first seen. The kubelet makes the pod's cgroup before the folder of its logs, so the first answer may be
/// that there is no name.
const ASKS: u32 = 2;

const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Takes in the name of the pod with this UID.
pub(crate) fn found(
    world: &mut World,
    ctx: EventContext,
    uid: PodUid,
    namespace: String,
    name: String,
    source: NameSource,
) {
    world.beliefs.pod_is_there(&uid);
    let known = Name { uid: uid.clone(), at: ctx.at, namespace, name, source };
    world.pods.learn_if_known(&known.pod_name(), source);
    world.pods.names.insert(uid, known);
    world.schedule_reap(ctx.at);
}

/// Adds a pod that evidence shows to exist, and its name.
pub(crate) fn lives(world: &mut World, ctx: EventContext, name: &PodName, source: NameSource) -> Option<u64> {
    if name.uid.is_none() && (name.name.is_none() || name.namespace.is_none()) {
        return None;
    }
    let id = if let Some(id) = world.pods.find(name) {
        world.pods.learn(id, name, source);
        id
    } else {
        let row = Pod {
            id: world.pods.next,
            named: name.clone(),
            source,
            first_at: ctx.at,
            origin: ctx.origin,
            cgroups: Vec::new(),
            asked: 0,
            left_at: None,
            start: Start::default(),
            state: State::Gone { at: ctx.at },
            words: None,
        };
        let id = row.id;
        world.pods.insert(row);
        id
    };
    let shown = world.pods.get(&id)?.state.step(Step::Show, ctx.at);
    if let Some(present) = shown
        && let Some(row) = world.pods.rows.get_mut(&id)
    {
        if let Some(uid) = &row.named.uid {
            world.beliefs.pod_is_there(uid);
        }
        row.state = present;
        row.first_at = ctx.at;
        row.origin = ctx.origin;
        row.start = Start::default();
        row.words = None;
    }
    let uid = world.pods.get(&id).and_then(|row| row.named.uid.as_ref());
    if let Some(known) = uid.and_then(|uid| world.pods.names.get(uid)) {
        let found = known.pod_name();
        let source = known.source;
        world.pods.learn(id, &found, source);
    }
    if shown.is_some() {
        world.report(
            ctx,
            Subject { pod: Some(id), ..Subject::default() },
            Wait::Name,
            ChangeKind::PodFirstSeen,
        );
        ask_name(world, ctx, id);
    }
    Some(id)
}

/// Joins two rows that turned out to be one pod: one had its UID, the other its name. `keep` stays. No event
/// reports the end of the other row. Held changes about the other row keep its name.
pub(crate) fn are_one(world: &mut World, ctx: EventContext, keep: u64, other: u64) {
    let Some(gone) = world.pods.get(&other) else { return };
    if keep == other {
        return;
    }
    let name = PodName { uid: None, ..gone.named.clone() };
    let first_at = gone.first_at;
    let source = gone.source;
    let cgroups = gone.cgroups.clone();
    let start = gone.start.clone();
    if !world.pods.is(keep, &name) {
        return;
    }
    world.pods.learn(keep, &name, source);
    if let Some(row) = world.pods.rows.get_mut(&keep) {
        row.first_at = first_at.min(row.first_at);
        row.start.merge(start);
        row.cgroups.extend(cgroups.into_iter().filter(|key| !row.cgroups.contains(key)).collect::<Vec<_>>());
    }
    if let Some(row) = world.pods.rows.get_mut(&other) {
        row.state = State::Gone { at: ctx.at };
        row.cgroups.clear();
    }
    world.schedule_reap(ctx.at);
    world.sandboxes.replace_pod(keep, other);
    world.containers.replace_pod(keep, other);
}

/// Asks for a pod's name, unless that was asked often enough.
pub(crate) fn ask_name(world: &mut World, ctx: EventContext, id: u64) {
    let Some(row) = world.pods.rows.get_mut(&id) else { return };
    let is_due = row.asked == 0 || row.asked < ASKS && ctx.at >= row.first_at + ASK_AGAIN;
    let Some(uid) = row.named.uid.clone() else { return };
    if row.named.name.is_some() || !is_due {
        return;
    }
    row.asked = row.asked.saturating_add(1);
    world.ask(Question::Pod { uid });
}

/// Ends a pod once its cgroup is gone, none of its containers runs, and its sandboxes and their network
/// namespaces are gone.
pub(crate) fn may_be_gone(world: &mut World, ctx: EventContext, id: u64) {
    let Some(row) = world.pods.get(&id) else { return };
    let lives = !row.cgroups.is_empty()
        || world.containers.group(table::container::Group::Pod(id)).any(Container::is_running)
        || world.sandboxes.group(table::sandbox::Group::Pod(id)).any(|row| {
            let netns = row.network.netns.and_then(|life| world.netns.get(life));
            !row.is_stopped() || netns.is_some_and(Netns::may_be_used)
        });
    if lives {
        return;
    }
    let Some(row) = world.pods.rows.get_mut(&id) else { return };
    let Some(gone) = row.state.step(Step::Go, ctx.at) else { return };
    row.state = gone;
    let lived = ctx.at.since(row.first_at);
    world.schedule_reap(ctx.at);
    world.report(
        ctx,
        Subject { pod: Some(id), ..Subject::default() },
        Wait::Name,
        ChangeKind::PodGone { lived },
    );
}
