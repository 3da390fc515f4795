//! The answers of an agent on a node with this many pods, document by document.

use serde_json::{Value, json};

/// The node's time: twelve and a half hours after its boot.
pub(crate) const NOW: u64 = 45_296 * SECOND;
const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const BOOT_WALL: u64 = 1_795_564_800 * SECOND;
/// A name that somebody with bad intentions can give a pod.
const HOSTILE: &str = "evil\u{1b}[2J\u{202e}\n";
/// The leaked addresses of a node with many pods, in addition to the leaked address of a small one.
const MANY_LEAKS: u64 = 40;

/// Each path with the answer's status and body.
pub(crate) fn documents(pods: u64) -> Vec<(&'static str, u16, Value)> {
    vec![
        ("/v1/doctor", 200, doctor()),
        ("/v1/verdict", if pods == 0 { 200 } else { 503 }, verdict(pods)),
        ("/v1/pools", 200, pools(pods)),
        ("/v1/pods", 200, pod_list(pods)),
        ("/v1/state", 200, state(pods)),
    ]
}

fn head(schema: u32) -> Value {
    json!({
        "schema": schema, "node": "node-1", "boot_id": "3e0bf904-e94d-4225-b290-b3e5325803ee",
        "at": "2026-11-25T12:34:56.000000000Z", "boot_ns": NOW.to_string(),
    })
}

fn with(mut document: Value, members: Value) -> Value {
    if let (Value::Object(document), Value::Object(members)) = (&mut document, members) {
        document.extend(members);
    }
    document
}

fn doctor() -> Value {
    let by_raw = |signal: &str, program: &str| json!({ "signal": signal, "grade": "full", "mechanism": "raw tracepoint", "programs": [program], "missed": [] });
    let no_kprobes = json!([
        { "mechanism": "fentry", "why": "rtmsg_ifa: the kernel refuses the program: Operation not permitted (os error 1)" },
        { "mechanism": "kprobe", "why": "this kernel has no kprobes" },
    ]);
    let netlink = |signal: &str| {
        json!({
            "signal": signal, "grade": "degraded", "mechanism": "netlink", "programs": [], "missed": no_kprobes,
            "note": "only in namespaces that were found before, and at the time of the notification",
        })
    };
    let signals = [
        by_raw("exec", "exec"),
        by_raw("exit", "exit"),
        by_raw("fatal signal", "signal"),
        by_raw("oom kill", "oom"),
        by_raw("cgroup created", "cgroup_mkdir"),
        by_raw("cgroup removed", "cgroup_rmdir"),
        by_raw("netns created", "netns_fork"),
        netlink("address ipv4"),
        netlink("address ipv6"),
        json!({ "signal": "listening", "grade": "degraded", "programs": [], "note": "not seen", "lacks": "CAP_SYSLOG",
            "missed": [{ "mechanism": "raw tracepoint", "why": "it needs CAP_SYSLOG" }] }),
    ];
    let agent = json!({
        "instance": "3e0bf904-dad999ddfea", "pid": 21763, "kernel": "6.12.117", "since": "2026-11-25T02:30:00.5Z",
        "ready": true, "reasons": [], "degraded": [], "backfill_complete": true, "seq": 8712, "late": "0",
        "losses": { "lifecycle_ring": "3" }, "capabilities": [],
        "cost": { "cpu_ns": "310000000", "rss_bytes": "25165824", "threads": 7 },
        "netns": { "count": 37, "limit": 96365 },
    });
    let document = json!({
        "version": "0.1.0", "grade": "degraded", "checks": [], "signals": signals, "agent": agent,
        "cure": "grant CAP_SYSLOG",
    });
    with(head(1), document)
}

/// The finding of a pool is critical if no address is free.
fn verdict(pods: u64) -> Value {
    let (status, reasons, message) = match pools_of(pods).iter().any(|it| it.free() == 0) {
        false => ("ok", json!([]), "no critical finding is confirmed"),
        true => ("not_ok", json!(["PoolExhaustion"]), "critical: PoolExhaustion"),
    };
    json!({ "schema": 1, "node": "node-1", "status": status, "reasons": reasons, "message": message })
}

#[derive(Clone, Copy)]
struct Pool {
    network: &'static str,
    subnet: &'static str,
    first: &'static str,
    last: &'static str,
    size: u64,
    in_use: u64,
    pending: u64,
    candidates: u64,
    leaked: u64,
}

impl Pool {
    fn free(&self) -> u64 {
        self.size - self.in_use - self.pending - self.candidates - self.leaked
    }
}

/// All pods but the one without a sandbox have an address.
fn pools_of(pods: u64) -> Vec<Pool> {
    let small = Pool {
        network: "podnet",
        subnet: "10.88.0.0/28",
        first: "10.88.0.2",
        last: "10.88.0.14",
        size: 13,
        in_use: pods + 2,
        pending: 4,
        candidates: 1,
        leaked: 1,
    };
    match pods {
        0 => vec![],
        1..100 => vec![small],
        _ => {
            let (subnet, last, in_use) = ("10.88.0.0/24", "10.88.0.254", 207);
            let leaked = small.leaked + MANY_LEAKS;
            let none = Pool { pending: 0, candidates: 0, leaked: 0, ..small };
            let rest = pods + 2 - in_use;
            vec![
                Pool { network: "storage", subnet: "fd00:10:244::/120", size: 253, in_use: 12, ..none },
                Pool { subnet, last, size: 253, in_use, leaked, ..small },
                Pool { network: "batch", subnet: "10.89.0.0/24", size: 253, in_use: rest, ..none },
            ]
        }
    }
}

fn pools(pods: u64) -> Value {
    let pools: Vec<Value> = pools_of(pods)
        .iter()
        .map(|it| {
            json!({
                "network": it.network, "subnet": it.subnet, "size": it.size, "in_use": it.in_use,
                "pending_cleanup": it.pending, "leak_candidate": it.candidates, "leaked": it.leaked, "free": it.free(),
            })
        })
        .collect();
    let of_podnet = |count: fn(&Pool) -> u64| -> u64 {
        pools_of(pods).iter().filter(|it| it.network == "podnet").map(count).sum()
    };
    let (live, unreleased, released) = (of_podnet(|it| it.in_use), of_podnet(|it| it.leaked), 3_790);
    let balance = json!([{ "plugin": "bridge", "network": "podnet", "added": released + live + unreleased,
        "released": released, "released_without_netns": 2, "live": live, "ended": 0, "unreleased": unreleased,
        "unknown": 0 }]);
    with(head(1), json!({ "pools": pools, "balance": balance }))
}

fn uid(number: u64) -> String {
    format!("00000000-1111-2222-3333-{number:012}")
}

fn name(namespace: &str, name: &str, number: u64) -> Value {
    json!({ "namespace": namespace, "name": name, "uid": uid(number) })
}

fn pod_list(pods: u64) -> Value {
    let pod = |name: Value, state: &str| {
        with(name, json!({ "source": "bundle", "state": state, "sandboxes": [], "containers": [] }))
    };
    let mut all: Vec<Value> = (0..pods).map(|n| pod(name("shop", &web(n), n), "ready")).collect();
    if pods > 0 {
        all.push(pod(name("shop", "cart-7d9f8b6c5-x2x4k", 9001), "created"));
        all.push(pod(name("models", "train-0", 9002), "created"));
        let waits = json!({ "waiting_since_ns": (NOW - 71 * SECOND).to_string() });
        all.push(with(pod(name("batch", "report-28391020-qx7fd", 9003), "no sandbox"), waits));
    }
    with(head(1), json!({ "pods": all, "phases": [], "legend": [] }))
}

fn web(number: u64) -> String {
    format!("web-6b5c9dfc7d-{:05x}", number * 7919 % 0xf_ffff)
}

fn id(number: u64) -> String {
    format!("{number:012x}").repeat(5) + "cafe"
}

/// Phases one after the other, each with its length in milliseconds.
fn phases(begin: u64, lengths: &[(Value, u64)]) -> (Vec<Value>, u64) {
    let mut end = begin;
    let phases = lengths.iter().map(|(kind, ms)| {
        let begin = end;
        end += ms * MS;
        json!({ "kind": kind, "container": null, "begin": begin.to_string(), "end": end.to_string(), "gapped": false,
            "cause": {} })
    });
    (phases.collect(), end)
}

fn start(pod: Value, number: u64, begin: u64, lengths: &[(Value, u64)], waits: bool) -> Value {
    let (mut phases, end) = phases(begin, lengths);
    if let Some(last) = phases.last_mut().filter(|last| waits && last["kind"]["cni"].is_object()) {
        last["cause"]["adds"] = json!(3);
        last["cause"]["failed"] = json!(2);
        last["cause"]["failed_ns"] = json!("10100000000");
    }
    json!({
        "pod": pod, "sandbox": id(number), "begin": begin.to_string(), "end": end.to_string(), "phases": phases,
        "listening": [], "complete": !waits, "containers_known": true, "missing": [], "revised": false,
        "rebuilt": false, "listed": false, "suspended": false, "waits": waits,
    })
}

fn starts(pods: u64) -> Vec<Value> {
    let bridge = || json!({ "cni": { "plugin": "bridge", "ifname": "eth0" } });
    let whole = |n: u64| {
        let (cni, image) = (100 + n * 37 % 900, 40 + n * n * 13 % 7000);
        let lengths = [
            (json!("prepare"), 20),
            (json!("netns"), 5),
            (bridge(), cni),
            (json!("pause"), 60),
            (json!("image"), image),
            (json!("runtime"), 30),
            (json!("cgroup"), 50),
        ];
        start(name("shop", &web(n), n), n, NOW - (60 + n * 29 % 40_000) * SECOND, &lengths, false)
    };
    let mut all: Vec<Value> = (0..pods).map(whole).collect();
    if pods > 0 {
        let to_network = [(json!("prepare"), 30), (json!("netns"), 4), (bridge(), 12_400)];
        let cart = name("shop", "cart-7d9f8b6c5-x2x4k", 9001);
        all.push(start(cart, 9001, NOW - 12_434 * MS, &to_network, true));
        let to_image =
            [(json!("prepare"), 30), (json!("netns"), 4), (bridge(), 130), (json!("image"), 41_000)];
        all.push(start(name("models", "train-0", 9002), 9002, NOW - 41_164 * MS, &to_image, true));
    }
    all
}

/// What is the same for all findings of one incident.
struct Of<'a> {
    pod: Value,
    sandbox: &'a str,
    age: u64,
}

fn finding(kind: &str, detail: Value, rest: &str, severity: &str, stage: &str, of: &Of<'_>) -> Value {
    let since = (NOW - of.age * SECOND).to_string();
    let closed = (stage == "closed").then(|| (NOW - SECOND).to_string());
    let sandboxes = if of.sandbox.is_empty() { json!([]) } else { json!([of.sandbox]) };
    json!({
        "key": format!("{kind}/{rest}"), "kind": { kind: detail }, "severity": severity, "stage": stage,
        "since": since, "opened_at": since, "confirmed_at": if stage == "candidate" { None } else { Some(&since) },
        "closed_at": closed, "pod": of.pod, "sandboxes": sandboxes, "gapped": false, "evidence": [], "programs": [],
    })
}

fn leaked(address: &str, severity: &str, stage: &str, of: &Of<'_>) -> Value {
    let detail = json!({
        "cause": "del_blind", "address": address, "network": "podnet", "network_inferred": false, "ifname": "eth0",
        "plugin": "bridge",
        "stores": [{ "kind": "host-local", "path": "/var/lib/cni/networks/podnet" }],
    });
    finding("leaked_address", detail, &format!("podnet/{address}"), severity, stage, of)
}

fn exhausted(it: &Pool, of: &Of<'_>) -> Value {
    let detail = json!({
        "network": it.network, "subnet": it.subnet, "size": it.size, "used": it.in_use + it.pending + it.candidates,
        "leaked": it.leaked, "free": it.free(), "runs_out_in_ns": null,
    });
    let range = format!("{}/{}-{}", it.network, it.first, it.last);
    finding("pool_exhaustion", detail, &range, "critical", "confirmed", of)
}

fn findings(pods: u64) -> Vec<Value> {
    if pods == 0 {
        return Vec::new();
    }
    let sandbox = id(77);
    let report = Of { pod: name("default", "report", 77), sandbox: &sandbox, age: 75 };
    let nowhere = Of { pod: Value::Null, sandbox: "", age: 3_723 };
    let failing = json!({ "plugin": "bridge", "command": "ADD", "attempts": 41, "pods": 3, "wasted_ns": "205000000000",
        "exit_code": 1,
        "message": { "text": "failed to allocate for range 0: no IP addresses available", "source": "journal" } });
    let blind = json!({ "what": "signal", "name": "listening", "weaker": ["stuck_start"] });
    let hostile = Of { pod: name(HOSTILE, HOSTILE, 13), sandbox: &id(13), age: NOW / SECOND };
    let full = pools_of(pods).into_iter().filter(|it| it.free() == 0);
    let mut all: Vec<Value> = full.map(|it| exhausted(&it, &nowhere)).collect();
    all.extend([
        finding("cni_failing", failing, "bridge", "warning", "confirmed", &Of { age: 41, ..nowhere }),
        leaked("10.88.0.4", "warning", "confirmed", &report),
        finding(
            "teardown_out_of_order",
            json!({ "how": "pause_killed", "killer": { "comm": "demo", "pid": 14106 }, "signal": 9 }),
            "000e08c24bac",
            "warning",
            "confirmed",
            &report,
        ),
        finding(
            "duplicate_sandbox",
            json!({ "form": "after_completion", "count": 1 }),
            "after_completion/000e08c24bac",
            "warning",
            "confirmed",
            &report,
        ),
        leaked("10.88.0.9", "warning", "candidate", &hostile),
        finding(
            "blind_spot",
            blind,
            "signal/listening",
            "info",
            "confirmed",
            &Of { pod: Value::Null, sandbox: "", age: 9 },
        ),
        leaked(
            "10.88.0.12",
            "warning",
            "closed",
            &Of { pod: name("shop", &web(2), 2), sandbox: &id(2), age: 600 },
        ),
    ]);
    if pods > 99 {
        all.extend((0..MANY_LEAKS).map(|n| {
            let of = Of { pod: name("shop", &web(n), n), sandbox: &id(n), age: 90 + n * 61 };
            leaked(&format!("10.88.0.{}", 100 + n), "warning", "confirmed", &of)
        }));
    }
    all
}

fn state(pods: u64) -> Value {
    let document = json!({
        "made_by": "0.1.0", "boot_wall_ns": BOOT_WALL.to_string(), "pid": 21763, "written_at": NOW.to_string(),
        "ended": false, "findings": findings(pods), "starts": starts(pods), "shares": [],
    });
    with(head(3), document)
}
