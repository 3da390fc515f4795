//! Whether the agent was kept from something by its own confinement, which is a fault of its lists.

use anyhow::{Result, ensure};

/// Reads what it said on standard error.
pub fn check(said: &str) -> Result<()> {
    ensure!(!said.contains("system call refused"), "it is confined too much: {said}");
    Ok(())
}
