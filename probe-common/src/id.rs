//! The identity of kernel objects: a number alone is reused, so each comes with what makes it unique.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A process: thread group id in the initial pid namespace, and the boot time at which its leader started.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(C)]
pub struct TaskKey {
    /// `task_struct.group_leader.start_boottime`, ns; 0 = not known.
    #[cfg_attr(feature = "serde", serde(with = "serde_with::As::<serde_with::DisplayFromStr>"))]
    pub start: u64,
    pub pid: u32,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub _pad: [u8; 4],
}

/// A network namespace. Inode numbers are handed out again at once; the cookie (Linux 5.14 and later) never
/// is.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(C)]
pub struct NetnsKey {
    /// `net.net_cookie`; 0 = not given (before 5.14 it is made only on request).
    #[cfg_attr(feature = "serde", serde(with = "serde_with::As::<serde_with::DisplayFromStr>"))]
    pub cookie: u64,
    /// `net.ns.inum`, the inode of `/proc/PID/ns/net`.
    pub inode: u32,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub _pad: [u8; 4],
}

/// A cgroup directory. Each hierarchy counts its own ids, so an id means nothing without its hierarchy.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(C)]
pub struct CgroupKey {
    /// `kernfs_node.id`, the inode of the directory.
    #[cfg_attr(feature = "serde", serde(with = "serde_with::As::<serde_with::DisplayFromStr>"))]
    pub id: u64,
    /// `cgroup_root.hierarchy_id`; 0 = cgroup v2.
    pub hierarchy: u32,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub _pad: [u8; 4],
}

const _: () =
    assert!(size_of::<TaskKey>() == 16 && size_of::<NetnsKey>() == 16 && size_of::<CgroupKey>() == 16);

impl TaskKey {
    #[must_use]
    pub const fn new(pid: u32, start: u64) -> Self {
        Self { start, pid, _pad: [0; 4] }
    }
}

impl NetnsKey {
    #[must_use]
    pub const fn new(inode: u32, cookie: u64) -> Self {
        Self { cookie, inode, _pad: [0; 4] }
    }
}

impl CgroupKey {
    #[must_use]
    pub const fn new(hierarchy: u32, id: u64) -> Self {
        Self { id, hierarchy, _pad: [0; 4] }
    }
}
