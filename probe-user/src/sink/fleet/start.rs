//! The columns of starts: of the event `pod.started`, or of a start that an agent keeps.

use serde_json::Value;

use super::{
    cell::{Cell, Kind},
    column::{Column, flag, integer, made, name, text},
    line::{Line, at, count, integer as number, list, programs, time, version},
};

pub(super) const COLUMNS: [Column; 41] = [
    made("ts", Kind::Time, begun, "when it began").required(),
    made("ended_at", Kind::Time, ended, "when the last of its containers ran").required(),
    name("namespace", &["pod.namespace"], "the pod's namespace"),
    text("pod", &["pod.name"], "the pod's name"),
    text("uid", &["pod.uid"], "the pod's UID"),
    text("sandbox", &["sandbox.id"], "the sandbox's id").required(),
    integer("total_ns", &["start.total_ns"], "from the beginning to the end").required(),
    made(
        "comparable",
        Kind::Flag,
        |line| Cell::Flag(is_comparable(line.value)),
        "it was seen whole (docs/phases.md, What is compared)",
    ),
    flag("complete", &["start.complete"], "all containers that the pod is to have began"),
    flag("containers_known", &["start.containers_known"], "it is known which these are"),
    flag("revised", &["start.revised"], "it was reported before, and went on"),
    flag("rebuilt", &["start.rebuilt"], "the pod had run in another sandbox before"),
    flag("listed", &["start.listed"], "a part of it was found in a listing, not seen"),
    flag("suspended", &["start.suspended"], "the node was suspended meanwhile"),
    flag("gapped", &["start.gapped"], "records were lost meanwhile"),
    made(
        "missing",
        Kind::Integer,
        |line| Cell::Integer(count(line.value, "start.missing").unwrap_or(0)),
        "containers that did not begin",
    ),
    made(
        "plugin",
        Kind::Name,
        |line| plugin(line.value).map(str::to_owned).into(),
        "the first CNI plugin of the pod's network, `loopback` aside",
    ),
    made(
        "plugin_version",
        Kind::Name,
        |line| {
            let version = plugin(line.value).and_then(|name| version(line.value, "start.plugins", name));
            version.map(str::to_owned).into()
        },
        "the version that this plugin's executable reports",
    ),
    made(
        "plugins",
        Kind::Map,
        |line| programs(line.value, "start.plugins"),
        "the versions of all plugins that set up its network, by path",
    ),
    made("prepare_ns", Kind::Integer, |line| phase(line, "prepare"), "phase `prepare`"),
    made("retry_ns", Kind::Integer, |line| phase(line, "retry"), "phase `retry`"),
    made("netns_ns", Kind::Integer, |line| phase(line, "netns"), "phase `netns`"),
    made("cni_ns", Kind::Integer, |line| phase(line, "cni"), "phases `cni`"),
    made("between_ns", Kind::Integer, |line| phase(line, "between"), "phases `between`"),
    made("pause_ns", Kind::Integer, |line| phase(line, "pause"), "phase `pause`"),
    made("image_ns", Kind::Integer, |line| phase(line, "image"), "phases `image`"),
    made("runtime_ns", Kind::Integer, |line| phase(line, "runtime"), "phases `runtime`"),
    made("cgroup_ns", Kind::Integer, |line| phase(line, "cgroup"), "phases `cgroup`"),
    made("post_start_ns", Kind::Integer, |line| phase(line, "post_start"), "phases `post_start`"),
    made("init_ns", Kind::Integer, |line| phase(line, "init"), "phases `init`"),
    made(
        "slowest_phase",
        Kind::Name,
        |line| slowest(line.value).and_then(|it| it["phase"].as_str()).map(str::to_owned).into(),
        "the first of the longest of its phases",
    ),
    made(
        "slowest_plugin",
        Kind::Name,
        |line| slowest(line.value).and_then(|it| it["plugin"].as_str()).map(str::to_owned).into(),
        "the plugin whose phase that is",
    ),
    made(
        "slowest_at",
        Kind::Time,
        |line| slowest(line.value).and_then(|it| wall(line, number(&it["begin_ns"])?)).into(),
        "when that phase began",
    ),
    made(
        "slowest_ns",
        Kind::Integer,
        |line| slowest(line.value).and_then(|it| number(&it["duration_ns"])).into(),
        "how long that phase took",
    ),
    made("adds", Kind::Integer, |line| sum(line, "adds"), "calls of ADD"),
    made("failed_adds", Kind::Integer, |line| sum(line, "failed"), "calls of ADD that failed"),
    made("failed_ns", Kind::Integer, |line| sum(line, "failed_ns"), "how long these took"),
    made(
        "sandboxes_failed",
        Kind::Integer,
        |line| sum(line, "sandboxes"),
        "sandboxes before it that came to nothing",
    ),
    made(
        "teardown_ns",
        Kind::Integer,
        |line| sum(line, "teardown_ns"),
        "while the network was set up, another network namespace was taken apart for so long",
    ),
    made(
        "throttled_ns",
        Kind::Integer,
        |line| sum(line, "cpu.throttled_ns"),
        "the pod's CPU limit held it back for so long",
    ),
    made(
        "listening_ns",
        Kind::Integer,
        |line| {
            list(line.value, "start.listening")
                .iter()
                .filter_map(|it| number(&it["duration_ns"]))
                .max()
                .into()
        },
        "from the start of a container's program to its first socket, the longest so far",
    ),
];

/// The wall time of the start's beginning. An event has its own time; a start alone has the time of its
/// beginning.
fn begun(line: &Line<'_>) -> Cell {
    let begin = at(line.value, "start.begin_ns").and_then(number);
    begin.and_then(|begin| wall(line, begin)).into()
}

fn ended(line: &Line<'_>) -> Cell {
    let begin = at(line.value, "start.begin_ns").and_then(number);
    let total = at(line.value, "start.total_ns").and_then(number);
    let end = begin.zip(total).and_then(|(begin, total)| begin.checked_add(total));
    end.and_then(|end| wall(line, end)).into()
}

/// The wall time of a boot time.
fn wall(line: &Line<'_>, boot_ns: i64) -> Option<i64> {
    let at_ns = time(line.value.get("at")?)?;
    let own = line.value.get("boot_ns").and_then(number);
    let own = own.or_else(|| at(line.value, "start.begin_ns").and_then(number))?;
    at_ns.checked_sub(own)?.checked_add(boot_ns)
}

fn phases(value: &Value) -> &[Value] {
    list(value, "start.phases")
}

/// The total time of all phases of this kind; null if there is none.
fn phase(line: &Line<'_>, name: &str) -> Cell {
    let own = phases(line.value).iter().filter(|it| it["phase"] == name);
    own.filter_map(|it| number(&it["duration_ns"])).reduce(i64::saturating_add).into()
}

/// Sums a member over all phases. A line leaves out zeros.
fn sum(line: &Line<'_>, member: &str) -> Cell {
    let all = phases(line.value).iter().filter_map(|it| at(it, member)).filter_map(number);
    Cell::Integer(all.fold(0, i64::saturating_add))
}

fn slowest(value: &Value) -> Option<&Value> {
    phases(value).iter().rev().max_by_key(|it| number(&it["duration_ns"]))
}

fn plugin(value: &Value) -> Option<&str> {
    let network = phases(value).iter().filter(|it| it["phase"] == "cni" && it["ifname"] != "lo");
    { network }.find_map(|it| it["plugin"].as_str())
}

/// Whether the start is compared with others, by the rule of the engine.
fn is_comparable(value: &Value) -> bool {
    let start = &value["start"];
    start["complete"] == true
        && !["rebuilt", "listed", "suspended", "gapped"].into_iter().any(|member| start[member] == true)
}
