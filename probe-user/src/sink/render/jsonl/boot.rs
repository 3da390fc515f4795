//! The lines of `sandprobe boot -o json` (docs/boot.md): one for each boot, one for the mean, and one for the
//! percentiles.
//!
//! These types differ from the model: a recovery has times and rules, a line has the numbers that follow from
//! them.

mod numbers;
mod restart;
mod statistics;
mod what_if;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_with::skip_serializing_none;

use numbers::{COLUMN_NAMES, Columns, NumbersLine, Periods};
pub use restart::{RestartLine, RestartStatisticsLine};
use statistics::GroupLine;
pub use statistics::Statistics;
pub(crate) use what_if::WhatIfLine;

use super::scalar::{Decimal, is_default, nanos};
use crate::{
    engine::boot::{
        average::{Average, average},
        report::{Close, NoOrder, NodeBoot, RecoveryReport, Zero},
        target::{Outcome, Target},
    },
    model::recovery::{Grouping, Kind, LessNetwork, Ordered, Recovered, RecoveredPod, Recovery, Source},
    sink::render::recovery::{self, MilestoneName},
};

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    Boot(Box<Boot<'a>>),
    Average(Box<Mean>),
    Statistics(Box<Statistics<'a>>),
    Group(Box<GroupLine<'a>>),
    Restart(Box<RestartLine<'a>>),
    RestartStatistics(Box<RestartStatisticsLine<'a>>),
    WhatIf(Box<WhatIfLine<'a>>),
}

/// One boot (docs/boot.md).
#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
pub struct Boot<'a> {
    node: &'a str,
    boot_id: &'a str,
    kernel: &'a str,
    /// The runtimes and the kubelet, each by name and version.
    runtime: Option<&'a str>,
    kubelet: Option<&'a str>,
    /// The agent's `--boot-label`s.
    labels: Option<&'a BTreeMap<String, String>>,
    boot_wall_ns: Option<Decimal<i64>>,
    /// The event from which the other times count.
    zero: CountsFrom,
    /// Why the times do not count from the order.
    no_order: Option<OrderUnknown>,
    order: Option<Order<'a>>,
    last_heartbeat_wall_ns: Option<Decimal<i64>>,
    /// Boots between the last that was seen and this one.
    unseen: Option<Unseen>,
    columns: Columns,
    periods: Periods,
    whole_ns: Option<Decimal<i64>>,
    /// The columns and periods whose times are not those of events.
    inexact: Vec<&'static str>,
    /// How long the recovery should take at most.
    target: Option<TargetLine>,
    /// The rule by which a pod counts as back.
    recovered: Recovered,
    close: ClosedBy,
    /// The pods that were there before and are not back.
    missing: Option<Vec<String>>,
    /// Pods that had more interfaces before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    less_network: Vec<LessNetworkLine<'a>>,
    cni: Cni<'a>,
    services_unread: Option<ServicesUnreadLine>,
    /// More happened than is kept.
    truncated: Option<Truncated>,
    /// The agent came after the runtime.
    late: bool,
    /// In the order of their times.
    milestones: Vec<Milestone>,
    pods: Vec<PodLine>,
    /// The name of the boot: when it began, with the signs of the text output.
    title: String,
    /// Why the boot is not whole, in words for people.
    marks: Vec<&'static str>,
    /// Notes beside the numbers, a sentence each, in words for people.
    notes: Vec<String>,
}

/// The time that a recovery may take, and whether it was met.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BootTarget")]
struct TargetLine {
    target_ns: Decimal<i64>,
    outcome: Outcome,
    /// Nanoseconds over the target, to the last pod so far; negative: time left.
    #[serde(skip_serializing_if = "Option::is_none")]
    over_ns: Option<Decimal<i64>>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CountsFrom {
    /// From the order that ended the boot before.
    Order,
    /// From the kernel's start.
    Kernel,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OrderUnknown {
    /// No earlier boot is known.
    NoHistory,
    /// No order was seen.
    NotSeen,
    /// The node was alive long after the order.
    Outlived,
    /// The order is not before this boot by the wall clock, or the node was off in between.
    NotComparable,
}

/// Why no further pod is awaited.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ClosedBy {
    /// All pods from before the restart are back.
    All,
    /// No further pod came for some time.
    Quiet,
    /// More may come.
    Open,
}

/// The order that ended the boot before.
#[derive(Serialize, JsonSchema)]
struct Order<'a> {
    by: &'a str,
    wall_ns: Decimal<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before_boot_ns: Option<Decimal<i64>>,
    source: Source,
    precision_ns: Decimal<u128>,
}

#[derive(Serialize, JsonSchema)]
struct Unseen {
    /// At least this many.
    boots: u32,
    source: Source,
    /// The number and its source, in words for people.
    title: String,
}

/// What the network cost before the first ADD that did not fail.
#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BootCni")]
struct Cni<'a> {
    /// Calls of ADD that failed.
    failed: u32,
    /// Calls of ADD that took 10 s or longer, and did not fail.
    hung: u32,
    plugin: Option<&'a str>,
    lost_ns: Decimal<u128>,
    /// Time since boot. Failures before it were not seen.
    unseen_until_ns: Option<Decimal<u64>>,
}

/// What it cost that the kubelet had not read the Services yet.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BootServicesUnread")]
struct ServicesUnreadLine {
    /// The containers that could not be made at first.
    containers: u32,
    lost_ns: Decimal<u128>,
}

/// Pods and calls that are in no other member.
#[derive(Serialize, JsonSchema)]
struct Truncated {
    /// At least this many.
    pods: u32,
    cni_calls: u32,
    /// Pods from before the restart that were not waited for.
    #[serde(skip_serializing_if = "is_default")]
    pods_before: u32,
}

/// A step of the recovery.
#[derive(Serialize, JsonSchema)]
struct Milestone {
    name: MilestoneName,
    /// Time since boot.
    boot_ns: Decimal<u64>,
    source: Source,
    precision_ns: Decimal<u128>,
    /// The pod whose start this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
    /// The name of the step.
    title: &'static str,
    /// How exactly the time is known, and from which source, in words for people.
    known: String,
}

/// A pod that is back.
#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BootPod")]
struct PodLine {
    pod: String,
    kind: Kind,
    /// The source of the kind.
    kind_by: &'static str,
    boot_ns: Decimal<u64>,
    source: Source,
    /// When it first listened.
    listening_boot_ns: Option<Decimal<u64>>,
    /// Which of the two times counts; absent: the pod is not back.
    recovered_by: Option<Recovered>,
}

/// A pod that is back, and the interfaces that it had before the restart and no longer has.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BootLessNetwork")]
pub(super) struct LessNetworkLine<'a> {
    pod: String,
    missing: &'a [String],
}

/// The mean of all boots that are whole.
#[derive(Serialize, JsonSchema)]
pub struct Mean {
    boots: usize,
    recovered: Recovered,
    #[serde(flatten)]
    numbers: NumbersLine<Columns>,
}

/// Returns a line for each boot, one for the mean, one for the percentiles, and one for each group, if there
/// is a grouping.
pub fn lines(rows: &[NodeBoot<'_>], grouping: Option<&Grouping>) -> serde_json::Result<Vec<u8>> {
    let lines = rows.iter().map(|row| Line::Boot(Box::new(Boot::of(row))));
    let mut bytes = Vec::new();
    let together =
        [Line::Average(Box::new(Mean::of(rows))), Line::Statistics(Box::new(Statistics::of(rows)))];
    let groups = grouping.map(|grouping| GroupLine::all(rows, grouping)).unwrap_or_default();
    let groups = groups.into_iter().map(|group| Line::Group(Box::new(group)));
    for line in lines.chain(together).chain(groups) {
        write(&mut bytes, &line)?;
    }
    Ok(bytes)
}

/// Returns a line for each restart of a daemon, and one for all restarts of each program.
pub fn restart_lines(rows: &[NodeBoot<'_>]) -> serde_json::Result<Vec<u8>> {
    let (restarts, statistics) = restarts(rows);
    let restarts = restarts.into_iter().map(|it| Line::Restart(Box::new(it)));
    let statistics = statistics.into_iter().map(|it| Line::RestartStatistics(Box::new(it)));
    let mut bytes = Vec::new();
    for line in restarts.chain(statistics) {
        write(&mut bytes, &line)?;
    }
    Ok(bytes)
}

/// Returns a line for each boot with a change.
pub(crate) fn what_if_lines<'a>(all: impl Iterator<Item = WhatIfLine<'a>>) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for it in all {
        write(&mut bytes, &Line::WhatIf(Box::new(it)))?;
    }
    Ok(bytes)
}

/// The restarts of daemons in these boots, and the statistics of each program's restarts.
#[must_use]
pub fn restarts<'a>(rows: &[NodeBoot<'a>]) -> (Vec<RestartLine<'a>>, Vec<RestartStatisticsLine<'a>>) {
    let all = recovery::restart::all(rows);
    let mut left_out: BTreeMap<&'a str, u64> = BTreeMap::new();
    for (comm, count) in rows.iter().flat_map(|row| &row.recovery.restarts.left_out) {
        let sum = left_out.entry(comm).or_default();
        *sum = sum.saturating_add((*count).into());
    }
    (all.iter().map(RestartLine::of).collect(), RestartStatisticsLine::all(&all, &left_out))
}

fn write(bytes: &mut Vec<u8>, line: &Line<'_>) -> serde_json::Result<()> {
    serde_json::to_writer(&mut *bytes, line)?;
    bytes.push(b'\n');
    Ok(())
}

impl Mean {
    #[must_use]
    pub fn of(rows: &[NodeBoot<'_>]) -> Self {
        Self::new(average(recovery::summary::reports(rows)))
    }

    fn new(mean: Average) -> Self {
        let title = recovery::mean_name(&mean);
        let Average { boots, recovered, numbers } = mean;
        Self { boots, recovered, numbers: NumbersLine::new(COLUMN_NAMES, &numbers, title) }
    }
}

impl Truncated {
    fn of(recovery: &Recovery) -> Option<Self> {
        let Recovery { pods_left_out: pods, tries_left_out: cni_calls, .. } = *recovery;
        let pods_before = recovery.boot.as_ref().map_or(0, |boot| boot.before.pods_left_out);
        let is_cut = pods > 0 || cni_calls > 0 || pods_before > 0;
        is_cut.then_some(Self { pods, cni_calls, pods_before })
    }
}

impl<'a> Boot<'a> {
    #[must_use]
    pub fn of(row: &NodeBoot<'a>) -> Self {
        let study = row.report;
        let boot = row.recovery.boot.as_ref();
        let (zero, no_order, order) = zero(study);
        let (close, missing) = closed_by(&study.close);
        Self {
            node: row.node,
            boot_id: boot.map(|boot| boot.boot_id.as_str()).unwrap_or_default(),
            kernel: boot.map(|boot| boot.kernel.as_str()).unwrap_or_default(),
            runtime: row.recovery.runtime_program.as_deref(),
            kubelet: row.recovery.kubelet_program.as_deref(),
            labels: boot.map(|boot| &boot.labels).filter(|labels| !labels.is_empty()),
            boot_wall_ns: boot.map(|boot| Decimal(boot.boot_wall_ns)),
            zero,
            no_order,
            order,
            last_heartbeat_wall_ns: boot.and_then(|boot| boot.before.alive_wall_ns).map(Decimal),
            unseen: boot.and_then(|boot| boot.before.unseen).map(|it| Unseen {
                boots: it.boots,
                source: it.source,
                title: recovery::not_seen(it),
            }),
            columns: study.numbers.columns.into(),
            periods: Periods::of(study.numbers.periods),
            whole_ns: numbers::whole(&study.numbers),
            inexact: numbers::inexact(COLUMN_NAMES, &study.numbers),
            target: study.target.map(TargetLine::of),
            recovered: study.recovered,
            close,
            missing,
            less_network: LessNetworkLine::all(&study.less_network),
            cni: Cni {
                failed: study.cni.failed,
                hung: study.cni.hung,
                plugin: study.cni.plugin.as_deref(),
                lost_ns: Decimal(study.cni.lost.as_nanos()),
                unseen_until_ns: study.cni.unseen_until.map(|at| Decimal(at.0)),
            },
            services_unread: row.recovery.services_unread.map(|it| ServicesUnreadLine {
                containers: it.containers,
                lost_ns: nanos(it.span.ended.since(it.span.began)),
            }),
            truncated: Truncated::of(row.recovery),
            late: study.is_late,
            milestones: recovery::milestones(row.recovery, study).iter().map(Milestone::of).collect(),
            pods: row.recovery.pods.iter().map(|back| PodLine::of(back, study)).collect(),
            title: recovery::summary::name(row),
            marks: recovery::marks(study),
            notes: recovery::notes(row),
        }
    }
}

impl<'a> LessNetworkLine<'a> {
    pub(super) fn all(less: &'a [LessNetwork]) -> Vec<Self> {
        less.iter().map(|it| Self { pod: recovery::name(&it.pod), missing: &it.missing }).collect()
    }
}

impl TargetLine {
    fn of(Target { span, outcome, over }: Target) -> Self {
        let target_ns = Decimal(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX));
        Self { target_ns, outcome, over_ns: over.map(Decimal) }
    }
}

impl<'a> Order<'a> {
    fn of(ordered: &'a Ordered, before_ns: Option<i64>) -> Self {
        Self {
            by: &ordered.by,
            wall_ns: Decimal(ordered.wall_ns),
            before_boot_ns: before_ns.map(Decimal),
            source: ordered.source,
            precision_ns: precision(ordered.source),
        }
    }
}

/// Returns the pods that were there before and are not back, too.
fn closed_by(close: &Close) -> (ClosedBy, Option<Vec<String>>) {
    let (by, missing) = match close {
        Close::All { .. } => (ClosedBy::All, Some(&[][..])),
        Close::Quiet { missing, .. } => (ClosedBy::Quiet, missing.as_deref()),
        Close::Open { missing, .. } => (ClosedBy::Open, missing.as_deref()),
    };
    (by, missing.map(|pods| pods.iter().map(recovery::name).collect()))
}

fn zero(study: &RecoveryReport) -> (CountsFrom, Option<OrderUnknown>, Option<Order<'_>>) {
    let (why, order) = match &study.zero {
        Zero::Order { ordered, before_ns } => {
            return (CountsFrom::Order, None, Some(Order::of(ordered, Some(*before_ns))));
        }
        Zero::Kernel(NoOrder::NoHistory) => (OrderUnknown::NoHistory, None),
        Zero::Kernel(NoOrder::NotSeen { .. }) => (OrderUnknown::NotSeen, None),
        Zero::Kernel(NoOrder::Outlived(ordered)) => (OrderUnknown::Outlived, Some(ordered)),
        Zero::Kernel(NoOrder::NotComparable(ordered)) => (OrderUnknown::NotComparable, Some(ordered)),
    };
    (CountsFrom::Kernel, Some(why), order.map(|ordered| Order::of(ordered, None)))
}

impl Milestone {
    fn of(milestone: &recovery::Milestone<'_>) -> Self {
        let recovery::Milestone { name, mark, pod } = *milestone;
        Self {
            name,
            boot_ns: Decimal(mark.at.0),
            source: mark.source,
            precision_ns: precision(mark.source),
            pod: pod.map(recovery::name),
            title: name.title(),
            known: recovery::known(mark.source),
        }
    }
}

impl PodLine {
    fn of(back: &RecoveredPod, study: &RecoveryReport) -> Self {
        let recovered_by = match study.recovered {
            Recovered::Listening if back.listened.is_some() => Some(Recovered::Listening),
            Recovered::Listening if !study.by_start.contains(&back.pod) => None,
            Recovered::Started | Recovered::Listening => Some(Recovered::Started),
        };
        Self {
            pod: recovery::name(&back.pod),
            kind: back.pod.kind,
            kind_by: back.pod.kind_by(),
            boot_ns: Decimal(back.mark.at.0),
            source: back.mark.source,
            listening_boot_ns: back.listened.map(|at| Decimal(at.0)),
            recovered_by,
        }
    }
}

fn precision(source: Source) -> Decimal<u128> {
    Decimal(source.precision().as_nanos())
}
