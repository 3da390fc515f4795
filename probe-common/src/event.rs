//! The records in the rings: one header, then a body by kind. `Event::parse` is the only way in.

pub mod address;
pub mod cgroup;
pub mod cni;
pub mod exec;
pub mod listen;
pub mod netns;
pub mod task;

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use self::{
    address::Address,
    cgroup::Cgroup,
    cni::CniCall,
    exec::Exec,
    listen::Listen,
    netns::Netns,
    task::{Exit, Signal, Task},
};

/// What a record tells. The numbers are the record's `kind` and the index of its counters.
pub mod kind {
    pub const EXEC: u16 = 0;
    /// An exec whose environment holds `CNI_COMMAND`; there is no `EXEC` beside it on the lifecycle ring.
    pub const CNI_CALL: u16 = 1;
    pub const EXIT: u16 = 2;
    pub const SIGNAL: u16 = 3;
    pub const OOM_KILL: u16 = 4;
    pub const NETNS_CREATED: u16 = 5;
    /// The last reference is gone: nothing can enter the namespace any more.
    pub const NETNS_DROPPED: u16 = 6;
    /// Teardown is complete: the inode number is free.
    pub const NETNS_FREED: u16 = 7;
    pub const ADDRESS_ADDED: u16 = 8;
    pub const ADDRESS_REMOVED: u16 = 9;
    pub const CGROUP_CREATED: u16 = 10;
    pub const CGROUP_REMOVED: u16 = 11;
    /// The kernel's object is gone, which page cache may put off for long after the removal.
    pub const CGROUP_RELEASED: u16 = 12;
    pub const CGROUP_ATTACHED: u16 = 13;
    /// No live process is left in it or below it.
    pub const CGROUP_EMPTIED: u16 = 14;
    /// A socket of a container began to listen.
    pub const LISTEN: u16 = 15;
}

/// How many kinds there are.
pub const KINDS: usize = 16;

/// Bits of `Header::flags`.
pub mod flag {
    /// The filename, path or argv was longer than its field.
    pub const TRUNCATED: u16 = 1 << 0;
    /// The environment was longer than the scan's bound: a CNI variable may be missing.
    pub const ENV_TRUNCATED: u16 = 1 << 1;
    /// A CNI call made by the host's own runtime: see `probe_common::name::CALLERS`.
    pub const HOST: u16 = 1 << 2;
    /// Below a container's own cgroup: made by what runs in the container.
    pub const NESTED: u16 = 1 << 3;
    /// The time is that of the check that found it out, not of the thing itself.
    pub const INFERRED_TIME: u16 = 1 << 4;
    /// A network namespace whose end no hook will see: more are there than can be looked at.
    pub const END_UNSEEN: u16 = 1 << 5;
}

/// Bits of `Exec::class` and `Exit::class`: why it matters.
pub mod class {
    /// The first program in a container's cgroup: its parent is outside.
    pub const CONTAINER_TOP: u32 = 1 << 0;
    pub const CALLER: u32 = 1 << 1;
    pub const RUNTIME: u32 = 1 << 2;
    pub const PAUSE: u32 = 1 << 3;
    pub const CNI: u32 = 1 << 4;
    /// In a container's cgroup, at whatever depth.
    pub const IN_CONTAINER: u32 = 1 << 5;
    /// It may order a restart of the node, and is told of for nothing else.
    pub const ORDER: u32 = 1 << 6;
}

/// What every record begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// `bpf_ktime_get_boot_ns()` in the hook.
    pub at: u64,
    /// Of the whole record, this header included.
    pub len: u32,
    pub kind: u16,
    pub flags: u16,
    pub cpu: u32,
    /// Of `task.cgroup`.
    pub hierarchy: u32,
    /// The current task. In a worker or a softirq that is not who caused it.
    pub task: Task,
}

const _: () = assert!(size_of::<Header>() == 80);

/// A record, checked: its body has the size it claims and the tails lie within it.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    Exec(&'a Exec, exec::Text<'a>),
    CniCall(&'a CniCall, cni::Variables<'a>),
    Exit(&'a Exit),
    Signal(&'a Signal),
    OomKill(&'a Signal),
    NetnsCreated(&'a Netns),
    NetnsDropped(&'a Netns),
    NetnsFreed(&'a Netns),
    AddressAdded(&'a Address),
    AddressRemoved(&'a Address),
    CgroupCreated(&'a Cgroup, &'a [u8]),
    CgroupRemoved(&'a Cgroup, &'a [u8]),
    CgroupReleased(&'a Cgroup, &'a [u8]),
    CgroupAttached(&'a Cgroup, &'a [u8]),
    CgroupEmptied(&'a Cgroup, &'a [u8]),
    Listen(&'a Listen),
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    UnknownKind(u16),
    /// Shorter than the body or the tails that it claims.
    Short {
        kind: u16,
        len: usize,
    },
    /// Not aligned to eight bytes, as every record in a ring is.
    Unaligned,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKind(kind) => write!(f, "unknown record kind {kind}"),
            Self::Short { kind, len } => write!(f, "record of kind {kind} is cut short at {len} bytes"),
            Self::Unaligned => f.write_str("record is not aligned to eight bytes"),
        }
    }
}

impl core::error::Error for WireError {}

impl<'a> Event<'a> {
    /// Reads one record as it stands in a ring.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (header, _) = fixed::<Header>(bytes, u16::MAX)?;
        let kind = header.kind;
        let len = header.len as usize;
        let bytes = bytes.get(..len).ok_or(WireError::Short { kind, len: bytes.len() })?;
        Ok(match kind {
            kind::EXEC => {
                let (body, tail) = fixed::<Exec>(bytes, kind)?;
                Self::Exec(body, exec::Text::parse(body, tail).ok_or(WireError::Short { kind, len })?)
            }
            kind::CNI_CALL => {
                let (body, tail) = fixed::<CniCall>(bytes, kind)?;
                Self::CniCall(body, cni::Variables::parse(body, tail).ok_or(WireError::Short { kind, len })?)
            }
            kind::EXIT => Self::Exit(fixed(bytes, kind)?.0),
            kind::SIGNAL => Self::Signal(fixed(bytes, kind)?.0),
            kind::OOM_KILL => Self::OomKill(fixed(bytes, kind)?.0),
            kind::NETNS_CREATED => Self::NetnsCreated(fixed(bytes, kind)?.0),
            kind::NETNS_DROPPED => Self::NetnsDropped(fixed(bytes, kind)?.0),
            kind::NETNS_FREED => Self::NetnsFreed(fixed(bytes, kind)?.0),
            kind::ADDRESS_ADDED => Self::AddressAdded(fixed(bytes, kind)?.0),
            kind::ADDRESS_REMOVED => Self::AddressRemoved(fixed(bytes, kind)?.0),
            kind::CGROUP_CREATED => with_path(bytes, kind, Self::CgroupCreated)?,
            kind::CGROUP_REMOVED => with_path(bytes, kind, Self::CgroupRemoved)?,
            kind::CGROUP_RELEASED => with_path(bytes, kind, Self::CgroupReleased)?,
            kind::CGROUP_ATTACHED => with_path(bytes, kind, Self::CgroupAttached)?,
            kind::CGROUP_EMPTIED => with_path(bytes, kind, Self::CgroupEmptied)?,
            kind::LISTEN => Self::Listen(fixed(bytes, kind)?.0),
            other => return Err(WireError::UnknownKind(other)),
        })
    }

    #[must_use]
    pub fn header(&self) -> &'a Header {
        match self {
            Self::Exec(body, _) => &body.header,
            Self::CniCall(body, _) => &body.header,
            Self::Exit(body) => &body.header,
            Self::Signal(body) | Self::OomKill(body) => &body.header,
            Self::NetnsCreated(body) | Self::NetnsDropped(body) | Self::NetnsFreed(body) => &body.header,
            Self::AddressAdded(body) | Self::AddressRemoved(body) => &body.header,
            Self::CgroupCreated(body, _)
            | Self::CgroupRemoved(body, _)
            | Self::CgroupReleased(body, _)
            | Self::CgroupAttached(body, _)
            | Self::CgroupEmptied(body, _) => &body.header,
            Self::Listen(body) => &body.header,
        }
    }
}

fn fixed<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8], kind: u16) -> Result<(&T, &[u8]), WireError> {
    T::ref_from_prefix(bytes).map_err(|error| match error {
        zerocopy::ConvertError::Alignment(_) => WireError::Unaligned,
        zerocopy::ConvertError::Size(_) => WireError::Short { kind, len: bytes.len() },
    })
}

fn with_path<'a>(
    bytes: &'a [u8],
    kind: u16,
    make: fn(&'a Cgroup, &'a [u8]) -> Event<'a>,
) -> Result<Event<'a>, WireError> {
    let (body, tail) = fixed::<Cgroup>(bytes, kind)?;
    let path = tail.get(..body.path_len as usize).ok_or(WireError::Short { kind, len: bytes.len() })?;
    Ok(make(body, path))
}

/// Cuts `len` bytes off the front of `tail`.
fn take<'a>(tail: &mut &'a [u8], len: u16) -> Option<&'a [u8]> {
    let (taken, rest) = tail.split_at_checked(len as usize)?;
    *tail = rest;
    Some(taken)
}
