//! Histories in which the loss of a record once made a finding that was not true.

use crate::{
    model::{
        AddTurn, DelTurn, History,
        Turn::{self, Begin, Kill, RestartRuntime, Start, Stop},
    },
    way::torn,
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

/// Its process is not known either: the record of its cgroup was lost. Its network namespace outlives it.
#[test]
fn a_sandbox_whose_end_was_lost_is_no_duplicate() {
    let mut history = History::new();
    history.drive.way = Box::new(torn(4_340_765_879_405_207_250));
    history.play(&TURNS);
    history.end();
    history.nothing_is_invented().expect("nothing is invented");
}
