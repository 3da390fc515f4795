//! Groups boots by name: the means of each group, and how they differ from those of the first group.
//!
//! **Invariant:** all means are over boots that are comparable with each other.

use super::{
    average::Average,
    comparable::{self, counted},
    numbers::Numbers,
    report::RecoveryReport,
};

/// The boots that share a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// None: the boots without a name.
    pub name: Option<&'a str>,
    pub average: Average,
    /// The means less those of the first group; none for that one.
    pub difference: Option<Numbers>,
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
        let average = Average::of(recovered, &rows);
        let difference = groups.first().map(|first| average.numbers.less(&first.average.numbers));
        groups.push(Group { name, average, difference });
    }
    groups
}
