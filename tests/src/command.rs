//! Runs the node's own tools. Errors contain the tool's output.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Runs `program` and returns its output. The error of a failure contains its standard error.
pub fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let result = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {program}; is it installed?"))?;
    if !result.status.success() {
        let error = String::from_utf8_lossy(&result.stderr);
        bail!("{program} {} ended with {}: {}", arguments.join(" "), result.status, error.trim());
    }
    String::from_utf8(result.stdout).with_context(|| format!("the output of {program} is not UTF-8"))
}

/// Runs `program` and ignores its output.
pub fn run(program: &str, arguments: &[&str]) -> Result<()> {
    output(program, arguments).map(drop)
}
