//! The eBPF programs' counters of sent and lost records, by ring, kind and CPU; and the kernel's counters of
//! their runs.

use std::{collections::BTreeMap, mem, time::Duration};

use probe_common::tally::{Ring, Tally};

use super::plan::CROWDED;
use crate::model::fact::{Loss, RingsRead};

/// The counters of all CPUs at one time, since the programs were loaded.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    cpus: Vec<Tally>,
    programs: BTreeMap<String, Runs>,
    /// Network namespaces for which the hooks had no room when they replaced others.
    not_handed_over: u64,
}

/// The kernel's counters of one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// The time and the number of runs are zero unless the kernel measures them.
    pub time: Duration,
    pub count: u64,
    /// Runs that the kernel skipped.
    pub skipped: u64,
}

impl Totals {
    #[must_use]
    pub(crate) fn new(cpus: Vec<Tally>, programs: BTreeMap<String, Runs>) -> Self {
        Self { cpus, programs, not_handed_over: 0 }
    }

    #[must_use]
    pub(crate) fn with_not_handed_over(self, not_handed_over: u64) -> Self {
        Self { not_handed_over, ..self }
    }

    /// Returns the counters of each loaded program.
    #[must_use]
    pub fn programs(&self) -> &BTreeMap<String, Runs> {
        &self.programs
    }

    /// Returns how many runs the kernel skipped, except those of [`CROWDED`]. It is unknown which records
    /// they would have sent.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        let programs = self.programs.iter().filter(|(name, _)| *name != CROWDED);
        sum(programs.map(|(_, runs)| &runs.skipped))
    }

    /// Returns the number of skipped runs of each program that has any.
    #[must_use]
    pub(crate) fn skipped_by_program(&self) -> BTreeMap<&str, u64> {
        let skipped = self.programs.iter().map(|(name, runs)| (name.as_str(), runs.skipped));
        skipped.filter(|(_, count)| *count > 0).collect()
    }

    /// Returns how many records were sent, by kind.
    #[must_use]
    pub fn sent(&self, ring: Ring) -> Vec<u64> {
        by_kind(self.cpus.iter().map(|cpu| sent(cpu, ring)))
    }

    /// Returns how many records found no room, by kind.
    #[must_use]
    pub fn lost(&self, ring: Ring) -> Vec<u64> {
        by_kind(self.cpus.iter().map(|cpu| lost(cpu, ring)))
    }

    /// Returns how many records found no room, by CPU.
    #[must_use]
    pub(crate) fn lost_by_cpu(&self, ring: Ring) -> Vec<u64> {
        self.cpus.iter().map(|cpu| sum(lost(cpu, ring))).collect()
    }

    /// Returns the number of CNI calls that are counted but not reported: VERSION, then STATUS.
    #[must_use]
    pub fn cni_not_streamed(&self) -> (u64, u64) {
        (sum(self.cpus.iter().map(|cpu| &cpu.cni_version)), sum(self.cpus.iter().map(|cpu| &cpu.cni_status)))
    }

    /// Returns how many environments were longer than the part that is searched for CNI variables.
    #[must_use]
    pub(crate) fn env_truncated(&self) -> u64 {
        sum(self.cpus.iter().map(|cpu| &cpu.env_truncated))
    }

    /// Returns how many network namespaces there are whose end no hook will see, because there are more than
    /// can be tracked.
    #[must_use]
    pub fn netns_untracked(&self) -> u64 {
        sum(self.cpus.iter().map(|cpu| &cpu.netns_untracked).chain([&self.not_handed_over]))
    }

    /// Returns how many entries found no room in a map of the programs.
    #[must_use]
    pub(crate) fn not_kept(&self) -> u64 {
        sum(self.cpus.iter().map(|cpu| &cpu.not_kept))
    }

    /// Returns how many runs did nothing, because no agent had read for a long time.
    #[must_use]
    pub fn unread(&self) -> u64 {
        sum(self.cpus.iter().map(|cpu| &cpu.unread))
    }

    /// Returns the losses that were not reported yet, and records in `reported` that they are.
    #[must_use]
    pub fn tell_losses(&self, reported: &mut RingsRead) -> Vec<(Loss, u64)> {
        let counters = [
            (Loss::LifecycleRing, &mut reported.lifecycle.lost, sum(&self.lost(Ring::Lifecycle))),
            (Loss::BulkRing, &mut reported.bulk.lost, sum(&self.lost(Ring::Bulk))),
            (Loss::SkippedRun, &mut reported.skipped, self.skipped()),
        ];
        let grown =
            counters.into_iter().map(|(what, last, now)| (what, now.saturating_sub(mem::replace(last, now))));
        grown.filter(|(_, count)| *count > 0).collect()
    }
}

fn sent(cpu: &Tally, ring: Ring) -> &[u64] {
    &of(&cpu.sent, ring)[..]
}

fn lost(cpu: &Tally, ring: Ring) -> &[u64] {
    &of(&cpu.lost, ring)[..]
}

fn of<T>([lifecycle, bulk]: &[T; 2], ring: Ring) -> &T {
    match ring {
        Ring::Lifecycle => lifecycle,
        Ring::Bulk => bulk,
    }
}

fn by_kind<'a>(cpus: impl Iterator<Item = &'a [u64]>) -> Vec<u64> {
    cpus.fold(Vec::new(), |mut totals, kinds| {
        totals.resize(totals.len().max(kinds.len()), 0);
        totals.iter_mut().zip(kinds).for_each(|(total, count)| *total = total.saturating_add(*count));
        totals
    })
}

fn sum<'a>(counts: impl IntoIterator<Item = &'a u64>) -> u64 {
    counts.into_iter().fold(0, |total, count| total.saturating_add(*count))
}

#[cfg(test)]
mod tests {
    use probe_common::{
        event::kind,
        tally::{Ring, Tally},
    };

    use super::{BTreeMap, CROWDED, Loss, RingsRead, Runs, Totals};

    fn cpu(lost_execs: u64, lost_exits: u64) -> Tally {
        let mut tally = Tally::ZERO;
        tally.lost[Ring::Bulk as usize][usize::from(kind::EXEC)] = lost_execs;
        tally.lost[Ring::Lifecycle as usize][usize::from(kind::EXIT)] = lost_exits;
        tally.cni_status = 1;
        tally
    }

    fn skipped(execs: u64) -> BTreeMap<String, Runs> {
        let runs = |skipped| Runs { skipped, ..Runs::default() };
        BTreeMap::from([("exec".to_owned(), runs(execs)), ("exit".to_owned(), runs(0))])
    }

    #[test]
    fn counters_add_up_over_cpus_and_stay_apart_by_ring_and_kind() {
        let totals = Totals::new(vec![cpu(3, 0), cpu(4, 5)], skipped(0));
        assert_eq!(totals.lost(Ring::Bulk)[usize::from(kind::EXEC)], 7);
        assert_eq!(totals.lost(Ring::Lifecycle)[usize::from(kind::EXEC)], 0);
        assert_eq!(totals.lost_by_cpu(Ring::Lifecycle), [0, 5]);
        assert_eq!(totals.sent(Ring::Bulk).iter().sum::<u64>(), 0);
        assert_eq!(totals.cni_not_streamed(), (0, 2));
    }

    #[test]
    fn namespaces_without_room_at_a_hand_over_count_as_untracked() {
        let untracked = Tally { netns_untracked: 2, ..Tally::ZERO };
        let totals = Totals::new(vec![untracked, untracked], skipped(0));
        assert_eq!(totals.netns_untracked(), 4);
        assert_eq!(totals.with_not_handed_over(3).netns_untracked(), 7);
    }

    /// Returns the losses that are reported for each of these counters.
    fn told(counters: impl IntoIterator<Item = Totals>) -> Vec<Vec<(Loss, u64)>> {
        let mut told = RingsRead::default();
        counters.into_iter().map(|totals| totals.tell_losses(&mut told)).collect()
    }

    #[test]
    fn each_loss_is_told_once() {
        let first = Totals::new(vec![cpu(3, 1), cpu(0, 0)], skipped(4));
        let second = Totals::new(vec![cpu(3, 1), cpu(2, 0)], skipped(4));
        let all = vec![(Loss::LifecycleRing, 1), (Loss::BulkRing, 3), (Loss::SkippedRun, 4)];
        let told = told([first, second.clone(), second]);
        assert_eq!(told, [all, vec![(Loss::BulkRing, 2)], vec![]]);
    }

    #[test]
    fn runs_that_the_kernel_skipped_are_a_loss() {
        let totals = |runs| Totals::new(vec![cpu(0, 0)], skipped(runs));
        assert_eq!(told([totals(4), totals(7)]), [[(Loss::SkippedRun, 4)], [(Loss::SkippedRun, 3)]]);
        assert_eq!(totals(7).skipped_by_program(), BTreeMap::from([("exec", 7)]));
    }

    /// If each skipped run counted as a gap, a busy node would always have a blind spot.
    #[test]
    fn runs_skipped_for_connections_are_none() {
        let of = |listens| {
            let mut programs = skipped(0);
            programs.insert(CROWDED.to_owned(), Runs { skipped: listens, ..Runs::default() });
            Totals::new(vec![cpu(0, 0)], programs)
        };
        assert_eq!(told([of(0), of(290)]), [[], []]);
        assert_eq!(of(290).skipped_by_program(), BTreeMap::from([(CROWDED, 290)]));
    }
}
