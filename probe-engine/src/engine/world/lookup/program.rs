//! The executables that took part in a start or a finding, and their versions.

use std::collections::BTreeSet;

use super::daemons;
use crate::{
    engine::world::World,
    model::{change::Finding, fact::ProgramFound, finding::Kind, id::ContainerId},
};

/// The executables that took part in what a finding is about: the plugins of its sandboxes, the runtime, the
/// kubelet, and a daemon that ended.
pub(crate) fn paths_of<'a>(world: &'a World, finding: &Finding) -> BTreeSet<&'a str> {
    let all = finding.sandboxes.iter().flat_map(|id| world.attachments.of(id));
    let plugins = all.filter(|row| !row.is_loopback()).flat_map(|row| &row.plugins);
    let plugins = plugins.map(|plugin| plugin.path.as_str());
    let daemons =
        daemons::runtimes(world).chain(daemons::kubelets(world)).map(|row| row.program.filename.as_str());
    let failing = if let Kind::DaemonFailing(it) = &finding.kind { Some(&it.daemon) } else { None };
    let ended = failing.into_iter().flat_map(|comm| daemons::ended(world, comm));
    plugins.chain(daemons).chain(ended).filter(|path| path.starts_with('/')).collect()
}

/// The known versions of these executables.
pub(crate) fn of_finding(world: &World, finding: &Finding) -> Vec<ProgramFound> {
    paths_of(world, finding).into_iter().map(|path| world.records.program(path)).collect()
}

/// The plugins that set up this sandbox's network, with the versions that are known.
pub(crate) fn plugins_of(world: &World, sandbox: &ContainerId) -> Vec<ProgramFound> {
    let plugins = world.attachments.of(sandbox).filter(|row| !row.is_loopback());
    let added = plugins.flat_map(|row| &row.plugins).filter(|plugin| plugin.add.begun > 0);
    let paths: BTreeSet<&str> = added.map(|plugin| plugin.path.as_str()).collect();
    let paths = paths.into_iter().filter(|path| path.starts_with('/'));
    paths.map(|path| world.records.program(path)).collect()
}
