//! The counts of each kind of change, the bounds under a hostile stream, and the text of a scrape.

mod restart;

use std::{collections::BTreeMap, time::Duration};

use probe_common::event;
use proptest::prelude::*;
use strum::VariantNames;

use super::{
    Metrics, Views,
    agent_stats::{AgentStats, ProbeStats, Program, ReadingStats, Ring, ServerStats, StateWrite},
    family::{ALL, Kind},
    label::PodLabel,
    owner::STAY,
};
use crate::{
    engine::{
        incident::Incidents,
        view::{BalanceView, ManyView, PoolView},
    },
    model::{
        change::{
            CgroupRef, Change, ChangeKind, CniCall, Context, End, Finding, PodRef, Process, StopReason,
        },
        fact::{Family, Listener, Loss, Mechanism, NodeFolders, Origin, PodName, Pressure, Signal},
        finding::{Cause, Key, Kind as Wrong, LeakedAddress, Many, Severity, Stage},
        id::{CgroupKey, ContainerId, PodUid},
        phase::{self, Phase, Start},
        recovery::Recovery,
        time::Timestamp,
    },
    sink::render::phase as wording,
};

const S: u64 = 1_000_000_000;

fn uid(number: u32) -> PodUid {
    PodUid::parse(&format!("{number:08}-2222-3333-4444-555555555555")).expect("a UUID")
}

fn pod(name: &str, number: u32) -> PodRef {
    let namespace = Some("shop".to_owned());
    PodRef { namespace, name: Some(name.to_owned()), uid: Some(uid(number)), source: None }
}

fn of(pod: Option<PodRef>, at: u64, what: ChangeKind) -> Change {
    let context = Context { pod, ..Context::default() };
    Change { seq: 1, at: Timestamp(at), origin: Origin::Kernel, late: false, context, what }
}

fn call(command: &str, plugin: &str, netns: Option<&str>) -> CniCall {
    CniCall {
        command: command.to_owned(),
        plugin: plugin.to_owned(),
        netns: netns.map(str::to_owned),
        ifname: None,
        process: Process::default(),
        called_by: None,
        delegated: false,
        trace: None,
    }
}

fn finished(plugin: &str, code: u32) -> ChangeKind {
    let end = Some(End { code, ..End::default() });
    ChangeKind::CniFinished {
        call: call("ADD", plugin, Some("/x")).into(),
        end,
        duration: Duration::from_millis(300),
    }
}

fn leak(name: &str) -> Box<Finding> {
    Box::new(Finding {
        key: Key::parse("leaked_address/x").expect("a key"),
        kind: Wrong::LeakedAddress(LeakedAddress {
            address: "10.0.0.1".parse().expect("an address"),
            network: None,
            inferred: false,
            ifname: "eth0".to_owned(),
            plugin: None,
            cause: Cause::DelBlind,
            stores: Vec::new(),
            many: None,
        }),
        severity: Severity::Warning,
        stage: Stage::Confirmed,
        since: Timestamp(1),
        opened_at: Timestamp(1),
        confirmed_at: None,
        closed_at: None,
        pod: Some(PodName { namespace: Some("shop".to_owned()), name: Some(name.to_owned()), uid: None }),
        sandboxes: Vec::new(),
        gapped: false,
        evidence: Vec::new(),
        programs: Vec::new(),
        runtimes: Vec::new(),
        folders: NodeFolders::default(),
        worst: None,
    })
}

fn start(revised: bool, listed: bool) -> ChangeKind {
    let phase = |kind, begin, end| Phase {
        kind,
        container: None,
        begin: Timestamp(begin * S),
        end: Timestamp(end * S),
        gapped: false,
        cause: phase::Cause::default(),
        pressure: Pressure::default(),
        parts: Vec::new(),
    };
    let cni = |plugin: &str| phase::Kind::Cni { plugin: plugin.to_owned(), ifname: "eth0".to_owned() };
    ChangeKind::PodStarted(Box::new(Start {
        pod: PodName::default(),
        sandbox: ContainerId::parse("a").expect("an id"),
        begin: Timestamp(S),
        end: Timestamp(10 * S),
        phases: vec![phase(cni("a"), 1, 3), phase(phase::Kind::Between, 3, 4), phase(cni("b"), 4, 10)],
        plugins: Vec::new(),
        listening: Vec::new(),
        complete: true,
        containers_known: !revised,
        missing: Vec::new(),
        revised,
        rebuilt: false,
        listed,
        suspended: false,
        waits: false,
    }))
}

/// The samples of a scrape: the value of each name with its labels.
fn scrape(metrics: &Metrics) -> BTreeMap<String, f64> {
    let text = metrics.text().expect("a text");
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a sample");
        (name.to_owned(), value.parse().expect("a number"))
    };
    samples.map(sample).collect()
}

fn look(metrics: &Metrics, now: u64, own: &AgentStats, pools: &[PoolView]) {
    look_at(metrics, now, own, pools, &[], &[]);
}

fn look_at(
    metrics: &Metrics,
    now: u64,
    own: &AgentStats,
    pools: &[PoolView],
    findings: &[&Finding],
    many: &[ManyView],
) {
    let recovery = Recovery::default();
    metrics.set_gauges(&Views {
        now: Timestamp(now),
        pods: &[],
        pools,
        balance: &[],
        findings,
        incidents: &Incidents::of(findings.iter().copied()),
        many,
        recovery: &recovery,
        daemons: &BTreeMap::from([("containerd", Timestamp(3 * S))]),
        netns: 0,
        unwatched: 0,
        stale: 0,
        own,
    });
}

#[test]
fn each_change_is_counted_where_it_belongs() {
    let metrics = Metrics::new(&[]);
    let cgroup = CgroupRef { key: CgroupKey::new(0, 7), path: "/a".to_owned() };
    let in_cgroup = |at, what| {
        let context = Context { cgroup: Some(cgroup.clone()), ..Context::default() };
        Change { context, ..of(None, at, what) }
    };
    let delegated = CniCall { delegated: true, ..call("ADD", "bridge", None) };
    let end = |code, signal, oom| End { code, signal, killer: None, oom };
    let exited = |end| ChangeKind::ContainerExited {
        process: Process::default(),
        end,
        ran: Some(Duration::from_secs(1)),
    };
    let listening = |since_started| ChangeKind::ContainerListening {
        process: Process::default(),
        socket: Listener { port: 80, family: Family::Ipv4 },
        since_started,
    };
    for change in [
        of(None, S, finished("bridge", 0)),
        of(None, S, finished("bridge", 1)),
        of(None, S, ChangeKind::CniFinished { call: delegated.into(), end: None, duration: Duration::ZERO }),
        of(None, S, ChangeKind::CniStarted { call: call("DEL", "bridge", Some("")).into() }),
        of(None, S, ChangeKind::CniStarted { call: call("DEL", "bridge", None).into() }),
        of(None, S, ChangeKind::CniStarted { call: call("DEL", "bridge", Some("/x")).into() }),
        of(None, S, listening(Duration::from_millis(1500))),
        of(None, S, exited(end(0, None, false))),
        of(None, S, exited(end(137, Some(9), false))),
        of(None, S, exited(end(137, Some(9), true))),
        of(None, S, ChangeKind::SandboxStopped { why: StopReason::Emptied }),
        of(None, S, ChangeKind::SandboxReady { since_created: Some(Duration::from_millis(20)) }),
        Change {
            origin: Origin::Listed,
            ..of(None, S, ChangeKind::SandboxReady { since_created: Some(Duration::ZERO) })
        },
        of(None, S, start(false, false)),
        of(None, S, start(true, false)),
        of(None, S, start(false, true)),
        of(None, S, ChangeKind::NetnsFreed { teardown: Some(Duration::from_secs(2)) }),
        of(None, S, ChangeKind::NetnsFreed { teardown: None }),
        in_cgroup(S, ChangeKind::CgroupEmptied),
        in_cgroup(4 * S, ChangeKind::CgroupRemoved { by: Process::default() }),
        in_cgroup(9 * S, ChangeKind::CgroupRemoved { by: Process::default() }),
        of(None, S, ChangeKind::Gap { what: Loss::Record, count: 3, lasted: None }),
        of(None, S, ChangeKind::Gap { what: Loss::BulkRing, count: 3, lasted: None }),
        Change {
            origin: Origin::Agent,
            ..of(
                None,
                S,
                ChangeKind::Gap { what: Loss::NoAgent, count: 0, lasted: Some(Duration::from_secs(1)) },
            )
        },
        of(None, S, ChangeKind::FindingOpened(leak("web"))),
        of(None, S, ChangeKind::FindingConfirmed(leak("web"))),
        Change { late: true, ..of(None, S, ChangeKind::PodFirstSeen) },
    ] {
        metrics.count(&change);
    }
    metrics.timed(Timestamp(10 * S));
    let found = scrape(&metrics);
    for (sample, value) in [
        ("sandprobe_events_total{kind=\"cni.finished\"}", 3.0),
        ("sandprobe_events_total{kind=\"address.added\"}", 0.0),
        ("sandprobe_events_total{kind=\"gap\"}", 3.0),
        ("sandprobe_events_late_total", 1.0),
        ("sandprobe_cni_operations_total{operation_type=\"ADD\",plugin=\"bridge\",result=\"success\"}", 1.0),
        ("sandprobe_cni_operations_total{operation_type=\"ADD\",plugin=\"bridge\",result=\"error\"}", 1.0),
        ("sandprobe_cni_del_empty_netns_total{plugin=\"bridge\"}", 2.0),
        ("sandprobe_container_exits_total{result=\"success\"}", 1.0),
        ("sandprobe_container_exits_total{result=\"signal\"}", 1.0),
        ("sandprobe_container_exits_total{result=\"oom\"}", 1.0),
        ("sandprobe_sandboxes_stopped_total{reason=\"emptied\"}", 1.0),
        ("sandprobe_sandbox_create_duration_seconds_count", 1.0),
        ("sandprobe_pod_starts_total{comparable=\"true\"}", 1.0),
        ("sandprobe_pod_starts_total{comparable=\"false\"}", 1.0),
        ("sandprobe_pod_start_duration_seconds_sum{containers_known=\"true\"}", 9.0),
        ("sandprobe_pod_start_phase_duration_seconds_sum{containers_known=\"true\",phase=\"cni\"}", 8.0),
        ("sandprobe_pod_start_phase_duration_seconds_count{containers_known=\"true\",phase=\"cni\"}", 1.0),
        ("sandprobe_pod_start_phase_duration_seconds_sum{containers_known=\"true\",phase=\"between\"}", 1.0),
        ("sandprobe_container_listening_duration_seconds_sum", 1.5),
        ("sandprobe_netns_teardown_duration_seconds_sum", 2.0),
        ("sandprobe_cgroup_teardown_duration_seconds_sum", 3.0),
        ("sandprobe_cgroup_teardown_duration_seconds_count", 1.0),
        ("sandprobe_events_lost_total{kind=\"unknown\",ring=\"record\"}", 3.0),
        ("sandprobe_events_lost_total{kind=\"exec\",ring=\"bulk\"}", 0.0),
        ("sandprobe_findings_opened_total{kind=\"leaked_address\",severity=\"warning\"}", 1.0),
        ("sandprobe_ip_leaks_total{reason=\"del_blind\"}", 1.0),
        ("sandprobe_ip_leaks_total{reason=\"del_missing\"}", 0.0),
        // All events but the listed one and the starts.
        ("sandprobe_event_latency_seconds_count", 22.0),
        ("sandprobe_event_latency_seconds_bucket{le=\"10\"}", 22.0),
    ] {
        assert_eq!(found.get(sample), Some(&value), "{sample} of {found:#?}");
    }
    let lost = found.keys().filter(|sample| sample.starts_with("sandprobe_events_lost_total{"));
    assert!(!lost.clone().any(|sample| sample.contains("no_agent")), "{:?}", lost.collect::<Vec<_>>());
}

#[test]
fn what_others_count_only_grows() {
    let metrics = Metrics::new(&[]);
    let mut own = AgentStats {
        probe: ProbeStats {
            hooks: vec![(Signal::NetnsFreed, Some(Mechanism::RawTracepoint)), (Signal::Exec, None)],
            rings: vec![Ring { name: "bulk", sent: vec![5; 15], lost: vec![2; 15] }],
            programs: vec![Program { name: "exec".to_owned(), runs: 7, ..Program::default() }],
            netns_untracked: 8,
            not_kept: 9,
        },
        reading: ReadingStats {
            unreadable: 4,
            hanging: 2,
            oldest_question: Duration::from_millis(1500),
            dropped_questions: 4,
        },
        server: ServerStats { stale: true, certificate_expires: Some(4_948_905_001) },
        refused: 3,
        dropped: 7,
        is_stream_written: Some(false),
        left_out: 2,
        state_writes: vec![
            StateWrite { file: "findings", failures: 5, has_succeeded: false },
            StateWrite { file: "history", failures: 0, has_succeeded: true },
        ],
        ..AgentStats::default()
    };
    assert_eq!(scrape(&metrics).get("sandprobe_ready"), None, "nobody can tell");
    metrics.ready(false);
    look(&metrics, S, &own, &[]);
    let lost = "sandprobe_events_lost_total{kind=\"exec\",ring=\"bulk\"}";
    assert_eq!(scrape(&metrics)[lost], 2.0);
    own.probe.rings[0].lost[0] = 6;
    own.probe.hooks.pop();
    look(&metrics, 2 * S, &own, &[]);
    let found = scrape(&metrics);
    assert_eq!(found[lost], 6.0);
    assert_eq!(found["sandprobe_program_runs_total{program=\"exec\"}"], 7.0);
    assert_eq!(found["sandprobe_netns_untracked_total"], 8.0);
    assert_eq!(found["sandprobe_program_table_full_total"], 9.0);
    assert_eq!(found["sandprobe_system_calls_refused_total"], 3.0);
    assert_eq!(found[r#"sandprobe_stream_events_dropped_total{why="slow"}"#], 7.0);
    assert_eq!(found["sandprobe_node_files_hanging"], 2.0);
    assert_eq!(found["sandprobe_oldest_question_age_seconds"], 1.5);
    assert_eq!(found["sandprobe_questions_dropped_total"], 4.0);
    assert_eq!(found["sandprobe_stream_last_write_successful"], 0.0);
    assert_eq!(found["sandprobe_state_last_write_successful{file=\"findings\"}"], 0.0);
    assert_eq!(found["sandprobe_state_last_write_successful{file=\"history\"}"], 1.0);
    assert_eq!(found["sandprobe_state_write_failures_total{file=\"findings\"}"], 5.0);
    assert_eq!(found["sandprobe_server_files_stale"], 1.0);
    assert_eq!(found["sandprobe_tls_certificate_expiration_timestamp_seconds"], 4_948_905_001.0);
    assert_eq!(found["sandprobe_node_files_unreadable"], 4.0);
    assert_eq!(found["sandprobe_hook_attached{mechanism=\"raw_tracepoint\",signal=\"netns_freed\"}"], 1.0);
    assert_eq!(
        found.get("sandprobe_hook_attached{mechanism=\"none\",signal=\"exec\"}"),
        None,
        "told no more"
    );
    assert_eq!(found["sandprobe_ready"], 0.0);
}

fn many_leaks(count: u32) -> Finding {
    let mut it = *leak("web");
    if let Wrong::LeakedAddress(leak) = &mut it.kind {
        leak.many = Some(Many { count, first: vec![leak.address] });
    }
    it
}

/// The counts are the same whether leaks are reported one by one or as one finding, and however their number
/// changes.
#[test]
fn each_leaked_address_counts_once() {
    let metrics = Metrics::new(&[]);
    let at = |change| of(None, S, change);
    let own = AgentStats::default();
    let counted = |findings: &[&Finding], members: std::ops::Range<u64>, confirmed: bool| {
        let member = |leak| ManyView { cause: Cause::DelBlind, leak, is_confirmed: confirmed };
        let members: Vec<ManyView> = members.map(member).collect();
        look_at(&metrics, S, &own, &[], findings, &members);
        let found = scrape(&metrics);
        let leaked = found
            .iter()
            .filter(|(name, _)| name.starts_with("sandprobe_ip_leaked_addresses{reason=\"del_blind\""));
        let leaked = leaked.map(|(_, value)| value).sum();
        (found["sandprobe_ip_leaks_total{reason=\"del_blind\"}"], leaked)
    };
    let single = *leak("web");
    metrics.count(&at(ChangeKind::FindingConfirmed(Box::new(single.clone()))));
    assert_eq!(counted(&[&single], 0..0, true), (1.0, 1.0));
    // Leaks are reported one by one until there are too many; the rest are one finding.
    let many = |count| many_leaks(count);
    metrics.count(&at(ChangeKind::FindingConfirmed(Box::new(many(70)))));
    assert_eq!(counted(&[&single, &many(70)], 0..70, true), (71.0, 71.0));
    // Forty are freed, and forty others leak.
    assert_eq!(counted(&[&single, &many(30)], 40..70, true), (71.0, 31.0));
    assert_eq!(counted(&[&single, &many(70)], 40..110, true), (111.0, 71.0));
    // For a while the leaks are uncertain; afterwards they are the same leaks.
    assert_eq!(counted(&[&single, &many(70)], 40..110, false), (111.0, 71.0));
    assert_eq!(counted(&[&single, &many(70)], 40..110, true), (111.0, 71.0));
    // All are freed, and the next leaks are reported one by one again.
    assert_eq!(counted(&[&single], 0..0, true), (111.0, 1.0));
    metrics.count(&at(ChangeKind::FindingConfirmed(leak("db"))));
    assert_eq!(counted(&[&single, &leak("db")], 0..0, true), (112.0, 2.0));
    // An unconfirmed leak is not counted.
    let candidate = Finding { stage: Stage::Candidate, ..many(70) };
    assert_eq!(counted(&[&candidate], 0..70, false), (112.0, 0.0));
}

#[test]
fn a_pool_that_is_gone_has_no_series() {
    let metrics = Metrics::new(&[]);
    let pool = PoolView {
        network: "pod\"net".to_owned(),
        subnet: crate::model::id::Subnet { address: "10.1.0.0".parse().expect("an address"), prefix: 24 },
        size: 253,
        in_use: 3,
        pending_cleanup: 2,
        leak_candidate: 1,
        leaked: 4,
        free: 243,
    };
    look(&metrics, S, &AgentStats::default(), &[pool]);
    let found = scrape(&metrics);
    assert_eq!(found["sandprobe_ip_allocations{pool=\"pod_net/10.1.0.0/24\",state=\"leaked\"}"], 4.0);
    assert_eq!(found["sandprobe_ip_pool_free{pool=\"pod_net/10.1.0.0/24\"}"], 243.0);
    look(&metrics, S, &AgentStats::default(), &[]);
    assert!(scrape(&metrics).keys().all(|name| !name.contains("pod_net")));
}

#[test]
fn each_attachment_is_in_one_series() {
    let metrics = Metrics::new(&[]);
    let balance = BalanceView {
        plugin: "cloud\"cni".to_owned(),
        network: Some("net".to_owned()),
        pods: 19,
        sandboxes: 20,
        added: 21,
        released: 1,
        released_without_netns: 2,
        unverified: Some(1),
        live: 3,
        ended: 4,
        unreleased: 5,
        unknown: 6,
    };
    let nameless = BalanceView { network: None, ..balance.clone() };
    let uncounted = BalanceView { plugin: "older".to_owned(), unverified: None, ..balance.clone() };
    metrics.set_gauges(&Views {
        now: Timestamp(S),
        pods: &[],
        pools: &[],
        balance: &[balance, nameless, uncounted],
        findings: &[],
        incidents: &Incidents::of([]),
        many: &[],
        recovery: &Recovery::default(),
        daemons: &BTreeMap::new(),
        netns: 7,
        unwatched: 0,
        stale: 0,
        own: &AgentStats { netns_limit: Some(100), ..AgentStats::default() },
    });
    let found = scrape(&metrics);
    for network in ["net", ""] {
        let value = |name: &str, more: &str| {
            // Labels are in the order of their names.
            let name = match more.split_once('=') {
                None => format!("{name}{{network=\"{network}\",plugin=\"cloud_cni\"}}"),
                Some(("netns", value)) => {
                    format!("{name}{{netns=\"{value}\",network=\"{network}\",plugin=\"cloud_cni\"}}")
                }
                Some((_, value)) => {
                    format!("{name}{{network=\"{network}\",plugin=\"cloud_cni\",state=\"{value}\"}}")
                }
            };
            found.get(&name).copied().unwrap_or_else(|| panic!("no {name}"))
        };
        let counts = ["attached_pods", "attached_sandboxes", "attachments_added", "attachments_unverified"];
        let counts = counts.map(|it| value(&format!("sandprobe_cni_{it}_total"), ""));
        assert_eq!(counts, [19.0, 20.0, 21.0, 1.0]);
        let released =
            ["netns=named", "netns=empty"].map(|it| value("sandprobe_cni_attachments_released_total", it));
        assert_eq!(released, [1.0, 2.0]);
        let states = ["state=live", "state=ended", "state=unreleased", "state=unknown"];
        assert_eq!(states.map(|it| value("sandprobe_cni_attachments", it)), [3.0, 4.0, 5.0, 6.0]);
    }
    assert_eq!(found.keys().filter(|it| it.starts_with("sandprobe_cni_attachments_unverified")).count(), 2);
    assert_eq!((found["sandprobe_netns"], found["sandprobe_netns_limit"]), (7.0, 100.0));
    look(&metrics, S, &AgentStats::default(), &[]);
    assert!(!scrape(&metrics).contains_key("sandprobe_netns_limit"), "what is not known is absent");
}

#[test]
fn a_pod_s_series_outlive_it_for_some_scrapes() {
    let metrics = Metrics::new(&[PodLabel::Workload, PodLabel::Namespace, PodLabel::Pod]);
    let (one, two) = ("web-6d4cf56db6-x7kzp", "web-6d4cf56db6-zzzzz");
    for (name, number) in [(one, 1), (two, 2)] {
        let pod = || Some(pod(name, number));
        metrics.count(&of(pod(), S, ChangeKind::PodFirstSeen));
        metrics.count(&of(pod(), S, finished("bridge", 0)));
        metrics.count(&of(pod(), S, start(false, false)));
    }
    let added = |name: &str| {
        format!(
            "sandprobe_cni_operations_total{{namespace=\"shop\",operation_type=\"ADD\",plugin=\"bridge\",\
             pod=\"{name}\",result=\"success\",workload=\"web\"}}"
        )
    };
    let started = "sandprobe_pod_start_duration_seconds_count{containers_known=\"true\",namespace=\"shop\",workload=\"web\"}";
    let after = |metrics: &Metrics, at| {
        look(metrics, at, &AgentStats::default(), &[]);
        let found = scrape(metrics);
        (found.get(&added(one)).copied(), found.get(&added(two)).copied(), found.get(started).copied())
    };
    let stay = u64::try_from(STAY.as_nanos()).expect("minutes");
    assert_eq!(after(&metrics, 10 * stay), (Some(1.0), Some(1.0), Some(2.0)), "they are there");
    let gone = 10 * stay;
    metrics.count(&of(Some(pod(one, 1)), gone, ChangeKind::PodGone { lived: Duration::ZERO }));
    // The leak of a pod is found long after the pod was removed.
    metrics.count(&of(None, gone, ChangeKind::FindingConfirmed(leak(one))));
    assert_eq!(after(&metrics, gone + stay - 1), (Some(1.0), Some(1.0), Some(2.0)));
    assert_eq!(
        after(&metrics, gone + stay),
        (None, Some(1.0), Some(2.0)),
        "one is over, its workload is not"
    );
    metrics.count(&of(Some(pod(two, 2)), gone + stay, ChangeKind::PodGone { lived: Duration::ZERO }));
    assert_eq!(after(&metrics, gone + stay), (None, None, None));
    let found = scrape(&metrics);
    assert!(found.keys().all(|name| !name.contains("web")), "{found:#?}");
}

#[test]
fn what_finds_no_room_is_folded_and_counted() {
    let metrics = Metrics::new(&[]);
    for number in 0..3000 {
        metrics.count(&of(None, S, finished(&format!("plugin-{number}"), 0)));
    }
    let found = scrape(&metrics);
    let all = found.iter().filter(|(name, _)| name.starts_with("sandprobe_cni_operations_total"));
    assert_eq!(all.map(|(_, value)| value).sum::<f64>(), 3000.0, "each is counted somewhere");
    let other = "sandprobe_cni_operations_total{operation_type=\"ADD\",plugin=\"other\",result=\"success\"}";
    let folded = "sandprobe_metric_series_folded_total{metric=\"sandprobe_cni_operations_total\"}";
    assert_eq!(found[other], found[folded]);
    assert!(found[other] > 2000.0);
}

fn what() -> impl Strategy<Value = ChangeKind> {
    prop_oneof![
        any::<(u16, u32)>().prop_map(|(plugin, code)| finished(&format!("p{plugin}"), code % 3)),
        any::<u16>().prop_map(|plugin| ChangeKind::CniStarted {
            call: call("DEL", &format!("p{plugin}"), None).into()
        }),
        any::<bool>().prop_map(|listed| start(false, listed)),
        any::<u16>().prop_map(|name| ChangeKind::FindingConfirmed(leak(&format!("pod-{name}-x7kzp")))),
        Just(ChangeKind::PodFirstSeen),
        Just(ChangeKind::PodGone { lived: Duration::ZERO }),
        Just(ChangeKind::SandboxReady { since_created: Some(Duration::from_secs(1)) }),
        Just(ChangeKind::SandboxStopped { why: StopReason::PauseExited }),
    ]
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = (what(), any::<u16>(), 0_u64..3_600).prop_map(|(what, number, at)| {
        of(Some(pod(&format!("w{number}-x7kzp"), u32::from(number))), at * S, what)
    });
    prop::collection::vec(change, 0..3000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn no_family_has_more_series_than_its_cap(changes in changes(), labels in prop::sample::subsequence(PodLabel::ALL.to_vec(), 0..=3)) {
        let metrics = Metrics::new(&labels);
        changes.iter().for_each(|change| metrics.count(change));
        look(&metrics, 3_600 * S, &AgentStats::default(), &[]);
        let found = scrape(&metrics);
        for family in ALL.iter().flat_map(|(_, families)| families.iter()) {
            let name = match family.kind {
                Kind::Histogram => format!("{}_count", family.name),
                Kind::Counter | Kind::Gauge => family.name.to_owned(),
            };
            let series = found.keys().filter(|it| it.split('{').next() == Some(name.as_str())).count();
            prop_assert!(series <= family.kind.cap(), "{name}: {series}");
        }
        // All counted values are there, under whatever labels, except those of expired pods.
        if labels.is_empty() {
            let told = changes.iter().filter(|it| matches!(it.what, ChangeKind::CniFinished { .. })).count();
            let all = found.iter().filter(|(name, _)| name.starts_with("sandprobe_cni_operations_total"));
            prop_assert_eq!(all.map(|(_, value)| value).sum::<f64>(), f64::from(u32::try_from(told).expect("few")));
        }
    }
}

/// Series of closed sets exist from the start, so that their first event is an increase.
#[test]
fn every_family_of_closed_labels_begins_with_zero() {
    let found = scrape(&Metrics::new(&[]));
    let of = |family: &str| found.keys().filter(|name| name.split('{').next() == Some(family)).count();
    assert_eq!(of("sandprobe_events_total"), ChangeKind::VARIANTS.len());
    assert_eq!(of("sandprobe_findings"), Wrong::VARIANTS.len() * 6);
    assert_eq!(of("sandprobe_incidents"), 6);
    assert_eq!(of("sandprobe_findings_confirmed_total"), Wrong::VARIANTS.len() * 3);
    assert_eq!(of("sandprobe_pod_start_phase_duration_seconds_count"), 2 * wording::NAMES.len());
    assert_eq!(of("sandprobe_events_lost_total"), 4 + 2 * event::NAMES.len());
    assert_eq!(of("sandprobe_records_total"), 2 * event::NAMES.len());
    assert_eq!(of("sandprobe_ip_leaks_total"), Cause::VARIANTS.len());
    assert_eq!(of("sandprobe_ip_leaked_addresses"), Cause::VARIANTS.len());
    assert!(found.values().all(|value| *value == 0.0 || *value == 1.0), "{found:#?}");
}

/// The closed sets use the same words as the rest of the program.
#[test]
fn the_sets_have_every_word() {
    use super::set;
    assert_eq!([Loss::LifecycleRing, Loss::BulkRing].map(set::lost_in), set::RINGS);
    let elsewhere = [Loss::NetlinkSocket, Loss::Record, Loss::Channel, Loss::SkippedRun];
    assert_eq!(elsewhere.map(set::lost_in), set::LOSSES);
}
