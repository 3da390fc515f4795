//! `sched_process_exec(task, old_pid, bprm)`: a program began. CNI calls are execs too: `cni`.

use core::ffi::c_void;

use aya_ebpf::{
    helpers::generated::bpf_probe_read_user,
    macros::{map, raw_tracepoint},
    maps::{LruHashMap, PerCpuArray},
    programs::RawTracePointContext,
};
use aya_log_ebpf::debug;
use probe_common::{
    event::{
        self,
        class::ORDER,
        exec::{ARGV, FILENAME},
        kind,
    },
    id::TaskKey,
    table,
    tally::Ring,
};

use super::{cni, environment::Environment};
use crate::{
    class::Class,
    emit,
    kernel::{binprm::read_filename, offset, read, switch, task::Task},
    reader_page,
};

/// How many programs a process has begun as the top of a container.
#[map]
static TOPS: LruHashMap<TaskKey, u32> = LruHashMap::with_max_entries(table::TOPS, 0);

/// Room for a record, which is too large for a program's stack. Only one program uses it. Where tracepoints
/// may be preempted, another program can run on this CPU in between, but not the same one.
#[map]
static EXEC_SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// How many programs one container's top may begin on the lifecycle ring: `runc init` where it is born in the
/// cgroup, the entrypoint, and what a script of that name hands over to.
const FIRST: u32 = 4;

/// Where a record is put together.
#[repr(C)]
struct Scratch {
    body: event::Exec,
    tail: [u8; FILENAME + ARGV],
}

#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub(crate) fn exec(ctx: RawTracePointContext) -> i32 {
    if reader_page::is_away() {
        return 0;
    }
    // An exec ends all other threads, so the task is the leader of its process.
    let task = Task::at(ctx.arg(0));
    let binprm: u64 = ctx.arg(2);
    let (comm, parent) = (task.comm(), task.parent());
    let mut class = Class::with(task, || comm, parent, Task::current_container());
    debug!(&ctx, "exec of {} has class {}", task.tgid(), class.bits);
    if cni::may_be_call(task, binprm, comm, parent) {
        Environment::search(task.mm());
        if cni::tell(task, binprm, class) {
            return 0;
        }
    }
    let ring = if class.is_top() {
        ring_for_top(task, class)
    } else if class.matters() {
        Ring::Lifecycle
    } else if class.may_order(task, comm) {
        if switch!(all_execs) == 0 {
            class.bits |= ORDER;
        }
        Ring::Lifecycle
    } else if switch!(all_execs) == 1 {
        Ring::Bulk
    } else {
        return 0;
    };
    exec_send(ring as u64, task.address(), binprm, u64::from(class.bits));
    0
}

#[inline(always)]
fn ring_for_top(task: Task, class: Class) -> Ring {
    let key = task.key();
    let begun = match TOPS.get_ptr_mut(key) {
        // SAFETY: a map's value stays readable and writable while the program runs.
        Some(begun) => unsafe {
            *begun += 1;
            *begun
        },
        None => {
            // Without room for it, the container's budget is the only limit.
            emit::keep(&TOPS, key, 1);
            1
        }
    };
    if begun > FIRST { Ring::Bulk } else { emit::ring_for_container(class.container) }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn exec_send(ring: u64, task: u64, binprm: u64, class: u64) -> u64 {
    let Some(scratch) = EXEC_SCRATCH.get_ptr_mut(0) else { return 0 };
    // SAFETY: this CPU's value, which only one program uses: see the map.
    let scratch = unsafe { &mut *scratch };
    let task = Task::at(task);
    let filename_len = read_filename(&mut scratch.tail, binprm);
    let mm = task.mm();
    let start: u64 = read(mm, offset!(mm_arg_start));
    let total = read::<u64>(mm, offset!(mm_arg_end)).wrapping_sub(start);
    let argv_len = if total > ARGV as u64 { ARGV as u64 } else { total };
    // SAFETY: at most `FILENAME` - 1 and `ARGV` bytes of a tail that has room for both; any address may be
    // read.
    unsafe {
        let to = scratch.tail.as_mut_ptr().add(filename_len as usize);
        bpf_probe_read_user(to.cast::<c_void>(), argv_len as u32, start as *const c_void);
    }
    let (ns_pid, pid_ns) = task.pid_ns();
    scratch.body = event::Exec {
        header: emit::header::<event::Exec>(kind::EXEC, 0),
        class: class as u32,
        ns_pid,
        pid_ns,
        mnt_ns: task.mnt_ns(),
        argv_total: total as u32,
        filename_len: filename_len as u16,
        argv_len: argv_len as u16,
    };
    let len = size_of::<event::Exec>() as u64 + filename_len + argv_len;
    scratch.body.header.len = len as u32;
    // SAFETY: body and tail are in one struct without padding between, and `len` counts what was written of
    // it.
    unsafe { emit::bytes(emit::ring(ring), kind::EXEC, &raw const *scratch, len) };
    0
}
