//! When the event of a change can be sent, and with which pod, sandbox and container.
//!
//! A change is held for a moment if its pod has no name yet. All changes behind it wait.
//!
//! On a node with a kubelet a pod's cgroup exists before its sandbox, and only the sandbox gives the pod's
//! name. In between the kubelet mounts the pod's volumes, which takes seconds if many pods start at once.
//! When the moment is over, a change of such a pod is put aside until the pod has its name, and the other
//! changes go on.
//!
//! While no agent runs nothing can give a name, so all waiting begins anew with each agent.

use std::time::Duration;

use crate::{
    engine::{
        queued_change::{QueuedChange, Wait},
        world::{World, lookup},
    },
    model::{
        change::{Change, Context},
        fact::Role,
        time::Timestamp,
    },
};

/// What to do with the first change in the queue.
#[expect(clippy::large_enum_variant, reason = "it lives for one call")]
enum Turn {
    Tell(Context),
    Drop,
    Hold,
    PutAside,
}

/// The next change whose event can be sent by `now`.
pub(crate) fn next_change(world: &mut World, now: Timestamp, hold: Duration) -> Option<Change> {
    loop {
        let place = world.outbox.due_aside(|held| !waits_aside(world, held, now));
        if let Some(held) = place.and_then(|place| world.outbox.take_aside(place)) {
            let context = lookup::context::involved(world, &held.subject).context();
            return Some(world.outbox.number(held, context));
        }
        let held = world.outbox.first()?;
        let turn = turn(world, held, now, hold);
        if matches!(turn, Turn::Hold) {
            return None;
        }
        let held = world.outbox.take_first()?;
        if held.wait == Wait::Role(Role::Sandbox)
            && let Some(id) = &held.subject.container
        {
            world.containers.tentative_over(id);
        }
        match turn {
            Turn::Tell(context) => return Some(world.outbox.number(held, context)),
            Turn::PutAside => world.outbox.put_aside(held),
            Turn::Drop | Turn::Hold => {}
        }
    }
}

/// Decides about the first change.
fn turn(world: &World, held: &QueuedChange, now: Timestamp, hold: Duration) -> Turn {
    let is_over = now >= world.outbox.is_over_at(held, hold) || world.outbox.is_over_full();
    let involved = lookup::context::involved(world, &held.subject);
    match held.wait {
        Wait::Nothing => Turn::Tell(involved.context()),
        Wait::Name if involved.is_settled() => Turn::Tell(involved.context()),
        Wait::Name if !is_over => Turn::Hold,
        Wait::Name if hold.is_zero() => Turn::Tell(involved.context()),
        Wait::Name if world.outbox.has_room_aside() && waits_aside(world, held, now) => Turn::PutAside,
        Wait::Name => Turn::Tell(involved.context()),
        Wait::Role(wanted) => {
            let row = held.subject.container.as_ref().and_then(|id| world.containers.get(id));
            match row.and_then(|row| row.role) {
                Some(role) if role != wanted => Turn::Drop,
                Some(_) if is_over || involved.is_settled() => Turn::Tell(involved.context()),
                Some(_) => Turn::Hold,
                None if !is_over && row.is_some_and(|row| row.question.is_open) => Turn::Hold,
                // Most ids that have a container's cgroup are containers, not sandboxes.
                None if wanted == Role::Container => Turn::Tell(involved.context()),
                None => Turn::Drop,
            }
        }
    }
}

/// Whether a change still waits aside: its pod may be named, and it has not waited long enough.
fn waits_aside(world: &World, held: &QueuedChange, now: Timestamp) -> bool {
    let involved = lookup::context::involved(world, &held.subject);
    world.outbox.may_wait_aside(held, now)
        && !involved.is_settled()
        && involved.uid().is_some_and(|uid| lookup::context::may_be_named(world, uid))
}
