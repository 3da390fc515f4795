//! `signal_generate(sig, info, task, group, result)`: a signal was sent. The sender is the current task.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use probe_common::event::{self, kind};

use crate::{
    class::Class,
    emit,
    kernel::{offset, read, task::Task},
    reader_page,
};

/// `TRACE_SIGNAL_DELIVERED`: neither ignored nor pending already.
const DELIVERED: i32 = 0;

/// `SEND_SIG_NOINFO` (from user space, without details) and `SEND_SIG_PRIV` (the kernel's own), in place of a
/// pointer.
const SEND_SIG_PRIV: u64 = 1;
const SI_KERNEL: i32 = 0x80;

/// Signals whose default action ends the process; bit n - 1 for signal n. Not among them are CHLD, CONT, the
/// four that stop, URG, WINCH, and the signals of interval timers (ALRM, VTALRM, PROF), which a process gets
/// from itself, a profiled one a hundred times a second; if one of them ends it, its exit status says so.
const FATAL: u64 = {
    const SPARED: [u32; 11] = [17, 18, 19, 20, 21, 22, 23, 28, 14, 26, 27];
    let (mut fatal, mut i) = (u64::MAX, 0);
    while i < SPARED.len() {
        fatal &= !(1 << (SPARED[i] - 1));
        i += 1;
    }
    fatal
};

#[raw_tracepoint(tracepoint = "signal_generate")]
pub(crate) fn signal(ctx: RawTracePointContext) -> i32 {
    let signal: u32 = ctx.arg(0);
    let info: u64 = ctx.arg(1);
    let result: i32 = ctx.arg(4);
    if result != DELIVERED || signal == 0 || FATAL >> ((signal - 1) & 63) & 1 == 0 {
        return 0;
    }
    if reader_page::is_away() {
        return 0;
    }
    let target = Task::at(ctx.arg(2)).leader();
    let class = Class::of(target);
    if !class.matters() {
        return 0;
    }
    // The sender pays. A container may signal its own top as often as it likes and, with the host's pid
    // namespace, other processes and the node's own; what the node itself sends is always reported.
    let ring = emit::ring_for(Task::current());
    let code = match info {
        0 => 0,
        SEND_SIG_PRIV => SI_KERNEL,
        info => read(info, offset!(siginfo_code)),
    };
    signal_send(ring as u64, target.address(), u64::from(signal), code as u64);
    0
}

/// A function of its own, so that its record is not on the stack while `container` is called: both share 512
/// bytes.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn signal_send(ring: u64, target: u64, signal: u64, code: u64) -> u64 {
    let header = emit::header::<event::Signal>(kind::SIGNAL, 0);
    let target = Task::at(target).describe();
    let record = event::Signal { header, target, signal: signal as u32, code: code as i32 };
    emit::fixed(emit::ring(ring), kind::SIGNAL, record);
    0
}
