//! What is printed for somebody who may not hook anything. If root runs a test, the program is started
//! without those rights.
#![cfg(feature = "live")]

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
};

use caps::{CapSet, Capability};

/// Without capabilities: a program that is started gets none that its thread's bounding set lacks
/// (capabilities(7)).
fn run(arguments: &[&str]) -> Output {
    thread::scope(|scope| {
        let started = scope.spawn(|| {
            if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).expect("capabilities") {
                caps::clear(None, CapSet::Bounding).expect("it may");
            }
            let mut command = Command::new(env!("CARGO_BIN_EXE_sandprobe"));
            command.args(arguments).stdin(Stdio::null()).output().expect("the program was built")
        });
        started.join().expect("no panic")
    })
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path")
}

#[test]
fn what_is_missing_is_said_before_anything_is_touched() {
    let dir = tempfile::tempdir().expect("a folder");
    let older = dir.path().join("older.jsonl");
    fs::write(&older, "what was recorded before").expect("a file");
    let (file, socket) = (path(&older), dir.path().join("no/agent.sock"));
    for arguments in [
        &["run", "--record", file, "--socket", path(&socket), "--ipam-store", "/nowhere"][..],
        &["record", file, "--ipam-store", "/nowhere"],
        &["watch", "--ipam-store", "/nowhere"],
    ] {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
        let lacks = "sandprobe: this process may not load eBPF programs; it lacks ";
        assert!(said.starts_with(lacks) && said.contains("run it as root"), "{said}");
    }
    assert_eq!(fs::read_to_string(&older).expect("a file"), "what was recorded before");
}
