//! The other ways in which a node leaks addresses, one after the other under one agent. Each causes its own
//! findings of its own pods, and no others.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    clock,
    finding::kind_and_form,
    keyed::Faults,
    node::Node,
    story::{Stage, job, service},
};

use super::{findings, grace, until_confirmed, wait_for_candidates, watch};

#[test]
fn each_leak_is_found_with_its_cause() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let mut stream = watch(&node)?;
    let mut stage = Stage::new(&mut node)?;
    stage.failed_then_blind_del(&job("blind"))?;
    stage.repaired_del(&job("mended"), 2)?;
    stage.failing_adds(&job("retried"), 3, false)?;
    stage.failing_adds(&job("reserved"), 1, true)?;
    let killed = stage.killed_pause(&job("killed"))?;
    let starved = stage.starved_pause(&job("starved"))?;
    let mut remaining = Vec::new();
    for (pod, truth) in [("killed", killed), ("starved", starved)] {
        let shim = remaining_shim(&truth.pods.last().context("the story ran")?.sandboxes[0].id)?;
        remaining.extend(shim.map(|_pid| (pod, "orphan_sandbox")));
    }
    // The runtime ends these shims when it starts again.
    until_confirmed(&mut stream, &vec!["orphan_sandbox"; remaining.len()])?;
    let (_, stray) = stage.stray_mount(&job("stray"))?;
    stage.restarted_runtime(&[service("restarted")])?;
    stage.killed_runtime(&[service("orphaned")])?;
    let mut lost = vec![
        ("blind", "leaked_address/del_blind"),
        // The runtime called DEL after the failed ADD. That DEL succeeded, and found no address in the
        // namespace.
        ("reserved", "leaked_address/del_hollow"),
        ("killed", "teardown_out_of_order/pause_killed"),
        ("starved", "teardown_out_of_order/pause_out_of_memory"),
    ];
    lost.extend(remaining);
    // Only an agent that can read every process knows soon that a namespace is unused. Another agent reports
    // it after a complete listing, which may come after the test's end.
    let sees_all = fs::read_link("/proc/1/ns/net").is_ok();
    lost.extend(sees_all.then_some(("stray", "orphan_netns")));
    let words = |lost: &[(_, &'static str)]| lost.iter().map(|(_, word)| *word).collect::<Vec<_>>();
    until_confirmed(&mut stream, &words(&lost))?;
    // A sandbox that the runtime still knows is not leaked, however often its DEL fails. After the runtime
    // forgets the sandbox, it is leaked.
    stage.failing_del(&job("failing"), 2)?;
    wait_for_candidates();
    let early = findings(&stream.received);
    let is_early = |it: &Value| it["pod"]["name"] == "failing" && it["kind"] != "cni_failing";
    ensure!(!early.values().any(is_early), "too early: {early:#?}");
    stage.forgotten_sandboxes(&[service("forgotten")])?;
    lost.push(("failing", "leaked_address/del_failed"));
    lost.push(("forgotten", "leaked_address/del_missing"));
    // The namespaces of this pod and of the sandbox with the failing DEL are still bound to their files.
    lost.extend(sees_all.then_some(("forgotten", "orphan_netns")));
    lost.extend(sees_all.then_some(("failing", "orphan_netns")));
    until_confirmed(&mut stream, &words(&lost))?;
    wait_for_candidates();
    drop(stray);
    let (received, _) = stream.end()?;
    if received.lost()? == 0 {
        let of_pod = |it: &Value| {
            // This finding is about a plugin and not about one pod.
            let pod = it["pod"]["name"].as_str().filter(|_| it["kind"] != "cni_failing").unwrap_or("-");
            format!("{pod} {}", kind_and_form(it))
        };
        // Its DEL has failed for a while when the runtime forgets it, and that may be long enough.
        let has_failing_del = |it: &Value| it["kind"] == "stuck_stop" && it["pod"]["name"] == "failing";
        // The records of a stopped runtime cannot be read, and the agent reports that.
        let seen = |it: &&Value| {
            let is_expected = it["kind"] != "blind_spot" && (sees_all || it["kind"] != "orphan_netns");
            is_expected && !has_failing_del(it)
        };
        let mut found: Vec<String> = findings(&received).values().filter(seen).map(of_pod).collect();
        let expected = lost.iter().map(|(pod, word)| format!("{pod} {word}"));
        // The finding about ADD, and the one about DEL.
        let mut expected: Vec<String> = expected.chain(vec!["- cni_failing".to_owned(); 2]).collect();
        found.sort_unstable();
        expected.sort_unstable();
        ensure!(found == expected, "found {found:#?}\nnot {expected:#?}\n{:#?}", findings(&received));
    }
    stage.clean()?;
    node.stop()
}

/// Returns the shim of a removed sandbox, if it does not end. On cgroup v2 the shim of containerd 2.1 stays
/// after the OOM killer killed pause, and sometimes after another kill of pause.
pub(super) fn remaining_shim(sandbox: &str) -> Result<Option<u32>> {
    let alive = || -> Result<Option<u32>> {
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            // A process that has ended meanwhile has no command line.
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if line.contains("containerd-shim") && line.split('\0').any(|word| word == sandbox) {
                return Ok(Some(pid));
            }
        }
        Ok(None)
    };
    // A shim that does not end within this time does not end at all.
    let _ = clock::poll("the shim's end", grace(), || Ok(alive()?.is_none().then_some(())));
    alive()
}
