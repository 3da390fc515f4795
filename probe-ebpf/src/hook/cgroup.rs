//! The cgroup tracepoints, as `(struct cgroup *, const char *path, ...)`, for the one hierarchy that
//! identifies containers: each hierarchy of cgroup v1 has its own directories and ids.
//!
//! All are raw tracepoints: the layout of the others' records is not the same everywhere, and their links
//! cannot be pinned on 5.10.

use core::ffi::c_void;

use aya_ebpf::{
    helpers::generated::bpf_probe_read_kernel_str,
    macros::{map, raw_tracepoint},
    maps::PerCpuArray,
    programs::RawTracePointContext,
};
use probe_common::{
    event::{self, cgroup::PATH, flag, kind},
    id::TaskKey,
    tally::Ring,
};

use crate::{
    emit,
    kernel::{cgroup::Cgroup, switch, task::Task},
    reader_page,
};

/// Room for what is too large for a program's stack, by kind, from `CGROUP_CREATED`. No other program uses
/// it: where tracepoints may be preempted, another program can run on this CPU in between, but not the same
/// one.
#[map]
static CGROUP_SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(5, 0);

/// Where a record is put together.
#[repr(C)]
struct Scratch {
    body: event::Cgroup,
    tail: [u8; PATH],
}

#[raw_tracepoint(tracepoint = "cgroup_mkdir")]
pub(crate) fn cgroup_mkdir(ctx: RawTracePointContext) -> i32 {
    tell::<{ kind::CGROUP_CREATED }>(ctx.arg(0), ctx.arg(1), TaskKey::default())
}

/// Fires only when the removal succeeds.
#[raw_tracepoint(tracepoint = "cgroup_rmdir")]
pub(crate) fn cgroup_rmdir(ctx: RawTracePointContext) -> i32 {
    tell::<{ kind::CGROUP_REMOVED }>(ctx.arg(0), ctx.arg(1), TaskKey::default())
}

/// Fires in a worker, when nothing is charged to the cgroup any more: soon after the removal or never.
#[raw_tracepoint(tracepoint = "cgroup_release")]
pub(crate) fn cgroup_release(ctx: RawTracePointContext) -> i32 {
    tell::<{ kind::CGROUP_RELEASED }>(ctx.arg(0), ctx.arg(1), TaskKey::default())
}

/// Does not see a task that is born in the cgroup by `CLONE_INTO_CGROUP`.
#[raw_tracepoint(tracepoint = "cgroup_attach_task")]
pub(crate) fn cgroup_attach(ctx: RawTracePointContext) -> i32 {
    tell::<{ kind::CGROUP_ATTACHED }>(ctx.arg(0), ctx.arg(1), Task::at(ctx.arg(2)).key())
}

/// Fires for each cgroup above the emptied one too, if that was all that lived in it.
#[raw_tracepoint(tracepoint = "cgroup_notify_populated")]
pub(crate) fn cgroup_emptied(ctx: RawTracePointContext) -> i32 {
    let populated: i32 = ctx.arg(2);
    if populated != 0 {
        return 0;
    }
    tell::<{ kind::CGROUP_EMPTIED }>(ctx.arg(0), ctx.arg(1), TaskKey::default())
}

#[inline(always)]
fn tell<const KIND: u16>(cgroup: u64, path: u64, member: TaskKey) -> i32 {
    let cgroup = Cgroup::at(cgroup);
    if cgroup.hierarchy() != switch!(hierarchy) || reader_page::is_away() {
        return 0;
    }
    let Some(scratch) = CGROUP_SCRATCH.get_ptr_mut(const { (KIND - kind::CGROUP_CREATED) as u32 }) else {
        return 0;
    };
    // SAFETY: this CPU's value for this kind, and one program for each kind: see the map.
    let scratch = unsafe { &mut *scratch };
    // SAFETY: the helper writes at most the tail and takes any address to read from.
    let len = unsafe {
        let to = scratch.tail.as_mut_ptr().cast::<c_void>();
        bpf_probe_read_kernel_str(to, const { PATH as u32 }, path as *const c_void)
    };
    let path_len = if len < 1 { 0 } else { (len - 1) as u64 & (PATH as u64 - 1) };

    let nested = cgroup.parent().container().is_some();
    let ring = if nested {
        Ring::Bulk
    } else if const { KIND == kind::CGROUP_RELEASED || KIND == kind::CGROUP_EMPTIED } {
        emit::ring_for_idle_cgroup()
    } else {
        emit::ring_for(Task::current())
    };
    let flags = if nested { flag::NESTED } else { 0 };
    scratch.body = event::Cgroup {
        header: emit::header::<event::Cgroup>(KIND, flags),
        cgroup: cgroup.key(),
        member,
        level: cgroup.level(),
        path_len: path_len as u16,
        _pad: [0; 2],
    };
    let len = size_of::<event::Cgroup>() as u64 + path_len;
    scratch.body.header.len = len as u32;
    // SAFETY: body and tail are in one struct without padding between, and `len` counts what was written of
    // it.
    unsafe { emit::bytes(ring, KIND, &raw const *scratch, len) };
    0
}
