//! Files of host-local's store that name no sandbox, as a power loss leaves them.

use std::{fs, process::Command};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    node::Node,
    story::{Stage, job},
};

use super::{findings, grace, until_confirmed, watch};

/// The test runs the agent's suggested commands, and the finding closes.
#[test]
fn an_address_of_nobody_is_found_and_the_repair_frees_it() -> Result<()> {
    let mut node = Node::start()?;
    let mut stream = watch(&node)?;
    let store = node.network().store();
    let mut stage = Stage::new(&mut node)?;
    // The first pod makes the store exist, and the agent reads it again after the calls of the next pod.
    stage.completed_job(&job("first"))?;
    let before = fs::read_dir(&store)?.count();
    let file = store.join("10.231.255.254");
    fs::write(&file, "").with_context(|| format!("write {}", file.display()))?;
    stage.completed_job(&job("second"))?;
    until_confirmed(&mut stream, &["ownerless_reservation"])?;
    let found = findings(&stream.received);
    let (_, it) = found.iter().find(|(_, it)| it["kind"] == "ownerless_reservation").context("not found")?;
    let detail = &it["detail"];
    ensure!(detail["path"] == *store.to_string_lossy() && detail["count"] == 1, "{it:#}");
    ensure!(detail["first_addresses"][0] == "10.231.255.254", "{it:#}");

    let grace = format!("{}s", grace().as_secs());
    let script =
        Command::new("sandprobe").args(["leaks", "--repair-script", "--leak-grace", &grace]).output()?;
    ensure!(script.status.code() == Some(1), "{script:?}");
    let said = Command::new("sh").arg("-c").arg(String::from_utf8(script.stdout)?).output()?;
    let freed = "10.231.255.254 freed\nrepairs: 1 succeeded, 0 failed or were refused, 0 left to you\n";
    ensure!(String::from_utf8(said.stdout.clone())? == freed, "{said:?}");
    ensure!(fs::read_dir(&store)?.count() == before, "something else was removed");
    stage.completed_job(&job("third"))?;
    stream.until("its end", |event: &Value| {
        event["event"] == "finding.closed" && event["finding"]["kind"] == "ownerless_reservation"
    })?;
    let (received, _) = stream.end()?;
    stage.clean()?;
    // The kernel may skip hook runs, which is a blind spot.
    let is_expected =
        |it: &Value| ["ownerless_reservation", "blind_spot"].iter().any(|kind| it["kind"] == *kind);
    let others = findings(&received).into_values().filter(|it| !is_expected(it));
    let others: Vec<Value> = others.collect();
    ensure!(others.is_empty(), "{others:#?}");
    node.stop()
}
