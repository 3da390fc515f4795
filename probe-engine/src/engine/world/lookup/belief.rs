//! The runtime and the name of a container, for what runtimes report over CRI.

use crate::{
    engine::world::{World, table::belief::Belief},
    model::id::ContainerId,
};

/// The socket of the runtime that has a container, which its list may not name yet: that of the only runtime,
/// or of the one that has the container's sandbox on record.
pub(crate) fn socket_of(world: &World, id: &ContainerId) -> Option<String> {
    world
        .beliefs
        .only()
        .or_else(|| {
            let sandbox = world.containers.get(id).and_then(|row| row.sandbox.as_ref()).unwrap_or(id);
            world.records.sockets_with(sandbox).find(|socket| world.beliefs.knows(socket)).map(String::as_str)
        })
        .map(str::to_owned)
}

/// The name of a container, also after its own row is forgotten.
pub(crate) fn name_of(world: &World, row: &Belief) -> Option<String> {
    let known = world.containers.get(&row.id).and_then(|it| it.name.clone());
    known.or_else(|| row.name.clone())
}
