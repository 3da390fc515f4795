//! The columns of restarts: of a runtime or of the kubelet alone, while the node ran on.

use serde_json::Value;

use super::{
    cell::{Cell, Kind},
    column::{Column, flag, integer, made, name, text},
    line::{Line, at, count, integer as number, is_exact, list, wall},
};

pub(super) const COLUMNS: [Column; 40] = [
    made("ts", Kind::Time, |line| wall(line, "wall_ns"), "when it began: from there the rest counts")
        .required(),
    made("seen_at", Kind::Time, seen, "the latest time that is known of it").required(),
    integer("boot_ns", &["boot_ns"], "when it began, ns since boot").required(),
    integer("ran_since_ns", &["ran_since_boot_ns"], "when the process that ended had begun, ns since boot")
        .required(),
    name("daemon", &["daemon"], "`runtime` or `kubelet`").required(),
    name("program", &["program"], "the name of the program").required(),
    name("old_version", &["was"], "the program that ended, by name and version").required(),
    name("new_version", &["is"], "the one that runs since"),
    made(
        "end_seen",
        Kind::Flag,
        |line| Cell::Flag(at(line.value, "end").is_some()),
        "its end was seen; otherwise times count from the start of the new process",
    ),
    integer("exit_code", &["end.code"], "exit code of the process that ended"),
    integer("signal", &["end.signal"], "the signal that ended it"),
    flag("oom", &["end.oom"], "the OOM killer chose it"),
    name("killer", &["end.killer.comm"], "who sent that signal"),
    integer(
        "told_signal",
        &["end.told_signal"],
        "the last signal that it was sent before it ended by itself",
    ),
    name("told_by", &["end.told_by.comm"], "who sent that one"),
    made("again", Kind::Integer, |line| sum(line, "again"), "processes that began and ended again"),
    integer("again_exit_code", &["end_again.code"], "exit code of the last of them"),
    integer("again_signal", &["end_again.signal"], "the signal that ended that one"),
    integer("started_ns", &["columns.started_ns"], "the new process started"),
    integer("ready_ns", &["columns.ready_ns"], "the runtime answered, or the kubelet listened at its ports"),
    integer("first_pod_ns", &["columns.first_pod_ns"], "a first pod started"),
    integer("as_before_ns", &["columns.as_before_ns"], "the node was as before"),
    integer("period1_ns", &["periods.first_ns"], "period 1, to the start"),
    integer("period2_ns", &["periods.second_ns"], "period 2, until it was ready"),
    integer("period3_ns", &["periods.third_ns"], "period 3, to the first pod"),
    integer("period4_ns", &["periods.fourth_ns"], "period 4, until the node was as before"),
    integer("whole_ns", &["whole_ns"], "all of it so far; `close` says whether it is over"),
    name(
        "close",
        &["close"],
        "why it is over: `as_before`, `waiting`, `not_ready`, `stopped`; null: it goes on",
    ),
    text("first_pod", &["first_pod"], "the first pod"),
    made("waited", Kind::Integer, |line| held(line, |it| !is_replaced(it)), "pods that waited for it"),
    made("replaced", Kind::Integer, |line| held(line, is_replaced), "pods that got another sandbox"),
    made(
        "waiting",
        Kind::Integer,
        |line| held(line, |it| it.get("waited_ns").is_none()),
        "pods of these that still wait",
    ),
    made("longest_wait_ns", Kind::Integer, longest_wait, "the longest wait of a pod that waits no more"),
    made("pods_left_out", Kind::Integer, |line| sum(line, "pods_left_out"), "at least so many more pods"),
    integer("cni_cut_off", &["calls.cut_off"], "calls of CNI plugins under way when the runtime ended"),
    integer("cni_killed", &["calls.killed"], "calls that a signal ended"),
    integer("cni_failed", &["calls.failed"], "calls that failed"),
    integer("cni_hung", &["calls.hung"], "calls that hung"),
    made(
        "less_network",
        Kind::Integer,
        |line| Cell::Integer(count(line.value, "less_network").unwrap_or(0)),
        "pods that came back with less network",
    ),
    made("exact", Kind::Flag, is_exact, "all times are those of events"),
];

fn time(line: &Line<'_>, path: &str) -> Option<i64> {
    at(line.value, path).and_then(number)
}

/// A number that the line leaves out if it is 0.
fn sum(line: &Line<'_>, path: &str) -> Cell {
    Cell::Integer(at(line.value, path).and_then(number).unwrap_or(0))
}

fn is_replaced(pod: &Value) -> bool {
    pod["replaced"] == true
}

/// Counts the pods for which `is_so` holds.
fn held(line: &Line<'_>, is_so: fn(&Value) -> bool) -> Cell {
    let pods = list(line.value, "pods").iter().filter(|it| is_so(it)).count();
    Cell::Integer(i64::try_from(pods).unwrap_or(i64::MAX))
}

fn longest_wait(line: &Line<'_>) -> Cell {
    let waits = list(line.value, "pods").iter().filter_map(|it| it.get("waited_ns").and_then(number));
    waits.max().into()
}

/// The latest time that is known of the restart. Some members count from the boot, others from the restart's
/// beginning.
fn seen(line: &Line<'_>) -> Cell {
    let Some(wall) = time(line, "wall_ns") else { return Cell::Null };
    let Some(begun) = time(line, "boot_ns") else { return Cell::Null };
    let columns = ["started_ns", "ready_ns", "first_pod_ns", "as_before_ns"];
    let columns = columns.iter().filter_map(|name| time(line, &format!("columns.{name}")));
    let ends = ["end_again.boot_ns", "closed_boot_ns"].into_iter().filter_map(|path| time(line, path));
    let pods = list(line.value, "pods").iter().filter_map(|it| {
        let since = it.get("since_boot_ns").and_then(number)?;
        Some(since.saturating_add(it.get("waited_ns").and_then(number).unwrap_or(0)))
    });
    let since = ends.chain(pods).map(|at| at.saturating_sub(begun)).chain(columns).max();
    Some(wall.saturating_add(since.unwrap_or(0).max(0))).into()
}
