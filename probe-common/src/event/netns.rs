//! A network namespace began or ended.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Header;
use crate::id::NetnsKey;

/// Created: on return from `copy_net_ns`. Dropped: `__put_net`, or `netns_put` with one reference left.
/// Freed: `proc_free_inum`, which has only the inode and fires for namespaces of every type. It is reported
/// for inodes that the hooks know as those of network namespaces, with the cookie that they know.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Netns {
    pub header: Header,
    pub netns: NetnsKey,
}
