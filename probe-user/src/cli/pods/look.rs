//! One look at the node's files.

use std::{fs, time::Duration};

use super::{Ages, Seen};
use crate::{
    cli::{
        ExitStatus,
        args::{ConfigArgs, HostArgs, warn_of_absent},
        live::{answer::answer, place::Place},
        say,
    },
    engine::{Engine, Settings, view::PodView},
    model::id::PodUid,
    source::{
        backfill::{self, Node, kubelet},
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
        None => ExitStatus::Ok,
        Some((path, why)) => {
            say(&format!(
                "{} of the node's files could not be read, the list may lack something: first {}: {why}",
                skipped.count,
                path.display()
            ));
            ExitStatus::Incomplete
        }
    };
    let (pods, now) = (engine.pods(), clock::now());
    let ages = ages(&place.root, &pods, clock::boot_wall_ns().saturating_add_unsigned(now.0));
    Ok(Seen { pods, ages, told: None, now, done })
}

/// How long ago the kubelet first saw to each pod, where it keeps a folder of it that says so.
fn ages(root: &HostRoot, pods: &[PodView], wall_ns: i64) -> Ages {
    let kubelets = kubelet::Roots::look(root);
    let age = |uid: &PodUid| Some(wall_ns.saturating_sub(kubelets.born(root, uid)?).max(0).unsigned_abs());
    let known = pods.iter().filter_map(|pod| pod.uid.as_ref());
    known.filter_map(|uid| Some((uid.clone(), Duration::from_nanos(age(uid)?)))).collect()
}

/// The kernel's, which all of its namespaces share.
pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
