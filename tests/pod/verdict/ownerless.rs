//! Files of host-local's store that name no sandbox, as a power loss leaves them, and a store whose network
//! has another name now.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    node::Node,
    story::{Stage, job},
    stream::{Received, Stream},
};

use super::{crowded::until_closed, findings, grace, until_confirmed, watch};

const ADDRESS: &str = "10.231.255.254";
const OWNERLESS: &str = "ownerless_reservation";
const ABANDONED: &str = "abandoned_store";

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
    let file = store.join(ADDRESS);
    fs::write(&file, "").with_context(|| format!("write {}", file.display()))?;
    stage.completed_job(&job("second"))?;
    let it = confirmed(&mut stream, OWNERLESS, &store)?;
    ensure!(it["detail"]["first_addresses"][0] == ADDRESS, "{it:#}");

    let grace = format!("{}s", grace().as_secs());
    let script =
        Command::new("sandprobe").args(["leaks", "--repair-script", "--leak-grace", &grace]).output()?;
    ensure!(script.status.code() == Some(1), "{script:?}");
    let said = Command::new("sh").arg("-c").arg(String::from_utf8(script.stdout)?).output()?;
    let freed = format!("{ADDRESS} freed\nrepairs: 1 succeeded, 0 failed or were refused, 0 left to you\n");
    ensure!(String::from_utf8(said.stdout.clone())? == freed, "{said:?}");
    ensure!(fs::read_dir(&store)?.count() == before, "something else was removed");
    stage.completed_job(&job("third"))?;
    until_closed(&mut stream, OWNERLESS)?;
    let (received, _) = stream.end()?;
    stage.clean()?;
    ensure_only(&received, OWNERLESS)?;
    node.stop()
}

/// The pods of the network's new name are healthy.
#[test]
fn the_store_of_a_renamed_network_is_found_until_it_is_empty() -> Result<()> {
    let mut node = Node::start()?;
    let mut stream = watch(&node)?;
    let (store, conflist) = (node.network().store(), node.conflist());
    let (name, renamed) = (node.network().name.clone(), format!("{}-2", node.network().name));
    let mut stage = Stage::new(&mut node)?;
    stage.completed_job(&job("before"))?;
    let text = fs::read_to_string(&conflist).with_context(|| format!("read {}", conflist.display()))?;
    fs::write(&conflist, text.replace(&format!("\"{name}\""), &format!("\"{renamed}\"")))?;
    // As of a sandbox of the time before, which no runtime has on record.
    let file = store.join(ADDRESS);
    fs::write(&file, format!("{}\r\neth0", "5e".repeat(32)))?;
    stage.completed_job(&job("after"))?;
    let it = confirmed(&mut stream, ABANDONED, &store)?;
    ensure!(it["detail"]["network"] == *name, "{it:#}");
    fs::remove_file(&file)?;
    stage.completed_job(&job("last"))?;
    until_closed(&mut stream, ABANDONED)?;
    let (received, _) = stream.end()?;
    stage.clean()?;
    // It is missing if the runtime read the configuration too late.
    let _ = fs::remove_dir_all(store.with_file_name(renamed));
    ensure_only(&received, ABANDONED)?;
    node.stop()
}

/// Waits for a confirmed finding of this kind about one address of this store.
fn confirmed(stream: &mut Stream, kind: &str, store: &Path) -> Result<Value> {
    until_confirmed(stream, &[kind])?;
    let found = findings(&stream.received);
    let it = found.into_values().find(|it| it["kind"] == kind).context("not found")?;
    ensure!(it["detail"]["path"] == *store.to_string_lossy() && it["detail"]["count"] == 1, "{it:#}");
    Ok(it)
}

/// The kernel may skip hook runs, which is a blind spot.
fn ensure_only(received: &Received, kind: &str) -> Result<()> {
    let mut others: Vec<Value> = findings(received).into_values().collect();
    others.retain(|it| it["kind"] != kind && it["kind"] != "blind_spot");
    ensure!(others.is_empty(), "{others:#?}");
    Ok(())
}
