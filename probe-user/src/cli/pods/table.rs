//! Prints pods as a table, or as one JSON object each.

use std::time::Duration;

use super::Ages;
use crate::{
    cli::table::aligned,
    engine::{view::PodView, world::table::container},
    model::{phase::Start, time::Timestamp},
    sink::{
        render::{
            jsonl::{self, pod::state},
            phase,
        },
        span::span,
    },
};

const HEADINGS: [&str; 11] = [
    "NAMESPACE",
    "NAME",
    "UID",
    "STATE",
    "CONTAINERS",
    "IP",
    "AGE",
    "START",
    "SLOWEST",
    "LISTENING",
    "SOURCE",
];

pub(super) fn text(pods: &[PodView], ages: &Ages, now: Timestamp) -> Vec<u8> {
    let rows: Vec<[String; 11]> = pods.iter().map(|pod| cells(pod, age(pod, ages, now))).collect();
    aligned(HEADINGS, &rows).into_bytes()
}

fn cells(pod: &PodView, age: Option<Duration>) -> [String; 11] {
    let addresses: Vec<String> =
        pod.sandboxes.iter().flat_map(|it| &it.addresses).map(|it| it.address.address.to_string()).collect();
    let ip = if addresses.is_empty() { "-".to_owned() } else { addresses.join(",") };
    [
        pod.namespace.clone().unwrap_or_else(|| "-".to_owned()),
        pod.name.clone().unwrap_or_else(|| "-".to_owned()),
        pod.uid.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
        state(pod).to_owned(),
        containers(pod),
        ip,
        age.map_or_else(|| "-".to_owned(), span),
        pod.start.as_ref().map_or_else(|| "-".to_owned(), took),
        pod.start.as_ref().and_then(slowest).unwrap_or_else(|| "-".to_owned()),
        pod.start.as_ref().and_then(listening).unwrap_or_else(|| "-".to_owned()),
        pod.source.into_str().to_owned(),
    ]
}

/// Counts the pod's containers that run. Only the runtime knows that of programs that are not processes of
/// the node.
fn containers(pod: &PodView) -> String {
    let is_hidden = pod.sandboxes.last().is_some_and(|it| it.hides_programs);
    if is_hidden && pod.containers.iter().all(|it| it.said.is_none()) {
        return "-".to_owned();
    }
    let running = pod.containers.iter().filter(|it| it.runs()).count();
    format!("{running}/{}", pod.containers.len())
}

/// Returns the time that the start took, with a mark if it is incomplete.
fn took(start: &Start) -> String {
    match phase::marks(start).first() {
        Some(mark) => format!("{} ({mark})", span(start.total())),
        None => span(start.total()),
    }
}

fn slowest(start: &Start) -> Option<String> {
    let slowest = start.slowest()?;
    Some(format!("{} {}", phase::title(slowest), span(slowest.took())))
}

/// Returns how long after its start a container began to listen.
fn listening(start: &Start) -> Option<String> {
    start.listens().map(|last| format!("+{}", span(last.took())))
}

/// Returns how long the pod has been on the node. If neither a file nor a seen start shows that, it is at
/// least as long as its oldest process has run, which is mostly the sandbox's pause.
fn age(pod: &PodView, ages: &Ages, now: Timestamp) -> Option<Duration> {
    let known = pod.uid.as_ref().and_then(|uid| ages.get(uid)).copied();
    let seen = (!pod.listed).then_some(pod.since);
    known.or_else(|| Some(now.since(seen.or_else(|| oldest(pod))?)))
}

fn oldest(pod: &PodView) -> Option<Timestamp> {
    let of_containers = pod.containers.iter().filter_map(|it| match it.state {
        container::State::Running { process, .. } => Some(process),
        container::State::Created | container::State::Exited { .. } => None,
    });
    let all = of_containers.chain(pod.sandboxes.iter().filter_map(|it| it.process));
    all.filter(|process| process.start != 0).map(|process| Timestamp(process.start)).min()
}

pub(super) fn json(pods: &[PodView]) -> Vec<u8> {
    let mut lines = Vec::new();
    pods.iter().for_each(|pod| jsonl::pod(pod, &mut lines));
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Ages, json, text};
    use crate::{
        engine::{
            view::{AddressView, ContainerView, PodView, SandboxView},
            world::table::{container, sandbox},
        },
        model::{
            change::ContainerRef,
            fact::{Believed, Family, Listener, NameSource, PodName, Pressure},
            id::{ContainerId, NetnsKey, PodUid, Subnet, TaskKey},
            phase::{Cause, Kind, Listening, Phase, Start},
            time::Timestamp,
        },
    };

    fn start() -> Start {
        let phase = |kind, begin: u64, end: u64| Phase {
            kind,
            container: None,
            begin: Timestamp(begin * 1_000_000_000),
            end: Timestamp(end * 1_000_000_000),
            gapped: false,
            cause: Cause::default(),
            pressure: Pressure::default(),
            parts: Vec::new(),
        };
        let slow = Kind::Cni { plugin: "slow".to_owned(), ifname: "eth0".to_owned() };
        Start {
            pod: PodName::default(),
            sandbox: ContainerId::parse("e6f3").expect("an id"),
            begin: Timestamp(1_000_000_000),
            end: Timestamp(4_000_000_000),
            phases: vec![phase(Kind::Prepare, 1, 2), phase(slow, 2, 4)],
            plugins: Vec::new(),
            listening: vec![Listening {
                container: ContainerRef::new(ContainerId::parse("c0ffee").expect("an id"), None),
                begin: Timestamp(4_000_000_000),
                end: Timestamp(4_350_000_000),
                socket: Listener { port: 80, family: Family::Ipv4 },
                gapped: false,
                suspended: false,
                pressure: Pressure::default(),
            }],
            complete: true,
            containers_known: true,
            missing: Vec::new(),
            revised: false,
            rebuilt: false,
            listed: true,
            suspended: false,
            waits: false,
        }
    }

    fn pods() -> Vec<PodView> {
        let id = |text| ContainerId::parse(text).expect("an id");
        let at = Timestamp(100_000_000_000);
        let address = Subnet { address: [10, 88, 0, 5].into(), prefix: 16 };
        let full = PodView {
            namespace: Some("default".to_owned()),
            name: Some("web-0\x1b[2J".to_owned()),
            uid: PodUid::parse("11111111-2222-3333-4444-555555555555"),
            source: NameSource::Bundle,
            since: at,
            listed: true,
            waiting_since: None,
            start: Some(start()),
            sandboxes: vec![SandboxView {
                id: id("e6f3"),
                state: sandbox::State::Ready { at },
                since: at,
                listed: true,
                host_network: false,
                hides_programs: false,
                said: None,
                process: Some(TaskKey::new(100, 10_000_000_000)),
                netns: Some(NetnsKey::new(4_026_532_301, 7)),
                addresses: vec![AddressView { address, ifname: "eth0".to_owned() }],
            }],
            containers: vec![
                ContainerView {
                    id: id("c0ffee"),
                    name: Some("nginx".to_owned()),
                    sandbox: Some(id("e6f3")),
                    state: container::State::Running {
                        process: TaskKey::new(101, 40_000_000_000),
                        since: at,
                        listed: true,
                    },
                    said: None,
                    pid: Some(101),
                },
                ContainerView {
                    id: id("dead"),
                    name: None,
                    sandbox: None,
                    state: container::State::Exited { at },
                    said: None,
                    pid: None,
                },
            ],
        };
        let bare = PodView {
            namespace: None,
            name: None,
            sandboxes: Vec::new(),
            containers: Vec::new(),
            start: None,
            source: NameSource::CgroupPath,
            ..full.clone()
        };
        vec![full, bare]
    }

    #[test]
    fn a_table_tells_what_is_known() {
        assert_eq!(
            String::from_utf8(text(&pods(), &Ages::new(), Timestamp(100_000_000_000))).expect("text"),
            "\
NAMESPACE  NAME            UID                                   STATE       CONTAINERS  IP         AGE    START            SLOWEST          LISTENING  SOURCE
default    web-0\\u{1b}[2J  11111111-2222-3333-4444-555555555555  ready       1/2         10.88.0.5  1m30s  3.00 s (listed)  cni slow 2.00 s  +350 ms    bundle
-          -               11111111-2222-3333-4444-555555555555  no sandbox  0/0         -          -      -                -                -          cgroup_path
"
        );
    }

    /// The kernel shows that their cgroups were made, and nothing else.
    #[test]
    fn of_programs_that_are_no_processes_of_the_node_the_runtime_tells() {
        let mut all = pods();
        all[0].sandboxes[0] = SandboxView {
            state: sandbox::State::Created,
            hides_programs: true,
            ..all[0].sandboxes[0].clone()
        };
        for container in &mut all[0].containers {
            (container.state, container.pid) = (container::State::Created, None);
        }
        let told = |pods: &[PodView]| {
            let text = String::from_utf8(text(pods, &Ages::new(), Timestamp(100_000_000_000))).expect("text");
            let cells: Vec<_> = text.lines().nth(1).expect("a row").split_whitespace().collect();
            let json = String::from_utf8(json(&pods[..1])).expect("JSON is UTF-8");
            let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
            let states = [0, 1].map(|place| json["containers"][place]["state"].clone());
            (cells[3].to_owned(), cells[4].to_owned(), states)
        };
        assert_eq!(told(&all), ("created".to_owned(), "-".to_owned(), ["created".into(), "created".into()]));
        all[0].sandboxes[0].said = Some(Believed::Running);
        all[0].containers[0].said = Some(Believed::Running);
        all[0].containers[1].said = Some(Believed::Exited);
        assert_eq!(told(&all), ("ready".to_owned(), "1/2".to_owned(), ["running".into(), "exited".into()]));
    }

    /// A pod whose only container was restarted a minute ago, on a node that was restarted half an hour ago.
    #[test]
    fn a_pod_is_as_old_as_its_being_on_the_node() {
        let of = |pods: &[PodView], ages: &Ages| {
            let text = String::from_utf8(text(pods, ages, Timestamp(100_000_000_000))).expect("text");
            let row = text.lines().nth(1).expect("a row");
            row.split_whitespace().nth(6).expect("an age").to_owned()
        };
        let all = pods();
        let uid = all[0].uid.clone().expect("a UID");
        let ages = Ages::from([(uid, Duration::from_secs(7200))]);
        assert_eq!(of(&all, &ages), "2h00m");
        assert_eq!(of(&all, &Ages::new()), "1m30s", "that of what holds its sandbox");
        let mut seen = all;
        (seen[0].listed, seen[0].since) = (false, Timestamp(5_000_000_000));
        assert_eq!(of(&seen, &Ages::new()), "1m35s", "its beginning was seen");
    }

    #[test]
    fn json_is_one_object_a_pod() {
        let lines = String::from_utf8(json(&pods())).expect("JSON is UTF-8");
        assert_eq!(
            lines.lines().nth(1),
            Some(concat!(
                r#"{"uid":"11111111-2222-3333-4444-555555555555","source":"cgroup_path","#,
                r#""state":"no sandbox","sandboxes":[],"containers":[]}"#
            ))
        );
        let first: serde_json::Value =
            serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
        assert_eq!(first["sandboxes"][0]["netns"]["inode"], 4_026_532_301_u32);
        assert_eq!(first["sandboxes"][0]["netns"]["cookie"], "7");
        assert_eq!(first["containers"][0]["state"], "running");
        assert_eq!(first["start"]["phases"][1]["plugin"], "slow");
    }
}
