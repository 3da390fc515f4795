//! Lines that the questions ask about and the recordings do not have. They are planted on some of the nodes.

use serde_json::{Value, json};

use crate::{
    nodes::{NODE, SECOND},
    template::{Template, Zero},
};

pub(crate) struct Planted {
    pub(crate) template: Template,
    /// It is on each node whose number has this remainder.
    divisor: usize,
    rest: usize,
    /// When it begins, in seconds since boot.
    pub(crate) at: i64,
    pub(crate) whose: Whose,
}

/// The stream that contains it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Agent,
    /// The stream of a `watch` beside the agent, with its own sequence numbers.
    Watch,
    /// The agent's stream in an earlier boot.
    Past,
}

impl Planted {
    pub(crate) fn is_on(&self, number: usize) -> bool {
        number % self.divisor == self.rest
    }

    pub(crate) fn all() -> Vec<Self> {
        let plant = |divisor, rest, at, lines: &[Value]| {
            let template =
                Template::of(lines, Zero { boot_wall_ns: 0, begin_ns: 0 }, &NODE.map(str::to_owned));
            Self { template, divisor, rest, at, whose: Whose::Agent }
        };
        let of = |whose, planted| Self { whose, ..planted };
        let gap = |count: Value| {
            line(0, json!({ "event": "gap", "gap": { "what": "lifecycle_ring", "count": count } }))
        };
        let pool = || {
            finding(
                "pool_exhaustion/podnet/10.@number.0.0/24",
                json!({ "network": "podnet", "subnet": "10.@number.0.0/24", "size": 253, "used": 240, "leaked": 9,
                    "free": 13, "runs_out_in_ns": "3600000000000" }),
            )
        };
        // The engine reports many leaks of one network and cause as one finding. It names no plugin if there
        // are several.
        let leaks = |network: &str, cause: &str, plugin: Value, count: u32| {
            let detail = json!({ "network": network, "cause": cause, "plugin": plugin, "count": count });
            finding(&format!("leaked_address/{network}/{cause}"), detail)
        };
        let added = |second, sandbox: &str, ifname: &str, address: &str| {
            of_sandbox(second, sandbox, "address.added", json!({ "address": of_address(address, ifname) }))
        };
        let removed = |second, sandbox: &str, address: &str| {
            of_sandbox(second, sandbox, "address.removed", json!({ "address": of_address(address, "eth0") }))
        };
        let set_up = |sandbox: &str| {
            let cni = json!({ "plugin": "keyed", "command": "ADD", "ifname": "eth0" });
            of_sandbox(0, sandbox, "cni.finished", json!({ "cni": cni }))
        };
        vec![
            plant(20, 3, 40_000, &[gap("@count".into()), gap("7".into())]),
            of(Whose::Watch, plant(20, 3, 50_000, &[gap("3".into())])),
            of(Whose::Watch, plant(20, 3, 60_000, &[gap("4".into())])),
            plant(25, 4, 40_000, &[pool()]),
            of(Whose::Past, plant(25, 5, 40_000, &[pool()])),
            plant(30, 7, 40_000, &[leaks("podnet", "del_missing", Value::Null, 100)]),
            plant(30, 8, 40_000, &[leaks("podnet", "del_blind", "unseen".into(), 70)]),
            plant(30, 9, 40_000, &[leaks("podnet", "stale_record", Value::Null, 90)]),
            // A namespace of its own, which a docker in the pod has made.
            plant(
                5,
                0,
                41_000,
                &[set_up("docker-@number"), added(1, "docker-@number", "docker0", "172.17.0.1")],
            ),
            // The address is freed and allocated again, and then another node allocates it.
            plant(
                500,
                0,
                42_000,
                &[
                    set_up("again-@number"),
                    added(1, "again-@number", "eth0", "10.250.0.1"),
                    removed(2, "again-@number", "10.250.0.1"),
                    added(3, "again-@number", "eth0", "10.250.0.1"),
                ],
            ),
            plant(
                500,
                1,
                42_010,
                &[set_up("other-@number"), added(1, "other-@number", "eth0", "10.250.0.1")],
            ),
        ]
    }
}

/// Returns a line of a node, this many seconds later than the others.
fn line(second: i64, members: Value) -> Value {
    let mut line = json!({ "schema": 1, "node": NODE[0], "boot_id": NODE[1], "seq": 1,
        "at": format!("1970-01-01T00:00:{second:02}Z"), "boot_ns": (second * SECOND).to_string(), "origin": "agent" });
    line.as_object_mut().expect("an object").extend(members.as_object().expect("an object").clone());
    line
}

fn of_sandbox(second: i64, sandbox: &str, event: &str, members: Value) -> Value {
    let mut line = line(second, members);
    line["event"] = event.into();
    line["sandbox"] = json!({ "id": sandbox });
    line
}

fn of_address(address: &str, ifname: &str) -> Value {
    json!({ "address": address, "prefix": 24, "ifname": ifname })
}

/// Returns a confirmed finding. Its kind is the first part of its key.
fn finding(key: &str, detail: Value) -> Value {
    let (kind, _) = key.split_once('/').expect("a kind");
    let time = "1970-01-01T00:00:00Z";
    let finding = json!({ "key": key, "kind": kind, "severity": "warning", "stage": "confirmed", "since": time,
        "since_boot_ns": "0", "opened_at": time, "confirmed_at": time, "summary": "it is planted", "detail": detail,
        "programs": [] });
    line(0, json!({ "event": "finding.confirmed", "finding": finding }))
}
