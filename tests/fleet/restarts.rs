//! The restarts of the runtimes and kubelets of a fleet, as `sandprobe boot --restarts -o json` prints them.
//! Most are over. Some are not; some were stopped; some have a beginning that nobody saw; some were exported
//! before they were over.

use serde_json::{Value, json};

use crate::nodes::{SECOND, hash};

/// Restarts of each node. For some nodes, the last ones also have a line from before they were over.
pub(crate) const EACH: usize = 7;

/// Returns the lines of a node, each made from a recorded restart.
pub(crate) fn lines(recorded: &Value, node: &str, boot_id: &str, number: usize, boot_wall_ns: i64) -> String {
    let all = (0..EACH).flat_map(|which| told(recorded, number, which));
    let all = all.map(|mut it| {
        let boot_ns: i64 = it["boot_ns"].as_str().and_then(|text| text.parse().ok()).expect("a number");
        it["node"] = node.into();
        it["boot_id"] = boot_id.into();
        it["wall_ns"] = (boot_wall_ns + boot_ns).to_string().into();
        format!("{}\n", json!({ "restart": it }))
    });
    all.collect()
}

/// Returns the last line of a restart, and for some restarts also an earlier one. The last one counts in any
/// order.
fn told(recorded: &Value, number: usize, which: usize) -> Vec<Value> {
    let pick =
        |salt: usize, of: u64| i64::try_from(hash(number, 2000 + 10 * which + salt) % of).expect("small");
    let (program, daemon) = if which == 5 { ("kubelet", "kubelet") } else { ("containerd", "runtime") };
    let versions = ["1.7.28", "2.1.4", "2.1.5"];
    let version =
        |which: i64| format!("{program} {}", versions[usize::try_from(which).expect("one of them")]);
    let began = (7200 + 8000 * i64::try_from(which).expect("few")) * SECOND + pick(0, 600) * SECOND;
    let (started, ready) = (pick(1, 3000) * 1_000_000, pick(2, 2000) * 1_000_000);
    let waited = pick(3, 30) * SECOND;
    let is_held = pick(4, 3) == 0;
    let as_before = if is_held { (started + ready).max(waited) } else { started + ready };
    let pods = if is_held {
        json!([{ "pod": "default/web-0", "replaced": false, "since_boot_ns": began.to_string(), "waited_ns": waited.to_string() },
            { "pod": "default/db-0", "replaced": true, "since_boot_ns": began.to_string(), "waited_ns": "5" }])
    } else {
        json!([])
    };
    let ns = |ns: i64| ns.to_string();
    let mut it = recorded.clone();
    for (path, value) in [
        ("/daemon", daemon.to_owned()),
        ("/program", program.to_owned()),
        ("/was", version(pick(5, 2))),
        ("/is", version(pick(6, 3))),
        ("/ran_since_boot_ns", ns(began - 1800 * SECOND)),
        ("/boot_ns", ns(began)),
        ("/end/boot_ns", ns(began)),
        ("/columns/started_ns", ns(started)),
        ("/columns/ready_ns", ns(started + ready)),
        ("/columns/as_before_ns", ns(as_before)),
        ("/periods/first_ns", ns(started)),
        ("/periods/second_ns", ns(ready)),
        ("/whole_ns", ns(as_before)),
        ("/closed_boot_ns", ns(began + 120 * SECOND)),
    ] {
        *it.pointer_mut(path).expect(path) = value.into();
    }
    it["pods"] = pods;
    let members = it.as_object_mut().expect("an object");
    match (which, number % 5) {
        // The daemon fails again and again, and is not up.
        (2, 0) => {
            for absent in ["is", "whole_ns", "close", "closed_boot_ns"] {
                members.remove(absent);
            }
            members.insert("columns".to_owned(), json!({}));
            members.insert("again".to_owned(), json!(3 + pick(7, 50)));
        }
        // The daemon was stopped.
        (2, 1) => {
            for absent in ["is", "whole_ns"] {
                members.remove(absent);
            }
            members.insert("columns".to_owned(), json!({}));
            members.insert("close".to_owned(), "stopped".into());
        }
        // Nobody saw its end.
        (2, 2) => drop(members.remove("end")),
        // Its pods wait for more than half an hour.
        (2, 3) => {
            members.remove("whole_ns");
            members.insert("close".to_owned(), "waiting".into());
        }
        // It was not over when it was exported before.
        (6, _) => {
            let mut before = it.clone();
            let members = before.as_object_mut().expect("an object");
            for absent in ["whole_ns", "close", "closed_boot_ns"] {
                members.remove(absent);
            }
            return vec![it, before];
        }
        _ => {}
    }
    vec![it]
}
