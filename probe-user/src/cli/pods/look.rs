//! One look at the node's files.

use std::fs;

use super::Seen;
use crate::{
    cli::{
        Done,
        args::{ConfigArgs, HostArgs, warn_of_absent},
        live::{answer::answer, place::Place},
        say,
    },
    engine::{Engine, Settings},
    source::{
        backfill::{self, Node},
        clock,
        host::HostRoot,
    },
};

pub(super) fn look(host: &HostArgs, config: &ConfigArgs) -> anyhow::Result<Seen> {
    let (_, stores) = config.load()?;
    let place = Place::find(HostRoot::open(&host.host_root)?)?;
    warn_of_absent(&stores, &place.root);
    let mut engine = Engine::new(Settings::default());
    let node = Node {
        root: &place.root,
        hierarchy: &place.hierarchy,
        clock: &clock::now,
        boot_wall_ns: clock::boot_wall_ns(),
        stores: &stores,
    };
    let mut skipped = backfill::read(node, &mut |batch| {
        batch.into_iter().for_each(|seen| engine.observe(seen));
        Ok(())
    })
    .unwrap_or_default();
    skipped.append(answer(&mut engine, &place.root));
    let done = match skipped.first {
        None => Done::Whole,
        Some((path, why)) => {
            say(&format!(
                "{} of the node's files could not be read, the list may lack something: first {}: {why}",
                skipped.count,
                path.display()
            ));
            Done::Part
        }
    };
    Ok(Seen { pods: engine.pods(), told: None, now: clock::now(), done })
}

/// The kernel's, which all of its namespaces share.
pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
