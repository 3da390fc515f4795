//! A runtime that is killed while it makes a sandbox.

use anyhow::{Result, ensure};
use tests::{
    keyed::Faults,
    node::Node,
    story::{Stage, service},
};

use super::{declared_store, ensure_exactly, until_confirmed, wait_for_nothing, watch, watch_store};

/// containerd before 1.5.15 and 1.6.9 does not know the sandbox any more, and nobody will ever call DEL for it; the one
/// that is made instead is no duplicate. A later one knows it, and cleans up. One agent sees it happen, one comes
/// afterwards.
#[test]
fn what_a_runtime_was_making_when_it_was_killed_is_leaked_unless_it_knows_of_it() -> Result<()> {
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
        wait_for_nothing();
    }
    let (told, _) = stream.end()?;
    let (told_late, _) = late.end()?;
    stage.clean()?;
    confirmed?;
    for (told, words) in [(&told, &seen), (&told_late, &found)] {
        for it in ensure_exactly(told, words)?.values().filter(|it| it["kind"] == "leaked_address") {
            ensure!(it["detail"]["address"] == cut.address.to_string(), "{it:#}");
            ensure!(it["sandboxes"][0] == *cut.sandbox, "{it:#}");
        }
    }
    drop(cut);
    node.stop()
}
