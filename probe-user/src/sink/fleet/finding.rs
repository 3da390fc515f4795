//! The columns of findings.

use super::{
    cell::{Cell, Kind},
    column::{Column, flag, integer, made, name, text, time},
    line::{Line, at, list, programs, time as instant, version},
};

pub(super) const COLUMNS: [Column; 32] = [
    time("ts", &["finding.opened_at"], "when it was first reported").required(),
    made("changed_at", Kind::Time, changed, "when it was opened, confirmed or closed last").required(),
    text("key", &["finding.key"], "which finding").required(),
    name("kind", &["finding.kind"], "which kind (docs/findings.md)"),
    name("severity", &["finding.severity"], "`info`, `warning`, `critical`"),
    name("stage", &["finding.stage"], "`candidate`, `confirmed`, `closed`"),
    time("since", &["finding.since"], "when what is wrong began"),
    time("confirmed_at", &["finding.confirmed_at"], "when it was confirmed"),
    time("closed_at", &["finding.closed_at"], "when it was closed"),
    name("namespace", &["finding.pod.namespace"], "the pod's namespace"),
    text("pod", &["finding.pod.name"], "the pod's name"),
    text("uid", &["finding.pod.uid"], "the pod's UID"),
    made(
        "sandbox",
        Kind::Text,
        |line| {
            list(line.value, "finding.sandboxes").first().and_then(|it| it.as_str()).map(str::to_owned).into()
        },
        "the first of its sandboxes",
    ),
    flag("gapped", &["finding.gapped"], "records were lost meanwhile"),
    name(
        "cause",
        &[
            "finding.detail.cause",
            "finding.detail.form",
            "finding.detail.how",
            "finding.detail.step",
            "finding.detail.what",
            "finding.detail.event",
        ],
        "what distinguishes the finding from others of its kind: cause, form, how, step, what or event",
    ),
    integer("items", &["finding.detail.count"], "how many things it is about, where it is about several"),
    text("address", &["finding.detail.address"], "the address"),
    name("network", &["finding.detail.network"], "the network"),
    name("subnet", &["finding.detail.subnet"], "the range of the pool"),
    integer("pool_size", &["finding.detail.size"], "addresses of the pool"),
    integer("pool_used", &["finding.detail.used"], "those that are allocated"),
    integer("pool_leaked", &["finding.detail.leaked"], "those that are leaked"),
    integer("pool_free", &["finding.detail.free"], "those that are free"),
    integer(
        "runs_out_in_ns",
        &["finding.detail.runs_out_in_ns"],
        "when the pool will be used up at this rate",
    ),
    name("plugin", &["finding.detail.plugin"], "the CNI plugin"),
    made("plugin_version", Kind::Name, plugin_version, "the version that its executable reports"),
    name("command", &["finding.detail.command"], "its command"),
    name("killer", &["finding.detail.killer.comm"], "who sent the signal"),
    integer("signal", &["finding.detail.signal"], "the signal"),
    text("summary", &["finding.summary"], "what is wrong, in words for people"),
    made(
        "detail",
        Kind::Text,
        |line| at(line.value, "finding.detail").map(ToString::to_string).into(),
        "all of `finding.detail`, as JSON",
    ),
    made(
        "programs",
        Kind::Map,
        |line| programs(line.value, "finding.programs"),
        "the versions of the executables that had a part in it, by path",
    ),
];

fn changed(line: &Line<'_>) -> Cell {
    let times = ["finding.opened_at", "finding.confirmed_at", "finding.closed_at"];
    times.iter().filter_map(|path| at(line.value, path).and_then(instant)).max().into()
}

fn plugin_version(line: &Line<'_>) -> Cell {
    let plugin = at(line.value, "finding.detail.plugin").and_then(|it| it.as_str());
    plugin.and_then(|name| version(line.value, "finding.programs", name)).map(str::to_owned).into()
}
