//! A program began (`sched_process_exec`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Header, take};

/// Longest filename and argv kept, bytes.
pub const FILENAME: usize = 256;
pub const ARGV: usize = 1024;

/// `header.task` is the process, already with its new comm.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Exec {
    pub header: Header,
    /// Bits of `event::class`.
    pub class: u32,
    /// Its pid in its own pid namespace, and that namespace's inode.
    pub ns_pid: u32,
    pub pid_ns: u32,
    pub mnt_ns: u32,
    /// The bytes of argv in the process; those beyond `ARGV` are left out.
    pub argv_total: u32,
    /// The lengths in the tail: filename, then argv.
    pub filename_len: u16,
    pub argv_len: u16,
}

/// The tail of an `Exec`.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// `linux_binprm.filename`, as given to `execve`, without NUL.
    pub filename: &'a [u8],
    /// Arguments, each followed by its NUL unless cut.
    pub argv: &'a [u8],
}

impl<'a> Text<'a> {
    pub(super) fn parse(body: &Exec, mut tail: &'a [u8]) -> Option<Self> {
        Some(Self { filename: take(&mut tail, body.filename_len)?, argv: take(&mut tail, body.argv_len)? })
    }

    /// Returns the arguments one by one.
    pub fn args(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.argv.strip_suffix(&[0]).unwrap_or(self.argv).split(|byte| *byte == 0)
    }
}
