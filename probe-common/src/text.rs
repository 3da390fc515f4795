//! Fixed byte strings of the kernel: NUL-terminated when shorter than their field.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `task_struct.comm`: a thread's name, which the thread itself can change.
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
#[repr(transparent)]
pub struct Comm(pub [u8; 16]);

/// `net_device.name`.
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
#[repr(transparent)]
pub struct IfName(pub [u8; 16]);

impl Comm {
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        until_nul(&self.0)
    }
}

impl IfName {
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        until_nul(&self.0)
    }
}

/// Returns the bytes before the first NUL, or all of them.
#[must_use]
pub fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or(bytes)
}

/// Returns `text` in a field of sixteen bytes, cut as the kernel cuts a comm: at fifteen bytes, followed by a
/// NUL.
#[must_use]
pub const fn sixteen(text: &str) -> [u8; 16] {
    let from = text.as_bytes();
    let mut to = [0; 16];
    let mut i = 0;
    while i < from.len() && i < 15 {
        to[i] = from[i];
        i += 1;
    }
    to
}
