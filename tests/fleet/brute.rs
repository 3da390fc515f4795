//! The answers by brute force: what the questions ask, counted from the lines themselves and not from the tables.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

/// A node and its boot.
type Boot = (String, String);
type Rows = Vec<Vec<Value>>;

/// What of the lines matters.
#[derive(Default)]
pub(crate) struct Brute {
    boots: BTreeMap<Boot, Value>,
    starts: Vec<Start>,
    findings: BTreeMap<(Boot, String), Value>,
    /// By boot, sandbox and address.
    addresses: BTreeMap<(Boot, String, String), Held>,
    ends: BTreeMap<Boot, i64>,
    gaps: Vec<(String, String, i64, i64)>,
    /// Lines that are events.
    pub(crate) events: u64,
}

/// When a sandbox was first given an address, and when it was last removed.
#[derive(Default)]
struct Held {
    since: Option<i64>,
    until: Option<i64>,
}

struct Start {
    boot: Boot,
    sandbox: String,
    is_comparable: bool,
    total_ns: i64,
    plugin: Option<String>,
    version: Option<String>,
    /// The longest phase: its name, its plugin, when it began by the wall clock, and how long it took.
    slowest: (String, Option<String>, i64, i64),
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
        let boot = (text(&line["node"]), text(&line["boot_id"]));
        let at = time(&line["at"]);
        self.events += 1;
        let end = self.ends.entry(boot.clone()).or_insert(at);
        *end = at.max(*end);
        if line.get("start").is_some() {
            self.starts.push(start(boot.clone(), line));
        }
        if let Some(finding) = line.get("finding") {
            // Later lines tell the later stage.
            self.findings.insert((boot.clone(), text(&finding["key"])), finding.clone());
        }
        let event = text(&line["event"]);
        if event == "gap" && line["gap"]["what"] != "no_agent" {
            self.gaps.push((boot.0.clone(), text(&line["gap"]["what"]), number(&line["gap"]["count"]), at));
        }
        let (address, sandbox) = (&line["address"], line["sandbox"]["id"].as_str());
        if let (Some(name), Some(sandbox)) = (address["address"].as_str(), sandbox)
            && address["ifname"] != "lo"
            && !name.starts_with("fe80:")
        {
            let held = self.addresses.entry((boot, sandbox.to_owned(), name.to_owned())).or_default();
            match event.as_str() {
                "address.added" => held.since = Some(held.since.map_or(at, |first| first.min(at))),
                _ => held.until = held.until.max(Some(at)),
            }
        }
    }

    /// The rows of each question, in no order.
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
        let mut made: BTreeMap<(String, String), i64> = BTreeMap::new();
        for it in &self.starts {
            if let Some(plugin) = &it.plugin {
                *made.entry((plugin.clone(), it.version.clone().unwrap_or_default())).or_default() += 1;
            }
        }
        let mut leaks: BTreeMap<(String, String), (i64, BTreeSet<&str>)> = BTreeMap::new();
        for (((node, _), _), it) in self.confirmed("leaked_address") {
            let plugin = text(&it["detail"]["plugin"]);
            let of_plugin = |program: &&Value| {
                program["path"].as_str().is_some_and(|path| path.ends_with(&format!("/{plugin}")))
            };
            let programs = it["programs"].as_array().expect("programs");
            let version = programs.iter().find(of_plugin).map(|it| text(&it["version"])).unwrap_or_default();
            let (count, nodes) = leaks.entry((plugin, version)).or_default();
            *count += it["detail"]["count"].as_i64().unwrap_or(1);
            nodes.insert(node);
        }
        let row = |(key, starts): ((String, String), i64)| {
            let (leaked, nodes) = leaks.get(&key).map_or((0, 0), |(leaked, nodes)| (*leaked, nodes.len()));
            vec![
                json!(key.0),
                json!(key.1),
                json!(starts),
                json!(leaked),
                json!(nodes),
                json!(leaked * 1_000_000 / starts),
            ]
        };
        made.into_iter().map(row).collect()
    }

    fn confirmed<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a (Boot, String), &'a Value)> {
        self.findings.iter().filter(move |(_, it)| it["kind"] == kind && it.get("confirmed_at").is_some())
    }

    fn two_nodes(&self) -> Rows {
        let mut by_address: BTreeMap<&str, Vec<(&str, &str, i64, i64)>> = BTreeMap::new();
        for ((boot, sandbox, address), Held { since, until }) in &self.addresses {
            if let Some(since) = since {
                let until = until.unwrap_or_else(|| self.ends[boot]);
                by_address.entry(address).or_default().push((&boot.0, sandbox, *since, until));
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
        let mut groups: BTreeMap<_, (Vec<i64>, i64)> = BTreeMap::new();
        for (boot, it) in self.boots.iter().filter(|(_, it)| it.get("whole_ns").is_some()) {
            let group = groups.entry((self.label(boot, "instance-type"), text(&it["kernel"]))).or_default();
            group.0.push(number(&it["whole_ns"]));
            group.1 += i64::from(it["target"]["outcome"] == "missed");
        }
        let row = |((kind, kernel), (mut all, missed)): ((String, String), (Vec<i64>, i64))| {
            all.sort_unstable();
            vec![
                json!(kind),
                json!(kernel),
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
        let near = self
            .findings
            .iter()
            .filter(|(_, it)| it["kind"] == "pool_exhaustion" && it.get("closed_at").is_none());
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

fn start(boot: Boot, line: &Value) -> Start {
    let start = &line["start"];
    let is = |member: &str| start[member] == true;
    let phases = start["phases"].as_array().expect("phases");
    let mut slowest = &phases[0];
    for phase in phases {
        if number(&phase["duration_ns"]) > number(&slowest["duration_ns"]) {
            slowest = phase;
        }
    }
    let boot_wall = time(&line["at"]) - number(&line["boot_ns"]);
    let cni = phases.iter().find(|it| it["phase"] == "cni" && it["ifname"] != "lo");
    let plugin = cni.and_then(|it| it["plugin"].as_str()).map(str::to_owned);
    let plugins = start["plugins"].as_array().map(Vec::as_slice).unwrap_or_default();
    let version = plugins
        .iter()
        .find(|it| it["path"].as_str().and_then(|path| path.rsplit('/').next()) == plugin.as_deref());
    Start {
        boot,
        sandbox: text(&line["sandbox"]["id"]),
        is_comparable: is("complete") && !is("rebuilt") && !is("listed") && !is("suspended") && !is("gapped"),
        total_ns: number(&start["total_ns"]),
        version: version.and_then(|it| it["version"].as_str()).map(str::to_owned),
        plugin,
        slowest: (
            text(&slowest["phase"]),
            slowest["plugin"].as_str().map(str::to_owned),
            boot_wall + number(&slowest["begin_ns"]),
            number(&slowest["duration_ns"]),
        ),
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

/// The least that so many in a hundred do not exceed.
fn rank(sorted: &[i64], percent: usize) -> Value {
    json!(sorted[(percent * sorted.len()).div_ceil(100) - 1])
}
