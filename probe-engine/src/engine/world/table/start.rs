//! The starts of pods that are complete.

use std::collections::VecDeque;

use crate::model::{
    id::ContainerId,
    phase::{Listening, Phase, Start},
};

/// At most this many complete starts are remembered, even if their pods are gone.
pub(crate) const STARTS: usize = 1024;

/// At most this many phases of all remembered starts are kept.
pub(crate) const PHASES: usize = 32 * 1024;

/// The complete starts, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) rows: VecDeque<Start>,
    pub(crate) phases: usize,
    /// Changes whenever a row changes.
    pub(crate) revision: u64,
}

impl Table {
    pub(in crate::engine) fn push(&mut self, start: Start) {
        self.forget(&start.sandbox);
        self.phases += start.phases.len();
        self.rows.push_back(start);
        while self.rows.len() > STARTS || self.phases > PHASES && self.rows.len() > 1 {
            self.drop_row(0);
        }
        self.revision += 1;
    }

    pub(in crate::engine::world) fn forget(&mut self, sandbox: &ContainerId) {
        if let Some(place) = self.rows.iter().position(|row| row.sandbox == *sandbox) {
            self.drop_row(place);
        }
    }

    fn drop_row(&mut self, place: usize) {
        let phases = self.rows.remove(place).map_or(0, |row| row.phases.len());
        self.phases = self.phases.saturating_sub(phases);
    }

    pub(in crate::engine::world) fn listens(&mut self, sandbox: &ContainerId, listening: Vec<Listening>) {
        if let Some(row) = self.rows.iter_mut().rev().find(|row| row.sandbox == *sandbox) {
            row.listening = listening;
            self.revision += 1;
        }
    }

    /// Changes the phases of the start in this sandbox, if it was reported.
    pub(in crate::engine::world) fn divide(&mut self, sandbox: &ContainerId, change: impl FnMut(&mut Phase)) {
        if let Some(row) = self.rows.iter_mut().rev().find(|row| row.sandbox == *sandbox) {
            row.phases.iter_mut().for_each(change);
            self.revision += 1;
        }
    }

    pub(crate) fn of(&self, sandbox: &ContainerId) -> Option<&Start> {
        self.rows.iter().rev().find(|row| row.sandbox == *sandbox)
    }
}

#[cfg(test)]
mod tests {
    use super::{PHASES, STARTS, Table};
    use crate::model::{
        fact::{PodName, Pressure},
        id::ContainerId,
        phase::{Cause, Kind, Phase, Start},
        time::Timestamp,
    };

    fn start(number: u64, phases: usize) -> Start {
        let phase = Phase {
            kind: Kind::Image,
            container: None,
            begin: Timestamp(1),
            end: Timestamp(1),
            gapped: false,
            cause: Cause::default(),
            pressure: Pressure::default(),
            parts: Vec::new(),
        };
        Start {
            pod: PodName::default(),
            sandbox: ContainerId::parse(&format!("{number:064x}")).expect("an id"),
            begin: Timestamp(1),
            end: Timestamp(1),
            phases: vec![phase; phases],
            plugins: Vec::new(),
            listening: Vec::new(),
            complete: true,
            containers_known: true,
            missing: Vec::new(),
            revised: false,
            rebuilt: false,
            listed: false,
            suspended: false,
            waits: false,
        }
    }

    #[test]
    fn the_latest_starts_are_kept_each_once() {
        let mut table = Table::default();
        for number in 0..2_000 {
            table.push(start(number, 9));
            table.push(start(number, 9));
        }
        assert_eq!(table.rows.len(), STARTS);
        assert_eq!(table.rows.back(), Some(&start(1_999, 9)));
        assert_eq!(table.of(&start(0, 9).sandbox), None);
        for number in 0..10 {
            table.push(start(number, PHASES / 4));
        }
        assert_eq!(table.rows.len(), 4, "large ones take the place of many");
        table.push(start(11, 2 * PHASES));
        assert_eq!(table.rows.len(), 1, "one is always kept");
    }
}
