//! A CNI plugin was executed: an exec with `CNI_COMMAND` in its environment.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Header, take};
use crate::{id::TaskKey, text::Comm};

/// The variables of the CNI specification, and the place in its trace that libcni's caller passes on, in the
/// order of the tail. Nothing else of an environment is kept. `BAGGAGE`, which libcni passes on too, is left
/// out: it has up to 8 KiB of any application's data, secrets among them, and no span has a place for it.
pub const COMMAND: usize = 0;
pub const CONTAINERID: usize = 1;
pub const NETNS: usize = 2;
pub const IFNAME: usize = 3;
pub const ARGS: usize = 4;
pub const PATH: usize = 5;
pub const TRACEPARENT: usize = 6;
pub const TRACESTATE: usize = 7;
pub const VARIABLES: usize = 8;

/// Names, and the longest value kept of each, bytes. A longer value is cut. Of a trace's variables one byte
/// more is kept than counts, so that a longer value is known as such.
pub const NAMES: [(&str, usize); VARIABLES] = [
    ("CNI_COMMAND", 16),
    ("CNI_CONTAINERID", 256),
    ("CNI_NETNS", 256),
    ("CNI_IFNAME", 32),
    ("CNI_ARGS", 1024),
    ("CNI_PATH", 512),
    ("TRACEPARENT", 56),
    ("TRACESTATE", 513),
];

/// `header.task` is the plugin's process; `flag::HOST` says that the caller is the node's own runtime.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CniCall {
    pub header: Header,
    /// The nearest ancestor that is a known caller (`probe_common::name::CALLERS`); zero if none.
    pub caller: TaskKey,
    pub caller_comm: Comm,
    /// Bit i: variable i was set, perhaps to nothing: an empty `CNI_NETNS` is not an absent one.
    pub present: u16,
    pub filename_len: u16,
    /// The lengths in the tail: after the filename, each variable's value.
    pub lens: [u16; VARIABLES],
    pub _pad: [u8; 4],
}

/// The tail of a `CniCall`.
#[derive(Clone, Copy, Debug)]
pub struct Variables<'a> {
    pub filename: &'a [u8],
    values: [Option<&'a [u8]>; VARIABLES],
}

impl<'a> Variables<'a> {
    pub(super) fn parse(body: &CniCall, mut tail: &'a [u8]) -> Option<Self> {
        let filename = take(&mut tail, body.filename_len)?;
        let mut values = [None; VARIABLES];
        for (i, value) in values.iter_mut().enumerate() {
            let bytes = take(&mut tail, body.lens[i])?;
            *value = (body.present & (1 << i) != 0).then_some(bytes);
        }
        Some(Self { filename, values })
    }

    /// Returns a variable's value; `None` if it was not set.
    #[must_use]
    pub fn get(&self, variable: usize) -> Option<&'a [u8]> {
        self.values.get(variable).copied().flatten()
    }
}
