//! A socket began to listen.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Header;

/// From the raw tracepoint `inet_sock_set_state`, on the way to `TCP_LISTEN`; `header.task` called `listen(2)`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Listen {
    pub header: Header,
    /// Id of the container's own cgroup, which the task's may lie below.
    pub container: u64,
    /// `sock.__sk_common.skc_num`; 0 = not bound before, and the kernel is about to choose one.
    pub port: u16,
    /// `address::IPV4` or `address::IPV6`; of a socket that takes both, the latter.
    pub family: u8,
    pub _pad: [u8; 5],
}

const _: () = assert!(size_of::<Listen>() == 96);
