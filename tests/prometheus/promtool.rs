//! Runs promtool, Prometheus' own checker of metrics, rules and expressions.

use std::{
    env,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::root;

/// Runs promtool in a folder with this input. Panics with its output if it finds an error.
#[track_caller]
pub(crate) fn promtool(folder: &Path, arguments: &[&str], input: &str) {
    let mut command = Command::new(path());
    command.args(arguments).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("promtool reads");
    let out = child.wait_with_output().expect("promtool ends");
    let output = [out.stdout, out.stderr].concat();
    assert!(out.status.success(), "promtool {}: {}", arguments.join(" "), String::from_utf8_lossy(&output));
}

fn path() -> PathBuf {
    let search = env::var_os("PATH").unwrap_or_default();
    // The place where xtask's setup puts it.
    let own = root().join("target/tools");
    let found =
        env::split_paths(&search).chain([own]).map(|dir| dir.join("promtool")).find(|it| it.is_file());
    found.expect("promtool is missing: `cargo xtask setup prometheus` fetches it")
}
