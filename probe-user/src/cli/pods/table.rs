//! Pods as a table, or as one JSON object each.

use crate::{
    cli::table::aligned,
    engine::{
        phase::Start,
        time::Timestamp,
        view::{ContainerView, PodView},
        world::container,
    },
    sink::{
        jsonl::{self, pod::state},
        phase,
        text::{escaped, span},
        word,
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

pub(super) fn text(pods: &[PodView], now: Timestamp) -> Vec<u8> {
    let rows: Vec<[String; 11]> = pods.iter().map(|pod| cells(pod, now)).collect();
    aligned(HEADINGS, &rows).into_bytes()
}

fn cells(pod: &PodView, now: Timestamp) -> [String; 11] {
    let name =
        |name: &Option<String>| name.as_deref().map_or_else(|| "-".to_owned(), |it| escaped(it).into_owned());
    let running =
        pod.containers.iter().filter(|it| matches!(it.state, container::State::Running { .. })).count();
    let addresses: Vec<String> =
        pod.sandboxes.iter().flat_map(|it| &it.addresses).map(|it| it.address.address.to_string()).collect();
    let ip = if addresses.is_empty() { "-".to_owned() } else { addresses.join(",") };
    [
        name(&pod.namespace),
        name(&pod.name),
        pod.uid.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
        state(pod).to_owned(),
        format!("{running}/{}", pod.containers.len()),
        ip,
        began(pod).map_or_else(|| "-".to_owned(), |start| span(now.since(start))),
        pod.start.as_ref().map_or_else(|| "-".to_owned(), took),
        pod.start.as_ref().and_then(slowest).unwrap_or_else(|| "-".to_owned()),
        pod.start.as_ref().and_then(listening).unwrap_or_else(|| "-".to_owned()),
        word::name_source(pod.source).to_owned(),
    ]
}

/// Marked, if it cannot be compared as it is.
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

/// After its container's program began.
fn listening(start: &Start) -> Option<String> {
    start.listens().map(|last| format!("+{}", span(last.took())))
}

/// When its first process of those that run began: its files do not say when the pod itself did.
fn began(pod: &PodView) -> Option<Timestamp> {
    let start = |it: &ContainerView| match it.state {
        container::State::Running { process, .. } if process.start != 0 => Some(Timestamp(process.start)),
        container::State::Running { .. } | container::State::Created | container::State::Exited { .. } => {
            None
        }
    };
    pod.containers.iter().filter_map(start).min()
}

pub(super) fn json(pods: &[PodView]) -> Vec<u8> {
    let mut lines = Vec::new();
    pods.iter().for_each(|pod| jsonl::pod(pod, &mut lines));
    lines
}

#[cfg(test)]
mod tests {
    use super::{json, text};
    use crate::engine::{
        change::ContainerRef,
        fact::{Family, Listener, NameSource, PodName},
        id::{ContainerId, NetnsKey, PodUid, Subnet, TaskKey},
        phase::{Cause, Kind, Listening, Phase, Start},
        time::Timestamp,
        view::{AddressView, ContainerView, PodView, SandboxView},
        world::{container, sandbox},
    };

    fn start() -> Start {
        let phase = |kind, begin: u64, end: u64| Phase {
            kind,
            container: None,
            begin: Timestamp(begin * 1_000_000_000),
            end: Timestamp(end * 1_000_000_000),
            gapped: false,
            cause: Cause::default(),
        };
        let slow = Kind::Cni { plugin: "slow".to_owned(), ifname: "eth0".to_owned() };
        Start {
            pod: PodName::default(),
            sandbox: ContainerId::parse("e6f3").expect("an id"),
            begin: Timestamp(1_000_000_000),
            end: Timestamp(4_000_000_000),
            phases: vec![phase(Kind::Prepare, 1, 2), phase(slow, 2, 4)],
            listening: vec![Listening {
                container: ContainerRef { id: ContainerId::parse("c0ffee").expect("an id"), name: None },
                begin: Timestamp(4_000_000_000),
                end: Timestamp(4_350_000_000),
                socket: Listener { port: 80, family: Family::Ipv4 },
                gapped: false,
                suspended: false,
            }],
            complete: true,
            revised: false,
            rebuilt: false,
            listed: true,
            suspended: false,
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
            start: Some(start()),
            sandboxes: vec![SandboxView {
                id: id("e6f3"),
                state: sandbox::State::Ready { at },
                since: at,
                listed: true,
                host_network: false,
                pid: Some(100),
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
                    pid: Some(101),
                },
                ContainerView {
                    id: id("dead"),
                    name: None,
                    sandbox: None,
                    state: container::State::Exited { at },
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
            String::from_utf8(text(&pods(), Timestamp(100_000_000_000))).expect("text"),
            "\
NAMESPACE  NAME            UID                                   STATE       CONTAINERS  IP         AGE    START            SLOWEST          LISTENING  SOURCE
default    web-0\\u{1b}[2J  11111111-2222-3333-4444-555555555555  ready       1/2         10.88.0.5  1m00s  3.00 s (listed)  cni slow 2.00 s  +350 ms    bundle
-          -               11111111-2222-3333-4444-555555555555  no sandbox  0/0         -          -      -                -                -          cgroup_path
"
        );
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
