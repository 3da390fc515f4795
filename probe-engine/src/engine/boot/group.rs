//! Boots in groups: the mean of each, and how it differs from that of the first one.
//!
//! **Invariant:** all means are of boots that are comparable with each other.

use super::{
    average::Average,
    column::COLUMNS,
    comparable::{self, counted},
    inexact::Inexact,
    report::RecoveryReport,
};

/// The boots that have one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// None: those that have none.
    pub name: Option<&'a str>,
    pub average: Average,
    /// None: it is the first.
    pub difference: Option<Difference>,
}

/// The numbers of a mean less those of another, where both have them; nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub columns: [Option<i64>; COLUMNS],
    pub periods: [Option<i64>; COLUMNS],
    pub whole: Option<i64>,
    pub inexact: Inexact,
}

/// In the order in which the names first come. A group of which no boot counts ([`counted`]) is left out.
#[must_use]
pub fn groups<'a>(
    boots: impl Iterator<Item = (Option<&'a str>, &'a RecoveryReport)> + Clone,
) -> Vec<Group<'a>> {
    let recovered = boots.clone().last().map(|(_, study)| study.recovered).unwrap_or_default();
    let all = counted(boots.clone().map(|(_, study)| study));
    let mut rows: Vec<(Option<&str>, Vec<_>)> = Vec::new();
    for ((name, study), counted) in boots.zip(all) {
        let Some(row) = comparable::row(study, counted) else { continue };
        match rows.iter_mut().find(|(known, _)| *known == name) {
            Some((_, own)) => own.push(row),
            None => rows.push((name, vec![row])),
        }
    }
    let averages: Vec<_> =
        rows.into_iter().map(|(name, rows)| (name, Average::of(recovered, rows))).collect();
    let first = averages.first().map(|(_, average)| average.clone());
    let others = averages.into_iter().enumerate();
    let of = |(n, (name, average)): (usize, (_, Average))| {
        let difference = first.as_ref().filter(|_| n > 0).map(|first| Difference::of(&average, first));
        Group { name, average, difference }
    };
    others.map(of).collect()
}

impl Difference {
    fn of(one: &Average, other: &Average) -> Self {
        let less = |one: &[Option<i64>; COLUMNS], other: &[Option<i64>; COLUMNS]| {
            let mut both = one.iter().zip(other).map(|(one, other)| Some((*one)? - (*other)?));
            std::array::from_fn(|_| both.next().flatten())
        };
        let columns = less(&one.columns, &other.columns);
        let periods = less(&one.differences, &other.differences);
        let inexact = one.inexact.or(other.inexact);
        Self { columns, periods, whole: columns[COLUMNS - 1], inexact }
    }
}
