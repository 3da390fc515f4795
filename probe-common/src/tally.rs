//! Counters that the eBPF side keeps per CPU: what was written, what was lost, what was only counted.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::event::KINDS;

/// The two ring buffers. Nothing that a container does at will can crowd out the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ring {
    Lifecycle = 0,
    Bulk = 1,
}

pub const RINGS: usize = 2;

/// One CPU's counters; the value of the `TALLY` per-CPU array's only entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Tally {
    /// Records submitted, by ring and kind.
    pub sent: [[u64; KINDS]; RINGS],
    /// Records for which the ring had no room, by ring and kind.
    pub lost: [[u64; KINDS]; RINGS],
    /// CNI calls that are counted and not streamed.
    pub cni_version: u64,
    pub cni_status: u64,
    /// Environments of possible CNI calls that were longer than the scan's bound.
    pub env_truncated: u64,
    /// Network namespaces whose end no hook will see: `event::flag::END_UNSEEN`.
    pub netns_untracked: u64,
    /// Entries that a table could not take: see `crate::table`.
    pub not_kept: u64,
    /// Runs that did nothing, because no agent has read for a long time.
    pub unread: u64,
}

impl Tally {
    pub const ZERO: Self = Self {
        sent: [[0; KINDS]; RINGS],
        lost: [[0; KINDS]; RINGS],
        cni_version: 0,
        cni_status: 0,
        env_truncated: 0,
        netns_untracked: 0,
        not_kept: 0,
        unread: 0,
    };
}
