//! A new agent goes on with the state of the last one.

use super::{identity, loss, message, program, start, watch};
use crate::{
    engine::world::{EventContext, World, lookup},
    model::time::Timestamp,
};

/// Ends the state that belonged to the last agent alone: the files at which its readers hung, the namespaces
/// that its netlink socket watched, and the questions that its sources took and never answered.
///
/// The names of pods need no question: the new agent lists them. Nor do the runtimes' lists, which it reads
/// when it reaches a runtime, and the counters of a cgroup, which are of the time when they are read.
pub(crate) fn began(world: &mut World, ctx: EventContext, unheard_since: Option<Timestamp>) {
    // The readers of the new agent report the files at which they hang.
    world.coverage.hanging.clear();
    // Hooks saw no file.
    if unheard_since.is_some() {
        world.records.unwatched_until(ctx.at);
    }
    if let Some(since) = unheard_since
        && lookup::netns::hears_netlink(world)
    {
        loss::netlink_unheard(world, ctx, since);
    }
    watch::again(world, ctx.at);
    identity::ask_roles_again(world);
    start::ask_again(world, ctx.at);
    program::ask_again(world);
    message::ask_again(world, ctx.at);
}
