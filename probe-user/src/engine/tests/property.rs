//! What holds for every history, sensible or not: facts about a handful of processes, namespaces, directories and
//! containers, thrown together.

use std::time::Duration;

use probe_common::event::class;
use proptest::prelude::*;

use super::{
    containerd,
    story::{
        self, HOST, Story, UID, Who, address, call, cgroup, executed, id, ms, pass, pod_name, settle, take,
        uid,
    },
};
use crate::engine::{
    Engine, Settings,
    change::Output,
    fact::{
        Attached, CacheFound, CniCalled, ContainerFound, Executed, Exited, Fact, List, Loss, Mechanism,
        NameSource, Observation, Origin, ProcessFound, Role, Signal, Signaled, Task,
    },
    id::NetnsKey,
    time::Timestamp,
};

const COMMS: [&str; 6] = ["containerd", "runc:[1:CHILD]", "pause", "sleep", "bridge", "pinns"];
const LISTS: [List; 6] =
    [List::Processes, List::Netns, List::Addresses, List::Cgroups, List::Containers, List::Pods];
const BITS: [u32; 4] = [0, class::CONTAINER_TOP, class::CONTAINER_TOP | class::PAUSE, class::CALLER];

fn path(number: u64) -> String {
    match number {
        0 => "/kubepods".to_owned(),
        1 => format!("/kubepods/pod{UID}"),
        2 => format!("/system.slice/docker-{}.scope", id('d')),
        3 => format!("/kubepods/pod{UID}/{}/{}", id('a'), id('b')),
        other => story::leaf(digit(other)),
    }
}

fn digit(number: u64) -> char {
    char::from_digit(u32::try_from(number % 3 + 10).unwrap_or(10), 16).unwrap_or('a')
}

fn who() -> impl Strategy<Value = Who> {
    (1_u32..6, 0_u32..6, 0..COMMS.len(), 0_u64..7, prop_oneof![Just(HOST), 40_u32..43]).prop_map(
        |(pid, parent, comm, number, netns)| Who::new(pid, parent, COMMS[comm]).within(number, netns),
    )
}

fn netns() -> impl Strategy<Value = NetnsKey> {
    (40_u32..43, prop_oneof![Just(0_u64), 1_u64..4]).prop_map(|(inode, cookie)| NetnsKey::new(inode, cookie))
}

/// What a hook says.
fn happened() -> impl Strategy<Value = Fact> {
    let cgroups = || (0_u64..7).prop_map(|number| cgroup(number, &path(number)));
    let calls = (who(), 0..4_usize, 0..3_usize, any::<bool>()).prop_map(|(who, command, digit, host)| {
        let command = ["ADD", "DEL", "CHECK", "VERSION"][command];
        let netns = ["", "/run/netns/x", "/proc/2/ns/net"][digit];
        let plugin = ["/usr/lib/cni/bridge", "/sbin/iptables", "/usr/lib/cni/loopback"][digit];
        let it = call(who.pid, who.parent, plugin, command, netns, ['a', 'b', 'c'][digit]);
        CniCalled { host, ..it }
    });
    let addresses = || {
        (who(), 40_u32..43, 0_u8..3)
            .prop_map(|(who, inode, last)| address(who, inode, &format!("10.0.0.{last}/24"), "eth0"))
    };
    prop_oneof![
        (who(), 0..BITS.len()).prop_map(|(who, bits)| executed(who, BITS[bits], "/bin/it")),
        who().prop_map(|who| executed(who, class::RUNTIME, &format!("runc create {}", id('a')))),
        calls.prop_map(Fact::CniCalled),
        (who(), 0..BITS.len(), 0_u32..1024).prop_map(|(who, bits, status)| Fact::Exited(Exited {
            task: who.task(),
            status,
            class: BITS[bits]
        })),
        (who(), who()).prop_map(|(target, sender)| {
            Fact::Signaled(Signaled { target: target.task(), signal: 9, code: 0, sender: sender.task() })
        }),
        (who(), netns()).prop_map(|(who, netns)| Fact::NetnsCreated { netns, by: who.task() }),
        (who(), netns()).prop_map(|(who, netns)| Fact::NetnsDropped { netns, by: who.task() }),
        (40_u32..43).prop_map(|inode| Fact::NetnsFreed { netns: NetnsKey::new(inode, 0) }),
        addresses().prop_map(Fact::AddressAdded),
        addresses().prop_map(Fact::AddressRemoved),
        (cgroups(), who()).prop_map(|(cgroup, who)| Fact::CgroupCreated { cgroup, by: who.task() }),
        (cgroups(), who()).prop_map(|(cgroup, who)| Fact::CgroupRemoved { cgroup, by: who.task() }),
        cgroups().prop_map(|cgroup| Fact::CgroupReleased { cgroup }),
        (cgroups(), who()).prop_map(|(cgroup, who)| {
            Fact::CgroupEntered { cgroup, member: who.task().key, by: Task::default() }
        }),
        cgroups().prop_map(|cgroup| Fact::CgroupEmptied { cgroup }),
    ]
}

/// What a listing, an answer or the agent says.
fn found() -> impl Strategy<Value = (Origin, Fact)> {
    let role = prop_oneof![Just(Role::Sandbox), Just(Role::Container)];
    let listed = prop_oneof![
        (0..LISTS.len()).prop_map(|list| Fact::ListBegun(LISTS[list])),
        (0..LISTS.len(), any::<bool>())
            .prop_map(|(list, complete)| Fact::ListEnded { list: LISTS[list], complete }),
        (who(), 0_u32..3).prop_map(|(who, ns_pid)| {
            let task = who.task();
            let cgroup_path = path(who.cgroup);
            Fact::ProcessFound(ProcessFound {
                task,
                argv: vec![],
                cgroup_path,
                ns_pid,
                cni: None,
                filename: String::new(),
            })
        }),
        netns().prop_map(|netns| Fact::NetnsFound {
            netns,
            mounts: vec!["/run/netns/x".to_owned()],
            vacant: true
        }),
        (who(), 40_u32..43).prop_map(|(who, inode)| Fact::AddressFound(address(
            who,
            inode,
            "10.0.0.1/24",
            "eth0"
        ))),
        (0_u64..7, any::<bool>()).prop_map(|(number, populated)| {
            Fact::CgroupFound { cgroup: cgroup(number, &path(number)), populated }
        }),
        (0_u64..3, role, any::<bool>()).prop_map(|(number, role, named)| Fact::ContainerFound(
            ContainerFound {
                id: id(digit(number)),
                role,
                sandbox: Some(id('a')),
                name: None,
                pod: named.then(pod_name),
                source: NameSource::Bundle,
            }
        )),
        (0_u64..3).prop_map(|number| Fact::ContainerUnknown(id(digit(number)))),
        Just(Fact::PodFound {
            uid: uid(),
            namespace: "default".to_owned(),
            name: "web-0".to_owned(),
            source: NameSource::LogFolder,
        }),
        (0_u64..3).prop_map(|number| Fact::CacheFound(CacheFound {
            network: "net".to_owned(),
            container: id(digit(number)),
            ifname: "eth0".to_owned(),
            addresses: Vec::new(),
            netns: Some("/run/netns/x".to_owned()),
            args: vec![("K8S_POD_UID".to_owned(), UID.to_owned())],
        })),
    ];
    let agent = prop_oneof![
        Just(Fact::Lost { what: Loss::BulkRing, count: 1 }),
        Just(Fact::Clock { boot_wall_ns: 1 }),
        Just(Fact::Resumed { slept: Duration::from_secs(1) }),
        any::<bool>().prop_map(|netlink| Fact::Attached(Attached {
            signal: Signal::NetnsDropped,
            mechanism: netlink.then_some(Mechanism::Netlink),
            note: String::new(),
            missed: Vec::new(),
        })),
    ];
    let notified = prop_oneof![
        netns().prop_map(|netns| Fact::NetnsDropped { netns, by: Task::default() }),
        (40_u32..43).prop_map(|inode| {
            Fact::AddressAdded(address(Who::new(0, 0, ""), inode, "10.0.0.1/24", "eth0"))
        }),
    ];
    prop_oneof![
        6 => listed.prop_map(|fact| (Origin::Listed, fact)),
        2 => notified.prop_map(|fact| (Origin::Netlink, fact)),
        1 => agent.prop_map(|fact| (Origin::Agent, fact)),
    ]
}

/// Facts between two watermarks, each at a time of its own; between the steps, perhaps a long time passes.
#[derive(Clone, Debug)]
struct Step {
    happened: Vec<Observation>,
    found: Vec<Observation>,
    watermark: Timestamp,
}

fn history() -> impl Strategy<Value = Vec<Step>> {
    let kernel = proptest::collection::vec(happened(), 0..12);
    let other = proptest::collection::vec(found(), 0..4);
    let pause = prop_oneof![6 => Just(1_u64), 2 => Just(1200_u64), 1 => Just(100_000_u64)];
    proptest::collection::vec((kernel, other, pause), 1..8).prop_map(|steps| {
        let mut now = 1;
        let mut stamp = |origin, fact| {
            now += 1;
            Observation { at: ms(now), origin, fact }
        };
        let mut made = Vec::new();
        for (kernel, other, pause) in steps {
            let happened = kernel.into_iter().map(|fact| {
                let is_foreign = matches!(&fact, Fact::CniCalled(call) if !call.host);
                stamp(if is_foreign { Origin::Delegated } else { Origin::Kernel }, fact)
            });
            let happened = happened.collect();
            let found = other.into_iter().map(|(origin, fact)| stamp(origin, fact)).collect();
            let end = stamp(Origin::Agent, Fact::Watermark).at;
            made.push(Step { happened, found, watermark: end });
            for _ in 0..pause {
                stamp(Origin::Agent, Fact::Watermark);
            }
        }
        made
    })
}

/// Facts at any time, late ones too, and watermarks that jump.
fn nonsense() -> impl Strategy<Value = Vec<Observation>> {
    let any_fact = prop_oneof![
        4 => happened().prop_map(|fact| (Origin::Kernel, fact)),
        2 => found(),
        1 => Just((Origin::Agent, Fact::Watermark)),
    ];
    let at = prop_oneof![4 => 0_u64..50, 1 => 0_u64..200_000, 1 => Just(u64::MAX / 1_000_000)];
    let seen = (any_fact, at).prop_map(|((origin, fact), at)| Observation { at: ms(at), origin, fact });
    proptest::collection::vec(seen, 0..60)
}

/// One pod's life as containerd makes it, cut into steps.
fn story_steps() -> Vec<Step> {
    let mut story = Story::new();
    containerd::start(&mut story);
    containerd::run(&mut story);
    containerd::end(&mut story);
    let kernel: Vec<Observation> =
        story.facts.into_iter().filter(|seen| seen.origin == Origin::Kernel).collect();
    let step = |facts: &[Observation]| Step {
        happened: facts.to_vec(),
        found: Vec::new(),
        watermark: facts.last().map_or(Timestamp::ZERO, |last| last.at),
    };
    kernel.chunks(9).map(step).collect()
}

fn play(engine: &mut Engine, step: &Step) -> Vec<String> {
    for seen in step.happened.iter().chain(&step.found) {
        engine.observe(seen.clone());
    }
    pass(engine, step.watermark);
    take(engine)
}

fn play_all(steps: &[Step]) -> Vec<String> {
    let mut engine = Engine::new(Settings::default());
    let mut lines: Vec<String> = steps.iter().flat_map(|step| play(&mut engine, step)).collect();
    lines.extend(settle(&mut engine, end(steps)));
    lines
}

fn end(steps: &[Step]) -> Timestamp {
    steps.last().map_or(Timestamp::ZERO, |step| step.watermark)
}

fn restored(engine: &Engine) -> Engine {
    let mut fresh = Engine::new(engine.settings().clone());
    for row in engine.dump() {
        fresh.observe(row);
    }
    fresh
}

fn shuffled(steps: &[Step], mut seed: u64) -> Vec<Step> {
    let mut steps = steps.to_vec();
    for step in &mut steps {
        for at in (1..step.happened.len()).rev() {
            // Knuth's generator: any order will do.
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let other = usize::try_from(seed >> 33).unwrap_or(0) % (at + 1);
            step.happened.swap(at, other);
        }
    }
    steps
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_delivery_within_the_watermark_means_nothing(steps in history(), seed: u64) {
        prop_assert_eq!(play_all(&shuffled(&steps, seed)), play_all(&steps));
    }

    #[test]
    fn duplicates_change_nothing(steps in history(), seed: u64) {
        let mut twice = steps.clone();
        for step in &mut twice {
            step.happened.extend(step.happened.clone());
        }
        prop_assert_eq!(play_all(&shuffled(&twice, seed)), play_all(&steps));
    }

    #[test]
    fn a_restored_engine_goes_on_as_the_dumped_one(steps in history(), cut in 0_usize..8, half: bool) {
        let mut engine = Engine::new(Settings::default());
        let cut = cut.min(steps.len());
        for step in &steps[..cut] {
            play(&mut engine, step);
        }
        if half && let Some(step) = steps.get(cut) {
            // In the midst of a step: records wait in the timeline.
            for seen in &step.happened {
                engine.observe(seen.clone());
            }
            take(&mut engine);
        }
        let mut other = restored(&engine);
        prop_assert_eq!(other.dump(), engine.dump());
        for step in &steps[cut..] {
            prop_assert_eq!(play(&mut other, step), play(&mut engine, step));
            prop_assert_eq!(other.deadline(), engine.deadline());
        }
        prop_assert_eq!(settle(&mut other, end(&steps)), settle(&mut engine, end(&steps)));
        prop_assert_eq!(other.dump(), engine.dump());
        prop_assert_eq!(other.pods(), engine.pods());
    }

    #[test]
    fn whatever_comes_the_engine_goes_on(facts in nonsense()) {
        let mut engine = Engine::new(Settings::default());
        let (mut told, mut latest) = (0, Timestamp::ZERO);
        for seen in facts {
            let at = seen.at;
            engine.observe(seen);
            engine.advance(at);
            let now = engine.dump().first().map_or(Timestamp::ZERO, |row| row.at);
            prop_assert!(engine.deadline().is_none_or(|deadline| deadline > now), "it would be woken for ever");
            for output in std::iter::from_fn(|| engine.poll()) {
                if let Output::Change(change) = output {
                    told += 1;
                    prop_assert_eq!(change.seq, told);
                    prop_assert!(change.late || change.at >= latest, "out of order, and not said so");
                    latest = latest.max(change.at);
                }
            }
        }
    }

    #[test]
    fn memory_is_bounded_by_what_lives(steps in history(), rounds in 1_u64..40) {
        let mut engine = Engine::new(Settings::default());
        let span = end(&steps).0 + 1;
        let mut rows = Vec::new();
        for round in 0..rounds {
            for step in &steps {
                let mut step = step.clone();
                for seen in step.happened.iter_mut().chain(&mut step.found) {
                    seen.at = Timestamp(seen.at.0 + round * span);
                    again(&mut seen.fact, round);
                }
                step.watermark = Timestamp(step.watermark.0 + round * span);
                play(&mut engine, &step);
            }
            for later in 1..20 {
                engine.advance(Timestamp(span * (round + 1)) + Duration::from_secs(later * 10));
                take(&mut engine);
            }
            rows.push(engine.dump().len());
        }
        let most = rows.iter().copied().max().unwrap_or(0);
        prop_assert!(most <= 100, "rows after each round: {rows:?}");
    }
}

/// The same happens anew: other processes, with pids used again.
fn again(fact: &mut Fact, round: u64) {
    let renew = |task: &mut Task| {
        task.key.start += round * 1_000_000;
        task.parent.start += round * 1_000_000;
    };
    if let Fact::Executed(Executed { task, .. })
    | Fact::CniCalled(CniCalled { task, .. })
    | Fact::Exited(Exited { task, .. })
    | Fact::ProcessFound(ProcessFound { task, .. }) = fact
    {
        renew(task);
    }
}

#[test]
fn a_pods_life_is_the_same_in_any_order_and_across_a_restart() {
    let steps = story_steps();
    let expected = play_all(&steps);
    for seed in 0..50 {
        assert_eq!(play_all(&shuffled(&steps, seed)), expected);
    }
    for cut in 0..=steps.len() {
        let mut engine = Engine::new(Settings::default());
        let mut lines: Vec<String> = steps[..cut].iter().flat_map(|step| play(&mut engine, step)).collect();
        let mut engine = restored(&engine);
        lines.extend(steps[cut..].iter().flat_map(|step| play(&mut engine, step)));
        lines.extend(settle(&mut engine, end(&steps)));
        assert_eq!(lines, expected, "cut at {cut}");
    }
}
