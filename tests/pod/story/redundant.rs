//! The project's original case: a redundant second sandbox is killed from outside, and its address leaks.
//! This story runs on every runtime, the other stories on one.

use anyhow::{Result, ensure};
use tests::{
    keyed::Faults,
    node::Node,
    story::{Action, Stage, job},
};

use super::{ensure_leaked, ensure_nothing_left};

#[test]
fn a_redundant_sandbox_leaks_its_address() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let mut stage = Stage::new(&mut node)?;
    let truth = stage.redundant_sandbox(&job("redundant"))?;
    let sandboxes = &truth.pods[0].sandboxes;
    ensure!(sandboxes.len() == 2 && sandboxes[1].attempt == 1, "{truth:#?}");
    ensure_leaked(&truth, &sandboxes[1].id)?;
    let leaked = truth.leaked();
    ensure!(leaked.keys().all(|address| sandboxes[1].addresses == [address.to_string()]), "{truth:#?}");
    ensure!(truth.known.is_empty(), "the runtime still knows {:?}", truth.known);
    // The first sandbox gets a DEL with its namespace when it is stopped, and a blind one when it is removed.
    // The second sandbox gets only blind ones.
    let calls = truth.calls;
    ensure!((calls.adds, calls.dels, calls.dels_blind) == (2, 1, 3), "{calls:?}");
    let order =
        [Action::KillSandbox, Action::LoseNetns, Action::RemoveCgroup].map(|action| truth.steps(action));
    ensure!(order.windows(2).all(|pair| pair[0][0].done <= pair[1][0].asked), "{truth:#?}");
    stage.clean()?;
    node.stop()
}

#[test]
fn with_host_local_the_same_sandbox_leaks_nothing() -> Result<()> {
    let mut node = Node::start()?;
    let mut stage = Stage::new(&mut node)?;
    let truth = stage.redundant_sandbox(&job("redundant"))?;
    ensure!(truth.pods[0].sandboxes.len() == 2, "{truth:#?}");
    ensure_nothing_left(&truth)?;
    stage.clean()?;
    node.stop()
}
