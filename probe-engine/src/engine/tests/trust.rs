//! Which sources are trusted. Claims of containers and local users about others prove nothing, and a pid
//! alone does not identify a process.

use probe_common::{event::class, id::CgroupKey};

use super::{
    containerd::{PATH, TOP},
    story::{CONTAINERD, DAEMON, POD_NETNS, Story, Who, call, key, leaf, ms, run::pass},
};
use crate::{
    engine::{Engine, Settings, world::lookup::daemons::cleaners_since},
    model::{
        change::{ChangeKind, Output},
        fact::{Fact, Mechanism, Origin, Role, Signal, Signaled, Task},
        finding::{Kind, OutOfOrder, TeardownOutOfOrder},
        id::{NetnsKey, TaskKey},
    },
};

/// Another container's cgroup, and a process in it.
const OTHER: u64 = 90;
const INTRUDER: Who = Who::new(900, 899, "intruder").within(OTHER, 4_026_532_500);
const OWN_NETNS: u32 = 4_026_532_999;
const SI_KERNEL: i32 = 0x80;

fn other_container(story: &mut Story) {
    story.mkdir(OTHER, &leaf('f').replace("11111111", "99999999"));
}

/// The node's runtime has a call open for sandbox `a`, and a container claims to be its delegate.
fn claimed(netns: &str) -> Story {
    let mut story = Story::new();
    other_container(story.at(5));
    story.at(10).netns(Who::new(CONTAINERD, 1, "containerd"), 4_026_532_177, 7);
    story.at(20).cni(810, CONTAINERD, "/usr/lib/cni/multus", "ADD", PATH);
    let mut forged = call(901, 900, "/usr/lib/cni/bridge", "ADD", netns, 'a');
    (forged.host, forged.caller) = (false, None);
    forged.task.cgroup = CgroupKey::new(0, OTHER);
    story.at(30).say(Origin::Delegated, Fact::CniCalled(forged));
    story
}

fn delegate() -> Who {
    Who::new(901, 900, "bridge").within(OTHER, 4_026_532_500)
}

/// The sandbox in the events of a namespace's addresses.
fn owner_of(story: &Story, inode: u32) -> Option<String> {
    let line = story.run().into_iter().find(|line| line.contains(&format!("eth0 {inode}")))?;
    line.split_once(" [").map(|(_, owner)| owner.trim_end_matches(']').to_owned())
}

#[test]
fn a_containers_own_namespace_never_becomes_a_sandboxs() {
    let mut story = claimed(PATH);
    story.at(40).netns(INTRUDER, OWN_NETNS, 9);
    story.address(delegate(), OWN_NETNS, "10.88.0.66/24", "eth0");
    let owner = owner_of(&story, OWN_NETNS).unwrap_or_default();
    assert!(!owner.contains("web-0 a"), "{owner}");
}

#[test]
fn a_delegate_is_not_believed_of_another_namespace_than_the_runtimes() {
    let mut story = claimed("/var/run/netns/other");
    story.at(40).netns(Who::new(777, 1, "unshare"), OWN_NETNS, 9);
    story.address(delegate(), OWN_NETNS, "10.88.0.66/24", "eth0");
    let owner = owner_of(&story, OWN_NETNS).unwrap_or_default();
    assert!(!owner.contains("web-0 a"), "{owner}");
}

/// A CNI daemon that the runtime's plugin asked works like this. If the sandbox's namespace is not known, the
/// daemon's work may show it.
#[test]
fn a_delegate_of_an_open_call_is_a_hint() {
    let mut story = Story::new();
    other_container(story.at(5));
    story.at(20).cni(810, CONTAINERD, "/usr/lib/cni/multus", "ADD", PATH);
    let mut own = call(901, 900, "/usr/lib/cni/bridge", "ADD", PATH, 'a');
    (own.host, own.caller) = (false, None);
    own.task.cgroup = CgroupKey::new(0, OTHER);
    story.at(30).say(Origin::Delegated, Fact::CniCalled(own));
    story.at(40).address(delegate(), OWN_NETNS, "10.88.0.9/24", "eth0");
    assert_eq!(owner_of(&story, OWN_NETNS).as_deref(), Some("default/web-0 a"));
}

/// The OOM killer on kernels without the backport of early 2025: the kill is sent in the name of the task
/// that asked for memory, and then only the victim's pid is reported.
fn oom_of_pid(story: &mut Story, victim: Who, asking: Who) {
    let signaled = |target: Task| Signaled { target, signal: 9, code: SI_KERNEL, sender: asking.task() };
    let pid_alone = Task { key: TaskKey::new(victim.pid, 0), tid: victim.pid, ..Task::default() };
    story.kernel(Fact::Signaled(signaled(victim.task())));
    story.kernel(Fact::OomKilled(signaled(pid_alone)));
}

/// The reported end of the story's process `pid`: whether the OOM killer ended it, and which other process is
/// named as the killer.
fn end_of(story: &Story, pid: u32) -> (bool, Option<String>) {
    let mut engine = Engine::new(Settings::default());
    for fact in &story.facts {
        engine.observe(fact.clone());
    }
    let last = story.facts.last().expect("facts").at;
    pass(&mut engine, last);
    engine.advance(last + engine.settings().hold);
    let end = std::iter::from_fn(|| engine.poll()).find_map(|output| {
        let Output::Change(change) = output else { return None };
        let ChangeKind::ProcessExit { process, end } = change.what else { return None };
        (process.key == key(pid)).then_some(end)
    });
    let end = end.expect("the end is told");
    (end.oom, end.killer.map(|killer| killer.comm))
}

#[test]
fn a_victim_that_is_reported_by_its_pid_alone_was_killed_by_the_oom_killer() {
    let victim = Who::new(900, 899, "eater").within(OTHER, 4_026_532_500);
    let asking = Who::new(950, 899, "innocent").within(OTHER, 4_026_532_500);
    // The victim is known by a hook, is the task that asked for memory, or is not known.
    for (asking, known) in [(asking, true), (victim, true), (asking, false)] {
        let mut story = Story::new();
        other_container(story.at(5));
        if known {
            story.at(10_000).exec(victim, TOP, "/bin/eater");
        }
        oom_of_pid(story.at(10_020), victim, asking);
        story.at(10_030).exit(victim, TOP, 9);
        assert_eq!(end_of(&story, 900), (true, None), "asked by {}, known: {known}", asking.comm);
    }
}

/// The kernel reports the kill after the signal. On another CPU the victim may have ended by then.
#[test]
fn a_victim_that_ends_before_the_kill_is_reported_was_killed_by_the_oom_killer() {
    let victim = Who::new(900, 899, "eater").within(OTHER, 4_026_532_500);
    let asking = Who::new(950, 899, "innocent").within(OTHER, 4_026_532_500);
    for start in [victim.task().key.start, 0] {
        for swapped in [false, true] {
            let mut story = Story::new();
            other_container(story.at(5));
            story.at(10_000).exec(victim, TOP, "/bin/eater");
            story.at(10_030).exit(victim, TOP, 9);
            oom_of_pid(story.at(10_029), victim, asking);
            let told = story.facts.last_mut().expect("the kill");
            told.at = ms(10_031);
            if let Fact::OomKilled(kill) = &mut told.fact {
                kill.target.key.start = start;
            }
            let last = story.facts.len() - 1;
            if swapped {
                story.facts.swap(last, last - 2);
            }
            assert_eq!(end_of(&story, 900), (true, None), "start {start}, swapped: {swapped}");
        }
    }
}

/// This holds even if the end was reported before the kill was read.
#[test]
fn a_pause_whose_end_was_reported_already_was_killed_by_the_oom_killer() {
    for behind in [20, 200] {
        let pause = Who::new(693, 692, "pause").within(21, POD_NETNS);
        let eater = Who::new(950, 692, "eater").within(21, POD_NETNS);
        let mut story = Story::new();
        story.at(5).container('a', Role::Sandbox, 'a', "").mkdir(21, &leaf('a'));
        story.at(10).exec(pause, TOP, "/pause");
        oom_of_pid(story.at(10_029), pause, eater);
        story.facts.pop();
        story.at(10_030).exit(pause, TOP, 9);
        story.at(10_030 + behind).kernel(Fact::OomKilled(Signaled {
            target: pause.task(),
            signal: 9,
            code: SI_KERNEL,
            sender: eater.task(),
        }));
        let (_, engine) = story.judge(60_000);
        let how = engine.findings().find_map(|it| {
            let Kind::TeardownOutOfOrder(TeardownOutOfOrder { how, killer, .. }) = &it.kind else {
                return None;
            };
            Some((*how, killer.is_some()))
        });
        let is_oom = behind < 100;
        let expected = if is_oom { OutOfOrder::PauseOutOfMemory } else { OutOfOrder::PauseKilled };
        assert_eq!(how, Some((expected, !is_oom)), "{behind} ms behind");
    }
}

/// A sandbox in which no container was seen may be the first of a series, so it is remembered for longer.
#[test]
fn a_pause_that_was_killed_is_reported_until_its_sandbox_is_forgotten() {
    let pause = Who::new(693, 692, "pause").within(21, POD_NETNS);
    let killer = Who::new(950, 1, "sh");
    let mut story = Story::new();
    story.at(5).container('a', Role::Sandbox, 'a', "").mkdir(21, &leaf('a'));
    story.at(10).exec(pause, TOP, "/pause");
    let kill = Signaled { target: pause.task(), signal: 9, code: 0, sender: killer.task() };
    story.at(10_029).kernel(Fact::Signaled(kill)).exit(pause, TOP, 9).rmdir(21, &leaf('a'));
    let closes = 10_030 + 25 * 60 * 1000;
    let (_, engine) = story.until(closes + 60_000).judge(closes + 60_000);
    let found = engine.findings().find(|it| matches!(it.kind, Kind::TeardownOutOfOrder(_)));
    let closed_at = found.and_then(|it| it.closed_at).expect("it is closed");
    // The tables are searched every ten seconds.
    assert!(ms(closes) < closed_at && closed_at <= ms(closes + 11_000), "{closed_at:?}");
}

/// The kill does not concern the next process of that pid.
#[test]
fn a_pid_alone_is_not_the_next_process_of_that_pid() {
    let mut story = Story::new();
    other_container(story.at(5));
    let victim = Who::new(900, 899, "eater").within(OTHER, 4_026_532_500);
    let asking = Who::new(950, 899, "innocent").within(OTHER, 4_026_532_500);
    let pid_alone = Task { key: TaskKey::new(900, 0), tid: 900, ..Task::default() };
    let it = Signaled { target: pid_alone, signal: 9, code: SI_KERNEL, sender: asking.task() };
    // The process of that pid began later (in stories it begins at ten milliseconds times its pid).
    story.at(8_000).kernel(Fact::OomKilled(it));
    story.at(9_500).exec(victim, TOP, "/bin/eater").exit(victim, TOP, 9);
    assert_eq!(end_of(&story, 900), (false, None));
}

/// On the tier without fentry and kprobes the hooks look at a limited number of namespaces, and report the
/// others.
#[test]
fn rtnetlink_speaks_for_the_namespaces_that_the_hooks_cannot_look_at() {
    let mut story = Story::new();
    story.attached(Signal::NetnsDropped, Some(Mechanism::RawTracepoint));
    story.attached(Signal::NetnsFreed, Some(Mechanism::RawTracepoint));
    let by = Who::new(CONTAINERD, 1, "containerd").task();
    for (inode, end_unseen) in [(OWN_NETNS, false), (OWN_NETNS + 1, true)] {
        let netns = NetnsKey::new(inode, u64::from(inode));
        story.kernel(Fact::NetnsCreated { netns, by: by.clone(), end_unseen });
    }
    for inode in [OWN_NETNS, OWN_NETNS + 1] {
        let netns = NetnsKey::new(inode, u64::from(inode));
        story.say(Origin::Netlink, Fact::NetnsDropped { netns, by: Task::default() });
    }
    let ended: Vec<_> = story.run().into_iter().filter(|line| line.contains("netns.destroyed")).collect();
    assert_eq!(ended, [format!("6 netns.destroyed {} Netlink", OWN_NETNS + 1)]);
    // No hook reports the end of its teardown, so none is waited for.
    story.until(30 * 60 * 1000);
    assert_eq!(story.judge(30 * 60 * 1000).0, "");
}

/// This holds even if the hooks see all addresses, so that netlink is needed for nothing else.
#[test]
fn rtnetlink_watches_what_the_hooks_cannot_look_at_and_nothing_else() {
    let mut story = Story::new();
    story.attached(Signal::NetnsDropped, Some(Mechanism::RawTracepoint));
    story.attached(Signal::AddressV4, Some(Mechanism::Fentry));
    story.attached(Signal::AddressV6, Some(Mechanism::Fentry));
    let by = Who::new(CONTAINERD, 1, "containerd").task();
    for (inode, end_unseen) in [(OWN_NETNS, false), (OWN_NETNS + 1, true)] {
        let netns = NetnsKey::new(inode, u64::from(inode));
        story.kernel(Fact::NetnsCreated { netns, by: by.clone(), end_unseen });
    }
    let (_, engine) = story.judge(10_000);
    let watched = |inode: u32| engine.world.netns.live(inode).is_some_and(|row| row.watched);
    assert_eq!([watched(OWN_NETNS), watched(OWN_NETNS + 1)], [false, true]);
}

/// A copy of a shell with a daemon's name. The hooks class only processes of root as callers of plugins.
#[test]
fn a_daemon_is_known_by_more_than_its_name() {
    let mut story = Story::new();
    story.at(10_000).exec(DAEMON, class::CALLER, "/usr/bin/containerd");
    let since = |story: &Story| cleaners_since(&story.judge(20_000).1.world);
    let before = since(&story);
    assert!(before.is_some());
    let shell = Who::new(800, 799, "containerd");
    story.at(11_000).exec(shell, 0, "/home/user/containerd");
    assert_eq!(since(&story), before, "its start is no runtime's");
    // The process of root is one.
    let again = Who::new(801, 1, "containerd");
    story.at(12_000).exec(again, class::CALLER, "/usr/bin/containerd");
    assert!(since(&story) > before);
}

/// Later events show whether an order restarted the node.
#[test]
fn an_order_without_effect_is_taken_back() {
    const AT: u64 = 60_000;
    let order = |line: &str| {
        let mut story = Story::new();
        other_container(story.at(9_000));
        story.at(10_000).exec(DAEMON, class::CALLER, "/usr/bin/containerd");
        story.at(20_000).exec(Who::new(900, 899, "app").within(OTHER, 4_026_532_500), TOP, "/app");
        story.container('f', Role::Container, 'e', "app");
        story.at(AT).exec(Who::new(901, 1, "reboot"), class::ORDER, line);
        story
    };
    let ordered = |story: &Story, until: u64| story.judge(until).1.recovery().order.is_some();
    let story = order("/root/reboot");
    assert!(ordered(&story, AT + 110_000), "it may still have one");
    assert!(!ordered(&story, AT + 130_000), "all goes on as before");
    assert!(ordered(&order("/sbin/shutdown -r +5"), AT + 130_000), "it is for later");
    let mut story = order("/sbin/reboot");
    story.at(AT + 30_000).exit(DAEMON, class::CALLER, 15);
    assert!(ordered(&story, AT + 130_000), "the runtime was stopped");
    // A kubelet that shuts down gracefully ends the pods first.
    let mut story = order("/sbin/reboot");
    story.at(AT + 30_000).exit(Who::new(900, 899, "app").within(OTHER, 4_026_532_500), TOP, 15);
    assert!(ordered(&story, AT + 130_000), "a pod's container was stopped");
    // A node that shuts down makes no pods.
    assert!(ordered(&story, AT + 600_000), "it takes its time");
    story.at(AT + 300_000).mkdir(OTHER + 1, &leaf('d'));
    story.exec(Who::new(950, 949, "pause").within(OTHER + 1, 4_026_532_501), TOP | class::PAUSE, "/pause");
    assert!(!ordered(&story, AT + 600_000), "a pod was made later");
    // On a busy node some job always completes.
    let mut story = order("/sbin/reboot");
    story.at(AT + 30_000).exit(Who::new(900, 899, "app").within(OTHER, 4_026_532_500), TOP, 0);
    assert!(!ordered(&story, AT + 130_000), "a job was done by itself");
}
