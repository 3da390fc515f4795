//! What the hooks know of network namespaces. It goes over to hooks that replace them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::id::NetnsKey;

/// A network namespace that was seen to begin or to lose its last reference: the values of `NETNS`, by inode. Inodes of all
/// types of namespaces are taken from one space, so as long as its entry is there the number is this one's.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Known {
    pub cookie: u64,
    /// Who made it, as `emit::Owner`; if that was not seen, [`UNKNOWN`].
    pub maker: u64,
    pub dropped: u32,
    /// That of its creation: what a container makes beyond its budget stays off the lifecycle ring to its end.
    pub ring: u32,
}

pub const UNKNOWN: u64 = u64::MAX;

/// A network namespace to look at where there are neither kprobes nor fentry: the values of `NETS`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Slot {
    /// `struct net *`; zero = free. Its memory may be another's by now if `dropped`.
    pub net: u64,
    pub key: NetnsKey,
    pub dropped: u64,
}

impl Slot {
    /// Where to look first for the slot of a namespace, by its address: so two CPUs seldom take the same slot.
    #[must_use]
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "any number does, if it is the same each time")]
    pub const fn first(net: u64) -> u32 {
        (net >> 6) as u32
    }
}
