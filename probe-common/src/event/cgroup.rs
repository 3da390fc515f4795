//! A cgroup directory was made, removed, released, entered or emptied.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Header;
use crate::id::{CgroupKey, TaskKey};

/// Longest path kept, bytes.
pub const PATH: usize = 512;

/// From the raw tracepoints `cgroup_*`, for the hierarchy that identifies containers.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cgroup {
    pub header: Header,
    pub cgroup: CgroupKey,
    /// The task that entered (`CGROUP_ATTACHED`); zero otherwise.
    pub member: TaskKey,
    /// Depth below the hierarchy's root.
    pub level: u32,
    /// The length of the tail, which has the path from the hierarchy's root.
    pub path_len: u16,
    pub _pad: [u8; 2],
}
