//! The starts and boots of the pages and traces, some with hostile names.

use std::time::Duration;

use probe_user::{
    engine::{
        boot::report::RecoveryReport,
        share::{Share, shares as shares_of},
        view::PodView,
    },
    model::{
        change::ContainerRef,
        fact::{CpuUse, NameSource, PodName, Pressure},
        id::{ContainerId, PodUid},
        phase::{Cause, Kind, Phase, Start},
        recovery::{
            BootRead, Kind as PodKind, NetworkAttempt, Ordered, Pod, PreviousBoot, RecoveredPod, Recovery,
            Source, TimedSource,
        },
        time::Timestamp,
    },
    sink::Label,
};

const HOSTILE: &str = "<script>alert(\"1\")</script>'&\u{1b}[2J\u{202e}\n<img src=x onerror=\"alert(2)\">";
const WALL: i64 = 1_795_237_053_000_000_000;

pub(super) fn label() -> Label {
    Label { node: format!("edge-1 {HOSTILE}"), boot_id: "b0".to_owned(), boot_wall_ns: WALL }
}

fn at(ms: u64) -> Timestamp {
    Timestamp(ms * 1_000_000 + 123)
}

fn id(text: &str) -> ContainerId {
    ContainerId::parse(text).expect("an id")
}

fn name(namespace: &str, name: &str) -> PodName {
    PodName { namespace: Some(namespace.to_owned()), name: Some(name.to_owned()), uid: None }
}

fn container(of: &str, name: &str) -> Option<ContainerRef> {
    Some(ContainerRef::new(id(of), Some(name.to_owned())))
}

fn cni(plugin: &str) -> Kind {
    Kind::Cni { plugin: plugin.to_owned(), ifname: "eth0".to_owned() }
}

/// Phases one after the other, each with its length in milliseconds.
fn phases(begin: u64, lengths: Vec<(u64, Kind, Option<ContainerRef>)>) -> Vec<Phase> {
    let mut from = begin;
    let phase = |(took, kind, container)| {
        let (begin, end) = (at(from), at(from + took));
        from += took;
        Phase {
            kind,
            container,
            begin,
            end,
            gapped: false,
            cause: Cause::default(),
            pressure: Pressure::default(),
            parts: Vec::new(),
        }
    };
    lengths.into_iter().map(phase).collect()
}

fn start(pod: PodName, sandbox: &str, phases: Vec<Phase>) -> Start {
    let end = phases.last().expect("a phase").end;
    Start {
        pod,
        sandbox: id(sandbox),
        begin: phases[0].begin,
        end,
        phases,
        plugins: Vec::new(),
        listening: Vec::new(),
        complete: true,
        containers_known: true,
        missing: Vec::new(),
        revised: false,
        rebuilt: false,
        listed: false,
        suspended: false,
        waits: false,
    }
}

/// Returns a copy of the start for another pod.
pub(super) fn named(start: &Start, name: &str) -> Start {
    Start { pod: PodName { name: Some(name.to_owned()), ..start.pod.clone() }, ..start.clone() }
}

pub(super) fn starts() -> Vec<Start> {
    let (init, main) = (container("1a", "migrate"), container("c0ffee", "web"));
    let mut whole = phases(
        60_000,
        vec![
            (14, Kind::Prepare, None),
            (3, Kind::Netns, None),
            (5, cni("loopback"), None),
            (2, Kind::Between, None),
            (812, cni("bridge"), None),
            (88, Kind::Pause, None),
            (300, Kind::Image, init.clone()),
            (31, Kind::Runtime, init.clone()),
            (44, Kind::Cgroup, init.clone()),
            (400, Kind::Init, init),
            (36, Kind::Image, main.clone()),
            (29, Kind::Runtime, main.clone()),
            (1500, Kind::Cgroup, main),
        ],
    );
    whole[4].cause = Cause { adds: 3, failed: 2, wasted: Duration::from_millis(200), ..Cause::default() };
    let cpu =
        CpuUse { used: Duration::ZERO, throttled: Duration::from_millis(1200), periods: 12, limit: None };
    whole[12].pressure = Pressure { cpu: Some(cpu), ..Pressure::default() };
    let fall = start(name("shop", "web-0"), "e6f3", whole);

    let host = container("dead", HOSTILE);
    let mut odd = phases(
        61_000,
        vec![(0, Kind::Pause, None), (70, Kind::Image, host.clone()), (40, Kind::Cgroup, host)],
    );
    odd[1].gapped = true;
    let odd = Start { complete: false, listed: true, ..start(name(HOSTILE, HOSTILE), "beef", odd) };
    let retried =
        phases(62_000, vec![(20, Kind::Prepare, None), (2500, Kind::Retry, None), (90, Kind::Pause, None)]);
    let retried = Start { rebuilt: true, revised: true, ..start(name("shop", "db-0"), "f00d", retried) };
    vec![fall, odd, retried]
}

pub(super) fn shares(starts: &[Start]) -> Vec<Share> {
    shares_of(starts.iter())
}

/// Returns a pod that existed before the agent started.
pub(super) fn pods() -> Vec<PodView> {
    vec![PodView {
        namespace: Some("shop".to_owned()),
        name: Some("early<b>".to_owned()),
        uid: PodUid::parse("11111111-2222-3333-4444-555555555555"),
        source: NameSource::Bundle,
        since: at(0),
        listed: true,
        waiting_since: None,
        start: None,
        sandboxes: Vec::new(),
        containers: Vec::new(),
    }]
}

fn mark(ms: u64) -> TimedSource {
    TimedSource { at: at(ms), source: Source::Hook }
}

fn back(namespace: &str, name: &str, kind: PodKind, mark: TimedSource) -> RecoveredPod {
    let (namespace, name) = (Some(namespace.to_owned()), Some(name.to_owned()));
    RecoveredPod {
        pod: Pod { namespace, name, uid: None, kind, listens: false, interfaces: Vec::new() },
        mark,
        listened: None,
    }
}

fn tried(sandbox: &str, began: u64, ended: u64, failed: Option<&str>) -> NetworkAttempt {
    NetworkAttempt {
        sandbox: id(sandbox),
        began: at(began),
        ended: at(ended),
        failed: failed.map(str::to_owned),
    }
}

/// Two boots. The first has a known order and a late network. The second comes after a power loss and has no
/// static pods.
pub(super) fn boots() -> Vec<(Recovery, RecoveryReport)> {
    let read = |id: &str, wall: i64, before| BootRead {
        boot_id: id.to_owned(),
        kernel: "6.1.0-56".to_owned(),
        boot_wall_ns: wall,
        before,
        ..BootRead::default()
    };
    let pods = vec![
        back("kube-system", "etcd-edge", PodKind::Static, mark(21_000)),
        back("kube-system", "flannel", PodKind::System, mark(24_000)),
        back("shop", "web-0", PodKind::Service, mark(33_500)),
        back("shop", HOSTILE, PodKind::Service, mark(36_000)),
        back("shop", "later", PodKind::Service, mark(90_000)),
    ];
    let before = PreviousBoot {
        boot_id: Some("a".to_owned()),
        ordered: Some(Ordered {
            wall_ns: WALL - 10_000_000_000,
            by: format!("reboot {HOSTILE}"),
            source: Source::Hook,
        }),
        alive_wall_ns: Some(WALL - 7_000_000_000),
        pods: Some(pods[..4].iter().map(|back| back.pod.clone()).collect()),
        pods_left_out: 0,
        unseen: None,
    };
    let first = Recovery {
        boot: Some(read("b", WALL, before)),
        quiet: Duration::from_secs(60),
        watched_since: Some(at(2_000)),
        init: Some(TimedSource { at: at(1_100), source: Source::ProcStart }),
        runtime: Some(mark(3_250)),
        kubelet: Some(mark(11_667)),
        tries: vec![
            tried("aa", 25_000, 25_120, Some("flannel<b>")),
            tried("bb", 25_060, 25_180, Some("flannel<b>")),
            tried("cc", 32_000, 32_250, None),
            tried("dd", 32_100, 32_300, None),
        ],
        pods,
        ..Recovery::default()
    };
    let service = |name, ms| back("shop", name, PodKind::Service, mark(ms));
    let second = Recovery {
        boot: Some(read(
            "c",
            WALL + 86_400_000_000_000,
            PreviousBoot { boot_id: Some("b".to_owned()), ..PreviousBoot::default() },
        )),
        quiet: Duration::from_secs(60),
        watched_since: Some(at(40_000)),
        kubelet: Some(TimedSource { at: at(9_000), source: Source::ProcStart }),
        runtime: Some(TimedSource { at: at(5_000), source: Source::ProcStart }),
        pods: vec![service("web-0", 23_000), service("web-1", 24_000)],
        ..Recovery::default()
    };
    let study = |recovery: Recovery| {
        let study = RecoveryReport::of(&recovery, at(100_000));
        (recovery, study)
    };
    vec![study(first), study(second)]
}
