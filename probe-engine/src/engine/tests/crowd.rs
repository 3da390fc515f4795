//! Containers that make many cgroups below their own, as Docker in Docker or systemd in a pod do.

use probe_common::event::class;

use super::{
    containerd,
    story::{
        HOST, POD_NETNS, SHIM, Story, UID, Who, cgroup, id, leaf, ms,
        run::{feed, settle},
    },
};
use crate::{
    engine::{Engine, Settings, world::CheckpointEntry},
    model::fact::{Fact, List, NESTED},
};

/// The cgroup with this number below the container `c`.
fn inner(number: u64) -> String {
    format!("{}/n{number}", leaf('c'))
}

/// The cgroup of a pod, whose UID begins with this digit.
fn pod(digit: char) -> String {
    format!("/kubepods/besteffort/pod{digit}{}", &UID[1..])
}

/// A node on which `many` cgroups were made in a container, and a pod after that.
fn node(many: u64) -> (Story, Engine) {
    let mut story = Story::new();
    containerd::start(&mut story);
    containerd::run(&mut story);
    for number in 0..many {
        story.mkdir(1000 + number, &inner(number));
    }
    story.mkdir(900_001, &pod('2')).mkdir(900_002, &format!("{}/{}", pod('2'), id('d')));
    let mut engine = Engine::new(Settings::default());
    feed(&mut engine, &story.facts, ms(0));
    let end = story.facts.last().expect("a fact").at;
    settle(&mut engine, end);
    story.facts.clear();
    (story, engine)
}

fn cgroups(engine: &Engine) -> usize {
    engine.dump().iter().filter(|row| matches!(row, CheckpointEntry::Cgroup(_))).count()
}

fn bytes(engine: &Engine) -> usize {
    engine.dump().iter().map(|row| serde_json::to_vec(row).expect("JSON").len()).sum()
}

/// Whether the agent knows to whom the cgroup with this number belongs.
fn is_known(engine: &Engine, number: u64) -> bool {
    engine.world.cgroups.container_of(cgroup(number, "").key).is_some()
}

#[test]
fn of_many_cgroups_in_one_container_only_some_have_rows() {
    let (mut story, mut engine) = node(61_000);
    // Two pods, two sandboxes or containers in them, and one more container.
    assert_eq!(cgroups(&engine), NESTED + 5);
    assert!(
        engine.size() < 2000 && bytes(&engine) < 2 << 20,
        "{} rows, {} bytes",
        engine.size(),
        bytes(&engine)
    );
    // Each of them is still the container's.
    for number in [1000, 2023, 2024, 61_999] {
        assert!(is_known(&engine, number), "{number}");
    }
    assert!(!is_known(&engine, 62_000), "of this one nothing is known");
    let mut again = Engine::new(Settings::default());
    engine.dump().into_iter().for_each(|row| again.restore(row));
    assert_eq!(again.dump(), engine.dump());
    // A listing names only some, and those that it leaves out are not gone.
    story.at(100_000).lost().list(List::Cgroups, true, |story| {
        for (number, path) in [(20, pod('1')), (21, leaf('a')), (22, leaf('c'))] {
            story.listed(Fact::CgroupFound { cgroup: cgroup(number, &path), populated: true });
        }
        for number in 40_000..40_000 + NESTED as u64 {
            let cgroup = cgroup(1000 + number, &inner(number));
            story.listed(Fact::CgroupFound { cgroup, populated: true });
        }
    });
    feed(&mut engine, &story.facts, ms(0));
    assert!(is_known(&engine, 1000) && is_known(&engine, 61_999));
    story.facts.clear();
    for number in 0..61_000 {
        story.rmdir(1000 + number, &inner(number));
    }
    feed(&mut engine, &story.facts, ms(0));
    settle(&mut engine, ms(400_000));
    assert!(!is_known(&engine, 61_999) && cgroups(&engine) < 10, "{}", cgroups(&engine));
}

/// The first program of a container enters a cgroup that it made and that nobody reported, and calls itself a
/// runtime.
#[test]
fn a_program_in_an_unknown_cgroup_of_a_container_is_no_runtime_of_the_node() {
    let top = class::CONTAINER_TOP | class::IN_CONTAINER;
    for (who, bits, is_of_node) in [
        (Who::new(3000, SHIM, "containerd").within(777_777, POD_NETNS), class::CALLER | top, false),
        (Who::new(3000, 1, "containerd").within(777_777, HOST), class::CALLER, true),
    ] {
        let (mut story, mut engine) = node(0);
        story.at(40_000).exec(who, bits, "/usr/bin/containerd");
        feed(&mut engine, &story.facts, ms(0));
        settle(&mut engine, ms(50_000));
        assert_eq!(engine.daemons_since().contains_key("containerd"), is_of_node);
    }
}

/// When the container goes, its cgroups go with it.
#[test]
fn what_was_in_a_container_goes_with_it() {
    let (mut story, mut engine) = node(3000);
    story.rmdir(22, &leaf('c'));
    feed(&mut engine, &story.facts, ms(0));
    settle(&mut engine, ms(10_000));
    assert!(!engine.dump().iter().any(|row| matches!(row, CheckpointEntry::Crowd(_))));
}

#[test]
fn an_ordinary_number_of_cgroups_has_rows() {
    let (_, engine) = node(NESTED as u64);
    assert_eq!(cgroups(&engine), NESTED + 5);
    assert!(!engine.dump().iter().any(|row| matches!(row, CheckpointEntry::Crowd(_))));
}
