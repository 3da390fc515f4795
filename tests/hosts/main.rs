//! Nodes frozen as files. The test reads each folder of `data/hosts` as a node's root and compares what it
//! finds with the `.expect` file beside the folder.
//!
//! A frozen node has the files of a real one under their real names, as far as the agent reads them.

mod hostile;
mod judge;
mod render;

use std::{fs, path::Path};

use probe_user::{
    model::{
        fact::{Fact, Observation},
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
    source::{
        backfill::{self, Node, store::Declared},
        files::answer::Answerer,
        host::{HostRoot, skipped::Skipped},
        node::cgroup::Layout,
    },
};
use render::Render;
use tests::golden;

/// Returns the facts of one pass over a node, and the number of skipped files.
fn read(root: &HostRoot) -> (Layout, Vec<Fact>, Skipped) {
    let layout = Layout::read(root).unwrap_or_default();
    let hierarchy = layout.choose(|hierarchy| backfill::has_container(root, hierarchy), || ());
    let hierarchy = hierarchy.expect("a hierarchy is mounted").clone();
    let clock = || Timestamp::ZERO;
    let mut facts = Vec::new();
    let stores: Vec<_> = Declared::new("/var/lib/own-ipam", None).into_iter().collect();
    let node = Node { root, hierarchy: &hierarchy, clock: &clock, boot_wall_ns: 0, stores: &stores };
    let skipped = backfill::read(node, &mut |batch: Vec<Observation>| {
        facts.extend(batch.into_iter().map(|Observation { fact, .. }| fact));
        Ok(())
    });
    (layout, facts, skipped.expect("nothing stops the reading"))
}

/// Returns all facts of a node, as lines.
fn facts_as_lines(root: &HostRoot) -> String {
    let (layout, facts, skipped) = read(root);
    let mut render = Render::default();
    let mut text = render.layout(&layout);
    for fact in &facts {
        text.push_str(&render.fact(fact));
    }
    text.push_str("\nquestions\n");
    let mut answerer = Answerer::new(root);
    for id in containers(&facts) {
        text.push_str(&render.fact(&answerer.container(&id)));
    }
    for uid in pods(&facts) {
        text.extend(answerer.pod(&uid).map(|fact| render.fact(&fact)));
    }
    text.push_str(&format!("\nskipped {}\n", skipped.count));
    text
}

/// Returns every container that a fact names, and one that no fact names.
fn containers(facts: &[Fact]) -> Vec<ContainerId> {
    let mut found: Vec<_> = facts
        .iter()
        .flat_map(|fact| match fact {
            Fact::ContainerFound(found) => vec![found.id.clone()],
            Fact::CacheFound(found) => vec![found.container.clone()],
            Fact::StoreRead(read) => {
                let holders = read.reservations.iter().filter_map(|it| it.holder.as_ref());
                holders.map(|holder| holder.container.clone()).collect()
            }
            _ => Vec::new(),
        })
        .chain(ContainerId::parse("nobody"))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn pods(facts: &[Fact]) -> Vec<PodUid> {
    let uid = |fact: &Fact| match fact {
        Fact::ContainerFound(found) => found.pod.as_ref()?.uid.clone(),
        _ => None,
    };
    let mut found: Vec<_> = facts.iter().filter_map(uid).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn every_frozen_node_gives_the_expected_facts() {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/hosts");
    let mut cases: Vec<_> = fs::read_dir(&hosts)
        .expect("the frozen nodes")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir())
        .collect();
    cases.sort_unstable();
    assert!(!cases.is_empty());
    for case in cases {
        let root = HostRoot::open(&case).expect("a frozen node");
        golden::expect(&case.with_extension("expect"), &facts_as_lines(&root));
    }
}
