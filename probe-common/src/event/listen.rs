//! A socket began to listen.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Header;

/// The kubelet's usual ports: its health check, its API, and its API that only reads.
pub const KUBELET_PORTS: [u16; 3] = [10_248, 10_250, 10_255];

/// From the raw tracepoint `inet_sock_set_state`, on the way to `TCP_LISTEN`; `header.task` called
/// `listen(2)`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Listen {
    pub header: Header,
    /// The id of the container's own cgroup; the task's own may be below it. 0: the task is root's and of the
    /// node itself, and listens at one of [`KUBELET_PORTS`].
    pub container: u64,
    /// `sock.__sk_common.skc_num`; 0 = not bound before, and the kernel is about to choose one.
    pub port: u16,
    /// `address::IPV4` or `address::IPV6`; the latter for a socket that takes both.
    pub family: u8,
    pub _pad: [u8; 5],
}

const _: () = assert!(size_of::<Listen>() == 96);
