//! The lines, the order of their members, and the agreement of `docs/events.md` with the code.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use strum::VariantNames;

use super::Jsonl;
use crate::{
    golden::same_names,
    model::{
        change::{
            CgroupRef, Change, ChangeKind, CniCall, ContainerRef, Context, End, Finding, PodRef, Process,
            StopReason,
        },
        fact::{
            CpuUse, Family, Listener, Loss, MemoryEvents, NameSource, NodeFolders, Origin, PodName, Pressure,
            ProgramFound, Stall,
        },
        finding::{Key, Kind, OrphanNetns, Severity, Stage},
        id::{CgroupKey, ContainerId, NetnsKey, PodUid, Subnet, TaskKey},
        phase::{Cause, Kind as Part, Listening, Part as ImagePart, PartKind, Phase, Start, WaitsFor},
        time::Timestamp,
        trace::TraceContext,
    },
    sink::{Format, Label, render::phase},
};

fn process(pid: u32) -> Process {
    Process {
        key: TaskKey::new(pid, 7_000_000_000),
        parent: TaskKey::new(1, 20_000_000),
        comm: format!("comm{pid}"),
    }
}

fn end() -> End {
    End { code: 137, signal: Some(9), killer: Some(process(99)), oom: true }
}

fn call() -> CniCall {
    CniCall {
        command: "ADD".to_owned(),
        plugin: "host-local".to_owned(),
        netns: Some("/run/netns/cni-1".to_owned()),
        ifname: Some("eth0".to_owned()),
        process: process(20),
        called_by: Some("bridge".to_owned()),
        delegated: true,
        trace: Some(TraceContext {
            parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().expect("a traceparent"),
            state: String::new(),
            plugin: None,
        }),
    }
}

/// A finding with everything that can be known.
fn finding() -> Box<Finding> {
    Box::new(Finding {
        key: Key::parse("orphan_netns/4026532177").expect("a key"),
        kind: Kind::OrphanNetns(OrphanNetns {
            netns: NetnsKey::new(4_026_532_177, 41),
            mounts: vec!["/run/netns/cni-1".to_owned()],
        }),
        severity: Severity::Warning,
        stage: Stage::Confirmed,
        since: Timestamp(1),
        opened_at: Timestamp(2),
        confirmed_at: Some(Timestamp(3)),
        closed_at: None,
        pod: None,
        sandboxes: Vec::new(),
        gapped: false,
        evidence: Vec::new(),
        programs: Vec::new(),
        runtimes: Vec::new(),
        folders: NodeFolders::default(),
        worst: None,
    })
}

/// A start with everything that can be known of each phase.
pub(super) fn start() -> Start {
    let stall = Some(Stall { some: Duration::from_millis(2), full: Duration::from_millis(1) });
    let pressure = Pressure {
        cpu: Some(CpuUse {
            used: Duration::from_millis(7),
            throttled: Duration::from_millis(8),
            periods: 9,
            limit: Some(250),
        }),
        memory: Some(MemoryEvents { high: 1, max: 2, oom: 3, limit: Some(64 << 20) }),
        cpu_stall: stall,
        memory_stall: stall,
        io_stall: stall,
        runtime_io: stall,
    };
    let cause = Cause {
        adds: 3,
        failed: 2,
        wasted: Duration::from_millis(4),
        took: Duration::from_millis(5),
        sandboxes: 2,
        runs: 1,
        teardown: Duration::from_millis(6),
    };
    let waits = [
        WaitsFor::Pulls { ahead: 4, at_once: 1 },
        WaitsFor::Creates { ahead: 2, at_once: 1 },
        WaitsFor::Rate { refused: 2 },
        WaitsFor::Retry { failed: 1 },
        WaitsFor::Services { failed: 1 },
        WaitsFor::ApiRate { held_back: 3 },
        WaitsFor::Runtime {},
    ]
    .map(Some)
    .into_iter()
    .chain([None]);
    let phase = |kind, begin: u64| Phase {
        kind,
        container: Some(ContainerRef::new(
            ContainerId::parse("c0ffee").expect("an id"),
            Some("main".to_owned()),
        )),
        begin: Timestamp(begin),
        end: Timestamp(begin + 10),
        gapped: true,
        cause,
        pressure,
        parts: waits
            .clone()
            .map(|waits| ImagePart {
                kind: if waits.is_some() { PartKind::Wait } else { PartKind::Pull },
                begin: Timestamp(begin),
                took: Duration::from_nanos(2),
                waits,
            })
            .collect(),
    };
    let cni = Part::Cni { plugin: "bridge".to_owned(), ifname: "eth0".to_owned() };
    let kinds = [
        Part::Prepare,
        Part::Retry,
        Part::Netns,
        cni,
        Part::Between,
        Part::Pause,
        Part::Image,
        Part::Runtime,
        Part::Cgroup,
        Part::PostStart,
        Part::Init,
    ];
    Start {
        pod: PodName::default(),
        sandbox: ContainerId::parse("e6f3").expect("an id"),
        begin: Timestamp(100),
        end: Timestamp(200),
        phases: (10..21).zip(kinds).map(|(tenth, kind)| phase(kind, tenth * 10)).collect(),
        plugins: vec![ProgramFound {
            path: "/opt/cni/bin/bridge".to_owned(),
            version: Some("1.6.2".to_owned()),
        }],
        listening: vec![Listening {
            container: ContainerRef::new(
                ContainerId::parse("c0ffee").expect("an id"),
                Some("main".to_owned()),
            ),
            begin: Timestamp(200),
            end: Timestamp(260),
            socket: Listener { port: 8080, family: Family::Ipv4 },
            gapped: true,
            suspended: true,
            pressure,
        }],
        complete: true,
        containers_known: true,
        missing: vec!["side".to_owned()],
        revised: true,
        rebuilt: true,
        listed: true,
        suspended: true,
        waits: true,
    }
}

pub(super) fn all() -> Vec<ChangeKind> {
    let address = Subnet { address: [10, 88, 0, 5].into(), prefix: 16 };
    let ifname = || "eth0".to_owned();
    vec![
        ChangeKind::ProcessExec {
            process: process(5),
            filename: "/bin/sh".to_owned(),
            argv: vec!["sh".to_owned(), "-c".to_owned()],
            argv_cut: true,
        },
        ChangeKind::FindingOpened(finding()),
        ChangeKind::FindingConfirmed(finding()),
        ChangeKind::FindingClosed(finding()),
        ChangeKind::ProcessExit { process: process(5), end: end() },
        ChangeKind::CniStarted { call: call().into() },
        ChangeKind::CniFinished {
            call: call().into(),
            end: Some(end()),
            duration: Duration::from_millis(35),
        },
        ChangeKind::NetnsCreated { by: process(6) },
        ChangeKind::NetnsDestroyed { by: Some(process(6)) },
        ChangeKind::NetnsFreed { teardown: Some(Duration::from_millis(12)) },
        ChangeKind::CgroupCreated { by: process(6) },
        ChangeKind::CgroupEmptied,
        ChangeKind::CgroupRemoved { by: process(6) },
        ChangeKind::AddressAdded { address, ifname: ifname() },
        ChangeKind::AddressRemoved { address, ifname: ifname() },
        ChangeKind::SandboxCreated,
        ChangeKind::SandboxReady { since_created: Some(Duration::from_millis(812)) },
        ChangeKind::SandboxStopped { why: StopReason::PauseExited },
        ChangeKind::ContainerStarted { process: process(8) },
        ChangeKind::ContainerListening {
            process: process(8),
            socket: Listener { port: 8080, family: Family::Ipv6 },
            since_started: Duration::from_millis(1200),
        },
        ChangeKind::ContainerExited { process: process(8), end: end(), ran: Some(Duration::from_secs(3)) },
        ChangeKind::PodFirstSeen,
        ChangeKind::PodStarted(Box::new(start())),
        ChangeKind::PodGone { lived: Duration::from_secs(60) },
        ChangeKind::Gap { what: Loss::LifecycleRing, count: 12, lasted: None },
        ChangeKind::Gap { what: Loss::NoAgent, count: 0, lasted: Some(Duration::from_secs(2)) },
        ChangeKind::Gap { what: Loss::State, count: 0, lasted: Some(Duration::from_secs(3)) },
        ChangeKind::Gap { what: Loss::NetlinkSocket, count: 0, lasted: Some(Duration::from_secs(2)) },
    ]
}

pub(super) fn label() -> Label {
    Label {
        node: "node-1".to_owned(),
        boot_id: "9f3c6e1a-0000-4000-8000-000000000001".to_owned(),
        boot_wall_ns: 1_795_237_000_000_000_000,
    }
}

pub(super) fn full(what: ChangeKind) -> Change {
    let context = Context {
        pod: Some(PodRef {
            namespace: Some("default".to_owned()),
            name: Some("web-0".to_owned()),
            uid: PodUid::parse("11111111-2222-3333-4444-555555555555"),
            source: Some(NameSource::CniArgs),
        }),
        sandbox: ContainerId::parse("e6f3"),
        container: ContainerId::parse("c0ffee").map(|id| ContainerRef {
            attempt: Some(2),
            image: Some("registry.example/nginx:1.27".into()),
            ..ContainerRef::new(id, Some("nginx".to_owned()))
        }),
        netns: Some(NetnsKey::new(4_026_532_301, 12)),
        cgroup: Some(CgroupRef { key: CgroupKey::new(0, 1_912), path: "/kubepods".to_owned() }),
    };
    let at = Timestamp(53_000_000_001);
    Change { seq: 7, at, origin: Origin::Kernel, late: true, context, what }
}

pub(super) fn line(change: &Change) -> String {
    let mut out = Vec::new();
    Jsonl.write(change, &label(), &mut out);
    String::from_utf8(out).expect("JSON is UTF-8")
}

/// A line of each event and each kind of finding, with everything that can be known.
pub(in crate::sink) fn everything() -> Vec<Value> {
    let events = all().into_iter().map(|what| line(&full(what)));
    let events = events.map(|line| serde_json::from_str(&line).expect("JSON"));
    let findings = super::finding::tests::all().into_iter().map(|kind| {
        let Label { node, boot_id, .. } = label();
        let finding = super::finding::tests::written(kind);
        json!({ "schema": super::SCHEMA, "node": node, "boot_id": boot_id, "finding": finding })
    });
    events.chain(findings).collect()
}

#[test]
fn a_line_has_its_members_in_order_and_its_large_numbers_as_strings() {
    let what = ChangeKind::CniFinished {
        call: call().into(),
        end: Some(end()),
        duration: Duration::from_millis(35),
    };
    let expect = concat!(
        r#"{"schema":1,"node":"node-1","boot_id":"9f3c6e1a-0000-4000-8000-000000000001","seq":7,"#,
        r#""at":"2026-11-21T04:57:33.000000001Z","boot_ns":"53000000001","event":"cni.finished","#,
        r#""origin":"kernel","late":true,"#,
        r#""pod":{"namespace":"default","name":"web-0","uid":"11111111-2222-3333-4444-555555555555","source":"cni_args"},"#,
        r#""sandbox":{"id":"e6f3"},"container":{"id":"c0ffee","name":"nginx","attempt":2,"image":"registry.example/nginx:1.27"},"#,
        r#""netns":{"inode":4026532301,"cookie":"12"},"#,
        r#""cgroup":{"id":"1912","hierarchy":0,"path":"/kubepods"},"#,
        r#""process":{"pid":20,"start_ns":"7000000000","comm":"comm20","parent":{"pid":1,"start_ns":"20000000"},"#,
        r#""exit_code":137,"signal":9,"oom":true,"killer":{"pid":99,"start_ns":"7000000000","comm":"comm99"}},"#,
        r#""cni":{"command":"ADD","plugin":"host-local","netns":"/run/netns/cni-1","ifname":"eth0","#,
        r#""called_by":"bridge","delegated":true,"#,
        r#""traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","exit_code":137,"duration_ns":"35000000"},"#,
        r#""text":"ADD host-local eth0 cni-1 from bridge killed by SIGKILL (out of memory) from comm99[99] in 35.0 ms (late)"}"#,
        "\n"
    );
    assert_eq!(line(&full(what)), expect);
}

#[test]
fn what_is_not_known_is_absent() {
    let at = Timestamp(1);
    let context = Context::default();
    let what = ChangeKind::NetnsDestroyed { by: None };
    let bare = Change { seq: 1, at, origin: Origin::Netlink, late: false, context, what };
    let expect = concat!(
        r#"{"schema":1,"node":"node-1","boot_id":"9f3c6e1a-0000-4000-8000-000000000001","seq":1,"#,
        r#""at":"2026-11-21T04:56:40.000000001Z","boot_ns":"1","event":"netns.destroyed","origin":"netlink","#,
        r#""text":"netns ? [netlink]"}"#,
        "\n"
    );
    assert_eq!(line(&bare), expect);
}

#[test]
fn outside_text_stays_within_its_string() {
    let argv = vec!["a\n{\"x\":1}\u{1b}\"".to_owned()];
    let process = process(5);
    let what = ChangeKind::ProcessExec { process, filename: "\\\u{0}".to_owned(), argv, argv_cut: false };
    let line = line(&full(what));
    assert_eq!(line.matches('\n').count(), 1);
    let value: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(value["process"]["argv"][0], "a\n{\"x\":1}\u{1b}\"");
}

fn documented(heading: &str) -> BTreeSet<String> {
    documented_in(include_str!("../../../../../docs/events.md"), heading)
}

/// The names that a page documents: each is in the first cell of a table's row, in backquotes.
fn documented_in(doc: &str, heading: &str) -> BTreeSet<String> {
    let (_, section) = doc.split_once(&format!("\n## {heading}\n")).expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or(section);
    let name = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    section.lines().filter_map(name).collect()
}

/// The paths of all members: `pod.name`.
fn members(prefix: &str, value: &Value, to: &mut BTreeSet<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        members(&path, value, to);
        to.insert(path);
    }
}

#[test]
fn the_documentation_has_every_event_and_member_and_no_other() {
    let mut written = BTreeSet::new();
    let mut events = BTreeSet::new();
    for what in all() {
        events.insert(what.into_str().to_owned());
        members("", &serde_json::from_str(&line(&full(what))).expect("JSON"), &mut written);
    }
    assert_eq!(events, ChangeKind::VARIANTS.iter().map(|&name| name.to_owned()).collect());
    same_names(&documented("Events"), &events);
    // A finding's members are on another page.
    written.retain(|path| !path.starts_with("finding."));
    same_names(&documented("Members"), &written);
}

#[test]
fn the_documentation_has_every_phase_and_every_member_of_one() {
    let doc = include_str!("../../../../../docs/phases.md");
    let line: Value =
        serde_json::from_str(&line(&full(ChangeKind::PodStarted(Box::new(start()))))).expect("JSON");
    let phases = line["start"]["phases"].as_array().expect("phases");
    let mut written = BTreeSet::new();
    phases.iter().for_each(|phase| members("", phase, &mut written));
    same_names(&documented_in(doc, "Members"), &written);
    let mut written = BTreeSet::new();
    let listening = line["start"]["listening"].as_array().expect("listening");
    listening.iter().for_each(|it| members("", it, &mut written));
    // These objects have the members of a phase's objects.
    written.retain(|path| !["cpu.", "memory.", "stall."].iter().any(|of| path.starts_with(of)));
    same_names(&documented_in(doc, "Listening"), &written);
    let words = phases.iter().map(|phase| phase["phase"].as_str().expect("a word").to_owned());
    assert_eq!(words.clone().collect::<Vec<_>>(), phase::NAMES);
    same_names(&documented_in(doc, "Phases"), &words.collect());
}

#[test]
fn the_documentation_has_every_word_of_closed_sets() {
    let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
    same_names(&documented("Origins"), &words(Origin::VARIANTS));
    same_names(&documented("Sources of a name"), &words(NameSource::VARIANTS));
    same_names(&documented("Why a sandbox stopped"), &words(StopReason::VARIANTS));
    same_names(&documented("What a gap is in"), &words(Loss::VARIANTS));
}
