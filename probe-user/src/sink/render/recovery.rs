//! The words for a node's recovery.

pub(crate) mod restart;
pub(crate) mod summary;

use std::time::Duration;

use probe_common::event::KUBELET_PORTS;
use schemars::JsonSchema;
use serde::Serialize;
use strum::IntoStaticStr;

use super::wall_clock::Rfc3339;
use crate::{
    engine::boot::{
        average::Average,
        report::{Close, NoOrder, NodeBoot, RecoveryReport, Zero},
        target::Outcome,
    },
    model::{
        recovery::{
            BootRead, Kind, LessNetwork, Pod, Recovered, Recovery, ServicesUnread, Source, TimedSource,
            Unseen,
        },
        time::Timestamp,
    },
    words::count::counted,
};

/// A milestone of a recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Milestone<'a> {
    pub(crate) name: MilestoneName,
    pub(crate) mark: TimedSource,
    pub(crate) pod: Option<&'a Pod>,
}

// The static strings are the labels of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub(crate) enum MilestoneName {
    KernelStart,
    #[strum(serialize = "init")]
    InitStarted,
    #[strum(serialize = "runtime")]
    RuntimeStarted,
    #[strum(serialize = "kubelet")]
    KubeletStarted,
    #[strum(serialize = "kubelet_health")]
    KubeletHealthListens,
    #[strum(serialize = "kubelet_api")]
    KubeletApiListens,
    #[strum(serialize = "kubelet_read_only")]
    KubeletReadOnlyListens,
    CniConfigured,
    NetworkPod,
    #[strum(serialize = "cni_ready")]
    CniFirstSuccess,
    #[strum(serialize = "static_pod")]
    FirstStaticPod,
    #[strum(serialize = "first_pod")]
    FirstServicePod,
    #[strum(serialize = "last_pod")]
    LastServicePod,
}

/// The milestones of the kubelet's ports, in the order of the ports.
const PORTS: [MilestoneName; 3] = [
    MilestoneName::KubeletHealthListens,
    MilestoneName::KubeletApiListens,
    MilestoneName::KubeletReadOnlyListens,
];

impl MilestoneName {
    /// The milestone's name in texts.
    #[must_use]
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::KernelStart => "kernel start",
            Self::InitStarted => "init started",
            Self::RuntimeStarted => "runtime started",
            Self::KubeletStarted => "kubelet started",
            Self::KubeletHealthListens => "kubelet's health check listens",
            Self::KubeletApiListens => "kubelet's API listens",
            Self::KubeletReadOnlyListens => "kubelet's read-only API listens",
            Self::CniConfigured => "CNI configuration written",
            Self::NetworkPod => "network's pod",
            Self::CniFirstSuccess => "first CNI success",
            Self::FirstStaticPod => "first static pod",
            Self::FirstServicePod => "first service pod",
            Self::LastServicePod => "last service pod",
        }
    }
}

/// The known milestones, in the order of their times.
#[must_use]
pub(crate) fn milestones<'a>(recovery: &Recovery, report: &'a RecoveryReport) -> Vec<Milestone<'a>> {
    let kernel = TimedSource { at: Timestamp::ZERO, source: Source::Boot };
    let steps = [
        (MilestoneName::KernelStart, Some(kernel)),
        (MilestoneName::InitStarted, recovery.init),
        (MilestoneName::RuntimeStarted, recovery.runtime),
        (MilestoneName::KubeletStarted, recovery.kubelet),
        (MilestoneName::CniConfigured, recovery.network_configured),
        (MilestoneName::CniFirstSuccess, report.cni.first),
    ];
    let pods = [
        (MilestoneName::FirstStaticPod, &report.first_static),
        (MilestoneName::NetworkPod, &report.network_pod),
        (MilestoneName::FirstServicePod, &report.first_service),
        (MilestoneName::LastServicePod, &report.last_service),
    ];
    let mut known = Vec::new();
    for (name, mark) in steps {
        known.extend(mark.map(|mark| Milestone { name, mark, pod: None }));
    }
    for (name, back) in pods {
        known.extend(back.as_ref().map(|it| Milestone { name, mark: it.mark, pod: Some(&it.pod) }));
    }
    for (port, name) in KUBELET_PORTS.into_iter().zip(PORTS) {
        let listens = recovery.kubelet_listens.iter().find(|it| it.port == port);
        known.extend(listens.map(|it| Milestone { name, mark: TimedSource::hooked(it.at), pod: None }));
    }
    known.sort_by_key(|it| it.mark.at);
    known
}

/// A time of the wall clock, to the second.
#[must_use]
pub(crate) fn wall(ns: i64) -> String {
    let text = Rfc3339(i128::from(ns)).to_string();
    text.get(..19).map_or_else(|| text.clone(), |seconds| seconds.replace('T', " "))
}

/// The marks after the name of a row with unusual times.
#[must_use]
pub(crate) fn signs(report: &RecoveryReport) -> String {
    let is_from_kernel = matches!(report.zero, Zero::Kernel(_));
    let signs =
        [(is_from_kernel, "*"), (report.recovered == Recovered::Listening, "+"), (has_missed(report), "!")];
    let signs: String = signs.into_iter().filter_map(|(is_so, sign)| is_so.then_some(sign)).collect();
    if signs.is_empty() { signs } else { format!(" {signs}") }
}

/// Whether the recovery took longer than it may.
#[must_use]
pub(crate) fn has_missed(report: &RecoveryReport) -> bool {
    report.target.is_some_and(|target| target.outcome == Outcome::Missed)
}

/// Describes by how much the recovery missed its target, if it did.
#[must_use]
pub(crate) fn missed(report: &RecoveryReport) -> Option<String> {
    if !has_missed(report) {
        return None;
    }
    let target = report.target?;
    Some(format!("missed the target of {} by {}", span(target.span), seconds(target.over?)))
}

/// The name of the mean, if it is one of several.
#[must_use]
pub(crate) fn mean_name(mean: &Average) -> String {
    let sign = if mean.recovered == Recovered::Listening { " +" } else { "" };
    format!("Avg of {}{sign}", mean.boots)
}

/// The time of the boot, to the second.
#[must_use]
pub(crate) fn began(recovery: &Recovery) -> String {
    recovery.boot.as_ref().map_or_else(|| "unknown".to_owned(), |boot| wall(boot.boot_wall_ns))
}

#[must_use]
pub(crate) fn name(pod: &Pod) -> String {
    match (&pod.namespace, &pod.name, &pod.uid) {
        (Some(namespace), Some(name), _) => format!("{namespace}/{name}"),
        (None, Some(name), _) => name.clone(),
        (_, None, Some(uid)) => uid.to_string(),
        (_, None, None) => "a pod".to_owned(),
    }
}

#[must_use]
pub(crate) fn source(source: Source) -> &'static str {
    match source {
        Source::Boot => "the clock's zero",
        Source::Hook => "a hook",
        Source::ProcStart => "/proc start time",
        Source::FileTime => "a file's date",
        Source::Journal => "the journal",
        Source::Wtmp => "wtmp",
        Source::Cri => "CRI",
    }
}

/// How exactly a time from this source is known.
#[must_use]
pub(crate) fn precision(source: Source) -> &'static str {
    match source {
        Source::Boot | Source::Hook => "exact",
        Source::ProcStart => "10 ms, or later",
        Source::FileTime => "10 ms, or earlier",
        Source::Journal => "1 ms",
        Source::Wtmp => "1 s, or earlier",
        Source::Cri => "1 s, or later",
    }
}

/// How exactly a time is known, and from which source.
#[must_use]
pub(crate) fn known(by: Source) -> String {
    format!("{}, from {}", precision(by), source(by))
}

/// Why a boot's record is incomplete, a word each.
#[must_use]
pub(crate) fn marks(report: &RecoveryReport) -> Vec<&'static str> {
    let is_from_kernel = matches!(report.zero, Zero::Kernel(_));
    let marks = [
        (is_from_kernel, "order not known"),
        (!report.is_closed(), "not complete"),
        (report.is_late, "late"),
        (has_missed(report), "target missed"),
        (!report.less_network.is_empty(), "less network"),
    ];
    marks.into_iter().filter_map(|(is_so, mark)| is_so.then_some(mark)).collect()
}

/// Seconds with three decimals.
#[must_use]
pub(crate) fn seconds(ns: i64) -> String {
    let millis = rounded_ms(ns);
    let sign = if millis < 0 { "-" } else { "" };
    let millis = millis.unsigned_abs();
    format!("{sign}{}.{:03} s", millis / 1000, millis % 1000)
}

/// Seconds with two decimals, for the periods of the table.
#[must_use]
pub(crate) fn hundredths(ns: i64) -> String {
    let hundredths = ns.saturating_add(5_000_000).div_euclid(10_000_000);
    let sign = if hundredths < 0 { "-" } else { "" };
    let hundredths = hundredths.unsigned_abs();
    format!("{sign}{}.{:02}", hundredths / 100, hundredths % 100)
}

/// The role of a pod on the node, and how it is known.
#[must_use]
pub(crate) fn kind(pod: &Pod) -> String {
    let kind = kind_name(pod.kind);
    let by = match pod.kind_by() {
        "uid" => "by its UID",
        "namespace" => "by its namespace",
        other => other,
    };
    format!("{kind}, {by}")
}

#[must_use]
pub(crate) fn span(span: Duration) -> String {
    seconds(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX))
}

/// Rounds to the nearest millisecond.
#[must_use]
pub(crate) fn rounded_ms(ns: i64) -> i64 {
    ns.saturating_add(500_000).div_euclid(1_000_000)
}

/// The zero of the columns, and why.
#[must_use]
pub(crate) fn zero(zero: &Zero, boot: Option<&BootRead>) -> String {
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

/// Describes the boots between this one and the last that was seen.
#[must_use]
pub(crate) fn unseen(recovery: &Recovery) -> Option<String> {
    let Unseen { boots, source: by, .. } = recovery.boot.as_ref()?.before.unseen?;
    let were = if boots == 1 { "was" } else { "were" };
    let boots = counted(boots.into(), "boot");
    Some(format!(
        "at least {boots} between the last one that was seen and this one {were} not seen, by {}",
        source(by)
    ))
}

#[must_use]
pub(crate) fn not_seen(unseen: Unseen) -> String {
    format!("{} not seen", counted(unseen.boots.into(), "boot"))
}

/// Whether the recovery is complete.
#[must_use]
pub(crate) fn close(close: &Close) -> String {
    match close {
        Close::All { pods } => format!("all {pods} service pods of before are back"),
        Close::Quiet { quiet, missing: None } => format!(
            "the last one by {} s without another: which pods were there before is not known",
            quiet.as_secs()
        ),
        Close::Quiet { quiet, missing: Some(missing) } if missing.is_empty() => {
            format!("the last one by {} s without another: no service pod was there before", quiet.as_secs())
        }
        Close::Quiet { quiet, missing: Some(missing) } => {
            format!("the last one by {} s without another; not back: {}", quiet.as_secs(), names(missing))
        }
        Close::Open { back, missing } => match (back, missing.as_deref()) {
            (0, None) => "no service pod is back yet".to_owned(),
            (0, Some([])) => "no service pod was there before, and none has come yet".to_owned(),
            (back, None | Some([])) => format!("{back} service pods are back, more may come"),
            (back, Some(missing)) => format!("{back} service pods are back, not yet: {}", names(missing)),
        },
    }
}

/// How many names are listed.
const MAX_NAMED: usize = 5;

/// The first names, and how many more there are.
#[must_use]
pub(crate) fn names(pods: &[Pod]) -> String {
    let names = pods.iter().take(MAX_NAMED).map(name).collect::<Vec<_>>().join(", ");
    names + &more(pods.len())
}

/// How many of a list are not named.
fn more(all: usize) -> String {
    let more = all.checked_sub(MAX_NAMED).filter(|more| *more > 0);
    more.map(|more| format!(" and {more} more")).unwrap_or_default()
}

/// The time that the network cost before its first success, if any, or if it was not watched.
#[must_use]
pub(crate) fn network(report: &RecoveryReport) -> Option<String> {
    let cni = &report.cni;
    let until = if cni.first.is_some() { "before the first success" } else { "and has not succeeded yet" };
    let by = cni.plugin.as_ref().map(|plugin| format!(" ({plugin})")).unwrap_or_default();
    let counts = [("failed", cni.failed), ("hung", cni.hung)];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let what: Vec<_> = counts.map(|(what, count)| format!("{what} {count} times")).collect();
    let seen = (!what.is_empty())
        .then(|| format!("CNI: ADD {} {until}{by}: {} lost", what.join(" and "), span(cni.lost)));
    let Some(since) = cni.unseen_until else { return seen };
    let before = format!("before the agent began to look {} after the boot", after(since));
    Some(match seen {
        Some(seen) => format!("{seen}; what failed {before} was not seen"),
        None => format!("CNI: what failed, and the time that was lost by it, was not seen {before}"),
    })
}

/// The time that was lost because the kubelet had not read the Services yet.
fn services_unread(recovery: &Recovery) -> Option<String> {
    let ServicesUnread { containers, span: waited } = recovery.services_unread?;
    Some(format!(
        "the kubelet had not read the Services from the API server: {} could not be made at first, {} lost",
        counted(containers.into(), "container"),
        span(waited.ended.since(waited.began))
    ))
}

/// Notes about a boot besides its numbers, a sentence each.
#[must_use]
pub(crate) fn notes(boot: &NodeBoot<'_>) -> Vec<String> {
    let NodeBoot { recovery, report, .. } = *boot;
    let mut lines = vec![zero(&report.zero, recovery.boot.as_ref())];
    lines.extend(unseen(recovery));
    lines.extend(network(report));
    lines.extend(services_unread(recovery));
    lines.push(close(&report.close));
    lines.extend(missed(report));
    lines.extend(less_network(&report.less_network));
    lines.extend(kind_of_boot(recovery));
    lines.extend(restart::since_boot(recovery));
    lines.extend(cut(recovery));
    if report.recovered == Recovered::Listening {
        let by_start = (!report.by_start.is_empty())
            .then(|| format!("; by their start, since they do not: {}", names(&report.by_start)));
        lines.push(format!("pods are back when they first listen{}", by_start.unwrap_or_default()));
    }
    if report.is_late {
        let since = recovery.watched_since.unwrap_or_default();
        lines.push(format!(
            "the agent began to look {} after the boot: what was before is known from files, if at all",
            after(since)
        ));
    }
    lines
}

/// The pods that came back with less network than they had.
fn less_network(less: &[LessNetwork]) -> Option<String> {
    if less.is_empty() {
        return None;
    }
    let named = less.iter().take(MAX_NAMED);
    let named = named.map(|it| format!("{} (without {})", name(&it.pod), it.missing.join(", ")));
    let named = named.collect::<Vec<_>>().join(", ");
    Some(format!("came back with less network than before: {named}{}", more(less.len())))
}

/// The programs and labels by which boots can be compared, if any are known.
fn kind_of_boot(recovery: &Recovery) -> Option<String> {
    let programs = [&recovery.runtime_program, &recovery.kubelet_program];
    let programs = programs.into_iter().flatten().cloned();
    let labels = recovery.boot.iter().flat_map(|boot| &boot.labels);
    let all: Vec<String> = programs.chain(labels.map(|(key, value)| format!("{key}={value}"))).collect();
    (!all.is_empty()).then(|| format!("with {}", all.join(", ")))
}

#[must_use]
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Static => "static",
        Kind::System => "system",
        Kind::Service => "service",
    }
}

/// Describes what was dropped for lack of room, if anything.
#[must_use]
pub(crate) fn cut(recovery: &Recovery) -> Option<String> {
    let Recovery { pods_left_out: pods, tries_left_out: calls, .. } = recovery;
    let before = recovery.boot.as_ref().map_or(0, |boot| boot.before.pods_left_out);
    let before = (before > 0).then(|| format!("at least {before} more pods were there before the restart"));
    let pods = (*pods > 0).then(|| format!("at least {pods} more pods were back"));
    let calls = (*calls > 0).then(|| format!("{calls} CNI calls for more sandboxes were made"));
    let what = before.into_iter().chain(pods).chain(calls).collect::<Vec<_>>().join(" and ");
    (!what.is_empty()).then(|| {
        format!("truncated: {what} than are kept of one boot: times and counts are of those that are kept")
    })
}

/// The time since the kernel's start.
#[must_use]
pub(crate) fn after(at: Timestamp) -> String {
    seconds(i64::try_from(at.0).unwrap_or(i64::MAX))
}
