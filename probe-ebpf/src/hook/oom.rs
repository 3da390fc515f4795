//! `mark_victim`: the OOM killer chose a process. It passes the task since 6.8, and in older kernels with
//! that change backported; else only the pid, and user space finds out which process that is.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use probe_common::event::{self, kind};

use crate::{
    emit,
    kernel::{switch, task::Task},
    reader_page,
};

const SIGKILL: u32 = 9;
const SI_KERNEL: i32 = 0x80;

#[raw_tracepoint(tracepoint = "mark_victim")]
pub(crate) fn oom(ctx: RawTracePointContext) -> i32 {
    if reader_page::is_away() {
        return 0;
    }
    let victim: u64 = ctx.arg(0);
    let passes_task = switch!(oom_passes_task) == 1;
    // A container can have its own programs killed all the time. The victim pays, because its memory is
    // short; or, if only its number is known, whoever asked for memory.
    let ring = emit::ring_for(if passes_task { Task::at(victim) } else { Task::current() });
    oom_send(ring as u64, victim);
    0
}

/// A function of its own, as in `signal`.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn oom_send(ring: u64, victim: u64) -> u64 {
    let target = if switch!(oom_passes_task) == 1 {
        Task::at(victim).describe()
    } else {
        let pid = victim as u32;
        event::Task { pid, tid: pid, ..event::Task::default() }
    };
    let header = emit::header::<event::Signal>(kind::OOM_KILL, 0);
    let record = event::Signal { header, target, signal: SIGKILL, code: SI_KERNEL };
    emit::fixed(emit::ring(ring), kind::OOM_KILL, record);
    0
}
