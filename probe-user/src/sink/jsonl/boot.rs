//! Boots as objects, and one for the mean (docs/boot.md): as `sandprobe boot -o json` writes them.

use serde::Serialize;

use crate::{
    engine::boot::{
        average::{Average, average},
        inexact::Inexact,
        report::{COLUMNS, Close, NoOrder, RecoveryReport, Zero},
    },
    model::{
        recovery::{Kind, Ordered, Pod, Recovered, RecoveredPod, Recovery, Source, TimedSource},
        time::Timestamp,
    },
    sink::recovery,
};

/// The members of `columns` and `periods`, in their order.
const COLUMN_NAMES: [&str; COLUMNS] = ["kubelet_ns", "static_pod_ns", "first_service_ns", "last_service_ns"];
const PERIOD_NAMES: [&str; COLUMNS] = ["first_ns", "second_ns", "third_ns", "fourth_ns"];

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    pub node: &'a str,
    pub recovery: &'a Recovery,
    pub study: &'a RecoveryReport,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    Boot(Box<Boot<'a>>),
    Average(Box<Mean>),
}

/// Numbers of 64 bits are decimal strings; what is not known is absent.
#[derive(Serialize)]
struct Boot<'a> {
    node: &'a str,
    boot_id: &'a str,
    kernel: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    boot_wall_ns: Option<String>,
    /// From where the rest counts: `order`, or `kernel` and why.
    zero: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_order: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<Order<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_heartbeat_wall_ns: Option<String>,
    /// Boots between the last that was seen and this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    unseen: Option<Unseen>,
    columns: Columns,
    periods: Periods,
    #[serde(skip_serializing_if = "Option::is_none")]
    whole_ns: Option<String>,
    /// The columns and periods that are not known by an event's own time.
    inexact: Vec<&'static str>,
    /// By which rule pods are back: `started` or `listening`.
    recovered: &'static str,
    /// `all`, `quiet` or `open`.
    close: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<Vec<String>>,
    cni: Cni<'a>,
    /// More happened than is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<Truncated>,
    /// The agent came after the runtime.
    late: bool,
    milestones: Vec<Milestone>,
    pods: Vec<PodLine>,
}

#[derive(Serialize)]
struct Order<'a> {
    by: &'a str,
    wall_ns: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    before_boot_ns: Option<String>,
    source: &'static str,
    precision_ns: String,
}

#[derive(Serialize)]
struct Unseen {
    /// At least.
    boots: u32,
    source: &'static str,
}

#[derive(Serialize)]
struct Columns {
    #[serde(skip_serializing_if = "Option::is_none")]
    kubelet_ns: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    static_pod_ns: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_service_ns: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_service_ns: Option<String>,
}

#[derive(Serialize)]
struct Periods {
    #[serde(skip_serializing_if = "Option::is_none")]
    first_ns: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    second_ns: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    third_ns: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fourth_ns: Option<String>,
}

#[derive(Serialize)]
struct Cni<'a> {
    failed: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin: Option<&'a str>,
    lost_ns: String,
    /// Of boot time: what failed before it is in none of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    unseen_until_ns: Option<String>,
}

/// What is in none of the rest.
#[derive(Serialize)]
struct Truncated {
    /// At least.
    pods: u32,
    cni_calls: u32,
    /// Pods that were there before the restart: nobody waited for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pods_before: Option<u32>,
}

#[derive(Serialize)]
struct Milestone {
    name: &'static str,
    /// Of boot time.
    boot_ns: String,
    source: &'static str,
    precision_ns: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
}

#[derive(Serialize)]
struct PodLine {
    pod: String,
    kind: &'static str,
    /// What tells the kind.
    kind_by: &'static str,
    boot_ns: String,
    source: &'static str,
    /// When it first listened.
    #[serde(skip_serializing_if = "Option::is_none")]
    listening_boot_ns: Option<String>,
    /// Which of the two counts; absent: it is not back.
    #[serde(skip_serializing_if = "Option::is_none")]
    recovered_by: Option<&'static str>,
}

#[derive(Serialize)]
struct Mean {
    boots: usize,
    recovered: &'static str,
    columns: Columns,
    periods: Periods,
    #[serde(skip_serializing_if = "Option::is_none")]
    whole_ns: Option<String>,
    inexact: Vec<&'static str>,
}

/// One line a boot, and one for the mean.
pub fn lines(rows: &[Told<'_>]) -> serde_json::Result<Vec<u8>> {
    let lines = rows.iter().map(|row| Line::Boot(Box::new(boot(row))));
    let mut bytes = Vec::new();
    for line in lines.chain([Line::Average(Box::new(mean(rows)))]) {
        serde_json::to_writer(&mut bytes, &line)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// One boot, as a value to be put into another object.
#[must_use]
pub fn object<'a>(row: &Told<'a>) -> impl Serialize + use<'a> {
    boot(row)
}

/// The mean of all that are whole, in the same way.
#[must_use]
pub fn average_of(rows: &[Told<'_>]) -> impl Serialize + use<> {
    mean(rows)
}

fn mean(rows: &[Told<'_>]) -> Mean {
    let Average { boots, recovered, columns, differences, whole, inexact } =
        average(rows.iter().map(|row| row.study));
    Mean {
        boots,
        recovered: recovery::recovered(recovered),
        columns: Columns::of(columns),
        periods: Periods::of(differences),
        whole_ns: ns(whole),
        inexact: names(inexact, &columns, &differences),
    }
}

/// What is told and is not exact.
fn names(
    inexact: Inexact,
    columns: &[Option<i64>; COLUMNS],
    periods: &[Option<i64>; COLUMNS],
) -> Vec<&'static str> {
    let of_columns = COLUMN_NAMES.into_iter().zip(inexact.columns).zip(columns);
    let of_periods = PERIOD_NAMES.into_iter().zip(inexact.periods).zip(periods);
    let told = of_columns.chain(of_periods).filter(|((_, is_inexact), ns)| *is_inexact && ns.is_some());
    told.map(|((name, _), _)| name).collect()
}

fn ns(ns: Option<i64>) -> Option<String> {
    ns.map(|ns| ns.to_string())
}

impl Truncated {
    fn of(recovery: &Recovery) -> Option<Self> {
        let Recovery { pods_left_out: pods, tries_left_out: cni_calls, .. } = *recovery;
        let pods_before = recovery.boot.as_ref().map(|boot| boot.before.pods_left_out).filter(|it| *it > 0);
        let is_cut = pods > 0 || cni_calls > 0 || pods_before.is_some();
        is_cut.then_some(Self { pods, cni_calls, pods_before })
    }
}

impl Columns {
    fn of(columns: [Option<i64>; COLUMNS]) -> Self {
        let [kubelet_ns, static_pod_ns, first_service_ns, last_service_ns] = columns.map(ns);
        Self { kubelet_ns, static_pod_ns, first_service_ns, last_service_ns }
    }
}

impl Periods {
    fn of(periods: [Option<i64>; COLUMNS]) -> Self {
        let [first_ns, second_ns, third_ns, fourth_ns] = periods.map(ns);
        Self { first_ns, second_ns, third_ns, fourth_ns }
    }
}

fn boot<'a>(row: &Told<'a>) -> Boot<'a> {
    let study = row.study;
    let boot = row.recovery.boot.as_ref();
    let (zero, no_order, order) = zero(study);
    let (close, missing) = match &study.close {
        Close::All { .. } => ("all", Some(&[][..])),
        Close::Quiet { missing, .. } => ("quiet", missing.as_deref()),
        Close::Open { missing, .. } => ("open", missing.as_deref()),
    };
    Boot {
        node: row.node,
        boot_id: boot.map(|boot| boot.boot_id.as_str()).unwrap_or_default(),
        kernel: boot.map(|boot| boot.kernel.as_str()).unwrap_or_default(),
        boot_wall_ns: ns(boot.map(|boot| boot.boot_wall_ns)),
        zero,
        no_order,
        order,
        last_heartbeat_wall_ns: ns(boot.and_then(|boot| boot.before.alive_wall_ns)),
        unseen: boot
            .and_then(|boot| boot.before.unseen)
            .map(|unseen| Unseen { boots: unseen.boots, source: source(unseen.source) }),
        columns: Columns::of(study.columns),
        periods: Periods::of(study.periods),
        whole_ns: ns(study.whole),
        inexact: names(study.inexact, &study.columns, &study.periods),
        recovered: recovery::recovered(study.recovered),
        close,
        missing: missing.map(|pods: &[Pod]| pods.iter().map(recovery::name).collect()),
        cni: Cni {
            failed: study.cni.failed,
            plugin: study.cni.plugin.as_deref(),
            lost_ns: study.cni.lost.as_nanos().to_string(),
            unseen_until_ns: study.cni.unseen_until.map(|at| at.0.to_string()),
        },
        truncated: Truncated::of(row.recovery),
        late: study.is_late,
        milestones: milestones(study),
        pods: row.recovery.pods.iter().map(|back| pod(back, study)).collect(),
    }
}

fn zero(study: &RecoveryReport) -> (&'static str, Option<&'static str>, Option<Order<'_>>) {
    fn told(ordered: &Ordered, before_ns: Option<i64>) -> Option<Order<'_>> {
        Some(Order {
            by: &ordered.by,
            wall_ns: ordered.wall_ns.to_string(),
            before_boot_ns: ns(before_ns),
            source: source(ordered.source),
            precision_ns: precision(ordered.source),
        })
    }
    match &study.zero {
        Zero::Order { ordered, before_ns } => ("order", None, told(ordered, Some(*before_ns))),
        Zero::Kernel(NoOrder::NoHistory) => ("kernel", Some("no_history"), None),
        Zero::Kernel(NoOrder::NotSeen { .. }) => ("kernel", Some("not_seen"), None),
        Zero::Kernel(NoOrder::Outlived(ordered)) => ("kernel", Some("outlived"), told(ordered, None)),
        Zero::Kernel(NoOrder::NotComparable(ordered)) => {
            ("kernel", Some("not_comparable"), told(ordered, None))
        }
    }
}

fn milestones(study: &RecoveryReport) -> Vec<Milestone> {
    let back =
        |back: &Option<RecoveredPod>| back.as_ref().map(|back| (back.mark, Some(recovery::name(&back.pod))));
    let bare = |mark: Option<TimedSource>| mark.map(|mark| (mark, None));
    let all = [
        ("kernel_start", bare(Some(TimedSource { at: Timestamp::ZERO, source: Source::Boot }))),
        ("init_started", bare(study.init)),
        ("runtime_started", bare(study.runtime)),
        ("kubelet_started", bare(study.kubelet)),
        ("first_static_pod", back(&study.first_static)),
        ("cni_first_success", bare(study.cni.first)),
        ("first_service_pod", back(&study.first_service)),
        ("last_service_pod", back(&study.last_service)),
    ];
    let known = all.into_iter().filter_map(|(name, found)| found.map(|(mark, pod)| (name, mark, pod)));
    known
        .map(|(name, mark, pod)| Milestone {
            name,
            boot_ns: mark.at.0.to_string(),
            source: source(mark.source),
            precision_ns: precision(mark.source),
            pod,
        })
        .collect()
}

fn pod(back: &RecoveredPod, study: &RecoveryReport) -> PodLine {
    let by = match study.recovered {
        Recovered::Listening if back.listened.is_some() => Some(Recovered::Listening),
        Recovered::Listening if !study.by_start.contains(&back.pod) => None,
        Recovered::Started | Recovered::Listening => Some(Recovered::Started),
    };
    PodLine {
        pod: recovery::name(&back.pod),
        kind: match back.pod.kind {
            Kind::Static => "static",
            Kind::System => "system",
            Kind::Service => "service",
        },
        kind_by: back.pod.kind_by(),
        boot_ns: back.mark.at.0.to_string(),
        source: source(back.mark.source),
        listening_boot_ns: back.listened.map(|at| at.0.to_string()),
        recovered_by: by.map(recovery::recovered),
    }
}

fn source(source: Source) -> &'static str {
    match source {
        Source::Boot => "boot",
        Source::Hook => "hook",
        Source::ProcStart => "proc_start",
        Source::FileTime => "file_time",
        Source::Journal => "journal",
        Source::Wtmp => "wtmp",
    }
}

fn precision(source: Source) -> String {
    source.precision().as_nanos().to_string()
}
