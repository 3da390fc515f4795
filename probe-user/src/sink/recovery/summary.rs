//! The words for several boots together: the rows below those of the boots, and which boots count in them.

use super::{began, mean_name, numbers, signs, span};
use crate::{
    engine::boot::{
        average::{Average, average},
        column::COLUMNS,
        comparable::{Counted, counted},
        group::{Difference, Group, groups},
        inexact::Inexact,
        report::RecoveryReport,
        spread::{Rank, spread},
        target::{Outcome, Target},
    },
    model::recovery::{Grouping, Recovery},
};

/// A boot that does not count, or whose numbers do not all count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeftOut<'a> {
    pub(crate) recovery: &'a Recovery,
    pub(crate) report: &'a RecoveryReport,
    pub(crate) counted: Counted,
}

/// The rows below the boots, each with its name: for each group, or for all boots.
#[must_use]
pub(crate) fn rows<'a>(
    boots: impl Iterator<Item = (&'a Recovery, &'a RecoveryReport)> + Clone,
    grouping: Option<&Grouping>,
) -> Vec<(String, Vec<String>)> {
    match grouping {
        Some(grouping) => of_groups(boots, grouping),
        None => of_all(boots.map(|(_, report)| report)),
    }
}

/// The mean, its differences, and the percentiles. No rows for fewer than two boots.
fn of_all<'a>(reports: impl Iterator<Item = &'a RecoveryReport> + Clone) -> Vec<(String, Vec<String>)> {
    let mean = average(reports.clone());
    if mean.boots < 2 {
        return Vec::new();
    }
    let ranks = spread(reports)
        .into_iter()
        .map(|it| (rank(it.rank).to_owned(), numbers(&it.columns, &it.periods, it.whole, it.inexact)));
    let Average { columns, differences, whole, inexact, .. } = &mean;
    let of_differences = Inexact { columns: inexact.periods, ..Inexact::default() };
    let nothing = [None; COLUMNS];
    let mean = [
        (mean_name(&mean), numbers(columns, differences, *whole, *inexact)),
        ("Diff".to_owned(), numbers(differences, &nothing, None, of_differences)),
    ];
    mean.into_iter().chain(ranks).collect()
}

/// The mean of each group, and its difference from the mean of the first group.
fn of_groups<'a>(
    boots: impl Iterator<Item = (&'a Recovery, &'a RecoveryReport)> + Clone,
    grouping: &Grouping,
) -> Vec<(String, Vec<String>)> {
    let groups = groups(boots.map(|(recovery, report)| (grouping.of(recovery), report)));
    let first = groups.first().map(|group| group_name(group)).unwrap_or_default();
    let rows = groups.iter().flat_map(|group| {
        let Average { columns, differences, whole, inexact, .. } = &group.average;
        let name = format!("{}: {}", group_name(group), mean_name(&group.average));
        let mean = (name, numbers(columns, differences, *whole, *inexact));
        let less = group.difference.as_ref().map(|Difference { columns, periods, whole, inexact }| {
            let name = format!("{}: less {first}", group_name(group));
            (name, numbers(columns, periods, *whole, *inexact))
        });
        [mean].into_iter().chain(less)
    });
    rows.collect()
}

/// The name of a group.
#[must_use]
pub(crate) fn group_name<'a>(group: &Group<'a>) -> &'a str {
    group.name.unwrap_or("none")
}

/// The boots whose numbers do not all count.
#[must_use]
pub(crate) fn left_out<'a>(
    boots: impl Iterator<Item = (&'a Recovery, &'a RecoveryReport)> + Clone,
) -> Vec<LeftOut<'a>> {
    let all = counted(boots.clone().map(|(_, report)| report));
    let each = boots.zip(all).map(|((recovery, report), counted)| LeftOut { recovery, report, counted });
    each.filter(|it| it.counted != Counted::Whole).collect()
}

/// How many boots met their targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
pub(crate) fn notes<'a>(
    boots: impl Iterator<Item = (&'a Recovery, &'a RecoveryReport)> + Clone,
) -> Vec<String> {
    let targets = targets(boots.clone().map(|(_, report)| report));
    composition(boots).into_iter().chain(targets).collect()
}

fn composition<'a>(boots: impl Iterator<Item = (&'a Recovery, &'a RecoveryReport)> + Clone) -> Vec<String> {
    let all = boots.clone().count();
    if all < 2 {
        return Vec::new();
    }
    let left_out = left_out(boots);
    let out = listed(&left_out, false);
    let in_part = listed(&left_out, true);
    let boots = all - left_out.iter().filter(|it| !it.counted.is_in()).count();
    let out = if out.is_empty() { String::new() } else { format!("; without {out}") };
    let last = (!in_part.is_empty())
        .then(|| format!("their last service pod and whole are without those of {in_part}"));
    [format!("the rows below the boots are of {boots} of {all} boots{out}")].into_iter().chain(last).collect()
}

/// Lists the boots that count in part (`is_in`), or those that do not count, and why.
fn listed(left_out: &[LeftOut<'_>], is_in: bool) -> String {
    let these = left_out.iter().filter(|it| it.counted.is_in() == is_in);
    let names = these.map(|it| format!("{} ({})", name(it.recovery, it.report), why(it.counted)));
    names.collect::<Vec<_>>().join(", ")
}

/// The name of a boot: when it began, and what is unusual about its times.
#[must_use]
pub(crate) fn name(recovery: &Recovery, report: &RecoveryReport) -> String {
    began(recovery) + &signs(report)
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
