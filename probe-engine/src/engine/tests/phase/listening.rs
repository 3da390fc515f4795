//! When the containers of a start first listened. That is after the start.

use std::time::Duration;

use super::{MINUTE, SECOND, check, container, ends, main_of, play, sandbox};
use crate::{
    engine::{
        Engine,
        tests::story::{POD_NETNS, SHIM, Story, Who, leaf},
    },
    model::{
        change::ChangeName,
        fact::{CpuUse, Fact, Family, Listener, Pressure, PressureRead, Role},
        id::CgroupKey,
        phase::Kind,
        recovery::WITHIN,
    },
};

const ONE: &str = "
    100..3070: prepare 50, netns 10, bridge 200, between 5, portmap 35, pause 100, image(main) 2500, runtime(main) 20, cgroup(main) 50
    told 1
";

/// The pod's one container, whose program runs at 3070.
fn one() -> Story {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "main", 3 * SECOND);
    story
}

/// `main 350:8080` for each container that listens.
fn listening(engine: &Engine) -> Vec<String> {
    let starts = engine.starts();
    let told = starts.iter().flat_map(|start| &start.listening).map(|it| {
        let marks = [(it.gapped, "!"), (it.suspended, "z")];
        let marks: String = marks.iter().filter(|(is_so, _)| *is_so).map(|(_, mark)| *mark).collect();
        let name = it.container.name.as_deref().unwrap_or("?");
        format!("{name} {}:{}{marks}", it.took().as_millis(), it.socket.port)
    });
    told.collect()
}

/// The counters of the pod's cgroup are read around the start and once the container listens. Those of later
/// belong to nothing.
#[test]
fn what_held_a_container_back_until_it_listened_is_reported() {
    let mut story = one();
    let read = |story: &mut Story, at, throttled, limit| {
        let cpu = CpuUse {
            throttled: Duration::from_millis(throttled),
            periods: throttled / 100,
            limit,
            ..CpuUse::default()
        };
        let pressure = Pressure { cpu: Some(cpu), ..Pressure::default() };
        let cgroup = CgroupKey::new(0, 20);
        story.at(at).listed(Fact::PressureRead(PressureRead { cgroup, pressure }));
    };
    read(&mut story, 3071, 100, None);
    story.at(5070).listen(main_of('c'), 'c'.into(), 8080);
    read(&mut story, 5071, 1900, Some(100));
    read(&mut story, 9000, 4000, Some(100));
    let engine = check(&story, MINUTE, ONE);
    let cpu = engine.starts()[0].listening[0].pressure.cpu.expect("it was read");
    assert_eq!((cpu.throttled.as_millis(), cpu.periods, cpu.limit), (1800, 18, Some(100)));
}

fn told(engine: &Engine) -> u64 {
    engine.counts().told.get(&ChangeName::ContainerListening).copied().unwrap_or(0)
}

#[test]
fn the_first_socket_counts_and_the_start_stays_as_it_is() {
    let mut story = one();
    story.at(3420).listen(main_of('c'), 'c'.into(), 8080);
    story.at(3500).listen(main_of('c'), 'c'.into(), 9090);
    let engine = check(&story, MINUTE, ONE);
    assert_eq!(listening(&engine), ["main 350:8080"]);
    assert_eq!(told(&engine), 1);
    let start = &engine.starts()[0];
    assert!(start.is_whole());
    assert_eq!(start.slowest().map(|phase| phase.kind.clone()), Some(Kind::Image));
    assert_eq!(start.listening[0].socket, Listener { port: 8080, family: Family::Ipv4 });
    // Listening has a share of its own, after the share of the whole start, which did not change.
    let shares = engine.shares();
    let [.., whole, last] = shares.as_slice() else { panic!("{shares:?}") };
    assert_eq!((whole.kind.as_ref(), whole.p50), (None, Duration::from_millis(2970)));
    assert_eq!(
        (last.kind.as_ref(), last.starts, last.p99),
        (Some(&Kind::Listening), 1, Duration::from_millis(350))
    );
}

/// The process that listens is a child of the container's program, in a cgroup below the container's.
#[test]
fn whoever_in_the_container_listens_does_so_for_it() {
    let mut story = one();
    let worker = Who::new(4000, 1000 + u32::from('c'), "worker").within(777, POD_NETNS);
    story.at(4070).listen(worker, 'c'.into(), 80);
    assert_eq!(listening(&play(&story, MINUTE)), ["main 1000:80"]);
}

#[test]
fn a_start_that_was_reported_goes_on_without_it_and_has_it_later() {
    let mut story = one();
    story.until(40 * SECOND);
    let revision = play(&story, 39 * SECOND).starts_revision();
    story.at(45 * SECOND).listen(main_of('c'), 'c'.into(), 8080);
    let engine = check(&story, MINUTE, ONE);
    assert_eq!(listening(&engine), ["main 41930:8080"]);
    assert_ne!(engine.starts_revision(), revision, "whoever keeps starts has to know");
}

#[test]
fn each_container_listens_for_itself_and_the_slowest_counts() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'b', "init", SECOND);
    // An init container may listen as well. A restart is no part of a start.
    story.listen(main_of('b'), 'b'.into(), 1);
    ends(&mut story, 'b', 1500, 0);
    container(&mut story, 'c', "proxy", 2 * SECOND);
    container(&mut story, 'd', "main", 2100);
    story.at(2171).listen(main_of('c'), 'c'.into(), 15001);
    ends(&mut story, 'd', 2400, 1 << 8);
    container(&mut story, 'e', "main", 3 * SECOND);
    story.at(4070).listen(main_of('e'), 'e'.into(), 80);
    let engine = play(&story, MINUTE);
    assert_eq!(listening(&engine), ["init 1:1", "proxy 101:15001"]);
    assert_eq!(told(&engine), 3);
    let shares = engine.shares();
    assert_eq!(shares.last().map(|it| (it.starts, it.p50)), Some((1, Duration::from_millis(101))));
}

#[test]
fn what_is_no_first_socket_of_a_start_is_none() {
    // Sockets of pause, of no container, and of a container that does not run yet.
    let mut story = Story::new();
    sandbox(&mut story);
    story.at(600).listen(Who::new(644, SHIM, "pause").within(21, POD_NETNS), 21, 1);
    story.listen(Who::new(9, 1, "sshd"), 1, 22).listen(main_of('c'), 'c'.into(), 80);
    container(&mut story, 'c', "main", 3 * SECOND);
    let late = 3070 + u64::try_from(WITHIN.as_millis()).expect("short") + 1;
    story.until(late).listen(main_of('c'), 'c'.into(), 80);
    let engine = play(&story, late + MINUTE);
    assert_eq!((listening(&engine), told(&engine)), (Vec::new(), 0));
    assert!(engine.shares().iter().all(|share| share.kind != Some(Kind::Listening)));

    // The container existed before the agent, so it may have listened long ago.
    let mut story = Story::new();
    story.at(100).found(main_of('c'), 1, &leaf('c'), "/main").container('c', Role::Container, 'a', "main");
    story.listen(main_of('c'), 'c'.into(), 80);
    assert_eq!(told(&play(&story, MINUTE)), 0);
}

#[test]
fn a_loss_or_a_suspend_before_it_is_marked_and_not_compared() {
    let mut story = one();
    story.at(10 * SECOND).lost();
    story.at(11 * SECOND).listen(main_of('c'), 'c'.into(), 80);
    let engine = play(&story, MINUTE);
    assert_eq!(listening(&engine), ["main 7930:80!"]);
    assert!(engine.starts()[0].is_whole());
    assert!(engine.shares().iter().all(|share| share.kind != Some(Kind::Listening)));

    let mut story = one();
    story.until(40 * SECOND);
    story.kernel(Fact::Resumed { slept: Duration::from_secs(1) });
    story.at(45 * SECOND).listen(main_of('c'), 'c'.into(), 80);
    let engine = play(&story, MINUTE);
    assert_eq!(listening(&engine), ["main 41930:80z"]);
    assert!(engine.shares().iter().all(|share| share.kind != Some(Kind::Listening)));
}

/// A container's role may be answered after it has listened.
#[test]
fn a_socket_before_the_answer_is_not_lost() {
    let mut story = one();
    story.facts.retain(|seen| !matches!(&seen.fact, Fact::ContainerFound(it) if it.role == Role::Container));
    story.at(3100).listen(main_of('c'), 'c'.into(), 80);
    story.at(3200).container('c', Role::Container, 'a', "main");
    let engine = play(&story, MINUTE);
    assert_eq!((listening(&engine), told(&engine)), (vec!["main 30:80".to_owned()], 1));
}
