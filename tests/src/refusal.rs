//! Checks whether the agent's own confinement refused it something. That is an error in the agent's lists.

use anyhow::{Result, ensure};

/// Checks the agent's standard error.
pub fn check(stderr: &str) -> Result<()> {
    ensure!(
        !stderr.contains("system call refused"),
        "the agent's confinement refused a system call: {stderr}"
    );
    Ok(())
}
