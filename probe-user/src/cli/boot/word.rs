//! Words for what a row is made of.

use std::time::Duration;

use crate::{
    engine::boot::{
        BootRead, Kind, Pod, Source,
        study::{Close, NoOrder, Zero},
    },
    sink::wall::Rfc3339,
};

/// A time on the wall clock, to the second.
pub(super) fn wall(ns: i64) -> String {
    let text = Rfc3339(i128::from(ns)).to_string();
    text.get(..19).map_or_else(|| text.clone(), |seconds| seconds.replace('T', " "))
}

pub(super) fn name(pod: &Pod) -> String {
    match (&pod.namespace, &pod.name, &pod.uid) {
        (Some(namespace), Some(name), _) => format!("{namespace}/{name}"),
        (None, Some(name), _) => name.clone(),
        (_, None, Some(uid)) => uid.to_string(),
        (_, None, None) => "a pod".to_owned(),
    }
}

pub(super) fn source(source: Source) -> &'static str {
    match source {
        Source::Boot => "the clock's zero",
        Source::Hook => "a hook",
        Source::ProcStart => "/proc start time",
        Source::FileTime => "a file's date",
        Source::Journal => "the journal",
        Source::Wtmp => "wtmp",
    }
}

/// How well such a time is known.
pub(super) fn precision(source: Source) -> &'static str {
    match source {
        Source::Boot | Source::Hook => "exact",
        Source::ProcStart => "10 ms",
        Source::FileTime => "10 ms, or earlier",
        Source::Journal => "1 ms",
        Source::Wtmp => "1 s, or earlier",
    }
}

/// Seconds with three decimals.
pub(super) fn seconds(ns: i64) -> String {
    let millis = rounded_ms(ns);
    let sign = if millis < 0 { "-" } else { "" };
    let millis = millis.unsigned_abs();
    format!("{sign}{}.{:03} s", millis / 1000, millis % 1000)
}

/// Seconds with two decimals, as the study has its periods.
pub(super) fn hundredths(ns: i64) -> String {
    let hundredths = ns.saturating_add(5_000_000).div_euclid(10_000_000);
    let sign = if hundredths < 0 { "-" } else { "" };
    let hundredths = hundredths.unsigned_abs();
    format!("{sign}{}.{:02}", hundredths / 100, hundredths % 100)
}

/// What a pod is to the node, and what tells so.
pub(super) fn kind(pod: &Pod) -> String {
    let kind = match pod.kind {
        Kind::Static => "static",
        Kind::System => "system",
        Kind::Service => "service",
    };
    let by = match pod.kind_by() {
        "uid" => "by its UID",
        "namespace" => "by its namespace",
        other => other,
    };
    format!("{kind}, {by}")
}

pub(super) fn span(span: Duration) -> String {
    seconds(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX))
}

/// To the nearest millisecond.
pub(super) fn rounded_ms(ns: i64) -> i64 {
    ns.saturating_add(500_000).div_euclid(1_000_000)
}

/// From where the columns count, and why.
pub(super) fn zero(zero: &Zero, boot: Option<&BootRead>) -> String {
    let from_kernel = "times count from the kernel's start";
    match zero {
        Zero::Order { ordered, before_ns } => {
            format!("ordered by \"{}\" {} before the kernel's start", ordered.by, seconds(*before_ns))
        }
        Zero::Kernel(NoOrder::NoHistory) => format!("nothing is known of a boot before: {from_kernel}"),
        Zero::Kernel(NoOrder::NotSeen { alive_wall_ns: Some(alive) }) => {
            let dark = boot.map(|boot| boot.boot_wall_ns.saturating_sub(*alive));
            let dark =
                dark.map(|ns| format!(", {} before the kernel's start", seconds(ns))).unwrap_or_default();
            format!("order not seen (last heartbeat {}{dark}): {from_kernel}", wall(*alive))
        }
        Zero::Kernel(NoOrder::NotSeen { alive_wall_ns: None }) => format!("order not seen: {from_kernel}"),
        Zero::Kernel(NoOrder::Outlived(ordered)) => format!(
            "order not seen: the node outlived \"{}\" of {}: {from_kernel}",
            ordered.by,
            wall(ordered.wall_ns)
        ),
        Zero::Kernel(NoOrder::NotComparable(ordered)) => format!(
            "\"{}\" of {} is no restart's order by the wall clock, or the node was off: {from_kernel}",
            ordered.by,
            wall(ordered.wall_ns)
        ),
    }
}

/// Whether the last pod was the last.
pub(super) fn close(close: &Close) -> String {
    match close {
        Close::All { pods } => format!("all {pods} service pods of before are back"),
        Close::Quiet { quiet, missing: None } => format!(
            "the last one by {} s without another: which pods were there before is not known",
            quiet.as_secs()
        ),
        Close::Quiet { quiet, missing: Some(missing) } => {
            format!("the last one by {} s without another; not back: {}", quiet.as_secs(), names(missing))
        }
        Close::Open { back: 0, missing: None } => "no service pod is back yet".to_owned(),
        Close::Open { back, missing: None } => format!("{back} service pods are back, more may come"),
        Close::Open { back, missing: Some(missing) } => {
            format!("{back} service pods are back, not yet: {}", names(missing))
        }
    }
}

/// So many are named.
const NAMED: usize = 5;

fn names(pods: &[Pod]) -> String {
    let mut text = pods.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", ");
    if let Some(more) = pods.len().checked_sub(NAMED).filter(|more| *more > 0) {
        text += &format!(" and {more} more");
    }
    text
}
