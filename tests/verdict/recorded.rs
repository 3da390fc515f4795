//! Recordings of simulated nodes, on which docs/studies.md has its commands run. A test makes each again.

use std::{collections::BTreeMap, fs, net::IpAddr, path::Path, time::Duration};

use probe_user::{
    engine::Settings,
    model::{
        fact::{Fact, HeldRequests, ImageWork, Origin, Pull, Span},
        recovery::{BootRead, Kind, Ordered, Pod, PreviousBoot, Source},
        time::Timestamp,
    },
    recording::{Header, Writer},
};
use tests::golden;

use crate::{
    drive::Drive,
    script,
    sim::{Add, Sim},
};

/// The stories whose recordings are kept.
const STORIES: [&str; 5] = [
    "duplicate-completed-sidecar",
    "leak-cloud",
    "redundant-sandbox-keyed",
    "stuck-start-secret-missing",
    "stuck-start-services-unread",
];
/// The wall clock at the beginning of a boot, ns since the epoch.
const WALL: i64 = 1_795_000_000_000_000_000;

/// A node of the recovery study: its name and the columns of its mean, ms from the order of the restart.
struct Setup(&'static str, [u64; 4]);

const SETUPS: [Setup; 3] = [
    Setup("native", [21_667, 31_318, 37_816, 38_581]),
    Setup("connected", [25_333, 34_921, 47_638, 48_461]),
    Setup("disconnected", [26_000, 35_952, 49_016, 49_867]),
];
/// From the order to the kernel's start, ms.
const SHUTDOWN: u64 = 7000;
const PODS: u64 = 10;

#[test]
fn the_recordings_of_simulated_nodes_are_made_again() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/recordings/studies");
    for name in STORIES {
        let story = folder.join(format!("../../stories/{name}.story"));
        let text = fs::read_to_string(&story).unwrap_or_else(|error| panic!("{}: {error}", story.display()));
        let (drive, ..) = script::play(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        expect(&folder, name, 0, &drive);
    }
    expect(&folder, "slow-start", 0, &slow_start());
    expect(&folder, "what-if", 0, &what_if());
    expect(&folder, "services-unread", 0, &services_unread());
    expect(&folder, "cronjob-before", 0, &cronjob(false));
    expect(&folder, "cronjob-after", 0, &cronjob(true));
    for (day, setup) in (1..).zip(&SETUPS) {
        expect(&folder, setup.0, day, &restart(setup, day));
    }
}

/// Compares the recording of this name with the calls of a drive.
fn expect(folder: &Path, name: &str, day: i64, drive: &Drive) {
    let header = Header {
        made_by: "0.1.0".to_owned(),
        node: "edge-1".to_owned(),
        boot_id: name.to_owned(),
        kernel: "6.12.0".to_owned(),
        boot_wall_ns: wall_ns(day),
        settings: Settings::default(),
    };
    let mut writer = Writer::start(&header).expect("the header");
    for call in &drive.calls {
        writer.write(call).expect("a call");
    }
    let recording = String::from_utf8(writer.end().expect("the end")).expect("JSON is text");
    golden::expect(&folder.join(format!("{name}.jsonl")), &recording);
}

fn wall_ns(day: i64) -> i64 {
    WALL + day * 24 * 3600 * 1_000_000_000
}

/// A node restarts as in the study: a static pod first, then an ADD that fails or hangs until the network is
/// there, then ten pods.
fn restart(Setup(name, [kubelet, fixed, first, last]): &Setup, day: i64) -> Drive {
    let mut drive = restarted(name, day, (0..PODS).map(|n| service(&pod(n))).collect(), [*kubelet, *fixed]);
    if *name == "disconnected" {
        drive.pass_to(after_order(first - 12_500));
        drive.sim.try_hangs("try", &pod(0), "cloudnet", Duration::from_millis(10_500));
    } else {
        drive.pass_to(after_order(first - 6500));
        drive.sim.try_fails("try", &pod(0), "cloudnet");
    }
    for n in 0..PODS {
        let back = first + (last - first) * n / (PODS - 1);
        let sandbox = format!("s{n}");
        drive.pass_to(after_order(if n == 0 { back - 500 } else { back - 50 }));
        drive.sim.sandbox_begins(&sandbox, &pod(n));
        let address = IpAddr::from([10, 77, 0, 2 + u8::try_from(n).expect("few pods")]);
        drive.sim.add(&sandbox, "cloudnet", &[address], Add::Succeeds);
        drive.sim.sandbox_runs(&sandbox);
        run(&mut drive, "nginx", &sandbox, back);
    }
    drive.pass_to(after_order(last + 70_000));
    drive
}

/// A node on which these pods ran restarts, up to its static pod. `[kubelet, fixed]`: when the kubelet and
/// this pod started, ms from the order of the restart.
fn restarted(name: &str, day: i64, pods: Vec<Pod>, [kubelet, fixed]: [u64; 2]) -> Drive {
    let mut drive = Drive::new(Sim::new());
    let ordered = wall_ns(day).saturating_sub_unsigned(SHUTDOWN * 1_000_000);
    let before = PreviousBoot {
        boot_id: Some("before".to_owned()),
        ordered: Some(Ordered { wall_ns: ordered, by: "systemctl reboot".to_owned(), source: Source::Hook }),
        alive_wall_ns: Some(ordered),
        pods: Some(pods),
        ..PreviousBoot::default()
    };
    let boot = BootRead {
        boot_id: name.to_owned(),
        kernel: "6.12.0".to_owned(),
        boot_wall_ns: wall_ns(day),
        before,
        labels: BTreeMap::from([("edge".to_owned(), name.to_owned())]),
    };
    drive.sim.emit(Origin::Agent, Fact::BootRead(Box::new(boot)));
    drive.pass_to(after_order(kubelet - 2000));
    drive.sim.runtime_starts();
    drive.pass_to(after_order(kubelet));
    drive.sim.kubelet_starts();
    drive.pass_to(after_order(fixed - 1000));
    drive.sim.kubelet_listens(10_248);
    drive.pass_to(after_order(fixed - 500));
    drive.sim.static_pod("yurthub");
    drive.sim.host_sandbox("hub", "yurthub");
    run(&mut drive, "yurthub", "hub", fixed);
    drive
}

/// A node restarts. Its network comes with flannel's pod; until then the ADDs for `web` fail, three times.
/// The image of `report` is pulled.
fn what_if() -> Drive {
    let pods = ["web", "report"].map(service).to_vec();
    let mut drive = restarted("what-if", 0, pods, [21_667, 31_318]);
    for at in [32_300, 34_000, 36_000, 37_000] {
        drive.pass_to(after_order(at));
        if at == 36_000 {
            drive.sim.host_sandbox("network", "flannel");
        } else {
            drive.sim.try_fails("try", "web", "cloudnet");
        }
    }
    run(&mut drive, "kube-flannel", "network", 38_500);
    for (last, (name, begins, back)) in (2..).zip([("web", 40_500, 41_000), ("report", 41_500, 57_000)]) {
        drive.pass_to(after_order(begins));
        drive.sim.sandbox_begins(name, name);
        drive.sim.add(name, "cloudnet", &[IpAddr::from([10, 77, 0, last])], Add::Succeeds);
        drive.sim.sandbox_runs(name);
        run(&mut drive, "main", name, back);
    }
    let [began, ended, created] = [42_000, 56_000, 56_900].map(|ms| ms - SHUTDOWN);
    let own = Pull { span: span(began, ended), failed: false, fetched: None };
    pulled(&mut drive, "report", own, Vec::new(), Vec::new(), span(ended, created));
    drive.pass_to(after_order(130_000));
    drive
}

/// A node restarts, and the kubelet reaches the API server after it was to make a container.
fn services_unread() -> Drive {
    let mut drive = restarted("services-unread", 0, vec![service("web")], [21_667, 31_318]);
    drive.pass_to(after_order(32_000));
    drive.sim.host_sandbox("s", "web");
    run(&mut drive, "main", "s", 45_000);
    let [began, ended, failed, again, created] =
        [32_100, 33_000, 33_100, 44_500, 44_900].map(|ms| ms - SHUTDOWN);
    let own = Pull { span: span(began, ended), failed: false, fetched: None };
    pulled(&mut drive, "s", own, Vec::new(), vec![at(failed)], span(again, created));
    drive.pass_to(after_order(110_000));
    drive
}

fn after_order(ms: u64) -> Timestamp {
    Timestamp((ms - SHUTDOWN) * 1_000_000)
}

fn pod(n: u64) -> String {
    format!("nginx-{n}")
}

fn service(name: &str) -> Pod {
    Pod {
        namespace: Some("default".to_owned()),
        name: Some(name.to_owned()),
        uid: None,
        kind: Kind::Service,
        listens: false,
        interfaces: Vec::new(),
    }
}

/// A container's program begins at this time, two steps after the runtime's own.
fn run(drive: &mut Drive, container: &str, sandbox: &str, at: u64) {
    drive.settle();
    drive.pass_to(after_order(at - 2));
    drive.sim.container_starts(container, sandbox);
    drive.settle();
}

/// A pod has limits, and waits for the rate of requests to the API server and for pulls of other images: of
/// one after the other, and then of two at a time.
fn slow_start() -> Drive {
    let mut drive = Drive::new(Sim::new());
    drive.sim.limited = true;
    drive.sim.runtime_starts();
    drive.sim.kubelet_starts();
    for line in [
        "2 pod web-0",
        "2 pod web-0 has main,side",
        "5 sandbox a of web-0 on podnet 10.88.0.2",
        "6 container setup in a starts",
        "8 container setup in a exits 0",
        "20 container main in a starts",
    ] {
        step(&mut drive, line);
    }
    let sandbox = drive.sim.sandbox("a").expect("it was made").id.clone();
    let held = vec![span(2500, 4500)];
    drive.sim.emit(Origin::Listed, Fact::HeldRequests(HeldRequests { sandbox, held }));
    let own = Pull { span: span(12_100, 18_000), failed: false, fetched: Some(at(15_000)) };
    pulled(&mut drive, "a", own, vec![span(8050, 12_000)], Vec::new(), span(18_500, 19_900));
    step(&mut drive, "40 container side in a starts");
    let own = Pull { span: span(32_100, 38_000), failed: false, fetched: None };
    let others = vec![span(20_100, 32_000), span(20_200, 36_000)];
    pulled(&mut drive, "a", own, others, Vec::new(), span(38_500, 39_900));
    drive.pass_to(at(60_000));
    drive
}

/// Two Jobs of a CronJob end, whose plugin looks addresses up in the namespace. A kubelet that is not
/// repaired makes another sandbox for each, and then ends it with the pod's cgroup.
fn cronjob(is_repaired: bool) -> Drive {
    let mut drive = Drive::new(Sim::new());
    drive.sim.runtime_starts();
    drive.sim.kubelet_starts();
    for job in [1, 2] {
        let mut begun = vec![
            format!("sandbox a{job} of job-{job} on keynet 10.99.0.{job}0"),
            format!("container main in a{job} starts"),
            format!("container main in a{job} exits 0"),
            format!("stop a{job}"),
        ];
        let again = [
            format!("sandbox b{job} of job-{job} on keynet 10.99.0.{job}1"),
            format!("kill pause of b{job} by kubelet"),
            format!("netns of b{job} lost"),
            format!("pod job-{job} goes"),
            format!("stop b{job}"),
            format!("remove b{job}"),
        ];
        if !is_repaired {
            begun.extend(again);
        }
        begun.push(format!("remove a{job}"));
        for (second, line) in (job * 60..).zip(begun) {
            step(&mut drive, &format!("{second} {line}"));
        }
    }
    drive.pass_to(at(600_000));
    drive
}

/// Passes to a time, in seconds since boot, and does the rest of the line as in a story.
fn step(drive: &mut Drive, line: &str) {
    let (time, line) = line.split_once(' ').expect("a time and an event");
    drive.pass_to(at(time.parse::<u64>().expect("seconds") * 1000));
    script::step(&mut drive.sim, &line.split(' ').collect::<Vec<_>>()).expect("an event of a story");
    drive.settle();
}

/// The logs show the work for the container that started last in a sandbox.
fn pulled(
    drive: &mut Drive,
    sandbox: &str,
    own: Pull,
    other_pulls: Vec<Span>,
    services_unread: Vec<Timestamp>,
    created: Span,
) {
    let work = ImageWork {
        container: drive.sim.latest_container(sandbox),
        pulls: vec![own],
        other_pulls,
        refused: Vec::new(),
        services_unread,
        created: Some(created),
        other_creates: Vec::new(),
    };
    drive.sim.emit(Origin::Listed, Fact::ImageWork(Box::new(work)));
    drive.settle();
}

fn span(began: u64, ended: u64) -> Span {
    Span { began: at(began), ended: at(ended) }
}

fn at(ms: u64) -> Timestamp {
    Timestamp(ms * 1_000_000)
}
