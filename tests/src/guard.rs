//! A guard for each kind of kernel object that a test makes.
//!
//! Each guard returns the numbers that the kernel gave (inode, cgroup id), so that a test can compare them
//! exactly. Dropping a guard removes the object. `end` does the same and returns errors.

pub mod address;
pub mod cgroup;
pub mod container;
#[cfg(feature = "kernel")]
pub mod hang;
pub mod netns;

use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a name that no other guard of any running test has.
pub fn unique_name(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}
