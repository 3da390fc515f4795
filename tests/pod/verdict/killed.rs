//! A runtime is killed while it makes a sandbox.

use anyhow::{Result, ensure};
use tests::{
    finding::kind_and_form,
    keyed::Faults,
    node::Node,
    story::{Stage, service},
};

use super::{
    declared_store, ensure_exactly, findings, until_confirmed, wait_for_candidates, watch, watch_store,
};

/// containerd before 1.5.15 and 1.6.9 then no longer knows the sandbox, and nobody calls DEL for it. The next
/// sandbox of the pod is no duplicate. A later containerd knows the sandbox and cleans it up. One agent sees
/// that happen, and another starts afterwards.
#[test]
fn an_unfinished_sandbox_of_a_killed_runtime_leaks_unless_the_runtime_knows_it() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let store = declared_store(&node);
    let mut stream = watch(&node)?;
    let mut stage = Stage::new(&mut node)?;
    let cut = stage.killed_within_add(&service("cut"))?;
    let mut late = watch_store(store.as_deref())?;
    let words = |cause: &'static str| if cut.known { Vec::new() } else { vec![cause, "orphan_netns"] };
    let (seen, found) = (words("leaked_address/runtime_ended"), words("leaked_address/stale_record"));
    let confirmed = until_confirmed(&mut stream, &seen).and_then(|()| until_confirmed(&mut late, &found));
    if cut.known {
        wait_for_candidates();
    }
    let (received, _) = stream.end()?;
    let (received_late, _) = late.end()?;
    stage.clean()?;
    confirmed?;
    // The killed runtime's plugin may still work on the ADD when the next runtime calls DEL. Or the plugin
    // ends, when it writes its result to a runtime that is gone.
    let told: Vec<String> = findings(&received).values().map(kind_and_form).collect();
    let overlaps = ["cni_wrong_del/add_open", "cni_wrong_del/add_killed"];
    let overlaps = overlaps.into_iter().filter(|form| told.iter().any(|told| told == form));
    let seen: Vec<&str> = seen.into_iter().chain(overlaps).collect();
    for (received, words) in [(&received, &seen), (&received_late, &found)] {
        for it in ensure_exactly(received, words)?.values().filter(|it| it["kind"] == "leaked_address") {
            ensure!(it["detail"]["address"] == cut.address.to_string(), "{it:#}");
            ensure!(it["sandboxes"][0] == *cut.sandbox, "{it:#}");
        }
    }
    drop(cut);
    node.stop()
}
