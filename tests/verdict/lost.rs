//! Histories in which the loss of a record once caused a false finding.

use crate::{
    delivery::lossy,
    model::{
        AddTurn, DelTurn, History,
        Turn::{self, Begin, Kill, RestartRuntime, Start, Stop},
    },
};

const TURNS: [Turn; 14] = [
    Begin { pod: 126, network: 1, add: AddTurn::Succeeds },
    RestartRuntime,
    Kill { which: 0, by: 0 },
    RestartRuntime,
    Stop { which: 0, del: DelTurn::Succeeds },
    Begin { pod: 1, network: 43, add: AddTurn::Succeeds },
    Stop { which: 0, del: DelTurn::Succeeds },
    Start { which: 0 },
    Begin { pod: 42, network: 1, add: AddTurn::Succeeds },
    Start { which: 0 },
    Kill { which: 0, by: 0 },
    Begin { pod: 0, network: 0, add: AddTurn::Succeeds },
    Begin { pod: 30, network: 0, add: AddTurn::Succeeds },
    Start { which: 0 },
];

/// The engine does not know the sandbox's process either, because the record of its cgroup was lost too. Its
/// network namespace outlives it.
#[test]
fn a_sandbox_whose_end_was_lost_is_no_duplicate() {
    let mut history = History::new();
    history.drive.delivery = Box::new(lossy(4_340_765_879_405_207_250));
    history.run(&TURNS);
    history.end();
    history.check_no_false_finding().expect("no false finding");
}
