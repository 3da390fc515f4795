//! The other ways in which a node loses what it gave out, one after the other under one agent: each makes its own
//! findings, of its own pods, and no other.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    clock,
    finding::word,
    keyed::Faults,
    node::Node,
    story::{Stage, job, service},
};

use super::{findings, grace, until_confirmed, wait_for_nothing, watch};

#[test]
fn each_is_found_for_what_it_is() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let mut stream = watch(&node)?;
    let mut stage = Stage::new(&mut node)?;
    stage.failed_then_blind_del(&job("blind"))?;
    stage.mended_del(&job("mended"), 2)?;
    stage.failing_adds(&job("retried"), 3, false)?;
    stage.failing_adds(&job("reserved"), 1, true)?;
    let killed = stage.killed_pause(&job("killed"))?;
    let starved = stage.starved_pause(&job("starved"))?;
    let mut outlived = Vec::new();
    for (pod, truth) in [("killed", killed), ("starved", starved)] {
        let shim = outliving_shim(&truth.pods.last().context("it was played")?.sandboxes[0].id)?;
        outlived.extend(shim.map(|_pid| (pod, "orphan_sandbox")));
    }
    // Before the runtime starts again, which ends them.
    until_confirmed(&mut stream, &vec!["orphan_sandbox"; outlived.len()])?;
    let (_, stray) = stage.stray_mount(&job("stray"))?;
    stage.restarted_runtime(&[service("restarted")])?;
    stage.killed_runtime(&[service("orphaned")])?;
    let mut lost = vec![
        ("blind", "leaked_address/del_blind"),
        // The runtime called DEL after the ADD that failed: it succeeded, and found no address in the namespace.
        ("reserved", "leaked_address/stale_record"),
        ("killed", "teardown_out_of_order/pause_killed"),
        ("starved", "teardown_out_of_order/pause_out_of_memory"),
    ];
    lost.extend(outlived);
    // That nothing lives in a namespace is soon known only where every process can be looked at; elsewhere it is told once
    // a listing has been whole, which may be after the end.
    let sees_all = fs::read_link("/proc/1/ns/net").is_ok();
    lost.extend(sees_all.then_some(("stray", "orphan_netns")));
    let words = |lost: &[(_, &'static str)]| lost.iter().map(|(_, word)| *word).collect::<Vec<_>>();
    until_confirmed(&mut stream, &words(&lost))?;
    // What the runtime still has on record is not leaked, however often DEL fails; once that is forgotten, it is.
    stage.failing_del(&job("failing"), 2)?;
    wait_for_nothing();
    let early = findings(&stream.told);
    ensure!(!early.values().any(|it| it["pod"]["name"] == "failing"), "too early: {early:#?}");
    stage.forgotten_sandboxes(&[service("forgotten")])?;
    lost.push(("failing", "leaked_address/del_failed"));
    lost.push(("forgotten", "leaked_address/del_missing"));
    // Its namespaces, and those of the sandbox whose DEL fails, are still bound to their files.
    lost.extend(sees_all.then_some(("forgotten", "orphan_netns")));
    lost.extend(sees_all.then_some(("failing", "orphan_netns")));
    until_confirmed(&mut stream, &words(&lost))?;
    wait_for_nothing();
    drop(stray);
    let (told, _) = stream.end()?;
    if told.lost()? == 0 {
        let of_pod = |it: &Value| {
            // Of a plugin, and so of no pod in particular.
            let pod = it["pod"]["name"].as_str().filter(|_| it["kind"] != "cni_failing").unwrap_or("-");
            format!("{pod} {}", word(it))
        };
        // While a runtime is down its records cannot be read, and that is told.
        let seen = |it: &&Value| it["kind"] != "blind_spot" && (sees_all || it["kind"] != "orphan_netns");
        let mut found: Vec<String> = findings(&told).values().filter(seen).map(of_pod).collect();
        let expected = lost.iter().map(|(pod, word)| format!("{pod} {word}"));
        let mut expected: Vec<String> = expected.chain(["- cni_failing".to_owned()]).collect();
        found.sort_unstable();
        expected.sort_unstable();
        ensure!(found == expected, "found {found:#?}\nnot {expected:#?}\n{:#?}", findings(&told));
    }
    stage.clean()?;
    node.stop()
}

/// The shim of a sandbox that was removed, where it does not end: that of containerd 2.1 lives on, on cgroup v2, when
/// pause was killed for want of memory, and at times when it was killed by somebody.
fn outliving_shim(sandbox: &str) -> Result<Option<u32>> {
    let alive = || -> Result<Option<u32>> {
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            // One that has ended meanwhile has no command line.
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if line.contains("containerd-shim") && line.split('\0').any(|word| word == sandbox) {
                return Ok(Some(pid));
            }
        }
        Ok(None)
    };
    // One that does not end within this time does not end at all.
    let _ = clock::poll("its end", grace(), || Ok(alive()?.is_none().then_some(())));
    alive()
}
