//! The kernel's counters of a program: its runs, their time, and the runs that were skipped. A task can be
//! preempted within a run (tracepoints since Linux 7.0, fentry always). If another task reaches the same hook
//! on that CPU meanwhile, the kernel skips its run.

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
    time::Duration,
};

use crate::source::live::tally::Runs;

/// `BPF_OBJ_GET_INFO_BY_FD` of linux/bpf.h.
const GET_INFO: libc::c_int = 15;

/// The struct up to `bpf_prog_info.recursion_misses` (Linux 5.12), the last of these words. `run_time_ns` and
/// `run_cnt` (5.1) are before it.
const WORDS: usize = 27;

/// `BPF_OBJ_GET`.
const GET_PINNED: libc::c_int = 7;

/// The members of `union bpf_attr` for `BPF_OBJ_GET`, up to the last that is used.
#[repr(C)]
struct PinnedAttribute {
    path: u64,
    fd: u32,
    flags: u32,
}

/// Opens a pinned program. aya would read the types of the function that it is attached to, which needs
/// `CAP_SYS_ADMIN`.
pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attribute = PinnedAttribute { path: path.as_ptr().expose_provenance() as u64, fd: 0, flags: 0 };
    // SAFETY: the attribute has the given length, and the path is text that ends with a zero and outlives the
    // call.
    let fd =
        unsafe { libc::syscall(libc::SYS_bpf, GET_PINNED, &raw mut attribute, size_of::<PinnedAttribute>()) };
    let fd = libc::c_int::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `union bpf_attr.info`.
#[repr(C)]
struct Attribute {
    fd: u32,
    len: u32,
    info: u64,
}

/// Returns the counters since the program was loaded; 0 if the kernel does not count.
pub(super) fn of(program: BorrowedFd<'_>) -> io::Result<Runs> {
    let mut info = [0_u64; WORDS];
    let len = u32::try_from(size_of_val(&info)).map_err(io::Error::other)?;
    let fd = u32::try_from(program.as_raw_fd()).map_err(io::Error::other)?;
    let mut attribute = Attribute { fd, len, info: info.as_mut_ptr().expose_provenance() as u64 };
    // SAFETY: the attribute has the given length, and the kernel writes at most `len` bytes to `info`, which
    // outlives the call.
    let done = unsafe { libc::syscall(libc::SYS_bpf, GET_INFO, &raw mut attribute, size_of::<Attribute>()) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let [.., time, count, skipped] = info;
    Ok(Runs { time: Duration::from_nanos(time), count, skipped })
}
