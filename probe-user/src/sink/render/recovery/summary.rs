//! The words for several boots together: the rows below those of the boots, and which boots count in them.

use schemars::JsonSchema;
use serde::Serialize;

use super::{began, hundredths, mean_name, not_seen, rounded_ms, signs, span};
use crate::{
    engine::boot::{
        average::{Average, average},
        comparable::{Counted, counted},
        group::{Group, groups},
        numbers::{Number, Numbers},
        report::{NodeBoot, RecoveryReport},
        spread::{Rank, spread},
        target::{Outcome, Target},
    },
    model::recovery::Grouping,
};

/// A row of the table of boots, or of the table of restarts of daemons.
#[derive(Clone, Debug)]
pub(crate) struct TableRow {
    pub(crate) name: String,
    /// The kernel of the boot, or the program of the daemon.
    pub(crate) about: String,
    /// Columns in milliseconds, periods and the whole in seconds. Inexact ones have a mark.
    pub(crate) numbers: Vec<String>,
}

impl TableRow {
    pub(super) fn new(name: String, numbers: &Numbers) -> Self {
        let columns = numbers.columns.map(|number| cell(number, |ns| rounded_ms(ns).to_string()));
        let periods = numbers.periods.map(|number| cell(number, hundredths));
        let whole = cell(numbers.whole(), hundredths);
        let numbers = columns.into_iter().chain(periods).chain([whole]).collect();
        Self { name, about: String::new(), numbers }
    }
}

fn cell(number: Option<Number>, form: fn(i64) -> String) -> String {
    let Some(Number { ns, is_inexact }) = number else { return "-".to_owned() };
    let mark = if is_inexact { "~" } else { "" };
    format!("{mark}{}", form(ns))
}

/// A row for each boot, with one above it if boots before it were not seen; then the rows of each group, or
/// of all boots.
#[must_use]
pub(crate) fn table(boots: &[NodeBoot<'_>], grouping: Option<&Grouping>) -> Vec<TableRow> {
    let mut rows = Vec::new();
    for it in boots {
        let boot = it.recovery.boot.as_ref();
        let unseen = boot.and_then(|boot| boot.before.unseen);
        rows.extend(unseen.map(|unseen| TableRow::new(not_seen(unseen), &Numbers::default())));
        let about = boot.map(|boot| boot.kernel.clone()).unwrap_or_default();
        rows.push(TableRow { about, ..TableRow::new(name(it), &it.report.numbers) });
    }
    rows.extend(match grouping {
        Some(grouping) => of_groups(boots, grouping),
        None => of_all(boots),
    });
    rows
}

/// The mean, its differences, and the percentiles.
fn of_all(boots: &[NodeBoot<'_>]) -> Vec<TableRow> {
    let mean = average(reports(boots));
    let mut rows = together("", &mean, &spread(reports(boots)));
    if !rows.is_empty() {
        let numbers = Numbers { columns: mean.numbers.periods, ..Numbers::default() };
        let mut differences = TableRow::new("Diff".to_owned(), &numbers);
        // They do not add up to a whole.
        differences.numbers.pop();
        differences.numbers.push("-".to_owned());
        rows.insert(1, differences);
    }
    rows
}

/// The mean and the percentiles. No rows for fewer than two boots or restarts.
pub(super) fn together(prefix: &str, mean: &Average, spread: &[(Rank, Numbers)]) -> Vec<TableRow> {
    if mean.boots < 2 {
        return Vec::new();
    }
    let mean = TableRow::new(format!("{prefix}{}", mean_name(mean)), &mean.numbers);
    let ranks = spread.iter().map(|(at, numbers)| TableRow::new(format!("{prefix}{}", rank(*at)), numbers));
    [mean].into_iter().chain(ranks).collect()
}

/// The mean of each group, and its difference from the mean of the first group.
fn of_groups(boots: &[NodeBoot<'_>], grouping: &Grouping) -> Vec<TableRow> {
    let groups = groups(boots.iter().map(|it| (grouping.of(it.recovery), it.report)));
    let first = groups.first().map(group_name).unwrap_or_default();
    let rows = groups.iter().flat_map(|group| {
        let name = group_name(group);
        let mean = TableRow::new(format!("{name}: {}", mean_name(&group.average)), &group.average.numbers);
        let less = group.difference.map(|less| TableRow::new(format!("{name}: less {first}"), &less));
        [mean].into_iter().chain(less)
    });
    rows.collect()
}

/// The name of a group.
#[must_use]
pub(crate) fn group_name<'a>(group: &Group<'a>) -> &'a str {
    group.name.unwrap_or("none")
}

pub(crate) fn reports<'a>(boots: &[NodeBoot<'a>]) -> impl Iterator<Item = &'a RecoveryReport> + Clone {
    boots.iter().map(|it| it.report)
}

/// The boots whose numbers do not all count.
#[must_use]
pub(crate) fn left_out<'a>(boots: &[NodeBoot<'a>]) -> Vec<(NodeBoot<'a>, Counted)> {
    let each = boots.iter().copied().zip(counted(reports(boots)));
    each.filter(|(_, counted)| *counted != Counted::Whole).collect()
}

/// How many boots met their targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "BootTargets")]
pub(crate) struct Targets {
    pub(crate) met: usize,
    pub(crate) missed: usize,
    /// Boots that are not complete, and boots whose order is not known.
    pub(crate) not_known: usize,
}

impl Targets {
    #[must_use]
    pub(crate) fn of<'a>(reports: impl Iterator<Item = &'a RecoveryReport>) -> Self {
        let mut targets = Self::default();
        for target in reports.filter_map(|report| report.target) {
            match target.outcome {
                Outcome::Met => targets.met += 1,
                Outcome::Missed => targets.missed += 1,
                Outcome::NotComplete | Outcome::OrderUnknown => targets.not_known += 1,
            }
        }
        targets
    }
}

/// How many boots met their targets, in words, if any has one.
fn targets<'a>(reports: impl Iterator<Item = &'a RecoveryReport> + Clone) -> Option<String> {
    let mut all = reports.clone().filter_map(|report| report.target);
    let first = all.next()?;
    let is_one = all.all(|Target { span, .. }| span == first.span);
    let target =
        if is_one { format!("the target of {}", span(first.span)) } else { "their targets".to_owned() };
    let Targets { met, missed, not_known } = Targets::of(reports);
    let boots = met + missed + not_known;
    let noun = if boots == 1 { "boot" } else { "boots" };
    let unknown = if not_known > 0 { format!(", not known of {not_known}") } else { String::new() };
    Some(format!("{met} of {boots} {noun} met {target}, {missed} missed it{unknown}"))
}

/// How many boots the rows count, which are left out and why, and how many met the target.
#[must_use]
pub(crate) fn notes(boots: &[NodeBoot<'_>]) -> Vec<String> {
    composition(boots).into_iter().chain(targets(reports(boots))).collect()
}

fn composition(boots: &[NodeBoot<'_>]) -> Vec<String> {
    let all = boots.len();
    if all < 2 {
        return Vec::new();
    }
    let left_out = left_out(boots);
    let out = listed(&left_out, false);
    let in_part = listed(&left_out, true);
    let boots = all - left_out.iter().filter(|(_, counted)| !counted.is_in()).count();
    let out = if out.is_empty() { String::new() } else { format!("; without {out}") };
    let last = (!in_part.is_empty())
        .then(|| format!("their last service pod and whole are without those of {in_part}"));
    [format!("the rows below the boots are of {boots} of {all} boots{out}")].into_iter().chain(last).collect()
}

/// Lists the boots that count in part (`is_in`), or those that do not count, and why.
fn listed(left_out: &[(NodeBoot<'_>, Counted)], is_in: bool) -> String {
    let these = left_out.iter().filter(|(_, counted)| counted.is_in() == is_in);
    let names = these.map(|(boot, counted)| format!("{} ({})", name(boot), why(*counted)));
    names.collect::<Vec<_>>().join(", ")
}

/// The name of a boot: when it began, and what is unusual about its times.
#[must_use]
pub(crate) fn name(boot: &NodeBoot<'_>) -> String {
    began(boot.recovery) + &signs(boot.report)
}

#[must_use]
pub(crate) fn why(counted: Counted) -> &'static str {
    match counted {
        Counted::Whole => "all counts",
        Counted::NotComplete => "not complete",
        Counted::Truncated => "not all pods were kept",
        Counted::OtherRule => "its pods are back by another rule",
        Counted::OrderUnknown => "order not known",
    }
}

#[must_use]
pub(crate) fn rank(rank: Rank) -> &'static str {
    match rank {
        Rank::Min => "Min",
        Rank::P50 => "p50",
        Rank::P90 => "p90",
        Rank::Max => "Max",
    }
}
