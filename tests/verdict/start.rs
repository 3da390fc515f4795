//! Pod starts in randomly generated histories. The phases make up the whole start in whatever order the
//! records come, and whatever is lost.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use probe_user::{
    engine::world::path::Place,
    model::{
        fact::{Fact, Observation},
        phase::{Kind, Phase, Start},
        time::Timestamp,
    },
};
use proptest::{prelude::*, test_runner::TestCaseError};

use crate::{
    delivery::{lossy, reordered},
    model::{AddTurn, History, Turn, turns, without_restarts},
};

/// The times of the events that make up a start.
#[derive(Debug, Default)]
struct Truth {
    /// When each container's program began, by the container's id.
    ran: BTreeMap<String, Timestamp>,
    /// When pods' cgroups and namespaces were made.
    made: Vec<Timestamp>,
    /// The container of each cgroup.
    cgroups: BTreeMap<u64, String>,
}

impl Truth {
    fn see(&mut self, seen: &Observation) {
        match &seen.fact {
            Fact::CgroupCreated { cgroup, .. } => match Place::read(&cgroup.path).container {
                Some(id) => {
                    self.cgroups.insert(cgroup.key.id, id.as_str().to_owned());
                }
                None => self.made.push(seen.at),
            },
            Fact::NetnsCreated { .. } => self.made.push(seen.at),
            Fact::Executed(it) if it.argv.first().is_some_and(|program| program == "/main") => {
                if let Some(id) = self.cgroups.get(&it.task.cgroup.id) {
                    self.ran.insert(id.clone(), seen.at);
                }
            }
            _ => {}
        }
    }
}

/// Checks that the phases have no gap, no overlap and no negative length, and that their sum is the whole.
fn check_partition(start: &Start) -> Result<(), TestCaseError> {
    let mut at = start.begin;
    for phase in &start.phases {
        prop_assert_eq!(phase.begin, at, "{:#?}", start);
        prop_assert!(phase.end >= phase.begin, "{:#?}", start);
        prop_assert!(phase.cause.teardown <= phase.took(), "{:#?}", start);
        at = phase.end;
    }
    prop_assert_eq!(at, start.end, "{:#?}", start);
    let sum: Duration = start.phases.iter().map(Phase::took).sum();
    prop_assert_eq!(sum, start.total());
    Ok(())
}

fn check_all_partitions(history: &History) -> Result<(), TestCaseError> {
    history.drive.engine.starts().iter().try_for_each(check_partition)
}

fn run(history: &mut History, turns: &[Turn]) -> Result<(), TestCaseError> {
    for turn in turns {
        history.run(&[*turn]);
        check_all_partitions(history)?;
    }
    history.end();
    check_all_partitions(history)
}

/// Checks that the generated histories contain starts at all.
#[test]
fn a_pod_that_runs_has_started() {
    let mut history = History::new();
    let add = AddTurn::Succeeds;
    history.run(&[Turn::Begin { pod: 0, network: 0, add }, Turn::Start { which: 0 }]);
    history.end();
    let starts = history.drive.engine.starts();
    assert!(matches!(starts.as_slice(), [start] if start.is_whole()), "{starts:#?}");
    assert_eq!(starts[0].slowest().map(|phase| phase.kind.clone()), Some(Kind::Image));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn phases_make_up_the_start_and_have_the_true_begin_and_end(turns in turns(), seed: u64) {
        let truth = Rc::new(RefCell::new(Truth::default()));
        let mut history = History::new();
        let (to, mut way) = (Rc::clone(&truth), reordered(seed));
        history.drive.delivery = Box::new(move |facts| {
            facts.iter().for_each(|seen| to.borrow_mut().see(seen));
            way(facts)
        });
        run(&mut history, &turns)?;
        let truth = truth.borrow();
        let complete = history.drive.engine.starts().into_iter().filter(|start| start.complete);
        for start in complete {
            prop_assert!(!start.listed && !start.is_gapped(), "{:#?}", start);
            prop_assert!(truth.made.contains(&start.begin), "{:#?}", start);
            let last = start.phases.last().and_then(|phase| phase.container.as_ref());
            let ran = last.and_then(|last| truth.ran.get(last.id.as_str()));
            prop_assert_eq!(ran, Some(&start.end), "{:#?}", start);
            // The pod is throttled for a hundredth of all time. The last reading may come a moment later.
            let throttled = |phase: &Phase| phase.pressure.cpu.map(|cpu| cpu.throttled);
            let throttled: Duration = start.phases.iter().filter_map(throttled).sum();
            prop_assert!(throttled <= Duration::from_nanos(start.end.0 / 100) + Duration::from_millis(20));
        }
    }

    #[test]
    fn phases_make_up_the_start_whatever_was_lost(turns in turns(), seed: u64) {
        let mut history = History::new();
        history.drive.delivery = Box::new(lossy(seed));
        run(&mut history, &turns)?;
    }

    #[test]
    fn neither_order_nor_a_restart_changes_a_start(turns in turns(), seed: u64) {
        let starts = |turns: &[Turn], reorder: bool| {
            let mut history = History::new();
            if reorder {
                history.drive.delivery = Box::new(reordered(seed));
            }
            history.run(turns);
            history.end();
            let starts = history.drive.engine.starts();
            // The time of an answer is left out, because an agent's end can delay it.
            starts.into_iter().map(|start| (start.pod.clone(), start.begin, start.end)).collect::<Vec<_>>()
        };
        prop_assert_eq!(starts(&turns, true), starts(&without_restarts(&turns), false));
    }
}
