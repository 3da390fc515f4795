//! What the kernel counts of a program: how often it ran, how long that took, and how often it was passed over. A task
//! can be preempted in the middle of a run (tracepoints since 7.0, fentry always); another task that comes by the same
//! hook on that CPU meanwhile is skipped.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
    time::Duration,
};

use crate::source::live::tally::Runs;

/// `BPF_OBJ_GET_INFO_BY_FD` of linux/bpf.h.
const GET_INFO: libc::c_int = 15;

/// Up to and with `struct bpf_prog_info.recursion_misses` (Linux 5.12), which is the last of these words; before it are
/// `run_time_ns` and `run_cnt` (5.1).
const WORDS: usize = 27;

/// `union bpf_attr.info`.
#[repr(C)]
struct Attribute {
    fd: u32,
    len: u32,
    info: u64,
}

/// What it counted since the program was loaded; 0 where it does not count.
pub(super) fn of(program: BorrowedFd<'_>) -> io::Result<Runs> {
    let mut info = [0_u64; WORDS];
    let len = u32::try_from(size_of_val(&info)).map_err(io::Error::other)?;
    let fd = u32::try_from(program.as_raw_fd()).map_err(io::Error::other)?;
    let mut attribute = Attribute { fd, len, info: info.as_mut_ptr().expose_provenance() as u64 };
    // SAFETY: the attribute is as long as is said, and the kernel writes at most `len` bytes to `info`, which lives
    // until after the call.
    let done = unsafe { libc::syscall(libc::SYS_bpf, GET_INFO, &raw mut attribute, size_of::<Attribute>()) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let [.., time, count, skipped] = info;
    Ok(Runs { time: Duration::from_nanos(time), count, skipped })
}
