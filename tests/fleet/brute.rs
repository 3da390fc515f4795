//! The answers by brute force, counted from the lines themselves and not from the tables.

mod restart;
mod start;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use restart::Restarts;
use start::Start;

/// A node and its boot.
type Boot = (String, String);
type Rows = Vec<Vec<Value>>;

/// The contents of the lines that matter.
#[derive(Default)]
pub(crate) struct Brute {
    boots: BTreeMap<Boot, Value>,
    restarts: Restarts,
    starts: Vec<Start>,
    findings: BTreeMap<(Boot, String), Value>,
    /// Reservations by boot, sandbox and address.
    addresses: BTreeMap<(Boot, String, String), Held>,
    /// The interfaces that an ADD has set up, by boot and sandbox.
    set_up: BTreeSet<(Boot, String, String)>,
    ends: BTreeMap<Boot, i64>,
    gaps: Vec<(String, String, i64, i64)>,
    /// Lines that are events.
    pub(crate) events: u64,
}

/// Each time at which a sandbox got an address and each time at which it lost it, with the interface.
#[derive(Default)]
struct Held {
    ifname: String,
    added: BTreeSet<i64>,
    removed: BTreeSet<i64>,
}

impl Brute {
    pub(crate) fn read(&mut self, lines: &str) {
        lines.lines().for_each(|line| self.read_line(&serde_json::from_str(line).expect("JSON")));
    }

    fn read_line(&mut self, line: &Value) {
        if let Some(boot) = line.get("boot") {
            self.boots.insert((text(&boot["node"]), text(&boot["boot_id"])), boot.clone());
            return;
        }
        if let Some(restart) = line.get("restart") {
            return self.restarts.read((text(&restart["node"]), text(&restart["boot_id"])), restart);
        }
        let boot = (text(&line["node"]), text(&line["boot_id"]));
        let at = time(&line["at"]);
        self.events += 1;
        let end = self.ends.entry(boot.clone()).or_insert(at);
        *end = at.max(*end);
        if line.get("start").is_some() {
            self.starts.push(Start::of(boot.clone(), line));
        }
        if let Some(finding) = line.get("finding") {
            // A later line has the later stage.
            self.findings.insert((boot.clone(), text(&finding["key"])), finding.clone());
        }
        let event = text(&line["event"]);
        let what = text(&line["gap"]["what"]);
        if event == "gap" && what != "no_agent" && what != "state" {
            let count = number(&line["gap"]["count"]);
            if count > 0 {
                self.gaps.push((boot.0.clone(), what, count, at));
            }
        }
        let (address, sandbox) = (&line["address"], line["sandbox"]["id"].as_str());
        if event == "cni.finished" && line["cni"]["command"] == "ADD" {
            let of = (boot.clone(), text(&line["sandbox"]["id"]), text(&line["cni"]["ifname"]));
            self.set_up.insert(of);
        }
        if let (Some(name), Some(sandbox)) = (address["address"].as_str(), sandbox)
            && address["ifname"] != "lo"
            && !name.starts_with("fe80:")
        {
            let held = self.addresses.entry((boot, sandbox.to_owned(), name.to_owned())).or_default();
            held.ifname = text(&address["ifname"]);
            if event == "address.added" {
                held.added.insert(at)
            } else {
                held.removed.insert(at)
            };
        }
    }

    /// Returns the rows of each question, in no particular order.
    pub(crate) fn answers(&self) -> BTreeMap<&'static str, Rows> {
        BTreeMap::from([
            ("01-slow-starts", self.slow_starts()),
            ("02-leak-rate", self.leak_rate()),
            ("03-address-on-two-nodes", self.two_nodes()),
            ("04-recovery", self.recovery()),
            ("05-slowest-phase", self.slowest_phase()),
            ("06-duplicates", self.duplicates()),
            ("07-pools-near-end", self.pools()),
            ("08-lost-records", self.lost()),
            ("09-pause-killers", self.killers()),
            ("10-image-queue", self.queue()),
            ("11-runtime-recovery", self.restarts.recovery()),
        ])
    }

    fn of_boot(&self, boot: &Boot, member: &str) -> Value {
        self.boots.get(boot).map(|it| it[member].clone()).unwrap_or_default()
    }

    fn label(&self, boot: &Boot, label: &str) -> String {
        self.boots.get(boot).and_then(|it| it["labels"][label].as_str()).unwrap_or_default().to_owned()
    }

    fn slow_starts(&self) -> Rows {
        let mut groups: BTreeMap<_, Vec<i64>> = BTreeMap::new();
        for it in self.starts.iter().filter(|it| it.is_comparable) {
            let kernel = text(&self.of_boot(&it.boot, "kernel"));
            groups.entry((&it.plugin, &it.version, kernel)).or_default().push(it.total_ns);
        }
        let row = |((plugin, version, kernel), mut all): ((_, _, _), Vec<i64>)| {
            all.sort_unstable();
            vec![
                json!(plugin),
                json!(version),
                json!(kernel),
                json!(all.len()),
                rank(&all, 50),
                rank(&all, 99),
            ]
        };
        groups.into_iter().map(row).collect()
    }

    fn leak_rate(&self) -> Rows {
        let mut groups: BTreeMap<(String, String), (i64, i64, BTreeSet<&str>)> = BTreeMap::new();
        for it in &self.starts {
            let key = (it.plugin.clone().unwrap_or_default(), it.version.clone().unwrap_or_default());
            groups.entry(key).or_default().0 += 1;
        }
        for (((node, _), _), it) in self.confirmed("leaked_address") {
            if it["detail"]["cause"] == "stale_record" {
                continue;
            }
            let plugin = text(&it["detail"]["plugin"]);
            let of_plugin = |program: &&Value| {
                program["path"].as_str().is_some_and(|path| path.ends_with(&format!("/{plugin}")))
            };
            let programs = it["programs"].as_array().expect("programs");
            let version = programs.iter().find(of_plugin).map(|it| text(&it["version"])).unwrap_or_default();
            let (_, count, nodes) = groups.entry((plugin, version)).or_default();
            *count += it["detail"]["count"].as_i64().unwrap_or(1);
            nodes.insert(node);
        }
        let mut rows = Vec::new();
        for ((plugin, version), (starts, leaked, nodes)) in groups {
            if plugin.is_empty() && leaked == 0 {
                continue;
            }
            let rate = (!plugin.is_empty() && starts > 0).then(|| leaked * 1_000_000 / starts);
            rows.push(vec![
                json!(plugin),
                json!(version),
                json!(starts),
                json!(leaked),
                json!(nodes.len()),
                json!(rate),
            ]);
        }
        rows
    }

    fn confirmed<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a (Boot, String), &'a Value)> {
        self.findings.iter().filter(move |(_, it)| it["kind"] == kind && it.get("confirmed_at").is_some())
    }

    fn two_nodes(&self) -> Rows {
        let mut by_address: BTreeMap<&str, Vec<(&str, &str, i64, i64)>> = BTreeMap::new();
        for ((boot, sandbox, address), Held { ifname, added, removed }) in &self.addresses {
            if !self.set_up.contains(&(boot.clone(), sandbox.clone(), ifname.clone())) {
                continue;
            }
            if let (Some(since), Some(again)) = (added.first(), added.last()) {
                let until = removed.last().filter(|removed| *removed > again).unwrap_or(&self.ends[boot]);
                by_address.entry(address).or_default().push((&boot.0, sandbox, *since, *until));
            }
        }
        let mut rows = Vec::new();
        for (address, held) in by_address {
            for one in &held {
                for other in held.iter().filter(|other| one.0 < other.0 && one.2 < other.3 && other.2 < one.3)
                {
                    let since = one.2.max(other.2);
                    rows.push(vec![
                        json!(address),
                        json!(one.0),
                        json!(one.1),
                        json!(other.0),
                        json!(other.1),
                        json!(since),
                    ]);
                }
            }
        }
        rows
    }

    fn recovery(&self) -> Rows {
        let mut groups: BTreeMap<_, (i64, Vec<i64>, i64)> = BTreeMap::new();
        for (boot, it) in &self.boots {
            let key = (self.label(boot, "instance-type"), text(&it["kernel"]), text(&it["recovered"]));
            let (boots, complete, missed) = groups.entry(key).or_default();
            *boots += 1;
            complete.extend(it.get("whole_ns").map(number));
            *missed += i64::from(it["target"]["outcome"] == "missed");
        }
        let row = |((kind, kernel, recovered), (boots, mut all, missed)): (
            (String, String, String),
            (_, Vec<i64>, _),
        )| {
            all.sort_unstable();
            vec![
                json!(kind),
                json!(kernel),
                json!(recovered),
                json!(boots),
                json!(all.len()),
                rank(&all, 50),
                rank(&all, 90),
                json!(all.last()),
                json!(missed),
            ]
        };
        groups.into_iter().map(row).collect()
    }

    fn slowest_phase(&self) -> Rows {
        let mut groups: BTreeMap<_, (i64, i64)> = BTreeMap::new();
        for it in self.starts.iter().filter(|it| it.is_comparable) {
            let (phase, plugin, _, took) = &it.slowest;
            let (starts, sum) = groups.entry((self.label(&it.boot, "pool"), phase, plugin)).or_default();
            *starts += 1;
            *sum += took;
        }
        let row = |((pool, phase, plugin), (starts, sum))| {
            vec![json!(pool), json!(phase), json!(plugin), json!(starts), json!(sum)]
        };
        groups.into_iter().map(row).collect()
    }

    fn duplicates(&self) -> Rows {
        let mut made: BTreeMap<String, i64> = BTreeMap::new();
        for it in &self.starts {
            *made.entry(text(&self.of_boot(&it.boot, "runtime"))).or_default() += 1;
        }
        let mut found: BTreeMap<(String, String), i64> = BTreeMap::new();
        for ((boot, _), it) in self.confirmed("duplicate_sandbox") {
            let key = (text(&self.of_boot(boot, "runtime")), text(&it["detail"]["form"]));
            *found.entry(key).or_default() += it["detail"]["count"].as_i64().unwrap_or(1);
        }
        let row = |((runtime, form), count): ((String, String), i64)| {
            let starts = made[&runtime];
            vec![json!(runtime), json!(form), json!(starts), json!(count), json!(count * 1_000_000 / starts)]
        };
        found.into_iter().map(row).collect()
    }

    fn pools(&self) -> Rows {
        let mut latest: BTreeMap<&str, (i64, &str)> = BTreeMap::new();
        let begun = self.boots.iter().map(|(boot, it)| (boot, number(&it["boot_wall_ns"])));
        for ((node, boot), at) in begun.chain(self.ends.iter().map(|(boot, at)| (boot, *at))) {
            let known = latest.entry(node).or_default();
            *known = (at, boot.as_str()).max(*known);
        }
        let near = self.findings.iter().filter(|(((node, boot), _), it)| {
            let is_open = it["kind"] == "pool_exhaustion" && it.get("closed_at").is_none();
            is_open && latest[node.as_str()].1 == boot
        });
        let row = |(((node, _), _), it): (&(Boot, String), &Value)| {
            let it_s = &it["detail"];
            let left = it_s["runs_out_in_ns"].as_str().and_then(|text| text.parse::<i64>().ok());
            let [size, used, leaked, free] =
                ["size", "used", "leaked", "free"].map(|member| it_s[member].clone());
            vec![
                json!(node),
                it_s["network"].clone(),
                it_s["subnet"].clone(),
                it["stage"].clone(),
                size,
                used,
                leaked,
                free,
                json!(left),
            ]
        };
        near.map(row).collect()
    }

    fn lost(&self) -> Rows {
        let mut groups: BTreeMap<_, (i64, i64, i64)> = BTreeMap::new();
        for (node, what, count, at) in &self.gaps {
            let (gaps, lost, last) = groups.entry((node, what)).or_default();
            *gaps += 1;
            *lost += count;
            *last = (*last).max(*at);
        }
        let row = |((node, what), (gaps, lost, last))| {
            vec![json!(node), json!(what), json!(gaps), json!(lost), json!(last)]
        };
        groups.into_iter().map(row).collect()
    }

    fn killers(&self) -> Rows {
        let mut groups: BTreeMap<_, (i64, BTreeSet<&str>)> = BTreeMap::new();
        for ((boot, _), it) in &self.findings {
            if let ("teardown_out_of_order", Some(killer)) =
                (text(&it["kind"]).as_str(), it["detail"]["killer"]["comm"].as_str())
            {
                let key = (killer, it["detail"]["signal"].as_i64(), text(&self.of_boot(boot, "runtime")));
                let (kills, nodes) = groups.entry(key).or_default();
                *kills += 1;
                nodes.insert(&boot.0);
            }
        }
        let row = |((killer, signal, runtime), (kills, nodes)): ((_, _, _), (i64, BTreeSet<&str>))| {
            vec![json!(killer), json!(signal), json!(runtime), json!(kills), json!(nodes.len())]
        };
        groups.into_iter().map(row).collect()
    }

    fn queue(&self) -> Rows {
        let mut waits: BTreeMap<&Boot, Vec<(&str, i64, i64)>> = BTreeMap::new();
        for it in self.starts.iter().filter(|it| it.slowest.0 == "image" && it.slowest.3 > 0) {
            waits.entry(&it.boot).or_default().push((&it.sandbox, it.slowest.2, it.slowest.2 + it.slowest.3));
        }
        let mut rows = Vec::new();
        for ((node, _), all) in waits {
            let (mut starts, mut most, mut waited) = (0, 0, 0);
            for (own, since, until) in &all {
                let beside =
                    all.iter().filter(|(other, from, to)| other != own && since < to && from < until).count();
                if beside > 0 {
                    starts += 1;
                    most = most.max(beside);
                    waited += until - since;
                }
            }
            if starts > 0 {
                rows.push(vec![json!(node), json!(starts), json!(most), json!(waited)]);
            }
        }
        rows
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value) -> i64 {
    value.as_str().and_then(|text| text.parse().ok()).expect("a number")
}

fn time(value: &Value) -> i64 {
    let at: Timestamp = value.as_str().and_then(|text| text.parse().ok()).expect("a time");
    i64::try_from(at.as_nanosecond()).expect("a time of today")
}

/// Returns the value at this percentile (nearest rank), or null without values.
fn rank(sorted: &[i64], percent: usize) -> Value {
    let place = (percent * sorted.len()).div_ceil(100);
    json!(place.checked_sub(1).map(|place| sorted[place]))
}
