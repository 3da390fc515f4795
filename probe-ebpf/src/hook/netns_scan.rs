//! Network namespaces where there are neither kprobes nor fentry.
//!
//! A namespace began if a fork's child is in another one than its parent, or if an `unshare` with
//! `CLONE_NEWNET` succeeded. Syscall tracepoints slow every syscall a little, so they are attached in this
//! tier only. A namespace ended if it has no reference left when the worker that runs `cleanup_net` starts.
//! The programs must know a namespace to see its end, so the forks and exits of the tasks in a namespace that
//! is older than the hooks make it known. The table has a fixed size. A namespace that finds no room in it is
//! reported with `flag::END_UNSEEN`, and is counted.

use aya_ebpf::{
    EbpfContext,
    helpers::bpf_get_current_pid_tgid,
    macros::{map, raw_tracepoint, tracepoint},
    maps::{Array, LruHashMap},
    programs::{RawTracePointContext, TracePointContext},
};
use probe_common::{event::flag, id::NetnsKey, knob::NETS_MAX, netns::Slot, table};

use super::netns;
use crate::{
    branchless::is_zero,
    emit,
    kernel::{net::Net, offset, read, switch, task::Task},
    reader_page,
};

/// Network namespaces to check when some of them end.
#[map]
static NETS: Array<Slot> = Array::with_max_entries(NETS_MAX, 0);

/// The namespaces that are in `NETS`, by the address of `struct net`.
#[map]
static TRACKED: LruHashMap<u64, NetnsKey> = LruHashMap::with_max_entries(table::TRACKED, 0);

/// The address of the initial namespace once a program has seen it. Most processes are in that one, and it
/// never ends.
#[map]
static INITIAL: Array<u64> = Array::with_max_entries(1, 0);

#[map]
static ENDING: Array<Ending> = Array::with_max_entries(1, 0);

/// Threads in `unshare(CLONE_NEWNET)`.
#[map]
static UNSHARING: LruHashMap<u64, u8> = LruHashMap::with_max_entries(table::UNSHARING, 0);

/// How many ends one check can find: all, because the next check may be long after.
const ENDING_MAX: usize = NETS_MAX as usize;

/// The slots of the namespaces that the running `cleanup_net` takes down. There is one worker for all.
#[repr(C)]
pub(crate) struct Ending {
    n: u64,
    slots: [u32; ENDING_MAX],
}

#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub(crate) fn netns_fork(ctx: RawTracePointContext) -> i32 {
    if reader_page::is_away() {
        return 0;
    }
    let net = Task::at(ctx.arg(1)).net();
    let Some(tracked) = track(net) else { return 0 };
    if net != Task::at(ctx.arg(0)).net() {
        began(net, tracked);
    }
    0
}

/// Reports a new namespace.
#[inline(always)]
fn began(net: Net, tracked: bool) {
    if !tracked {
        emit::tally(|tally| tally.netns_untracked += 1);
    }
    netns::created(net, if tracked { 0 } else { flag::END_UNSEEN });
}

/// Makes a namespace known that is older than the hooks, before its last process leaves it; for `netns_work`.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub(crate) fn netns_exit(ctx: RawTracePointContext) -> i32 {
    if reader_page::is_away() {
        return 0;
    }
    track(Task::at(ctx.arg(0)).net());
    0
}

/// The records of `sys_enter_*` and `sys_exit_*`: common fields and the syscall's number in the first 16
/// bytes, then the first argument or the result.
const SYSCALL_VALUE: usize = 16;

#[inline(always)]
fn syscall_value(ctx: &TracePointContext) -> u64 {
    // SAFETY: the record is at least this long.
    unsafe { *ctx.as_ptr().cast::<u8>().add(SYSCALL_VALUE).cast::<u64>() }
}

#[tracepoint(category = "syscalls", name = "sys_enter_unshare")]
pub(crate) fn netns_unsharing(ctx: TracePointContext) -> u32 {
    if syscall_value(&ctx) & netns::CLONE_NEWNET != 0 && !reader_page::is_away() {
        // Without room for it, the namespace is known only from its first fork or exit.
        emit::keep(&UNSHARING, bpf_get_current_pid_tgid(), 1);
    }
    0
}

#[tracepoint(category = "syscalls", name = "sys_exit_unshare")]
pub(crate) fn netns_unshare(ctx: TracePointContext) -> u32 {
    if UNSHARING.remove(bpf_get_current_pid_tgid()).is_ok() && syscall_value(&ctx) == 0 {
        let net = Task::current().net();
        if let Some(tracked) = track(net) {
            began(net, tracked);
        }
    }
    0
}

#[raw_tracepoint(tracepoint = "workqueue_execute_start")]
pub(crate) fn netns_work(ctx: RawTracePointContext) -> i32 {
    let work: u64 = ctx.arg(0);
    if read::<u64>(work, offset!(work_func)) == switch!(cleanup_net) && !reader_page::is_away() {
        look();
    }
    0
}

/// `WORK_STRUCT_PENDING_BIT`: the work is queued to run once more.
const PENDING: u64 = 1;

/// `(struct work_struct *, work_func_t)`. The work of `cleanup_net` is static. The work of any other function
/// may be freed by now, so it is not read.
#[raw_tracepoint(tracepoint = "workqueue_execute_end")]
pub(crate) fn netns_worked(ctx: RawTracePointContext) -> i32 {
    let function: u64 = ctx.arg(1);
    if function != switch!(cleanup_net) || reader_page::is_away() {
        return 0;
    }
    end();
    // Some may have ended after the first check. This run has taken them, or the work is queued again.
    look();
    if read::<u64>(ctx.arg(0), offset!(work_data)) & PENDING == 0 {
        end();
    }
    0
}

#[inline(always)]
fn end() {
    for i in 0..ENDING_MAX {
        netns_end(i as u64);
    }
}

/// Finds the namespaces without a reference, and reports each once.
#[inline(always)]
fn look() {
    netns_find();
    for i in 0..ENDING_MAX {
        netns_drop(i as u64);
    }
}

/// Lists the namespaces without a reference. Each step has one way out and one way on: see
/// `environment::env_scan`.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn netns_find() -> u64 {
    let Some(ending) = ENDING.get_ptr_mut(0) else { return 0 };
    // SAFETY: the array's only value, and only this worker uses it.
    let ending = unsafe { &mut *ending };
    ending.n = 0;
    for i in 0..NETS_MAX {
        let Some(slot) = NETS.get_ptr_mut(i) else { break };
        // SAFETY: an array's value; any other writer writes only free ones.
        let slot = unsafe { &*slot };
        let is_ending = is_zero(u64::from(Net::at(slot.net).references())) | slot.dropped & 1;
        // The next slot overwrites this one unless the counter goes on.
        ending.slots[(ending.n & const { ENDING_MAX as u64 - 1 }) as usize] = i;
        ending.n += is_ending & (is_zero(slot.net) ^ 1);
    }
    0
}

/// Reports that one of the list has no reference left.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn netns_drop(i: u64) -> u64 {
    if let Some(slot) = ending(i)
        && slot.dropped == 0
    {
        slot.dropped = 1;
        netns::dropped_late(slot.key);
    }
    0
}

/// Reports that one of the list has been taken down, and forgets it, unless its memory, and so its slot,
/// belongs to another namespace now.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn netns_end(i: u64) -> u64 {
    if let Some(slot) = ending(i)
        && slot.dropped == 1
    {
        netns::freed_late(slot.key);
        // It is absent if another entry needed the room.
        let _ = TRACKED.remove(slot.net);
        slot.net = 0;
    }
    0
}

/// Returns the i-th slot of the list; `None` after its end.
#[inline(always)]
fn ending(i: u64) -> Option<&'static mut Slot> {
    let ending = ENDING.get_ptr_mut(0)?;
    // SAFETY: the array's only value, and only this worker uses it.
    let ending = unsafe { &*ending };
    if i >= ending.n {
        return None;
    }
    let slot = NETS.get_ptr_mut(*ending.slots.get(i as usize)?)?;
    // SAFETY: an array's value; any other writer writes only free ones.
    Some(unsafe { &mut *slot })
}

/// Makes a network namespace known, and returns whether there is room for it. `None`: its end is not to be
/// seen, because it is the initial one or not a namespace at all.
#[inline(always)]
fn track(net: Net) -> Option<bool> {
    let at = net.address();
    let initial = INITIAL.get_ptr_mut(0)?;
    // SAFETY: the array's only value. Every program writes the same address to it.
    let initial = unsafe { &mut *initial };
    if *initial == at {
        return None;
    }
    let key = net.key();
    if key.inode == switch!(init_netns) {
        *initial = at;
        return None;
    }
    // A task that has given up its namespaces has none with an inode.
    if key.inode == 0 {
        return None;
    }
    // SAFETY: a map's value stays readable while the program runs.
    if unsafe { TRACKED.get(at) }.copied() == Some(key) {
        return Some(true);
    }
    let start = Slot::first(at);
    let room = switch!(nets);
    for i in 0..NETS_MAX {
        if i >= room {
            return Some(false);
        }
        let at_slot = start.wrapping_add(i) & room.wrapping_sub(1);
        let Some(slot) = NETS.get_ptr_mut(at_slot) else { return Some(false) };
        // SAFETY: an array's value.
        let slot = unsafe { &mut *slot };
        if slot.net == 0 || slot.net == at {
            *slot = Slot { net: at, key, dropped: 0 };
            // Without room for it, the slot is merely searched for again.
            emit::keep(&TRACKED, at, key);
            return Some(true);
        }
    }
    Some(false)
}
