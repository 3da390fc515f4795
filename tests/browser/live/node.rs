//! The fake agent's state. The agent's own code makes its objects from a recording and from the fixture's
//! starts.

use std::{fs::File, io::BufReader, path::Path, sync::LazyLock};

use probe_user::{
    engine::{
        Engine,
        boot::report::{NodeBoot, RecoveryReport},
        incident::Incidents,
        view::PodView,
    },
    model::{
        change::End,
        id::PodUid,
        recovery::{Daemon, DaemonEnd, Recovery, Restart, RestartClose, TimedSource},
        time::Timestamp,
    },
    recording::Reader,
    session::Session,
    sink::{
        Label,
        render::{doctor, jsonl},
        select::filter::Filter,
    },
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::fixture;

pub(crate) const HOSTILE: &str =
    "<script>alert(1)</script><img src=x onerror=\"alert(2)\">'&\u{1b}[2J\u{202e}\n\u{0}";

pub(crate) struct Node {
    pub(crate) findings: Vec<Value>,
    pub(crate) pods: Vec<Value>,
    pub(crate) pools: Value,
    pub(crate) boot: Value,
    pub(crate) doctor: Value,
}

fn recording() -> Reader<BufReader<File>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/recordings/demo.jsonl");
    Reader::open(BufReader::new(File::open(path).expect("a recording"))).expect("a recording")
}

static EVENTS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let mut reader = recording();
    let mut session = Session::new(reader.header(), Filter::default(), Box::new(jsonl::Jsonl));
    while let Some(call) = reader.next_call().expect("a complete recording") {
        session.call(call).expect("the session records nothing");
    }
    values(session.output())
});

/// The findings of the demo with their explanations.
static FOUND: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let mut reader = recording();
    let header = reader.header().clone();
    let label = Label { node: header.node, boot_id: header.boot_id, boot_wall_ns: header.boot_wall_ns };
    let mut engine = Engine::new(header.settings);
    while let Some(call) = reader.next_call().expect("a complete recording") {
        engine.call(call);
        while engine.poll().is_some() {}
    }
    let mut lines = Vec::new();
    let incidents = Incidents::of(engine.findings());
    engine.findings().for_each(|it| jsonl::explained(it, &incidents, &label, &mut lines));
    values(&lines)
});

fn values(lines: &[u8]) -> Vec<Value> {
    serde_json::Deserializer::from_slice(lines).into_iter().map(|it| it.expect("JSON")).collect()
}

fn value(it: impl Serialize) -> Value {
    serde_json::to_value(it).expect("JSON")
}

/// Returns the events of the demo.
pub(crate) fn events() -> Vec<Value> {
    EVENTS.clone()
}

/// Returns an explained finding of the demo under another key, in an incident of its own.
fn explained(n: usize) -> Value {
    let mut it = FOUND[n % FOUND.len()].clone();
    it["key"] = json!(format!("{}/{n}", it["key"].as_str().expect("a key")));
    it["incident"] = it["key"].clone();
    let members = it.as_object_mut().expect("an object");
    for name in ["caused_by", "causes", "effects"] {
        members.remove(name);
    }
    it["pod"]["name"] = json!(format!("web-{n}"));
    it["severity"] = json!(if n % 40 == 1 { "critical" } else { ["warning", "warning", "info"][n % 3] });
    it["stage"] = json!(if n % 7 == 3 { "candidate" } else { "confirmed" });
    it["since"] = json!(format!("2026-11-21T{:02}:{:02}:27.156243747Z", 9 - n % 9, n % 60));
    it
}

/// This finding as in a list, without its explanation.
pub(crate) fn finding(n: usize) -> Value {
    let mut it = explained(n);
    let members = it.as_object_mut().expect("an object");
    for name in EXPLAINING {
        members.remove(name).expect("an explained finding");
    }
    it
}

/// Returns the findings of the demo as one incident.
pub(crate) fn incident() -> Vec<Value> {
    let key_of = |key: &Value| {
        let place = FOUND.iter().position(|it| it["key"] == *key).expect("a finding of the demo");
        json!(format!("{}/{place}", key.as_str().expect("a key")))
    };
    (0..FOUND.len())
        .map(|n| {
            let mut it = finding(n);
            it["incident"] = key_of(&FOUND[n]["incident"]);
            if let Some(causes) = FOUND[n]["caused_by"].as_array() {
                it["caused_by"] = causes.iter().map(key_of).collect();
            }
            it
        })
        .collect()
}

const EXPLAINING: [&str; 5] = ["evidence", "cause", "known", "repair", "documentation"];

pub(crate) fn pod(n: usize, namespace: &str, name: &str) -> Value {
    let mut start = fixture::starts().swap_remove(n % 3);
    let later = u64::try_from(n).expect("small") * 1_000_000_000;
    for at in start.phases.iter_mut().flat_map(|it| [&mut it.begin, &mut it.end]) {
        at.0 += later;
    }
    (start.begin.0, start.end.0) = (start.begin.0 + later, start.end.0 + later);
    let view = PodView {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: PodUid::parse(&format!("11111111-2222-3333-4444-{n:012}")),
        start: Some(start),
        ..fixture::pods().swap_remove(0)
    };
    let mut it = value(jsonl::Pod::of(&view));
    it["state"] = json!("ready");
    it["sandboxes"] = json!([{ "id": format!("{n:064x}"), "state": "ready", "host_network": false, "pid": 4000 + n,
        "netns": { "inode": 4_026_532_000_usize + n },
        "addresses": [{ "address": format!("10.88.{}.{}", n / 250, n % 250), "prefix": 16, "ifname": "eth0" }] }]);
    it["containers"] =
        json!([{ "id": format!("{:064x}", n + 7), "name": "web", "state": "running", "pid": 5000 + n }]);
    it
}

/// Returns a restart of this daemon, this many seconds after the boot.
fn restart((comm, at): (&str, u64)) -> Restart {
    let second = |n: u64| Timestamp(n * 1_000_000_000);
    let (name, was) = (comm.to_owned(), comm.to_owned());
    Restart {
        is: Some(was.clone()),
        ended: Some(DaemonEnd { at: second(at), end: End::default(), told: None }),
        started: Some(TimedSource::hooked(second(at + 1))),
        answers: Some(TimedSource::hooked(second(at + 2))),
        close: Some(RestartClose::AsBefore),
        daemon: Daemon::Runtime,
        comm: name,
        was,
        ran_since: second(4),
        noticed_at: second(at),
        ..Restart::default()
    }
}

/// Returns the fixture's boots, and the first of them once more, with two restarts of its runtime.
fn boots() -> Value {
    let mut rows: Vec<(Recovery, RecoveryReport)> = fixture::boots();
    let mut repeated = fixture::boots().swap_remove(0);
    if let Some(boot) = &mut repeated.0.boot {
        boot.boot_id = "d".to_owned();
        boot.boot_wall_ns += 2 * 86_400_000_000_000;
    }
    repeated.0.restarts.past = [("containerd", 300), ("containerd", 900)].map(restart).into();
    rows.push(repeated);
    let rows = rows.iter().map(|(recovery, report)| NodeBoot { node: "edge-1", recovery, report });
    let rows: Vec<_> = rows.collect();
    let (restarts, of_programs) = jsonl::boot::restarts(&rows);
    json!({ "boots": rows.iter().map(|it| value(jsonl::boot::Boot::of(it))).collect::<Vec<_>>(),
        "average": value(jsonl::boot::Mean::of(&rows)), "statistics": value(jsonl::boot::Statistics::of(&rows)),
        "restarts": restarts.into_iter().map(value).collect::<Vec<_>>(),
        "restart_statistics": of_programs.into_iter().map(value).collect::<Vec<_>>() })
}

fn report() -> Value {
    const SEEN: [&str; 10] = [
        "exec",
        "exit",
        "fatal signal",
        "oom kill",
        "cgroup created",
        "cgroup emptied",
        "cgroup removed",
        "netns created",
        "netns dropped",
        "netns freed",
    ];
    let row = |signal| doctor::Row {
        signal,
        grade: doctor::Grade::Full,
        mechanism: Some("raw tracepoint"),
        programs: Vec::new(),
        note: String::new(),
        lacks: String::new(),
        missed: Vec::new(),
    };
    let mut signals: Vec<_> = SEEN.map(row).into();
    signals.push(doctor::Row {
        grade: doctor::Grade::Degraded,
        mechanism: Some("netlink"),
        note: "only in namespaces that were found before, and at the time of the notification".to_owned(),
        missed: vec![doctor::Missed {
            mechanism: "fentry",
            why: "rtmsg_ifa: no such function here".to_owned(),
        }],
        ..row("address ipv4")
    });
    let checks = vec![
        doctor::Check::full("BTF", "/sys/kernel/btf/vmlinux"),
        doctor::Check::degraded("kprobes", "this kernel has none", "a kernel with CONFIG_KPROBES=y"),
    ];
    value(doctor::Report { checks, signals, cure: None }.object())
}

pub(crate) fn node(pods: usize, findings: usize) -> Node {
    let pool = |network: &str, subnet: &str, size: u64, in_use: u64, leaked: u64| {
        json!({ "network": network, "subnet": subnet, "size": size, "in_use": in_use,
        "pending_cleanup": 2, "leak_candidate": 1, "leaked": leaked, "free": size - in_use - leaked - 3 })
    };
    let mut doctor = report();
    doctor["agent"] = json!({ "instance": "1", "pid": 812, "kernel": "6.12.117", "since": "2026-11-21T04:57:33.000000000Z",
        "ready": true, "reasons": [], "degraded": [], "backfill_complete": true, "seq": 1, "late": "0", "losses": {},
        "capabilities": ["bpf", "perfmon", "sys_ptrace"],
        "cost": { "cpu_ns": "4200000000", "rss_bytes": "28311552", "threads": 3 } });
    Node {
        findings: (0..findings).map(finding).collect(),
        pods: (0..pods).map(|n| pod(n, "default", &format!("web-{n}"))).collect(),
        pools: json!([
            pool("sandprobe-371a", "10.231.104.0/22", 1022, 411, 3),
            pool("podnet", "fd00:10:88::/120", 254, 250, 0)
        ]),
        boot: boots(),
        doctor,
    }
}

/// Returns a node on which every text is hostile.
pub(crate) fn hostile() -> Node {
    let mut node = node(2, 2);
    for it in node.findings.iter_mut() {
        it["summary"] = json!(HOSTILE);
        it["pod"] = json!({ "namespace": HOSTILE, "name": HOSTILE, "uid": HOSTILE });
        it["key"] = json!(format!("leaked_address/{HOSTILE}/{}", it["key"].as_str().expect("a key")));
    }
    node.pods.push(pod(2, HOSTILE, HOSTILE));
    node.pods[0]["start"]["phases"][4]["title"] = json!(HOSTILE);
    node.pods[0]["start"]["phases"][4]["notes"] = json!([HOSTILE]);
    node.pods[0]["start"]["phases"][7]["container"]["name"] = json!(HOSTILE);
    node.pods[0]["containers"][0]["name"] = json!(HOSTILE);
    node.pools[0]["network"] = json!(HOSTILE);
    node.boot["boots"][2]["notes"] = json!([HOSTILE]);
    node.boot["boots"][2]["kernel"] = json!(HOSTILE);
    node.doctor["checks"][1]["found"] = json!(HOSTILE);
    node
}

impl Node {
    /// Returns the document at this path below `/v1/`.
    pub(crate) fn document(&self, path: &str) -> Option<Value> {
        let head = json!({ "schema": 1, "node": "edge-1", "boot_id": "b0", "at": "2026-11-21T09:49:37.081315904Z", "boot_ns": "19072220998188" });
        let with = |members: Value| {
            let mut whole = head.clone();
            whole.as_object_mut()?.extend(members.as_object()?.clone());
            Some(whole)
        };
        match path {
            "findings" => with(json!({ "findings": self.findings })),
            "pods" => {
                let starts = fixture::starts();
                let shares = fixture::shares(&starts);
                let shares: Vec<Value> = shares.iter().map(|it| value(jsonl::Shared::of(it))).collect();
                with(json!({ "pods": self.pods, "phases": shares, "legend": value(jsonl::legend()) }))
            }
            "pools" => with(json!({ "pools": self.pools })),
            "boot" => with(self.boot.clone()),
            "doctor" => with(self.doctor.clone()),
            _ => self.explained(path.strip_prefix("findings/")?),
        }
    }

    fn explained(&self, key: &str) -> Option<Value> {
        let is_it = |it: &&Value| it["key"].as_str().is_some_and(|it| plain(it) == plain(key));
        let listed = self.findings.iter().find(is_it)?;
        let n = listed["key"].as_str()?.rsplit('/').next()?.parse().ok()?;
        let mut it = explained(n);
        it.as_object_mut()?.extend(listed.as_object()?.clone());
        Some(it)
    }
}

/// Returns the letters and digits of a key, because a path escapes the other characters.
fn plain(key: &str) -> String {
    let mut plain = String::new();
    let mut rest = key.chars();
    while let Some(c) = rest.next() {
        if c == '%' {
            rest.nth(1);
        } else if c.is_ascii_alphanumeric() {
            plain.push(c);
        }
    }
    plain
}
