//! Kernel things that a test makes, knows by number, and drops: one guard each.
//!
//! Each guard tells the numbers the kernel gave (inode, cgroup id), so a test compares exactly. Dropping a
//! guard removes the thing; `end` does the same and says what went wrong.

pub mod address;
pub mod cgroup;
#[cfg(feature = "kernel")]
pub mod hang;
pub mod netns;

use std::sync::atomic::{AtomicU32, Ordering};

/// A name no other guard of any running test has.
pub fn unique_name(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}
