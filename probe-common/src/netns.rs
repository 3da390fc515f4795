//! What the hooks know about network namespaces. Hooks that replace them take it over.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::id::NetnsKey;

/// A network namespace that was seen to begin or to lose its last reference: the values of `NETNS`, by inode.
/// Inodes of all types of namespaces are taken from one space, so the number belongs to this one as long as
/// its entry is there.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Known {
    pub cookie: u64,
    /// Its maker, as `emit::Owner`; [`UNKNOWN`] if that was not seen.
    pub maker: u64,
    pub dropped: u32,
    /// The ring of its creation: what a container makes beyond its budget stays off the lifecycle ring to its
    /// end.
    pub ring: u32,
}

pub const UNKNOWN: u64 = u64::MAX;

/// A network namespace to check where there are neither kprobes nor fentry: the values of `NETS`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Slot {
    /// `struct net *`; zero = free. If `dropped`, its memory may be another object's by now.
    pub net: u64,
    pub key: NetnsKey,
    pub dropped: u64,
}

impl Slot {
    /// Returns where to begin the search for the slot of a namespace, by its address, so that two CPUs seldom
    /// take the same slot.
    #[must_use]
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "any number does, if it is the same each time")]
    pub const fn first(net: u64) -> u32 {
        (net >> 6) as u32
    }
}
