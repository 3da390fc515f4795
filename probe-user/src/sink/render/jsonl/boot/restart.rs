//! Restarts of a runtime or of the kubelet alone, and their statistics by program (docs/boot.md).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::{
    LessNetworkLine,
    numbers::{self, NumbersLine, Periods},
};
use crate::{
    engine::boot::{
        numbers::{COLUMNS, Row},
        report::NodeBoot,
        restart::{RestartStatistics, numbers as numbers_of, statistics},
        spread::Rank,
    },
    model::{
        change::Process,
        recovery::{Calls, Daemon, DaemonEnd, HeldPod, Restart, RestartClose},
    },
    sink::render::{
        jsonl::scalar::{Decimal, is_default},
        recovery::{
            self,
            restart::{self, Placed},
            summary,
        },
    },
    words::count::counted,
};

/// The members of `columns`, in their order.
const COLUMN_NAMES: [&str; COLUMNS] = ["started_ns", "ready_ns", "first_pod_ns", "as_before_ns"];

/// One restart of a runtime or of the kubelet, while the node ran on (docs/boot.md).
#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Restart")]
pub struct RestartLine<'a> {
    node: &'a str,
    boot_id: &'a str,
    daemon: Daemon,
    /// The name of the daemon's program.
    program: &'a str,
    /// The program that ended and the one that runs since, each with its version.
    was: &'a str,
    is: Option<&'a str>,
    /// When the process that ended had begun, since boot. It identifies the restart.
    ran_since_boot_ns: Decimal<u64>,
    /// When the restart began. The other times count from here.
    wall_ns: Option<Decimal<i64>>,
    boot_ns: Decimal<u64>,
    /// How the process ended. Absent: its end was not seen, and times count from the start of the new one.
    end: Option<EndLine<'a>>,
    /// How many processes began and ended again, and how the last of them ended.
    #[serde(skip_serializing_if = "is_default")]
    again: u32,
    end_again: Option<EndLine<'a>>,
    columns: RestartColumns,
    periods: Periods,
    whole_ns: Option<Decimal<i64>>,
    /// The columns and periods whose times are not those of events.
    inexact: Vec<&'static str>,
    /// Why the restart is over; absent: it goes on.
    close: Option<RestartClose>,
    /// When the restart was found to be over, since boot.
    closed_boot_ns: Option<Decimal<u64>>,
    /// The pod of `columns.first_pod_ns`.
    first_pod: Option<String>,
    /// The pods that waited, in the order in which they began to wait.
    pods: Vec<HeldLine>,
    /// At least this many more pods waited, for which there was no room.
    #[serde(skip_serializing_if = "is_default")]
    pods_left_out: u32,
    calls: Calls,
    /// Pods that had more interfaces before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    less_network: Vec<LessNetworkLine<'a>>,
    /// The name of the restart: when it began.
    title: String,
    /// Why the restart is not whole, in words for people.
    marks: Vec<&'static str>,
    /// Notes beside the numbers, a sentence each, in words for people.
    notes: Vec<String>,
}

/// How a daemon's process ended.
#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RestartEnd")]
struct EndLine<'a> {
    /// Time since boot.
    boot_ns: Decimal<u64>,
    /// The exit code, or 128 and the number of the signal that ended it.
    code: u32,
    signal: Option<u32>,
    /// Who sent that signal.
    killer: Option<SenderLine<'a>>,
    /// The OOM killer chose the process.
    oom: bool,
    /// The last terminating signal that was sent to the process, which it may have caught, and its sender.
    told_signal: Option<u32>,
    told_by: Option<SenderLine<'a>>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RestartSender")]
struct SenderLine<'a> {
    comm: &'a str,
    pid: u32,
}

#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
struct RestartColumns {
    started_ns: Option<Decimal<i64>>,
    ready_ns: Option<Decimal<i64>>,
    first_pod_ns: Option<Decimal<i64>>,
    as_before_ns: Option<Decimal<i64>>,
}

/// A pod that waited.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RestartPod")]
struct HeldLine {
    pod: String,
    /// The pod got another sandbox, although nothing was wrong with the old one.
    replaced: bool,
    /// When the pod began to wait, since boot.
    since_boot_ns: Decimal<u64>,
    /// Time until the pod's next container started; absent: none has started.
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ns: Option<Decimal<u128>>,
}

/// The restarts of one program together. Each number is computed from the restarts that have it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RestartStatistics")]
pub struct RestartStatisticsLine<'a> {
    program: &'a str,
    /// The number of restarts that count.
    restarts: usize,
    /// The number of all restarts.
    all: usize,
    /// The number of older restarts, which are not kept.
    #[serde(skip_serializing_if = "is_default")]
    left_out: u64,
    average: NumbersLine<RestartColumns>,
    ranks: Vec<RestartRank>,
    /// Which restarts do not count, in words for people.
    notes: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct RestartRank {
    rank: Rank,
    #[serde(flatten)]
    numbers: NumbersLine<RestartColumns>,
}

impl<'a> RestartLine<'a> {
    #[must_use]
    pub(crate) fn of(placed: &Placed<'a>) -> Self {
        let Placed { boot: NodeBoot { node, recovery, .. }, restart } = *placed;
        let numbers = numbers_of(restart);
        Self {
            node,
            boot_id: recovery.boot.as_ref().map(|boot| boot.boot_id.as_str()).unwrap_or_default(),
            daemon: restart.daemon,
            program: &restart.comm,
            was: &restart.was,
            is: restart.is.as_deref(),
            ran_since_boot_ns: Decimal(restart.ran_since.0),
            wall_ns: placed.wall_ns().map(Decimal),
            boot_ns: Decimal(restart.zero().0),
            end: restart.ended.as_ref().map(EndLine::of),
            again: restart.again,
            end_again: restart.ended_again.as_ref().map(EndLine::of),
            columns: numbers.columns.into(),
            periods: Periods::of(numbers.periods),
            whole_ns: numbers::whole(&numbers),
            inexact: numbers::inexact(COLUMN_NAMES, &numbers),
            close: restart.close,
            closed_boot_ns: restart.closed_at.map(|at| Decimal(at.0)),
            first_pod: restart.first_pod.as_ref().map(|first| recovery::name(&first.pod)),
            pods: restart.held.iter().map(HeldLine::of).collect(),
            pods_left_out: restart.held_left_out,
            calls: restart.calls,
            less_network: LessNetworkLine::all(&restart.less_network),
            title: placed.title(),
            marks: restart::marks(restart),
            notes: restart::notes(restart),
        }
    }
}

impl<'a> EndLine<'a> {
    fn of(DaemonEnd { at, end, told }: &'a DaemonEnd) -> Self {
        Self {
            boot_ns: Decimal(at.0),
            code: end.code,
            signal: end.signal,
            killer: end.killer.as_ref().map(SenderLine::of),
            oom: end.oom,
            told_signal: told.as_ref().map(|told| told.signal),
            told_by: told.as_ref().map(|told| SenderLine::of(&told.by)),
        }
    }
}

impl<'a> SenderLine<'a> {
    fn of(process: &'a Process) -> Self {
        Self { comm: &process.comm, pid: process.key.pid }
    }
}

impl From<Row> for RestartColumns {
    fn from(columns: Row) -> Self {
        let [started_ns, ready_ns, first_pod_ns, as_before_ns] = columns.map(numbers::decimal);
        Self { started_ns, ready_ns, first_pod_ns, as_before_ns }
    }
}

impl HeldLine {
    fn of(held: &HeldPod) -> Self {
        Self {
            pod: recovery::name(&held.pod),
            replaced: held.replaced,
            since_boot_ns: Decimal(held.since.0),
            waited_ns: held.until.map(|until| Decimal(until.since(held.since).as_nanos())),
        }
    }
}

impl<'a> RestartStatisticsLine<'a> {
    /// Returns a line for each program. `left_out`: how many more restarts each program had.
    pub(super) fn all(restarts: &[Placed<'a>], left_out: &BTreeMap<&'a str, u64>) -> Vec<Self> {
        let all: Vec<&'a Restart> = restarts.iter().map(|it| it.restart).collect();
        let mut all = statistics(all.into_iter());
        let none_kept: Vec<&'a str> =
            left_out.keys().filter(|comm| !all.iter().any(|it| it.comm == **comm)).copied().collect();
        all.extend(none_kept.into_iter().map(|comm| RestartStatistics::of(comm, &[])));
        all.into_iter().map(|it| Self::of(left_out.get(it.comm).copied().unwrap_or_default(), it)).collect()
    }

    fn of(left_out: u64, it: RestartStatistics<'a>) -> Self {
        let older = (left_out > 0)
            .then(|| format!("{}: {} before these are not kept", it.comm, counted(left_out, "restart")));
        let notes = restart::composition(&it).into_iter().chain(older).collect();
        let RestartStatistics { comm, all, average, spread } = it;
        let title = recovery::mean_name(&average);
        let ranks = spread.into_iter().map(|(rank, numbers)| RestartRank {
            rank,
            numbers: NumbersLine::new(COLUMN_NAMES, &numbers, summary::rank(rank).to_owned()),
        });
        Self {
            program: comm,
            restarts: average.boots,
            all,
            left_out,
            ranks: ranks.collect(),
            average: NumbersLine::new(COLUMN_NAMES, &average.numbers, title),
            notes,
        }
    }
}
