//! Restarts as a picture: a row for each boot, with its periods and what happened meanwhile.

use std::time::Duration;

use super::{Bar, Chart, Row, Series, Table};
use crate::{
    engine::boot::{
        numbers::COLUMNS,
        report::{NodeBoot, RecoveryReport, Zero},
    },
    model::{
        recovery::{Grouping, Kind, NetworkAttempt, Pod, Recovered, Recovery, Source},
        time::Timestamp,
    },
    sink::render::recovery::{self, Milestone, summary},
};

/// How many rows show their details without a click.
const OPEN: usize = 5;

/// Draws a row for each boot. With `grouping`, the table below the boots has a row for each group.
#[must_use]
pub fn chart(boots: &[NodeBoot<'_>], grouping: Option<&Grouping>) -> Chart {
    let first_open = boots.len().saturating_sub(OPEN);
    let mut nodes: Vec<&str> = boots.iter().map(|boot| boot.node).collect();
    nodes.dedup();
    Chart {
        title: "What each restart cost",
        noun: "boot",
        about: vec![
            ("node", nodes.join(", ")),
            ("boots", boots.len().to_string()),
            (
                "times",
                "from the order of the restart; with a star (*) from the kernel's start; with ~ not exact (docs/boot.md)"
                    .to_owned(),
            ),
        ],
        tables: vec![table(boots, grouping)],
        rows: boots.iter().enumerate().map(|(n, boot)| Row { is_open: n >= first_open, ..row(boot) }).collect(),
        notes: summary::notes(boots),
    }
}

fn table(boots: &[NodeBoot<'_>], grouping: Option<&Grouping>) -> Table {
    let rows = summary::table(boots, grouping).into_iter();
    Table {
        title: "Columns in ms, periods 1 to 4 and the whole in s",
        headings: vec![
            "boot (UTC)",
            "kubelet",
            "static pod",
            "first service",
            "last service",
            "1",
            "2",
            "3",
            "4",
            "whole",
        ],
        rows: rows.map(|row| [row.name].into_iter().chain(row.numbers).collect()).collect(),
    }
}

/// The row of one boot.
pub(crate) fn row(boot: &NodeBoot<'_>) -> Row {
    let NodeBoot { recovery, report: study, .. } = boot;
    let before = match &study.zero {
        Zero::Order { before_ns, .. } => from_ns(*before_ns),
        Zero::Kernel(_) => Duration::ZERO,
    };
    let zero = Zeroed { before };
    let mut bars = periods(study);
    let took = bars.iter().filter_map(|bar| bar.took).sum();
    bars.extend(restart(boot, zero));
    bars.extend(network(recovery, study, zero));
    let (pods, later) = pods(recovery, study, zero);
    bars.extend(pods);
    let mut notes = recovery::notes(boot);
    if !later.is_empty() {
        notes.push(format!("came later, and are not drawn: {}", recovery::names(&later)));
    }
    let mut facts = vec![("node", boot.node.to_owned())];
    if let Some(read) = &recovery.boot {
        facts.push(("boot", read.boot_id.clone()));
        facts.push(("kernel", read.kernel.clone()));
    }
    Row {
        name: summary::name(boot),
        marks: recovery::marks(study),
        facts,
        notes,
        took,
        bars,
        ..Row::default()
    }
}

/// Converts boot times to times of the row.
#[derive(Clone, Copy)]
struct Zeroed {
    /// How long before the kernel's start the row begins.
    before: Duration,
}

impl Zeroed {
    fn at(self, at: Timestamp) -> Duration {
        self.before.saturating_add(Duration::from_nanos(at.0))
    }
}

fn from_ns(ns: i64) -> Duration {
    Duration::from_nanos(u64::try_from(ns).unwrap_or(0))
}

/// The periods, each from one known column to the next. Without static pods there is no boundary between
/// periods 2 and 3.
fn periods(study: &RecoveryReport) -> Vec<Bar> {
    const NAMES: [(&str, Series); COLUMNS] = [
        ("kubelet", Series::First),
        ("first static pod", Series::Second),
        ("first service pod", Series::Third),
        ("last service pod", Series::Fourth),
    ];
    let mut from = Duration::ZERO;
    let mut last = match study.zero {
        Zero::Order { .. } => "order",
        Zero::Kernel(_) => "kernel start",
    };
    let mut bars = Vec::new();
    for (column, (name, tone)) in study.numbers.columns.into_iter().zip(NAMES) {
        let Some(at) = column.map(|it| from_ns(it.ns)) else { continue };
        // A milestone that came before the one it follows takes no time.
        let to = at.max(from);
        let took = Some(to.saturating_sub(from));
        bars.push(Bar { is_part: true, ..bar("periods", format!("{last} to {name}"), tone, from, took) });
        (from, last) = (to, name);
    }
    bars
}

fn bar(lane: &str, name: String, tone: Series, at: Duration, took: Option<Duration>) -> Bar {
    Bar { lane: lane.to_owned(), name, tone, at, took, is_part: false, marks: Vec::new(), notes: Vec::new() }
}

fn restart(boot: &NodeBoot<'_>, zero: Zeroed) -> Vec<Bar> {
    let down = match &boot.report.zero {
        Zero::Order { ordered, .. } => {
            let down =
                bar("restart", "going down".to_owned(), Series::Down, Duration::ZERO, Some(zero.before));
            let notes = vec![format!("ordered by \"{}\"", ordered.by)];
            Some(Bar { notes, ..down })
        }
        Zero::Kernel(_) => None,
    };
    let moments =
        recovery::milestones(boot.recovery, boot.report).into_iter().map(|Milestone { name, mark, pod }| {
            let pod = pod.map(|pod| format!("{} ({})", recovery::name(pod), recovery::kind(pod)));
            let known = recovery::known(mark.source);
            let moment = bar("milestones", name.title().to_owned(), Series::Moment, zero.at(mark.at), None);
            Bar {
                notes: vec![match pod {
                    Some(pod) => format!("{pod}; {known}"),
                    None => known,
                }],
                ..moment
            }
        });
    down.into_iter().chain(moments).collect()
}

/// The time that was lost, and each ADD. ADDs that run at the same time have separate lanes.
fn network(recovery: &Recovery, study: &RecoveryReport, zero: Zeroed) -> Vec<Bar> {
    let mut tries: Vec<&NetworkAttempt> =
        recovery.tries.iter().filter(|it| is_within(study, it.began)).collect();
    tries.sort_by_key(|it| (it.began, it.ended));
    let mut bars = Vec::new();
    if let Some(began) = study.cni.lost_since.filter(|began| is_within(study, *began)) {
        let at = zero.at(began);
        let lost = bar("network", "network missing".to_owned(), Series::Lost, at, Some(study.cni.lost));
        bars.push(Bar { notes: recovery::network(study).into_iter().collect(), ..lost });
    }
    let mut lanes: Vec<Timestamp> = Vec::new();
    let mut adds: Vec<(usize, Bar)> = Vec::new();
    for it in tries {
        let free = lanes.iter().position(|until| *until <= it.began).unwrap_or(lanes.len());
        match lanes.get_mut(free) {
            Some(until) => *until = it.ended,
            None => lanes.push(it.ended),
        }
        let of = it.sandbox.short();
        let (name, tone) = match &it.failed {
            Some(plugin) => (format!("ADD of {of} failed ({plugin})"), Series::Failed),
            None => (format!("ADD of {of}"), Series::Done),
        };
        let took = Some(it.ended.since(it.began));
        adds.push((free, bar(&format!("cni {}", free + 1), name, tone, zero.at(it.began), took)));
    }
    adds.sort_by_key(|(lane, _)| *lane);
    bars.extend(adds.into_iter().map(|(_, add)| add));
    bars
}

/// The pods up to the last one of the recovery, and those that came later.
fn pods(recovery: &Recovery, study: &RecoveryReport, zero: Zeroed) -> (Vec<Bar>, Vec<Pod>) {
    let mut all: Vec<_> = recovery.pods.iter().collect();
    let shows_listening = study.recovered == Recovered::Listening;
    all.sort_by_key(|back| (back.pod.kind, back.mark.at));
    let (drawn, later): (Vec<_>, Vec<_>) = all.into_iter().partition(|back| is_within(study, back.mark.at));
    let bars = drawn.into_iter().flat_map(|back| {
        let lane = match back.pod.kind {
            Kind::Static => "static pods",
            Kind::System => "system pods",
            Kind::Service => "service pods",
        };
        let moment = bar(lane, recovery::name(&back.pod), Series::Moment, zero.at(back.mark.at), None);
        // A time from a hook is exact and needs no note.
        let notes = match back.mark.source {
            Source::Hook => Vec::new(),
            other => vec![recovery::known(other)],
        };
        let listens = back.listened.filter(|at| shows_listening && is_within(study, *at)).map(|at| {
            let name = format!("{} listens", recovery::name(&back.pod));
            bar(lane, name, Series::Moment, zero.at(at), None)
        });
        [Bar { notes, ..moment }].into_iter().chain(listens)
    });
    (bars.collect(), later.into_iter().map(|back| back.pod.clone()).collect())
}

/// Whether the time is not after the last pod of the recovery. A later event is not part of it, and may be a
/// month later.
pub(crate) fn is_within(study: &RecoveryReport, at: Timestamp) -> bool {
    study.last_service.as_ref().is_none_or(|last| at <= last.mark.at)
}
