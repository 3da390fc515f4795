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
    listen::{KUBELET_PORTS, Listen},
    netns::Netns,
    task::{Exit, Signal, Task},
};

/// Bits of `Header::flags`.
pub mod flag {
    /// The environment was longer than the scan's bound: a CNI variable may be missing.
    pub const ENV_TRUNCATED: u16 = 1 << 0;
    /// A CNI call made by the host's own runtime: see `probe_common::name::CALLERS`.
    pub const HOST: u16 = 1 << 1;
    /// Below a container's own cgroup: made by what runs in the container.
    pub const NESTED: u16 = 1 << 2;
    /// A network namespace whose end no hook will see: the table of namespaces is full.
    pub const END_UNSEEN: u16 = 1 << 3;
}

/// Bits of `Exec::class` and `Exit::class`: why the process matters.
pub mod class {
    /// The first program in a container's cgroup: its parent is outside.
    pub const CONTAINER_TOP: u32 = 1 << 0;
    pub const CALLER: u32 = 1 << 1;
    pub const RUNTIME: u32 = 1 << 2;
    pub const PAUSE: u32 = 1 << 3;
    pub const CNI: u32 = 1 << 4;
    /// In a container's cgroup, at whatever depth.
    pub const IN_CONTAINER: u32 = 1 << 5;
    /// It may order a restart of the node, and is reported for nothing else.
    pub const ORDER: u32 = 1 << 6;
}

/// What every record begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// `bpf_ktime_get_boot_ns()` in the hook.
    pub at: u64,
    /// The length of the whole record, this header included.
    pub len: u32,
    pub kind: u16,
    pub flags: u16,
    pub cpu: u32,
    /// The hierarchy of `task.cgroup`.
    pub hierarchy: u32,
    /// The current task. In a worker or a softirq that is not the task that caused the record.
    pub task: Task,
}

const _: () = assert!(size_of::<Header>() == 80);

/// What follows a record's fixed part, cut into pieces by the lengths in the fixed part.
trait Tail<'a, Body>: Sized {
    fn cut(body: &'a Body, tail: &'a [u8]) -> Option<Self>;
}

/// Makes everything from one line for each kind of record: its number, its name in metrics, its form, and how
/// it is read.
macro_rules! records {
    ($($(#[$doc:meta])* $number:ident, $name:literal => $kind:ident($body:ty $(, $tail:ty)?);)*) => {
        /// What a record reports. The numbers are the record's `kind` and the index of its counters.
        pub mod kind {
            #[expect(clippy::upper_case_acronyms, non_camel_case_types, reason = "the constants have these names")]
            enum Number {
                $($number,)*
            }
            $($(#[$doc])* pub const $number: u16 = Number::$number as u16;)*
        }

        /// The name of each kind, by its number.
        pub const NAMES: [&str; KINDS] = [$($name,)*];

        /// The number of kinds.
        pub const KINDS: usize = [$($name,)*].len();

        /// A record, checked: its body has the size it claims and the tails lie within it.
        #[derive(Clone, Copy, Debug)]
        pub enum Event<'a> {
            $($(#[$doc])* $kind(&'a $body $(, $tail)?),)*
        }

        impl<'a> Event<'a> {
            /// Reads one record as it is in a ring.
            pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
                let (header, _) = fixed::<Header>(bytes, u16::MAX)?;
                let kind = header.kind;
                let len = header.len as usize;
                let bytes = bytes.get(..len).ok_or(WireError::Short { kind, len: bytes.len() })?;
                match kind {
                    $(kind::$number => {
                        let (body, _tail) = fixed::<$body>(bytes, kind)?;
                        Ok(Self::$kind(
                            body,
                            $(<$tail as Tail<$body>>::cut(body, _tail).ok_or(WireError::Short { kind, len })?,)?
                        ))
                    })*
                    other => Err(WireError::UnknownKind(other)),
                }
            }

            #[must_use]
            pub fn header(&self) -> &'a Header {
                match self {
                    $(Self::$kind(body, ..) => &body.header,)*
                }
            }
        }
    };
}

records! {
    EXEC, "exec" => Exec(Exec, exec::Text<'a>);
    /// An exec whose environment holds `CNI_COMMAND`; there is no `EXEC` beside it on the lifecycle ring.
    CNI_CALL, "cni_call" => CniCall(CniCall, cni::Variables<'a>);
    EXIT, "exit" => Exit(Exit);
    SIGNAL, "signal" => Signal(Signal);
    OOM_KILL, "oom_kill" => OomKill(Signal);
    NETNS_CREATED, "netns_created" => NetnsCreated(Netns);
    /// The last reference is gone: nothing can enter the namespace any more.
    NETNS_DROPPED, "netns_dropped" => NetnsDropped(Netns);
    /// Teardown is complete: the inode number is free.
    NETNS_FREED, "netns_freed" => NetnsFreed(Netns);
    ADDRESS_ADDED, "address_added" => AddressAdded(Address);
    ADDRESS_REMOVED, "address_removed" => AddressRemoved(Address);
    CGROUP_CREATED, "cgroup_created" => CgroupCreated(Cgroup, &'a [u8]);
    CGROUP_REMOVED, "cgroup_removed" => CgroupRemoved(Cgroup, &'a [u8]);
    /// The kernel's object is gone, which the page cache may delay for long after the removal.
    CGROUP_RELEASED, "cgroup_released" => CgroupReleased(Cgroup, &'a [u8]);
    CGROUP_ATTACHED, "cgroup_attached" => CgroupAttached(Cgroup, &'a [u8]);
    /// No live process is left in it or below it.
    CGROUP_EMPTIED, "cgroup_emptied" => CgroupEmptied(Cgroup, &'a [u8]);
    /// A socket of a container began to listen.
    LISTEN, "listen" => Listen(Listen);
}

/// The kind of record for which the reader is always woken: the watch of a namespace must begin before its
/// first address comes.
pub const URGENT: u16 = kind::NETNS_CREATED;

impl<'a> Tail<'a, Exec> for exec::Text<'a> {
    fn cut(body: &'a Exec, tail: &'a [u8]) -> Option<Self> {
        Self::parse(body, tail)
    }
}

impl<'a> Tail<'a, CniCall> for cni::Variables<'a> {
    fn cut(body: &'a CniCall, tail: &'a [u8]) -> Option<Self> {
        Self::parse(body, tail)
    }
}

impl<'a> Tail<'a, Cgroup> for &'a [u8] {
    fn cut(body: &'a Cgroup, tail: &'a [u8]) -> Option<Self> {
        tail.get(..body.path_len as usize)
    }
}

/// Why bytes are not a record.
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

fn fixed<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8], kind: u16) -> Result<(&T, &[u8]), WireError> {
    T::ref_from_prefix(bytes).map_err(|error| match error {
        zerocopy::ConvertError::Alignment(_) => WireError::Unaligned,
        zerocopy::ConvertError::Size(_) => WireError::Short { kind, len: bytes.len() },
    })
}

/// Cuts `len` bytes off the front of `tail`.
fn take<'a>(tail: &mut &'a [u8], len: u16) -> Option<&'a [u8]> {
    let (taken, rest) = tail.split_at_checked(len as usize)?;
    *tail = rest;
    Some(taken)
}
