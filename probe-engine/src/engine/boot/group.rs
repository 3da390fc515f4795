//! Groups boots by name: the means of each group, and how they differ from those of the first group.
//!
//! **Invariant:** all means are over boots that are comparable with each other.

use super::{
    average::Average,
    column::{COLUMNS, Row},
    comparable::{self, counted},
    inexact::Inexact,
    report::RecoveryReport,
};

/// The boots that share a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// None: the boots without a name.
    pub name: Option<&'a str>,
    pub average: Average,
    /// None for the first group.
    pub difference: Option<Difference>,
}

/// The means of one group less those of another, where both have them; nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub columns: [Option<i64>; COLUMNS],
    pub periods: [Option<i64>; COLUMNS],
    pub whole: Option<i64>,
    pub inexact: Inexact,
}

/// Returns the groups in the order in which their names first appear, without groups in which no boot counts
/// ([`counted`]).
#[must_use]
pub fn groups<'a>(
    boots: impl Iterator<Item = (Option<&'a str>, &'a RecoveryReport)> + Clone,
) -> Vec<Group<'a>> {
    let recovered = boots.clone().last().map(|(_, report)| report.recovered).unwrap_or_default();
    let all = counted(boots.clone().map(|(_, report)| report));
    let mut rows: Vec<(Option<&str>, Vec<_>)> = Vec::new();
    for ((name, report), counted) in boots.zip(all) {
        let Some(row) = comparable::row(report, counted) else { continue };
        match rows.iter_mut().find(|(known, _)| *known == name) {
            Some((_, own)) => own.push(row),
            None => rows.push((name, vec![row])),
        }
    }
    let mut groups: Vec<Group<'a>> = Vec::new();
    for (name, rows) in rows {
        let average = Average::of(recovered, rows);
        let difference = groups.first().map(|first| Difference::of(&average, &first.average));
        groups.push(Group { name, average, difference });
    }
    groups
}

impl Difference {
    fn of(one: &Average, other: &Average) -> Self {
        let columns = less(&one.columns, &other.columns);
        let periods = less(&one.differences, &other.differences);
        let inexact = one.inexact.or(other.inexact);
        Self { columns, periods, whole: columns[COLUMNS - 1], inexact }
    }
}

fn less(one: &Row, other: &Row) -> Row {
    let mut both = one.iter().zip(other).map(|(one, other)| Some((*one)? - (*other)?));
    std::array::from_fn(|_| both.next().flatten())
}
