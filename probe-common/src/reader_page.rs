//! The page that the agent, which reads the rings, shares with its programs. It stays in the kernel with them when the agent
//! ends, and the next agent goes on from it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The version of all that one agent leaves in the kernel for the next: records, tables, counters and this module.
/// Raise it when one of their layouts or meanings changes: an agent of another version then cannot read what is left.
pub const VERSION: u32 = 1;

/// The value of the `READER` array's only entry, which the agent has in its memory.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Reader {
    /// When the agent last read, in nanoseconds of `CLOCK_MONOTONIC`, which stands still while the node is suspended.
    pub read_at: u64,
    /// The number of the last event that was told.
    pub told: u64,
    /// These hooks tell what happened from then on, in nanoseconds since boot.
    pub since: u64,
}

/// The length of the `REPORT` array's only entry: how each signal is seen, as text that ends with the first zero.
pub const REPORT: usize = 16 << 10;
