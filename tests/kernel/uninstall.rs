//! The command of an uninstall on each node (`sandprobe detach --wait`), on several nodes at once. Each node
//! is a folder here.

use std::{
    collections::BTreeSet,
    process::{Child, Output, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    loaded::{programs, until_gone},
    succession::{End, Place},
};

/// Begins to detach a node.
fn detach(node: &Place) -> Result<Child> {
    let mut command = node.command("detach")?;
    command.arg("--wait").stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().context("start detach")
}

fn said(detaching: Child) -> Result<String> {
    let Output { status, stdout, stderr } = detaching.wait_with_output()?;
    ensure!(status.success(), "{status}: {}", String::from_utf8_lossy(&stderr));
    Ok(String::from_utf8(stdout)?)
}

/// A node is done when its agent has ended for any reason. No node waits for another.
#[test]
fn each_node_is_done_when_its_agent_has_ended() -> Result<()> {
    let before = programs()?;
    let (mut ending, mut killed, mut orphaned, bare) =
        (Place::new()?, Place::new()?, Place::new()?, Place::new()?);
    let mut ends = ending.run(&[])?;
    ends.attached()?;
    let mut out_of_memory = killed.run(&[])?;
    out_of_memory.attached()?;
    out_of_memory.end(End::Killed)?;
    // Like the agent of a DaemonSet that was deleted with --cascade=orphan.
    let mut stays = orphaned.run(&[])?;
    stays.attached()?;
    let own: BTreeSet<u32> = programs()?.difference(&before).copied().collect();

    let (of_ending, of_killed) = (detach(&ending)?, detach(&killed)?);
    let (mut of_orphaned, of_bare) = (detach(&orphaned)?, detach(&bare)?);
    ensure!(said(of_bare)?.contains("nothing is pinned"), "no agent ran there");
    ensure!(said(of_killed)?.contains("hooks are detached") && !killed.pins.exists(), "a dead agent's stay");
    ensure!(ending.pins.exists(), "an agent runs there");
    let status = ends.end(End::Stopped)?;
    ensure!(status.success() && said(of_ending)?.contains("hooks are detached"), "{status}");
    ensure!(!ending.pins.exists(), "what an agent left stays");
    ensure!(of_orphaned.try_wait()?.is_none() && orphaned.pins.exists(), "an agent runs there still");
    let last = programs()?.intersection(&own).count();
    ensure!(last > 0, "its hooks have ended");
    stays.end(End::Killed)?;
    ensure!(said(of_orphaned)?.contains("hooks are detached") && !orphaned.pins.exists(), "it has ended");
    until_gone(&own)
}

/// Nothing can be pinned beside a folder outside a BPF file system.
#[test]
fn doctor_pins_beside_the_agent_s_folder() -> Result<()> {
    let restart = |place: &Place| -> Result<Value> {
        let Output { stdout, stderr, .. } =
            place.command("doctor")?.args(["-o", "json", "--socket", "none"]).output()?;
        let said = || String::from_utf8_lossy(&stderr).into_owned();
        let mut report: Value = serde_json::from_slice(&stdout).with_context(said)?;
        let checks = report["checks"].as_array_mut().context("no checks")?;
        checks.iter_mut().find(|it| it["name"] == "restart").map(Value::take).with_context(said)
    };
    let elsewhere = "is not in a BPF file system";
    let mut place = Place::new()?;
    ensure!(!restart(&place)?.to_string().contains(elsewhere), "{}", restart(&place)?);
    let folder = tempfile::tempdir()?;
    place.pins = folder.path().join("pins");
    let told = restart(&place)?.to_string();
    ensure!(told.contains(&format!("{}-doctor {elsewhere}", place.pins.display())), "{told}");
    Ok(())
}
