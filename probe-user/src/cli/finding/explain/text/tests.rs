//! Explanations as people read them, part by part.

use std::time::Duration;

use super::text;
use crate::{
    cli::{ExitStatus, snapshot::AgentSnapshot},
    engine::incident::Incidents,
    model::{
        change::{ChangeKind, CniCall, End, Evidence, EvidenceEvent, Finding, Process},
        fact::{NodeFolders, Origin, PodName, ProgramFound, Said, Speaker},
        finding::{
            Blind, BlindSpot, DaemonFailing, Key, Kind, OutOfOrder, RuntimeUnresponsive, Severity, Stage,
            StuckCgroup, TeardownOutOfOrder, UnverifiedRelease,
        },
        id::{ContainerId, TaskKey},
        time::Timestamp,
    },
    sink::Label,
};

fn process(pid: u32, comm: &str) -> Process {
    Process { key: TaskKey::new(pid, 1), parent: TaskKey::new(1, 1), comm: comm.to_owned() }
}

fn snapshot() -> AgentSnapshot {
    let label = Label { node: "node-1".to_owned(), boot_id: "b".to_owned(), boot_wall_ns: 0 };
    AgentSnapshot {
        label,
        findings: Vec::new(),
        starts: Vec::new(),
        shares: Vec::new(),
        pods: Vec::new(),
        now: Timestamp(63_000_000_000),
        caveats: Vec::new(),
        done: ExitStatus::Ok,
    }
}

fn finding() -> Finding {
    let sandbox = ContainerId::parse("e6f3").expect("an id");
    let killer = process(77, "sh\x1b[2J");
    let call = |netns: Option<&str>| CniCall {
        command: "DEL".to_owned(),
        plugin: "bridge".to_owned(),
        netns: netns.map(str::to_owned),
        ifname: Some("eth0".to_owned()),
        process: process(80, "bridge"),
        called_by: None,
        delegated: false,
        trace: None,
    };
    let end = End { code: 137, signal: Some(9), killer: Some(killer.clone()), oom: false };
    let told = [
        (1_000, ChangeKind::SandboxCreated),
        (1_250, ChangeKind::ProcessExit { process: process(50, "pause"), end: end.clone() }),
        (1_250, ChangeKind::ContainerExited { process: process(50, "pause"), end, ran: None }),
        (1_300, ChangeKind::CniStarted { call: call(Some("")).into() }),
        (
            1_340,
            ChangeKind::CniFinished {
                call: call(Some("")).into(),
                end: Some(End::default()),
                duration: Duration::from_millis(40),
            },
        ),
    ];
    let evidence = told.map(|(ms, what)| Evidence {
        sandbox: sandbox.clone(),
        event: EvidenceEvent {
            at: Timestamp(ms * 1_000_000),
            origin: Origin::Kernel,
            container: None,
            netns: None,
            cgroup: None,
            what,
            left_out: 0,
        },
    });
    Finding {
        key: Key::parse("teardown_out_of_order/e6f3").expect("a key"),
        kind: Kind::TeardownOutOfOrder(TeardownOutOfOrder {
            how: OutOfOrder::PauseKilled,
            killer: Some(killer),
            signal: Some(9),
        }),
        severity: Severity::Warning,
        stage: Stage::Confirmed,
        since: Timestamp(1_250_000_000),
        opened_at: Timestamp(2_000_000_000),
        confirmed_at: Some(Timestamp(3_000_000_000)),
        closed_at: None,
        pod: Some(PodName {
            namespace: Some("default".to_owned()),
            name: Some("web-0".to_owned()),
            uid: None,
        }),
        sandboxes: vec![sandbox],
        gapped: true,
        evidence: evidence.to_vec(),
        programs: Vec::new(),
        runtimes: Vec::new(),
        folders: NodeFolders::default(),
        worst: None,
    }
}

#[test]
fn the_evidence_is_told_from_its_first_event_on() {
    let finding = finding();
    let said = text(&finding, &Incidents::of([&finding]), &snapshot());
    for part in [
        "  pod        default/web-0\n",
        "  since      1970-01-01T00:00:01.250000000Z (1m01s ago)\n",
        "Records were lost",
        "Evidence (+0 is 00:00:01.000000 UTC)\n       +0  sandbox.created   e6f3\n",
        "  +250 ms  container.exited",
        "DEL bridge: CNI_NETNS empty, CNI_IFNAME=eth0, process 80\n      ended at +340 ms: exit 0, after 40.0 ms\n",
        "  pause[50]: killed by SIGKILL from sh\\u{1b}[2J[77], child of 1\n",
    ] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
    assert_eq!(said.matches("DEL bridge: CNI_NETNS").count(), 1, "a call that ended is told once");
    assert_eq!(said.matches("pause[50]: killed").count(), 1, "a kill is told once");
    assert!(!said.contains('\x1b'));
}

#[test]
fn versions_stand_in_one_column_behind_paths_that_are_escaped() {
    let program = |path: &str| ProgramFound { path: path.to_owned(), version: Some("v1".to_owned()) };
    let programs = vec![program("/opt/cni/bin/a\u{202e}\n"), program("/opt/cni/bin/bridge")];
    let finding = Finding { programs, ..finding() };
    let said = text(&finding, &Incidents::of([&finding]), &snapshot());
    let part = "\nPrograms\n  /opt/cni/bin/a\\u{202e}\\n  v1\n  /opt/cni/bin/bridge       v1\n";
    assert!(said.contains(part), "no {part:?} in\n{said}");
}

fn failing() -> DaemonFailing {
    DaemonFailing {
        daemon: "kubelet".to_owned(),
        plugins: Vec::new(),
        plugin_pod: None,
        count: 3,
        lasted: Duration::from_secs(9),
        down: false,
        killer: None,
        exit_code: 1,
        signal: None,
        oom: false,
        said: Vec::new(),
        unsaid: None,
    }
}

/// Returns how a finding is explained that has no events.
fn without_events(kind: Kind, closed_at: Option<Timestamp>) -> String {
    let stage = if closed_at.is_some() { Stage::Closed } else { Stage::Confirmed };
    let finding =
        Finding { kind, stage, closed_at, evidence: Vec::new(), sandboxes: Vec::new(), ..finding() };
    text(&finding, &Incidents::of([&finding]), &snapshot())
}

#[test]
fn the_evidence_of_a_daemon_that_is_down_is_its_end() {
    let down = DaemonFailing { down: true, killer: Some(process(1, "systemd")), ..failing() };
    for (closed_at, gone) in [(None, "1m01s"), (Some(Timestamp(5_250_000_000)), "4.00 s")] {
        let said = without_events(Kind::DaemonFailing(down.clone()), closed_at);
        let part = format!("\nEvidence\n  the end of kubelet, and no start of it in the {gone} after that\n");
        assert!(said.contains(&part), "no {part:?} in\n{said}");
        assert_eq!(said.to_lowercase().matches("start it").count(), 1, "{said}");
    }
}

#[test]
fn a_finding_about_no_sandbox_has_evidence_of_another_sort() {
    let spot = BlindSpot { spot: Blind::Kubelet, weaker: Vec::new() };
    let hang = RuntimeUnresponsive {
        runtime: "/run/containerd/containerd.sock".to_owned(),
        pods: 0,
        first: Vec::new(),
        process: None,
        state: None,
        threads: Vec::new(),
    };
    let release = UnverifiedRelease { plugin: "own".to_owned(), count: 1, without_del: 0 };
    let cgroup = StuckCgroup { path: "/kubepods/podx".to_owned(), populated: None };
    for (kind, evidence) in [
        (Kind::DaemonFailing(failing()), "the ends of 3 processes of kubelet, each soon after its start"),
        (Kind::BlindSpot(spot), "what sandprobe itself could not see, read or keep"),
        (Kind::RuntimeUnresponsive(hang), "requests over CRI that got no answer"),
        (Kind::UnverifiedRelease(release), "how the plugin's attachments were released"),
        (Kind::StuckCgroup(cgroup), "no sandbox of it is known"),
    ] {
        let said = without_events(kind, None);
        assert!(said.contains(&format!("\nEvidence\n  {evidence}\n")), "no {evidence:?} in\n{said}");
    }
}

/// Words of a log are evidence of their own, and may be anything.
#[test]
fn what_was_said_is_told_with_its_time_and_its_file() {
    let words = Said {
        by: Speaker::Kubelet,
        text: "no\x1b[2J".to_owned(),
        at: "2026-11-25T09:29:07Z".to_owned(),
        source: "/var/log/kubelet.log".to_owned(),
    };
    let said = without_events(Kind::DaemonFailing(DaemonFailing { said: vec![words], ..failing() }), None);
    for part in [
        "\nEvidence\n  the ends of 3 processes of kubelet, each soon after its start, and what was said\n",
        "\nWhat was said\n  2026-11-25T09:29:07Z by the kubelet, in /var/log/kubelet.log\n      no\\u{1b}[2J\n",
    ] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
}

/// The call may have ended since.
#[test]
fn a_call_without_an_end_is_told_with_the_time_up_to_which_it_had_none() {
    let mut finding = finding();
    finding.evidence.pop();
    for (closed_at, until) in [(None, "+2.00 s"), (Some(Timestamp(5_000_000_000)), "+4.00 s")] {
        finding.closed_at = closed_at;
        let said = text(&finding, &Incidents::of([&finding]), &snapshot());
        let part = format!("process 80\n      began at +300 ms: no end was seen by {until}\n");
        assert!(said.contains(&part), "no {part:?} in\n{said}");
    }
}

/// Its end may be one of the events that are not kept.
#[test]
fn beside_a_hole_in_the_evidence_no_call_is_told_to_have_no_end() {
    let mut finding = finding();
    finding.evidence.pop();
    let last = finding.evidence.len() - 1;
    finding.evidence[last].event.left_out = 12;
    let said = text(&finding, &Incidents::of([&finding]), &snapshot());
    for part in [
        "(+0 is 00:00:01.000000 UTC; 12 events between the first and the last ones are not kept)\n",
        "process 80\n      began at +300 ms: its end is not among the events that are kept\n",
    ] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
    // A call that began after the hole cannot have its end in it.
    finding.evidence[last].event.left_out = 0;
    finding.evidence[0].event.left_out = 12;
    let said = text(&finding, &Incidents::of([&finding]), &snapshot());
    assert!(said.contains("process 80\n      began at +300 ms: no end was seen by "), "{said}");
}
