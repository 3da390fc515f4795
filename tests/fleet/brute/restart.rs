//! The restarts of daemons in the lines.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Boot, Rows, number, rank, text};

/// Restarts by boot, program, and the start time of the process that ended.
#[derive(Default)]
pub(super) struct Restarts(BTreeMap<(Boot, String, String), Value>);

impl Restarts {
    /// Keeps the line of a finished restart, which is later than the line of the unfinished one.
    pub(super) fn read(&mut self, boot: Boot, restart: &Value) {
        let key = (boot, text(&restart["program"]), text(&restart["ran_since_boot_ns"]));
        let known = self.0.entry(key).or_default();
        if known.get("close").is_none() {
            known.clone_from(restart);
        }
    }

    pub(super) fn recovery(&self) -> Rows {
        let mut groups: BTreeMap<String, (i64, Vec<i64>, usize, i64)> = BTreeMap::new();
        for it in self.0.values().filter(|it| it["daemon"] == "runtime") {
            let again = it["again"].as_i64().unwrap_or(0);
            if it["columns"].get("started_ns").is_none() && again == 0 {
                continue;
            }
            let (restarts, complete, waited, failed) = groups.entry(text(&it["is"])).or_default();
            *restarts += 1;
            *failed += again;
            let pods = it["pods"].as_array().expect("pods");
            *waited += pods.iter().filter(|pod| pod["replaced"] == false).count();
            if it.get("end").is_some() && it["close"] == "as_before" {
                complete.push(number(&it["whole_ns"]));
            }
        }
        let row = |(version, (restarts, mut all, waited, failed)): (String, (i64, Vec<i64>, usize, i64))| {
            all.sort_unstable();
            let (p50, p99) = (rank(&all, 50), rank(&all, 99));
            vec![
                json!(version),
                json!(restarts),
                json!(all.len()),
                p50,
                p99,
                json!(all.last()),
                json!(waited),
                json!(failed),
            ]
        };
        groups.into_iter().map(row).collect()
    }
}
