//! `mark_victim`: the OOM killer chose a process. It passes the task since 6.8 and where that was taken back into older
//! kernels, else only the pid: which process that is, user space finds out.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use probe_common::{
    event::{self, kind},
    tally::Ring,
};

use crate::{
    emit,
    kernel::{switch, task::Task},
};

const SIGKILL: u32 = 9;
const SI_KERNEL: i32 = 0x80;

#[raw_tracepoint(tracepoint = "mark_victim")]
pub(crate) fn oom(ctx: RawTracePointContext) -> i32 {
    let target = if switch!(oom_passes_task) == 1 {
        Task::at(ctx.arg(0)).describe()
    } else {
        let pid: u32 = ctx.arg(0);
        event::Task { pid, tid: pid, ..event::Task::default() }
    };
    let header = emit::header::<event::Signal>(kind::OOM_KILL, 0);
    let record = event::Signal { header, target, signal: SIGKILL, code: SI_KERNEL };
    emit::fixed(Ring::Lifecycle, kind::OOM_KILL, record);
    0
}
