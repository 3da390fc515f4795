//! `sched_process_exit(task)`: a thread ends. Reports the exit of a process when its last thread exits.
//!
//! The threads of a process that ends as a whole end at once, each on a CPU of its own. Several may arrive
//! here after the last of them was counted down, and each of these writes a record. The engine takes the
//! first and drops the others.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use probe_common::{
    event::{self, class::CNI, kind},
    tally::Ring,
};

use super::cni;
use crate::{
    class::{self, Class},
    emit,
    kernel::{switch, task::Task},
    reader_page,
};

#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub(crate) fn exit(ctx: RawTracePointContext) -> i32 {
    let task = Task::at(ctx.arg(0));
    if !task.is_last() || reader_page::is_away() {
        return 0;
    }
    let parent = task.parent();
    let mut class = Class::with(task, || task.leader().comm(), parent, Task::current_container());
    let ring = if let Some(ring) = cni::end(task) {
        class.bits |= CNI;
        ring
    } else if class.is_top() {
        emit::ring_for_container(class.container)
    } else if class.matters() || !class.container.is_some() && class::is_host_caller(parent) {
        Ring::Lifecycle
    } else if switch!(all_execs) == 1 {
        Ring::Bulk
    } else {
        return 0;
    };
    let header = emit::header::<event::Exit>(kind::EXIT, 0);
    emit::fixed(ring, kind::EXIT, event::Exit { header, status: task.status(), class: class.bits });
    0
}
