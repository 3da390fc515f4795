//! Restarts of a node from the order to the last pod. The agent runs from the beginning, starts late, or its
//! node loses power.

mod listening;
mod network;
pub(super) mod restart;

use std::time::Duration;

use probe_common::event::class;

use super::{
    containerd::TOP,
    story::{DAEMON, HOST, KUBELET, Story, Who, call, ms, run::pass},
};
use crate::{
    engine::{
        Engine, Settings,
        boot::{
            numbers::{Number, Numbers, Row},
            report::{Close, NoOrder, RecoveryReport, Zero},
        },
        world::CheckpointEntry,
    },
    model::{
        fact::{
            CniCalled, ContainerFound, Fact, NameSource, Origin, PodName, ProcessFound, ProgramFound, Role,
        },
        id::{ContainerId, PodUid, TICK, TaskKey},
        recovery::{
            Alive, BootRead, Kind, NetworkAttempt, Ordered, Pod, PreviousBoot, RecoveredPod, Recovery,
            RunningPods, Source, TimedSource,
        },
        time::Timestamp,
    },
};

const SECOND: u64 = 1000;
const WALL: i64 = 1_795_000_000_000_000_000;

/// Pods with similar names and nothing else in common: `app-1`, and so on.
struct App(u32);

impl App {
    fn uid(&self) -> PodUid {
        PodUid::parse(&format!("{:08}-2222-3333-4444-555555555555", self.0)).expect("a UID")
    }

    fn path(&self) -> String {
        format!("/kubepods/besteffort/pod{}", self.uid())
    }

    fn id(&self, n: u32) -> ContainerId {
        ContainerId::parse(&format!("{:064x}", self.0 * 100 + n)).expect("an id")
    }

    fn name(&self) -> PodName {
        PodName {
            namespace: Some("default".to_owned()),
            name: Some(format!("app-{}", self.0)),
            uid: Some(self.uid()),
        }
    }

    fn pod(&self) -> Pod {
        let PodName { namespace, name, uid } = self.name();
        Pod { namespace, name, uid, kind: Kind::Service, listens: false, interfaces: Vec::new() }
    }

    /// The top process of the pod's container `n`.
    fn who(&self, n: u32, comm: &'static str) -> Who {
        let number = self.0 * 100 + n;
        Who::new(1000 + number, DAEMON.pid, comm).within(u64::from(number), HOST + self.0)
    }

    fn found(&self, story: &mut Story, n: u32, name: &str) {
        self.dated(story, n, name, None);
    }

    fn dated(&self, story: &mut Story, n: u32, name: &str, started: Option<Timestamp>) {
        let role = if n == 1 { Role::Sandbox } else { Role::Container };
        story.listed(Fact::ContainerFound(ContainerFound {
            id: self.id(n),
            role,
            sandbox: Some(self.id(1)),
            name: (n != 1).then(|| name.to_owned()),
            pod: Some(self.name()),
            source: NameSource::Bundle,
            started,
        }));
    }

    fn begin(&self, story: &mut Story, at: u64) {
        story.at(at).mkdir(u64::from(self.0 * 100), &self.path());
        self.made(story, 1, "");
        story.exec(self.who(1, "pause"), TOP | class::PAUSE, "/pause");
    }

    fn made(&self, story: &mut Story, n: u32, name: &str) {
        story.mkdir(u64::from(self.0 * 100 + n), &format!("{}/{}", self.path(), self.id(n)));
        self.found(story, n, name);
    }

    /// The pod's container `n` starts at `at`.
    fn run(&self, story: &mut Story, at: u64, n: u32, name: &str) {
        self.made(story.at(at - 2), n, name);
        story.at(at).exec(self.who(n, "app"), TOP, "/bin/app");
    }

    fn up(&self, story: &mut Story, at: u64) {
        self.begin(story, at - 500);
        self.run(story, at, 2, "main");
    }

    /// The runtime calls bridge for a sandbox of the pod. `status` is the plugin's exit status.
    fn add(&self, story: &mut Story, at: u64, n: u32, status: u32) {
        let pid = 5000 + self.0 * 100 + n;
        let mut it = call(pid, DAEMON.pid, "/usr/lib/cni/flannel", "ADD", "/run/netns/x", 'a');
        it.variables.container_id = Some(self.id(n).as_str().to_owned());
        it.variables.args = None;
        story.at(at).kernel(Fact::CniCalled(CniCalled { ..it }));
        story.at(at + 100).exit(Who::new(pid, DAEMON.pid, "flannel"), class::CNI, status);
    }
}

fn read(before: PreviousBoot) -> Fact {
    Fact::BootRead(Box::new(BootRead {
        boot_id: "this".to_owned(),
        kernel: "6.1".to_owned(),
        boot_wall_ns: WALL,
        before,
        ..BootRead::default()
    }))
}

/// The restart was ordered 12 s before the kernel started.
fn rebooted(pods: &[App]) -> PreviousBoot {
    PreviousBoot {
        boot_id: Some("last".to_owned()),
        ordered: Some(Ordered {
            wall_ns: WALL - 12_000_000_000,
            by: "systemctl reboot".to_owned(),
            source: Source::Hook,
        }),
        alive_wall_ns: Some(WALL - 8_000_000_000),
        pods: Some(pods.iter().map(App::pod).collect()),
        pods_left_out: 0,
        unseen: None,
    }
}

fn booted(before: PreviousBoot) -> Story {
    let mut story = Story::new();
    story.at(3 * SECOND).say(Origin::Agent, read(before));
    story.at(4 * SECOND).exec(DAEMON, class::CALLER, "/usr/bin/containerd");
    story.at(9 * SECOND).exec(KUBELET, class::CALLER, "/usr/bin/kubelet");
    story
}

fn study(story: &Story, until: u64) -> (RecoveryReport, Engine) {
    let (_, engine) = story.judge(until);
    (RecoveryReport::of(engine.recovery(), ms(until)), engine)
}

fn seconds(columns: Row) -> [Option<i64>; 4] {
    columns.map(|number| number.map(|it| it.ns / 1_000_000_000))
}

fn at(back: Option<&RecoveredPod>) -> Option<u64> {
    back.map(|back| back.mark.at.0 / 1_000_000)
}

#[test]
fn a_reboot_seen_as_a_whole_is_measured_from_its_order() {
    let mut story = booted(rebooted(&[App(1), App(2)]));
    // Only the form of its UID shows that a pod is static.
    let hash = PodUid::parse("0123456789abcdef0123456789abcdef").expect("a UID");
    let path = format!("/kubepods/burstable/pod{hash}");
    let (sandbox, container) = (App(9).id(1), App(9).id(2));
    story.at(14 * SECOND).mkdir(900, &path).mkdir(901, &format!("{path}/{sandbox}"));
    story.exec(App(9).who(1, "pause"), TOP | class::PAUSE, "/pause");
    story.mkdir(902, &format!("{path}/{container}"));
    story.listed(Fact::ContainerFound(ContainerFound {
        id: container,
        role: Role::Container,
        sandbox: Some(sandbox),
        name: Some("etcd".to_owned()),
        pod: Some(PodName {
            namespace: Some("kube-system".into()),
            name: Some("etcd-n".into()),
            uid: Some(hash),
        }),
        source: NameSource::Bundle,
        started: None,
    }));
    story.at(15 * SECOND).exec(App(9).who(2, "etcd"), TOP, "/etcd");
    App(1).up(&mut story, 20 * SECOND);
    let (early, _) = study(&story, 22 * SECOND);
    App(2).up(&mut story, 23 * SECOND);
    assert_eq!(early.close, Close::Open { back: 1, missing: Some(vec![App(2).pod()]) });
    // A new pod was not waited for.
    App(3).up(&mut story, 40 * SECOND);
    let (study, engine) = study(&story, 60 * SECOND);
    assert_eq!(seconds(study.numbers.columns), [Some(21), Some(27), Some(32), Some(35)]);
    assert_eq!(seconds(study.numbers.periods), [Some(21), Some(6), Some(5), Some(3)]);
    assert_eq!(study.numbers.whole(), Some(Number { ns: 35_000_000_000, is_inexact: false }));
    assert_eq!(study.close, Close::All { pods: 2 });
    assert!(study.is_closed() && !study.is_late && engine.recovery().closed);
    assert_eq!(study.cni.unseen_until, None);
    let Numbers { columns, periods } = study.numbers;
    assert!(columns.into_iter().chain(periods).flatten().all(|number| !number.is_inexact));
    assert_eq!(
        engine.recovery().runtime.map(|mark| (mark.at, mark.source)),
        Some((ms(4 * SECOND), Source::Hook))
    );
    let first = study.first_static.expect("a static pod");
    assert_eq!((first.pod.kind, first.pod.kind_by()), (Kind::Static, "uid"));
    assert_eq!(engine.recovery().pods.len(), 4);
}

#[test]
fn an_init_container_is_no_recovery() {
    let mut story = booted(rebooted(&[App(1)]));
    App(1).begin(&mut story, 10 * SECOND);
    App(1).run(&mut story, 11 * SECOND, 2, "wait");
    // The recovery is looked at while the init container runs. Then the pod's own container follows.
    story.until(18 * SECOND).exit(App(1).who(2, "app"), TOP, 0);
    App(1).run(&mut story, 19 * SECOND, 3, "main");
    let (found, _) = study(&story, 20 * SECOND);
    assert_eq!(at(found.last_service.as_ref()), Some(19_000));

    // A container that fails and starts again counts from its first start.
    story.at(25 * SECOND).exit(App(1).who(3, "app"), TOP, 0x100);
    App(1).run(&mut story, 30 * SECOND, 4, "main");
    let (found, _) = study(&story, 40 * SECOND);
    assert_eq!(at(found.last_service.as_ref()), Some(19_000));
}

#[test]
fn a_network_that_is_missing_costs_the_time_until_a_try_succeeds() {
    let mut story = booted(rebooted(&[App(1), App(2)]));
    App(1).add(&mut story, 12 * SECOND, 11, 0x100);
    App(2).add(&mut story, 13 * SECOND, 11, 0x100);
    App(1).add(&mut story, 14 * SECOND, 12, 0x100);
    let (before, _) = study(&story, 16 * SECOND);
    assert_eq!((before.cni.failed, before.cni.first), (3, None));
    assert_eq!(before.cni.lost, Duration::from_secs(4));
    App(1).add(&mut story, 18 * SECOND, 1, 0);
    App(2).add(&mut story, 18 * SECOND + 500, 1, 0x100);
    App(1).up(&mut story, 19 * SECOND);
    let (found, _) = study(&story, 25 * SECOND);
    assert_eq!((found.cni.failed, found.cni.plugin.as_deref()), (3, Some("flannel")));
    assert_eq!(found.cni.lost, Duration::from_secs(6));
    assert_eq!(found.cni.first.map(|mark| mark.at), Some(ms(18 * SECOND + 100)));
}

/// The agent's own container started last, so only start times are left.
#[test]
fn an_agent_that_comes_late_reports_what_proc_shows_and_says_so() {
    let mut story = Story::new();
    let start = |who: Who, seconds: u64| TaskKey::new(who.pid, seconds * 1_000_000_000 + TICK);
    let found = |who: Who, seconds: u64, path: &str| {
        let mut task = who.task();
        task.key = start(who, seconds);
        Fact::ProcessFound(ProcessFound {
            forged: false,
            task,
            argv: vec![format!("/bin/{}", who.comm)],
            cgroup_path: path.to_owned(),
            ns_pid: 1,
            cni: None,
            filename: String::new(),
        })
    };
    story.at(300 * SECOND).say(Origin::Agent, read(rebooted(&[App(1)])));
    story.listed(found(Who::new(1, 0, "systemd"), 0, "/"));
    story.listed(found(DAEMON, 4, "/system.slice/containerd.service"));
    story.listed(found(KUBELET, 9, "/system.slice/kubelet.service"));
    App(1).found(&mut story, 1, "");
    App(1).found(&mut story, 2, "main");
    story.listed(found(App(1).who(1, "pause"), 19, &format!("{}/{}", App(1).path(), App(1).id(1))));
    story.listed(found(App(1).who(2, "app"), 20, &format!("{}/{}", App(1).path(), App(1).id(2))));
    let (found, engine) = study(&story, 302 * SECOND);
    // A date in the runtime's files is more exact than the fork of the process. A listing reports the date
    // before anything else shows the container.
    let forked = (ms(20 * SECOND + 10), Source::ProcStart);
    for (seconds, expected) in [(19, forked), (21, (ms(21 * SECOND), Source::FileTime))] {
        let mut dated = Story::new();
        App(1).dated(dated.at(299 * SECOND), 2, "main", Some(ms(seconds * SECOND)));
        dated.facts.extend(story.facts.iter().cloned());
        let last = study(&dated, 302 * SECOND).0.last_service.expect("a pod").mark;
        assert_eq!((last.at, last.source), expected);
    }
    assert!(found.is_late);
    assert_eq!(seconds(found.numbers.columns), [Some(21), None, Some(32), Some(32)]);
    assert_eq!(engine.recovery().init.map(|mark| mark.source), Some(Source::ProcStart));
    assert_eq!(found.last_service.map(|back| (back.mark.at, back.mark.source)), Some(forked));
    assert_eq!(found.close, Close::All { pods: 1 });
    assert_eq!((found.cni.first, found.cni.failed), (None, 0));
    assert_eq!(found.cni.unseen_until, Some(ms(300 * SECOND)));
    // There is no static pod, so nothing about one can be inexact.
    let inexact = found.numbers.columns.map(|it| it.is_some_and(|number| number.is_inexact));
    assert_eq!(inexact, [true, false, true, true]);
}

#[test]
fn an_order_is_kept_with_the_pods_of_its_time_and_measures_the_next_boot() {
    let mut story = booted(PreviousBoot::default());
    App(1).up(&mut story, 20 * SECOND);
    App(2).up(&mut story, 21 * SECOND);
    let shell = Who::new(700, 1, "reboot");
    // A program in a container cannot restart the node.
    story.at(30 * SECOND).exec(App(1).who(5, "reboot").within(102, HOST), 0, "/sbin/reboot");
    let (_, engine) = study(&story, 31 * SECOND);
    assert_eq!(engine.recovery().order, None);
    story.at(40 * SECOND).exec(shell, 0, "shutdown -r +5");
    story.at(50 * SECOND).exec(shell, 0, "shutdown -c");
    let (_, engine) = study(&story, 51 * SECOND);
    assert_eq!(engine.recovery().order, None);
    story.at(60 * SECOND).exec(shell, 0, "/sbin/reboot");
    story.at(61 * SECOND).exit(App(1).who(2, "app"), TOP, 0);
    story.at(62 * SECOND).exec(Who::new(1, 0, "systemd-shutdow"), 0, "/lib/systemd/systemd-shutdown reboot");
    let (_, engine) = study(&story, 64 * SECOND);
    let order = engine.recovery().order.clone().expect("an order");
    assert_eq!((order.at, order.by.as_str()), (ms(60 * SECOND), "/sbin/reboot"));
    assert_eq!(order.running.pods, [App(1).pod(), App(2).pod()]);

    // The program is known for no other reason. It is in the stream if it orders a restart, and its row is
    // not kept.
    let mut told = Story::new();
    told.at(5).exec(shell, class::ORDER, "systemctl status kubelet").exec(
        shell,
        class::ORDER,
        "systemctl reboot",
    );
    told.check("6 process.exec systemctl");
    let (_, told) = told.judge(2 * SECOND);
    assert_eq!(told.recovery().order.as_ref().map(|order| order.at), Some(ms(6)));

    let alive =
        Alive { boot_id: "this".to_owned(), wall_ns: WALL + 63_000_000_000, running: RunningPods::default() };
    let before = PreviousBoot::of(Some(engine.recovery()), Some(alive));
    assert_eq!(before.ordered.as_ref().map(|it| it.wall_ns - WALL), Some(60_000_000_000));
    assert_eq!(before.pods.map(|pods| pods.len()), Some(2));
    // The node ran for another hour. That order did not end it, and the pods of that time are not those of
    // the end.
    let alive = Alive {
        boot_id: "this".to_owned(),
        wall_ns: WALL + 3_600_000_000_000,
        running: RunningPods::default(),
    };
    let before = PreviousBoot::of(Some(engine.recovery()), Some(alive));
    assert_eq!(before.pods.as_deref(), Some(&[][..]));
    let mut next = booted(before);
    App(1).up(&mut next, 20 * SECOND);
    let (found, _) = study(&next, 30 * SECOND);
    assert!(matches!(found.zero, Zero::Kernel(NoOrder::Outlived(_))), "{:?}", found.zero);
}

#[test]
fn a_power_cut_has_no_order_and_counts_from_the_kernel() {
    let alive = Alive {
        boot_id: "last".to_owned(),
        wall_ns: WALL - 5_000_000_000,
        running: RunningPods { pods: vec![App(1).pod()], pods_left_out: 0 },
    };
    let mut story = booted(PreviousBoot::of(None, Some(alive)));
    App(1).up(&mut story, 20 * SECOND);
    let (found, _) = study(&story, 30 * SECOND);
    let alive_wall_ns = Some(WALL - 5_000_000_000);
    assert_eq!(found.zero, Zero::Kernel(NoOrder::NotSeen { alive_wall_ns }));
    assert_eq!(seconds(found.numbers.columns), [Some(9), None, Some(20), Some(20)]);
    assert_eq!(found.close, Close::All { pods: 1 });
}

#[test]
fn a_pod_that_never_comes_back_is_named_when_it_is_quiet() {
    let mut story = booted(rebooted(&[App(1), App(2)]));
    App(1).up(&mut story, 20 * SECOND);
    let (found, engine) = study(&story, 79 * SECOND);
    assert!(matches!(found.close, Close::Open { back: 1, .. }));
    assert!(!engine.recovery().closed);
    let (found, engine) = study(&story, 81 * SECOND);
    let (quiet, missing) = (Duration::from_secs(60), Some(vec![App(2).pod()]));
    assert_eq!(found.close, Close::Quiet { quiet, missing });
    assert!(engine.recovery().closed, "the engine wakes up for it");
    // A pod that is very late still counts.
    App(2).up(&mut story, 3000 * SECOND);
    let (found, _) = study(&story, 3002 * SECOND);
    assert_eq!(found.close, Close::All { pods: 2 });
    assert_eq!(at(found.last_service.as_ref()), Some(3_000_000));
}

/// A CronJob makes pods forever. None of them is waited for, and their number is bounded.
#[test]
fn without_a_history_the_first_quiet_ends_it() {
    let mut story = booted(PreviousBoot::default());
    App(1).up(&mut story, 20 * SECOND);
    App(2).up(&mut story, 50 * SECOND);
    App(3).up(&mut story, 130 * SECOND);
    App(4).up(&mut story, 2000 * SECOND);
    let (found, engine) = study(&story, 2010 * SECOND);
    assert_eq!(at(found.last_service.as_ref()), Some(50_000));
    assert_eq!(found.close, Close::Quiet { quiet: Duration::from_secs(60), missing: None });
    assert_eq!(found.zero, Zero::Kernel(NoOrder::NoHistory));
    assert_eq!(engine.recovery().pods.len(), 3, "the last one came too late to be a part of it");
}

/// A node is often drained before a restart. Then it is known that no pod was there.
#[test]
fn after_a_drain_whatever_comes_is_the_recovery() {
    let mut story = booted(rebooted(&[]));
    let (found, _) = study(&story, 10 * SECOND);
    assert_eq!(found.close, Close::Open { back: 0, missing: Some(Vec::new()) });
    App(1).up(&mut story, 20 * SECOND);
    App(2).up(&mut story, 50 * SECOND);
    App(3).up(&mut story, 130 * SECOND);
    let (found, engine) = study(&story, 140 * SECOND);
    assert_eq!(at(found.last_service.as_ref()), Some(50_000));
    assert_eq!(found.close, Close::Quiet { quiet: Duration::from_secs(60), missing: Some(Vec::new()) });
    assert!(engine.recovery().closed);
}

/// The observations of an earlier run of the agent are kept.
#[test]
fn an_agent_that_begins_anew_goes_on_with_what_was_seen() {
    let mut story = booted(rebooted(&[App(1), App(2)]));
    App(1).up(&mut story, 20 * SECOND);
    let (_, first) = study(&story, 30 * SECOND);
    let seen = CheckpointEntry::Recovery(Box::new(first.recovery().clone()));
    let mut engine = Engine::new(Settings::default());
    let say = |engine: &mut Engine, fact| {
        engine.observe(crate::model::fact::Observation { at: ms(40 * SECOND), origin: Origin::Agent, fact });
    };
    engine.restore(seen);
    say(&mut engine, read(rebooted(&[App(1), App(2)])));
    let mut later = Story::new();
    App(2).up(&mut later, 45 * SECOND);
    for seen in later.facts {
        engine.observe(seen);
    }
    pass(&mut engine, ms(50 * SECOND));
    engine.advance(ms(52 * SECOND));
    let found = RecoveryReport::of(engine.recovery(), ms(52 * SECOND));
    assert_eq!(seconds(found.numbers.columns), [Some(21), None, Some(32), Some(57)]);
    assert!(!found.is_late);
    assert_eq!(found.close, Close::All { pods: 2 });
    assert!(engine.recovery().revision > first.recovery().revision);
    assert_eq!(engine.recovery().watched_since, Some(Timestamp(3_000_000_000)));
}

/// A kubelet in a container, as with RKE1, found by a listing or seen by a hook. One in a pod is not the
/// node's.
#[test]
fn a_kubelet_in_a_container_of_its_own_is_the_boot_s() {
    let container = "e".repeat(64);
    let own = format!("/docker/{container}");
    let kubelet = KUBELET.within(77, HOST);
    for (path, is_node_s) in [(own, true), (format!("{}/{container}", App(1).path()), false)] {
        let mut listed = Story::new();
        listed.at(3 * SECOND).say(Origin::Agent, read(PreviousBoot::default()));
        listed.found(DAEMON, DAEMON.pid, "/system.slice/containerd.service", "/usr/bin/containerd");
        listed.found(kubelet, kubelet.pid, &path, "kubelet");
        let kubelet_of = |story: &Story| story.judge(10 * SECOND).1.recovery().kubelet;
        let found = kubelet_of(&listed).map(|mark| mark.source);
        assert_eq!(found, is_node_s.then_some(Source::ProcStart), "{path}");

        let mut seen = Story::new();
        seen.at(3 * SECOND).say(Origin::Agent, read(PreviousBoot::default()));
        seen.at(4 * SECOND).exec(DAEMON, class::CALLER, "/usr/bin/containerd");
        seen.at(8 * SECOND).mkdir(77, &path).at(9 * SECOND).exec(kubelet, TOP | class::CALLER, "kubelet");
        let started = kubelet_of(&seen).map(|mark| (mark.at, mark.source));
        assert_eq!(started, is_node_s.then_some((ms(9 * SECOND), Source::Hook)), "{path}");
    }
}

/// A boot of which more is known than there is room for.
#[test]
fn what_there_is_no_room_for_is_counted() {
    const ALMOST: u32 = 1020;
    let mut recovery = Recovery::default();
    for n in 0..ALMOST {
        let pod = App(10_000 + n).pod();
        let mark = TimedSource { at: ms(15 * SECOND), source: Source::Hook };
        recovery.pods.push(RecoveredPod { pod, mark, listened: None });
        let failed = Some("flannel".to_owned());
        let sandbox = App(10_000 + n).id(1);
        recovery.tries.push(NetworkAttempt { sandbox, began: mark.at, ended: mark.at, failed });
    }
    let mut story = Story::new();
    story.restored.push(CheckpointEntry::Recovery(Box::new(recovery)));
    story.facts.extend(booted(PreviousBoot::default()).facts);
    for n in 1..=10 {
        App(n).add(&mut story, 20 * SECOND + 200 * u64::from(n), 11, 0x100);
    }
    for n in 1..=10 {
        App(n).up(&mut story, 30 * SECOND + 1000 * u64::from(n));
    }
    let (_, engine) = study(&story, 60 * SECOND);
    let recovery = engine.recovery();
    assert_eq!((recovery.tries.len(), recovery.tries_left_out), (1024, 6));
    // Repeated looks count them once.
    assert_eq!((recovery.pods.len(), recovery.pods_left_out), (1024, 6));
}

/// If there are more pods than can be stored, the next boot knows that its list is incomplete.
#[test]
fn pods_that_are_not_kept_with_an_order_are_counted() {
    let mut story = booted(PreviousBoot::default());
    for n in 1..=1030 {
        App(n).begin(&mut story, 10 * SECOND + u64::from(n));
    }
    let reboot = Who::new(900, 899, "reboot");
    story.at(20 * SECOND).exec(reboot, class::ORDER, "/sbin/reboot");
    let (_, engine) = study(&story, 30 * SECOND);
    let running = engine.running_pods();
    assert_eq!((running.pods.len(), running.pods_left_out), (1024, 6));
    let order = engine.recovery().order.as_ref().expect("an order");
    assert_eq!(order.running, running);
    let before = PreviousBoot::of(Some(engine.recovery()), None);
    assert_eq!((before.pods.map(|pods| pods.len()), before.pods_left_out), (Some(1024), 6));
    // The last sign of life has the numbers as well.
    let alive = Alive { boot_id: "last".to_owned(), wall_ns: WALL, running };
    assert_eq!(PreviousBoot::of(None, Some(alive)).pods_left_out, 6);
}

/// Boots are grouped by the programs' names; a kubelet that is replaced later has brought no pod back.
#[test]
fn the_runtime_and_the_kubelet_of_a_recovery_have_names_and_versions() {
    let mut story = booted(rebooted(&[App(1)]));
    let version = |path: &str, version: Option<&str>| {
        Fact::ProgramFound(ProgramFound { path: path.to_owned(), version: version.map(str::to_owned) })
    };
    let programs = |story: &Story, until| {
        let recovery = story.judge(until).1.recovery().clone();
        (recovery.runtime_program, recovery.kubelet_program)
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(programs(&story, 11 * SECOND), (some("containerd"), some("kubelet")));
    story.at(12 * SECOND).say(Origin::Listed, version("/usr/bin/containerd", Some("2.1.4")));
    story.say(Origin::Listed, version("/usr/bin/kubelet", None));
    App(1).up(&mut story, 20 * SECOND);
    assert_eq!(programs(&story, 30 * SECOND), (some("containerd 2.1.4"), some("kubelet")));
    // The pod is back.
    story.at(40 * SECOND).exit(KUBELET, class::CALLER, 0);
    let next = Who::new(KUBELET.pid + 1, 1, KUBELET.comm);
    story.at(41 * SECOND).exec(next, class::CALLER, "/opt/kubelet");
    story.at(42 * SECOND).say(Origin::Listed, version("/opt/kubelet", Some("1.34.0")));
    assert_eq!(programs(&story, 60 * SECOND).1, some("kubelet"));
    let asked: Vec<String> = story.run().into_iter().filter(|line| line.starts_with("? program")).collect();
    assert_eq!(
        asked,
        ["? program /usr/bin/containerd", "? program /usr/bin/kubelet", "? program /opt/kubelet"],
        "the file of a daemon that restarts may be another one"
    );
    let restarts = story.judge(60 * SECOND).1.recovery().restarts.clone();
    let named: Vec<_> = restarts.all().iter().map(|it| (it.was.clone(), it.is.clone())).collect();
    assert_eq!(named, [("kubelet".to_owned(), some("kubelet 1.34.0"))]);
}

/// The disk is busy after a boot, or the agent starts late.
#[test]
fn a_version_that_is_found_out_after_the_last_pod_was_back_is_kept() {
    let mut story = booted(rebooted(&[App(1)]));
    App(1).up(&mut story, 20 * SECOND);
    story.at(25 * SECOND).exit(Who::new(9_999, 1, "x"), 0, 0);
    let found = |version: &str| {
        let (path, version) = ("/usr/bin/containerd".to_owned(), Some(version.to_owned()));
        Fact::ProgramFound(ProgramFound { path, version })
    };
    story.at(26 * SECOND).say(Origin::Listed, found("2.1.4"));
    // It is upgraded while the node runs.
    story.at(3600 * SECOND).say(Origin::Listed, found("2.2.0"));
    story.at(3700 * SECOND).exit(Who::new(9_998, 1, "x"), 0, 0);
    let recovery = story.judge(3800 * SECOND).1.recovery().clone();
    assert_eq!(recovery.runtime_program.as_deref(), Some("containerd 2.1.4"));
}
