//! A fleet made from recordings: each node's day is many copies of the pods of `demo.jsonl`, and its boot is
//! one of `restart.jsonl`, with their own names, times and paces.

use serde_json::{Value, json};

use crate::{
    planted::{Planted, Whose},
    restarts,
    template::{Copy, Template, Zero},
};

pub(crate) const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400;
/// The beginning of the day 2026-11-21. The boots are an hour before it.
const MIDNIGHT: i64 = 1_795_219_200 * SECOND;

/// The size of a fleet.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    /// Pods of each node in the day.
    pub(crate) pods: usize,
}

/// The names in the lines that belong to the node.
pub(crate) const NODE: [&str; 10] = [
    "demo-node",
    "91e974f6-489b-4dbd-8885-6d4e63223662",
    "@plugin",
    "@kernel",
    "@runtime",
    "@pool",
    "@type",
    "@number",
    "@count",
    "@recovered",
];

pub(crate) struct Fleet {
    size: Size,
    /// The recorded pods to copy: healthy ones, one with a slow image, and one whose address leaks.
    pods: Vec<Pod>,
    /// The recorded boot, and a boot that does not recover.
    complete: Template,
    stuck: Template,
    /// A recorded restart of a daemon, from which the restarts of the nodes are made.
    restart: Value,
    planted: Vec<Planted>,
}

/// A recorded pod, and its own names.
struct Pod {
    template: Template,
    names: Vec<Own>,
}

/// The kind of a pod's name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Own {
    Uid,
    Id,
    Address,
}

/// The properties in which a fleet's nodes differ.
struct Node {
    number: usize,
    names: Vec<String>,
    boot_wall_ns: i64,
}

impl Fleet {
    /// `events` are the demo's lines, `boot` is the line of a node's restart, and `restart` the line of a
    /// runtime's restart, as sandprobe writes them.
    pub(crate) fn new(size: Size, events: &str, boot: &str, restart: &str) -> Self {
        let events: Vec<Value> =
            events.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let pod = |name: &str, image_ns: i64| Pod::of(&events, name, image_ns);
        let pods = vec![
            pod("job", 0),
            pod("crasher", 0),
            pod("agent", 0),
            pod("job", 20 * SECOND),
            pod("report", 0),
        ];
        let mut boot: Value = serde_json::from_str(boot).expect("JSON");
        let inner = &mut boot["boot"];
        inner["node"] = NODE[0].into();
        inner["boot_id"] = NODE[1].into();
        inner["kernel"] = "@kernel".into();
        inner["runtime"] = "@runtime".into();
        inner["labels"] = json!({ "pool": "@pool", "instance-type": "@type" });
        inner["target"]["outcome"] = "@count".into();
        inner["recovered"] = "@recovered".into();
        let restart: Value = serde_json::from_str(restart).expect("JSON");
        let restart = restart["restart"].clone();
        let zero = Zero { boot_wall_ns: 0, begin_ns: 0 };
        let own = NODE.map(str::to_owned);
        let complete = Template::of(&[boot.clone()], zero, &own);
        // This boot missed its target and is still not complete.
        boot["boot"].as_object_mut().expect("an object").remove("whole_ns").expect("it is complete");
        let stuck = Template::of(&[boot], zero, &own);
        Self { size, pods, complete, stuck, restart, planted: Planted::all() }
    }

    /// Returns the lines of all boots, and of the later restarts of daemons.
    pub(crate) fn boots(&self) -> String {
        let mut text = String::new();
        for number in 0..self.size.nodes {
            let mut node = Node::of(number);
            let pace = 60 + i64::try_from(hash(number, 1) % 200).expect("small");
            // 137 s at the recorded pace.
            let is_stuck = number % 10 == 7;
            node.names[8] = if is_stuck || pace > 218 { "missed" } else { "met" }.to_owned();
            let boot = if is_stuck { &self.stuck } else { &self.complete };
            boot.copy(&node.copy(&node.names, 0, pace), &mut 0, &mut text);
            text.push_str(&restarts::lines(
                &self.restart,
                &node.names[0],
                &node.names[1],
                number,
                node.boot_wall_ns,
            ));
        }
        text
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.size.nodes).map(|number| self.day(&Node::of(number)))
    }

    /// Returns the lines of a node's day.
    fn day(&self, node: &Node) -> String {
        let (mut text, mut seq) = (String::new(), 0);
        let between = DAY * SECOND / i64::try_from(self.size.pods).expect("few");
        for which in 0..self.size.pods {
            // Every tenth pod starts together with the one before it, and both wait for images.
            let is_second = which % 10 == 1;
            let slot = i64::try_from(if is_second { which - 1 } else { which }).expect("few");
            let kind = match (which % 10, hash(node.number, 1000 + which) % 100) {
                _ if node.shares(which) => 0,
                (0 | 1, _) if node.number.is_multiple_of(4) => 3,
                (_, 0..4) if node.is_old() => 4,
                (_, 4) => 4,
                (_, 5..20) => 1,
                (_, 20..30) => 2,
                _ => 0,
            };
            // Each pair of neighbours has the same clock, so that events planted on both happen at once.
            let jitter = i64::try_from(node.number / 2 * 37 % 600).expect("small") * SECOND;
            let begin = 3600 * SECOND + jitter + slot * between;
            let pace = 60 + i64::try_from(hash(node.number, which) % 300).expect("small");
            let pod = &self.pods[kind];
            let names = node.names_of(which, &pod.names);
            pod.template.copy(&node.copy(&names, begin, pace), &mut seq, &mut text);
        }
        for planted in self.planted.iter().filter(|it| it.is_on(node.number)) {
            let mut names = node.names.clone();
            names[8] = (5 + node.number).to_string();
            let mut boot_wall_ns = node.boot_wall_ns;
            if planted.whose == Whose::Past {
                names[1] = format!("b006{}", &names[1][4..]);
                boot_wall_ns -= 2 * DAY * SECOND;
            }
            let copy = Copy { boot_wall_ns, ..node.copy(&names, planted.at * SECOND, 100) };
            let mut own = 0;
            let seq = if planted.whose == Whose::Agent { &mut seq } else { &mut own };
            planted.template.copy(&copy, seq, &mut text);
        }
        text
    }
}

impl Pod {
    /// Returns the lines of a pod whose image takes longer by `image_ns`.
    fn of(events: &[Value], name: &str, image_ns: i64) -> Self {
        let is_its = |line: &&Value| line["pod"]["name"] == name;
        let mut lines: Vec<Value> = events.iter().filter(is_its).cloned().collect();
        lines.iter_mut().for_each(|line| prepare(line, image_ns));
        let first =
            |path: &str| lines.iter().find_map(|line| line.pointer(path)?.as_str()).expect(path).to_owned();
        let begin_ns: i64 = first("/boot_ns").parse().expect("a number");
        let wall: jiff::Timestamp = first("/at").parse().expect("a time");
        let boot_wall_ns = i64::try_from(wall.as_nanosecond()).expect("a time") - begin_ns;
        // A pod's own names are its name, UID, sandboxes, containers and addresses.
        let mut own = vec![(first("/pod/uid"), Own::Uid)];
        for (path, what) in
            [("/sandbox/id", Own::Id), ("/container/id", Own::Id), ("/address/address", Own::Address)]
        {
            for text in lines.iter().filter_map(|line| line.pointer(path)?.as_str()) {
                let is_local = ["127.0.0.1", "::1"].contains(&text) || text.starts_with("fe80:");
                if !is_local && !own.iter().any(|(known, _)| known == text) {
                    own.push((text.to_owned(), what));
                }
            }
        }
        let texts = NODE.map(str::to_owned).into_iter().chain(own.iter().map(|(text, _)| text.clone()));
        let template = Template::of(&lines, Zero { boot_wall_ns, begin_ns }, &texts.collect::<Vec<_>>());
        Self { template, names: own.into_iter().map(|(_, what)| what).collect() }
    }
}

/// Leaves a place for the plugin's version, and makes the image take longer.
fn prepare(line: &mut Value, image_ns: i64) {
    let longer = |value: &mut Value| {
        let number: i64 = value.as_str().and_then(|text| text.parse().ok()).expect("a number");
        *value = (number + image_ns).to_string().into();
    };
    if let Some(start) = line.get_mut("start") {
        longer(&mut start["total_ns"]);
        for phase in start["phases"]
            .as_array_mut()
            .expect("phases")
            .iter_mut()
            .filter(|it| it["phase"] == "image")
            .take(1)
        {
            longer(&mut phase["duration_ns"]);
        }
    }
    for path in ["/start/plugins", "/finding/programs"] {
        for program in line.pointer_mut(path).and_then(Value::as_array_mut).into_iter().flatten() {
            if program["path"].as_str().is_some_and(|path| path.ends_with("/keyed")) {
                program["version"] = "@plugin".into();
            }
        }
    }
}

impl Node {
    fn of(number: usize) -> Self {
        let pick = |salt: usize, all: &[&str]| {
            all[usize::try_from(hash(number, salt)).expect("64 bits") % all.len()].to_owned()
        };
        let names = vec![
            format!("node-{number:04}"),
            format!("b0070000-0000-4000-8000-{number:012x}"),
            if number.is_multiple_of(3) { "0.8.1" } else { "0.9.0" }.to_owned(),
            pick(11, &["6.1.0-56-amd64", "6.12.117+deb13-amd64"]),
            pick(12, &["containerd 1.7.28", "containerd 2.1.4"]),
            pick(13, &["blue", "green", "batch"]),
            pick(14, &["m5.large", "c6i.xlarge"]),
            number.to_string(),
            String::new(),
            if number % 4 == 1 { "listening" } else { "started" }.to_owned(),
        ];
        Self { number, names, boot_wall_ns: MIDNIGHT - 3600 * SECOND }
    }

    /// Whether its plugin leaks.
    fn is_old(&self) -> bool {
        self.number.is_multiple_of(3)
    }

    /// Whether a pod has the address of the neighbour's pod.
    fn shares(&self, which: usize) -> bool {
        self.number % 50 <= 1 && which % 20 == 2
    }

    /// Returns the names of a pod.
    fn names_of(&self, which: usize, own: &[Own]) -> Vec<String> {
        let node = if self.shares(which) { self.number / 2 * 2 } else { self.number };
        let name = |(number, own): (usize, &Own)| match own {
            Own::Uid => format!("f1ee7000-{:04x}-4000-8000-{which:012x}", self.number),
            Own::Id => format!("{:016x}{:016x}{number:032x}", self.number + 1, which + 1),
            Own::Address => format!("10.{}.{}.{}", node / 250, node % 250, 2 + (which + 50 * number) % 250),
        };
        self.names.iter().cloned().chain(own.iter().enumerate().map(name)).collect()
    }

    fn copy<'a>(&self, names: &'a [String], begin_ns: i64, pace: i64) -> Copy<'a> {
        Copy { names, boot_wall_ns: self.boot_wall_ns, begin_ns, pace }
    }
}

/// Returns the same number each time (splitmix64).
pub(crate) fn hash(node: usize, salt: usize) -> u64 {
    let seed = u64::try_from(node * 1_000_003 + salt).expect("64 bits");
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
