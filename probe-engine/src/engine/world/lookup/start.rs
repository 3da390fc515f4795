//! The containers for which a pod's start waits.

use crate::{
    engine::world::{
        World,
        table::{self, sandbox::Sandbox},
    },
    model::{fact::Role, time::Timestamp},
};

/// The containers that the sandbox's pod will have. Empty: not known.
pub(crate) fn expected_in<'a>(world: &'a World, row: &Sandbox) -> &'a [String] {
    let pod = world.pods.of_sandbox(row).and_then(|pod| world.pods.get(&pod));
    pod.map_or(&[], |pod| &pod.start.expected)
}

/// Whether a program ran in the pod that may be one of this sandbox's containers: what it is was asked for,
/// and not answered yet.
pub(crate) fn has_unanswered(world: &World, sandbox: &Sandbox) -> bool {
    let pod = world.pods.of_sandbox(sandbox);
    pod.is_some_and(|pod| {
        world.containers.group(table::container::Group::Pod(pod)).any(|row| {
            row.role.is_none()
                && row.question.is_open
                && row.run.began.is_some_and(|began| !began.listed && began.at >= sandbox.first_at)
        })
    })
}

/// When the latest container of this sandbox was announced that has not run yet and is not known to be a
/// restart.
pub(crate) fn announced_at(world: &World, sandbox: &Sandbox) -> Option<Timestamp> {
    let pod = world.pods.of_sandbox(sandbox);
    let own = world.containers.group(table::container::Group::Sandbox(sandbox.id.clone()));
    let of_pod = pod.into_iter().flat_map(|pod| world.containers.group(table::container::Group::Pod(pod)));
    let all = own.chain(of_pod.filter(|row| row.sandbox.is_none()));
    all.filter(|row| {
        row.state == table::container::State::Created
            && row.role != Some(Role::Sandbox)
            && row.id != sandbox.id
            && (row.name.is_none() || sandbox.containers().iter().all(|ran| ran.name != row.name))
    })
    .map(|row| row.first_at)
    .max()
}
