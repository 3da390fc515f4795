//! The columns of boots.

use super::{
    cell::{Cell, Kind},
    column::{Column, flag, integer, made, name},
    line::{Line, at, count, integer as number, is_exact, list, wall},
};

pub(super) const COLUMNS: [Column; 27] = [
    made("ts", Kind::Time, |line| wall(line, "boot_wall_ns"), "when the kernel started").required(),
    made("seen_at", Kind::Time, seen, "the latest time that is known of the recovery").required(),
    name("zero", &["zero"], "from where times count: `order`, or `kernel` where the order is not known"),
    name("no_order", &["no_order"], "why the order is not known"),
    name("ordered_by", &["order.by"], "who ordered the restart"),
    made("ordered_at", Kind::Time, |line| wall(line, "order.wall_ns"), "when it was ordered"),
    integer("kubelet_ns", &["columns.kubelet_ns"], "the kubelet started"),
    integer("static_pod_ns", &["columns.static_pod_ns"], "the first static pod ran"),
    integer("first_service_ns", &["columns.first_service_ns"], "the first service pod ran"),
    integer("last_service_ns", &["columns.last_service_ns"], "the last service pod ran"),
    integer("period1_ns", &["periods.first_ns"], "period 1, to the kubelet"),
    integer("period2_ns", &["periods.second_ns"], "period 2, to the first static pod"),
    integer("period3_ns", &["periods.third_ns"], "period 3, to the first service pod"),
    integer("period4_ns", &["periods.fourth_ns"], "period 4, to the last service pod"),
    integer("whole_ns", &["whole_ns"], "all of it, where the order is known and the recovery is complete"),
    integer("target_ns", &["target.target_ns"], "how long it may take"),
    name("outcome", &["target.outcome"], "whether it met that"),
    name("recovered", &["recovered"], "by which rule a pod is back"),
    name("close", &["close"], "why no further pod is awaited: `all`, `quiet`; `open`: more may come"),
    made("pods", Kind::Integer, |line| count(line.value, "pods").into(), "pods that are back"),
    made("missing", Kind::Integer, |line| count(line.value, "missing").into(), "pods that are not back"),
    integer("cni_failed", &["cni.failed"], "calls of ADD that failed before the first success"),
    integer("cni_hung", &["cni.hung"], "calls of ADD that hung"),
    name("cni_plugin", &["cni.plugin"], "the plugin"),
    integer("cni_lost_ns", &["cni.lost_ns"], "the time lost by that"),
    flag("late", &["late"], "the agent came after the runtime"),
    made("exact", Kind::Flag, is_exact, "all times are those of events"),
];

fn seen(line: &Line<'_>) -> Cell {
    let known = list(line.value, "milestones").iter().chain(list(line.value, "pods"));
    let known = known.flat_map(|it| [it.get("boot_ns"), it.get("listening_boot_ns")]).flatten();
    let latest = known.filter_map(number).max().unwrap_or(0);
    let boot = at(line.value, "boot_wall_ns").and_then(number);
    boot.and_then(|boot| boot.checked_add(latest)).into()
}
