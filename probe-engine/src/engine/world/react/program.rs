//! Asks for the versions of programs: runtimes, kubelets and plugins.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    engine::world::{World, lookup},
    model::{
        change::{ChangeKind, Question},
        id::TaskKey,
        time::Timestamp,
    },
};

/// The version of a plugin that is in use is asked for again after this time.
const PLUGIN_AGAIN: Duration = Duration::from_secs(10 * 60);

/// The versions of at most this many executables are remembered.
pub(crate) const PROGRAMS: usize = 256;

/// Asks for the version of a runtime or kubelet that started, and that the recovery is to name.
pub(crate) fn ask_version_of(world: &mut World, daemon: TaskKey) {
    let path = world.processes.get(daemon).map(|row| row.program.filename.clone());
    if let Some(path) =
        path.filter(|path| path.starts_with('/') && !world.records.programs.contains_key(path))
    {
        world.ask(Question::Program { path });
    }
}

/// Asks for the version of a plugin that has set up a sandbox's network, since the start is to name it. It
/// may be replaced while the node runs, so its version is asked for again now and then.
pub(crate) fn ask_plugin_version(world: &mut World, at: Timestamp, path: &str) {
    // Records that were touched have all leaks judged again.
    let asked = &world.records.plugins_asked;
    let is_due = match asked.get(path) {
        Some(last) => at.since(*last) >= PLUGIN_AGAIN,
        None => asked.len() < PROGRAMS,
    };
    if is_due && path.starts_with('/') {
        world.records.plugins_asked.insert(path.to_owned(), at);
        world.ask(Question::Program { path: path.to_owned() });
    }
}

/// Asks a new agent for the versions that the last one was asked for and did not find out: those of daemons,
/// and of plugins that set up a sandbox's network.
pub(crate) fn ask_again(world: &mut World) {
    let daemons = lookup::daemons::runtimes(world)
        .chain(lookup::daemons::kubelets(world))
        .map(|row| &row.program.filename);
    let asked = daemons.chain(world.records.plugins_asked.keys());
    let lost: BTreeSet<String> = asked
        .filter(|path| path.starts_with('/') && !world.records.programs.contains_key(*path))
        .cloned()
        .collect();
    for path in lost {
        world.ask(Question::Program { path });
    }
}

/// Asks for the versions of a finding's programs when it opens, so that they are known when it is confirmed.
pub(crate) fn ask_programs(world: &mut World, what: &ChangeKind) {
    let (ChangeKind::FindingOpened(finding) | ChangeKind::FindingConfirmed(finding)) = what else {
        return;
    };
    let paths: Vec<String> = lookup::program::paths_of(world, finding)
        .into_iter()
        .filter(|path| !world.records.programs.contains_key(*path))
        .map(str::to_owned)
        .collect();
    for path in paths {
        world.ask(Question::Program { path });
    }
}
