//! What a restart of only a runtime or the kubelet cost: the numbers of its row, which count from the end of
//! the old process, and statistics over all restarts of a program.

use super::{
    average::Average,
    numbers::Numbers,
    spread::{Spread, of_rows},
};
use crate::model::recovery::{Recovered, Restart, RestartClose, TimedSource};

/// The restarts of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartStatistics<'a> {
    pub comm: &'a str,
    /// The number of restarts, including those that do not count in the average.
    pub all: usize,
    pub average: Average,
    pub spread: Spread,
}

/// Returns the numbers of a restart. If the end of the old process was not seen, they count from the start of
/// the new one.
#[must_use]
pub fn numbers(restart: &Restart) -> Numbers {
    let is_zero_exact = restart.ended.is_some() || restart.started.is_none_or(|mark| mark.source.is_exact());
    let first_pod = restart.first_pod.as_ref().map(|pod| TimedSource::hooked(pod.at));
    let marks = [restart.started, restart.ready(), first_pod, restart.as_before()];
    let zero = i64::try_from(restart.zero().0).unwrap_or(i64::MAX);
    Numbers::of(marks, -zero, is_zero_exact)
}

/// Returns the statistics of each program, in the order of their first restarts.
#[must_use]
pub fn statistics<'a>(restarts: impl Iterator<Item = &'a Restart>) -> Vec<RestartStatistics<'a>> {
    let mut programs: Vec<(&str, Vec<&Restart>)> = Vec::new();
    for restart in restarts {
        match programs.iter_mut().find(|(comm, _)| *comm == restart.comm) {
            Some((_, known)) => known.push(restart),
            None => programs.push((&restart.comm, vec![restart])),
        }
    }
    programs.into_iter().map(|(comm, restarts)| RestartStatistics::of(comm, &restarts)).collect()
}

impl<'a> RestartStatistics<'a> {
    /// A restart counts if its beginning was seen and the node was as before afterwards.
    #[must_use]
    pub fn of(comm: &'a str, restarts: &[&Restart]) -> Self {
        let counting =
            restarts.iter().filter(|it| it.ended.is_some() && it.close == Some(RestartClose::AsBefore));
        let rows: Vec<Numbers> = counting.map(|it| numbers(it)).collect();
        let average = Average::of(Recovered::default(), &rows);
        Self { comm, all: restarts.len(), average, spread: of_rows(&rows) }
    }
}
