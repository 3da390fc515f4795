//! `struct net`: a network namespace.

use probe_common::id::NetnsKey;

use super::{offset, read, switch};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Net(u64);

impl Net {
    /// `net` is a `struct net *`.
    #[inline(always)]
    pub(crate) fn at(net: u64) -> Self {
        Self(net)
    }

    /// `ns` is the `struct ns_common *` in a `struct net`.
    #[inline(always)]
    pub(crate) fn of_ns_common(ns: u64) -> Self {
        Self(ns.wrapping_sub(offset!(net_ns) as u64))
    }

    #[inline(always)]
    pub(crate) fn address(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn inode(self) -> u32 {
        read(self.0, offset!(net_inum))
    }

    /// The cookie is zero before 5.14, unless something has asked for it.
    #[inline(always)]
    pub(crate) fn key(self) -> NetnsKey {
        NetnsKey::new(self.inode(), read(self.0, offset!(net_cookie)))
    }

    /// Returns how many active references there are; always 1 for the initial namespace on 7.2.
    #[inline(always)]
    pub(crate) fn references(self) -> u32 {
        read(self.0, offset!(net_refcount))
    }

    #[inline(always)]
    pub(crate) fn is_initial(self) -> bool {
        self.inode() == switch!(init_netns)
    }
}
