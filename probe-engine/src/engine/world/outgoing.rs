//! When the event of a change can be sent, and with which pod, sandbox and container.
//!
//! A change is held for a moment if its pod has no name yet. All changes behind it wait.
//!
//! On a node with a kubelet a pod's cgroup exists before its sandbox, and only the sandbox gives the pod's name. In
//! between the kubelet mounts the pod's volumes, which takes seconds if many pods start at once. When the moment is
//! over, a change of such a pod is put aside until the pod has its name, and the other changes go on.
//!
//! While no agent runs nothing can give a name, so all waiting begins anew with each agent.

use std::time::Duration;

use crate::{
    engine::{
        held::{Held, Wait},
        world::World,
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

impl World {
    /// The next change whose event can be sent by `now`.
    pub(in crate::engine) fn next_change(&mut self, now: Timestamp, hold: Duration) -> Option<Change> {
        loop {
            let place = self.outbox.due_aside(|held| !self.waits_aside(held, now));
            if let Some(held) = place.and_then(|place| self.outbox.take_aside(place)) {
                let context = self.involved(&held.subject).context();
                return Some(self.outbox.number(held, context));
            }
            let held = self.outbox.first()?;
            let turn = self.turn(held, now, hold);
            if matches!(turn, Turn::Hold) {
                return None;
            }
            let held = self.outbox.take_first()?;
            if held.wait == Wait::Role(Role::Sandbox)
                && let Some(id) = &held.subject.container
            {
                self.containers.tentative_over(id);
            }
            match turn {
                Turn::Tell(context) => return Some(self.outbox.number(held, context)),
                Turn::PutAside => self.outbox.put_aside(held),
                Turn::Drop | Turn::Hold => {}
            }
        }
    }

    /// Decides about the first change.
    fn turn(&self, held: &Held, now: Timestamp, hold: Duration) -> Turn {
        let is_over = now >= self.outbox.is_over_at(held, hold) || self.outbox.is_over_full();
        let involved = self.involved(&held.subject);
        let tell = || Turn::Tell(involved.context());
        match held.wait {
            Wait::Nothing => tell(),
            Wait::Name if involved.is_settled() => tell(),
            Wait::Name if !is_over => Turn::Hold,
            Wait::Name if hold.is_zero() => tell(),
            Wait::Name if self.outbox.has_room_aside() && self.waits_aside(held, now) => Turn::PutAside,
            Wait::Name => tell(),
            Wait::Role(wanted) => {
                let row = held.subject.container.as_ref().and_then(|id| self.containers.get(id));
                match row.and_then(|row| row.role) {
                    Some(role) if role != wanted => Turn::Drop,
                    Some(_) if is_over || involved.is_settled() => tell(),
                    Some(_) => Turn::Hold,
                    None if !is_over && row.is_some_and(|row| row.question.is_open) => Turn::Hold,
                    // Most ids that have a container's cgroup are containers, not sandboxes.
                    None if wanted == Role::Container => tell(),
                    None => Turn::Drop,
                }
            }
        }
    }

    /// Whether a change still waits aside: its pod may be named, and it has not waited long enough.
    fn waits_aside(&self, held: &Held, now: Timestamp) -> bool {
        let involved = self.involved(&held.subject);
        let may_be_named = || involved.uid().is_some_and(|uid| self.may_be_named(uid));
        self.outbox.may_wait_aside(held, now) && !involved.is_settled() && may_be_named()
    }
}
