//! The stories alone: each leaves in the plugin's store and in the runtime what it should.

mod redundant;

use std::path::Path;

use anyhow::{Result, ensure};
use tests::{
    keyed::{Faults, Store},
    machine,
    node::Node,
    story::{Action, Stage, Truth, job, service},
};

/// Checks that the store still names one address of the story's pod, the one of this sandbox.
fn ensure_leaked(truth: &Truth, sandbox: &str) -> Result<()> {
    let leaked: Vec<_> = truth.leaked().values().map(|holder| holder.container.clone()).collect();
    ensure!(leaked == [sandbox], "the leak is missing or not the only one: {truth:#?}");
    Ok(())
}

/// Checks that nothing is left of the story's pods.
fn ensure_nothing_left(truth: &Truth) -> Result<()> {
    ensure!(truth.held.is_empty() && truth.known.is_empty(), "something is left: {truth:#?}");
    Ok(())
}

#[test]
fn jobs_and_restarts_leak_nothing() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let mut stage = Stage::new(&mut node)?;
    ensure_nothing_left(&stage.completed_job(&job("completed"))?)?;
    let truth = stage.restarted_sandbox(&job("restarted"))?;
    ensure_nothing_left(&truth)?;
    ensure!((truth.calls.adds, truth.calls.dels, truth.calls.dels_blind) == (3, 3, 3), "{:?}", truth.calls);
    stage.clean()?;
    node.stop()
}

#[test]
fn failed_adds_are_retried() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let mut stage = Stage::new(&mut node)?;
    let truth = stage.failing_adds(&job("failing"), 3, false)?;
    ensure!((truth.calls.adds, truth.calls.adds_failed) == (4, 3), "{:?}", truth.calls);
    ensure!(truth.pods[0].failed_sandboxes.len() == 3, "{truth:#?}");
    ensure_nothing_left(&truth)?;
    // The failed ADDs that had reserved an address have leaked it.
    let truth = stage.failing_adds(&job("reserving"), 2, true)?;
    let mut leaked: Vec<_> = truth.leaked().values().map(|holder| holder.container.clone()).collect();
    let mut failed = truth.pods[1].failed_sandboxes.clone();
    leaked.sort();
    failed.sort();
    ensure!(leaked == failed && truth.known.is_empty(), "{truth:#?}");
    stage.clean()?;
    node.stop()
}

#[test]
fn an_add_takes_as_long_as_configured() -> Result<()> {
    const SLOW: u64 = 1500;
    let mut node = Node::start_keyed(Faults::default())?;
    let mut stage = Stage::new(&mut node)?;
    let truth = stage.slow_add(&job("slow"), SLOW)?;
    let run = truth.steps(Action::RunSandbox)[0];
    ensure!(run.done - run.asked >= SLOW * 1_000_000, "{run:?}");
    ensure_nothing_left(&truth)?;
    stage.clean()?;
    node.stop()
}

#[test]
fn a_failed_del_followed_by_a_blind_one_leaks() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let mut stage = Stage::new(&mut node)?;
    let truth = stage.failed_then_blind_del(&job("blind"))?;
    ensure!(
        (truth.calls.dels, truth.calls.dels_failed, truth.calls.dels_blind) == (0, 1, 2),
        "{:?}",
        truth.calls
    );
    ensure_leaked(&truth, &truth.pods[0].sandboxes[0].id)?;
    stage.clean()?;
    node.stop()
}

#[test]
fn a_failing_del_keeps_the_sandbox_until_it_is_repaired() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let mut stage = Stage::new(&mut node)?;
    let truth = stage.failing_del(&job("failing"), 3)?;
    let sandbox = &truth.pods[0].sandboxes[0].id;
    ensure!(truth.calls.dels_failed == 3 && truth.known == [sandbox.clone()], "{truth:#?}");
    ensure!(truth.held.len() == 1 && truth.leaked().is_empty(), "{truth:#?}");
    stage.clean()?;

    let mut stage = Stage::new(&mut node)?;
    let truth = stage.repaired_del(&job("mended"), 2)?;
    ensure!((truth.calls.dels_failed, truth.calls.dels) == (2, 1), "{:?}", truth.calls);
    ensure_nothing_left(&truth)?;
    stage.clean()?;
    // The end of the stage frees the first one's address.
    ensure!(Store::read(&node.network().store())?.is_empty(), "an address is left");
    node.stop()
}

#[test]
fn a_killed_pause_leaks_nothing_while_its_namespace_is_bound() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let mut stage = Stage::new(&mut node)?;
    ensure_nothing_left(&stage.killed_pause(&service("killed"))?)?;
    let truth = stage.starved_pause(&service("starved"))?;
    ensure_nothing_left(&truth)?;
    ensure!((truth.calls.adds, truth.calls.dels) == (2, 2), "{:?}", truth.calls);
    stage.clean()?;
    node.stop()
}

#[test]
fn a_stray_mount_keeps_the_namespace_and_no_address() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let mut stage = Stage::new(&mut node)?;
    let (truth, stray) = stage.stray_mount(&job("stray"))?;
    ensure_nothing_left(&truth)?;
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(stray.path())?);
    ensure!(inode == truth.pods[0].sandboxes[0].netns, "{} is another namespace", stray.path().display());
    drop(stray);
    stage.clean()?;
    node.stop()
}

#[test]
fn a_cgroup_with_a_process_in_it_stays() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let mut stage = Stage::new(&mut node)?;
    let (truth, holder) = stage.stuck_cgroup(&job("stuck"))?;
    ensure_nothing_left(&truth)?;
    let directories: Vec<_> =
        holder.cgroups().iter().filter_map(|cgroup| cgroup.parent().map(Path::to_owned)).collect();
    ensure!(directories.iter().all(|pod| pod.exists()), "some of {directories:?} are gone");
    drop(holder);
    stage.clean()?;
    ensure!(!directories.iter().any(|pod| pod.exists()), "some of {directories:?} stay");
    node.stop()
}

#[test]
fn pods_outlive_their_runtime() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let mut stage = Stage::new(&mut node)?;
    ensure_nothing_left(&stage.restarted_runtime(&[service("first"), service("second")])?)?;
    ensure_nothing_left(&stage.killed_runtime(&[service("third")])?)?;
    stage.clean()?;
    node.stop()
}

#[test]
fn addresses_of_forgotten_sandboxes_stay_in_every_store() -> Result<()> {
    for node in [Node::start, || Node::start_keyed(Faults::default())] {
        let mut node = node()?;
        let mut stage = Stage::new(&mut node)?;
        let truth = stage.forgotten_sandboxes(&[service("forgotten")])?;
        ensure_leaked(&truth, &truth.pods[0].sandboxes[0].id)?;
        ensure!(truth.calls.dels + truth.calls.dels_blind == 0, "{:?}", truth.calls);
        stage.clean()?;
        node.stop()?;
    }
    Ok(())
}

#[test]
fn a_healthy_day_leaves_nothing() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let (count, concurrency) = if machine::is_emulated() { (4, 1) } else { (20, 4) };
    let mut stage = Stage::new(&mut node)?;
    let truth = stage.churn(count, concurrency)?;
    ensure_nothing_left(&truth)?;
    ensure!(truth.pods.len() == count, "{} pods lived", truth.pods.len());
    let sandboxes = truth.pods.iter().map(|pod| pod.sandboxes.len()).sum::<usize>();
    let calls = [truth.calls.adds, truth.calls.dels, truth.calls.dels_blind];
    ensure!(
        calls.iter().all(|calls| usize::try_from(*calls) == Ok(sandboxes)),
        "{calls:?}, {sandboxes} sandboxes"
    );
    stage.clean()?;
    node.stop()
}

#[test]
fn a_callback_runs_before_each_act() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let mut seen = Vec::new();
    let mut stage = Stage::new(&mut node)?.before_each(|action| {
        seen.push(action);
        Ok(())
    });
    let truth = stage.completed_job(&job("watched"))?;
    stage.clean()?;
    ensure!(truth.actions.iter().map(|done| done.action).eq(seen.iter().copied()), "{seen:?}");
    node.stop()
}
