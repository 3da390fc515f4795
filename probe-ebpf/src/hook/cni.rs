//! A CNI call: an exec with `CNI_COMMAND` in its environment.
//!
//! **Which execs may be calls.** A search costs as much as the environment is long, so most execs must do
//! without. The program searches the environment of an exec if one of these holds, and of no other
//! (`may_be_call`):
//!
//! 1. A call of the node's own runtime is open. Any exec may then be its delegate, or a program that the
//!    plugin runs.
//! 2. The exec has the name of a plugin of CNI's own project (`probe_common::name::PLUGINS`).
//! 3. Its parent has the name of a program that calls plugins (`probe_common::name::CALLERS`), wherever that
//!    runs and whosever it is.
//! 4. It has the form that CNI's specification gives a call: no arguments, and a standard input that can hold
//!    a configuration, which a terminal and `/dev/null` cannot. libcni executes plugins so, and with it all
//!    known runtimes, `cnitool`, the daemons in containers that delegate (multus) and the plugins that call
//!    others.
//!
//! So an exec with CNI's variables is missed only if an unknown program executes a plugin of unknown name,
//! with arguments or without a configuration, and while no call of the runtime is open.
//!
//! **Who made a call.** The node's own runtime made it if all of this holds, which no container can arrange:
//! the plugin is in the host's pid namespace, in no container's cgroup, and root's in the initial user
//! namespace; it descends from a known caller in the same mount namespace, which is root's too and whose file
//! is not setuid. Any other call may be that of a CNI daemon's delegate, and is reported without
//! `flag::HOST`.
//!
//! A plugin's children (`iptables`) inherit the variables and are reported too. Only `CNI_PATH` and the
//! filename distinguish them from plugins. User space compares those, where strings are cheap.

use core::{arch::asm, ffi::c_void};

use aya_ebpf::{
    helpers::generated::bpf_probe_read_user,
    macros::map,
    maps::{Array, LruHashMap, PerCpuArray},
};
use probe_common::{
    event::{
        self,
        cni::{ARGS, COMMAND, CONTAINERID, IFNAME, NAMES, NETNS, PATH, TRACEPARENT, TRACESTATE, VARIABLES},
        exec::FILENAME,
        flag, kind,
    },
    id::TaskKey,
    table,
    tally::{RINGS, Ring},
    text::Comm,
};

use super::environment::Environment;
use crate::{
    class::{self, Class},
    emit,
    kernel::{
        binprm::{has_no_arguments, read_filename},
        switch,
        task::Task,
    },
    reader_page::MMAPABLE,
};

/// The processes of open calls: those of the node's runtime, which the lifecycle ring reported, and all
/// others, which the bulk ring reported. Containers can fill the second table but not the first.
#[map]
static CNI_CALLS: LruHashMap<TaskKey, u8> = LruHashMap::with_max_entries(table::CNI_CALLS, 0);
#[map]
static CNI_DELEGATES: LruHashMap<TaskKey, u8> = LruHashMap::with_max_entries(table::CNI_DELEGATES, 0);

/// How many entries each of the two tables has. An entry that was dropped for lack of room, or whose process
/// ended in a run that the kernel skipped, stays counted. The programs then search and look up more than they
/// need, and miss nothing. The agent adds the calls that earlier hooks know.
#[map]
static CNI_OPEN: Array<u64> = Array::with_max_entries(RINGS as u32, MMAPABLE);

/// Room for a record, which is too large for a program's stack. Only one program uses it. Where tracepoints
/// may be preempted, another program can run on this CPU in between, but not the same one.
#[map]
static CNI_SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// How many ancestors may be between a plugin and the runtime: a plugin may call plugins.
const ANCESTORS: u32 = 8;

/// Room for the tail, a power of two, so that a mask keeps what is written within it: the verifier need not
/// know the sum of the lengths.
const TAIL: usize = 4096;

/// Room for one more of the longest value, after the tail.
const SPARE: usize = 1024;

const _: () = {
    let (mut sum, mut i) = (FILENAME, 0);
    while i < VARIABLES {
        assert!(NAMES[i].1 <= SPARE);
        sum += NAMES[i].1;
        i += 1;
    }
    assert!(sum < TAIL);
};

/// Where a call's record is put together.
#[repr(C)]
struct Scratch {
    body: event::CniCall,
    tail: [u8; TAIL + SPARE],
    /// The end of what has been copied to the tail.
    end: u64,
}

/// Whether an exec may be a call, by the four rules above. `comm` is its new name.
#[inline(always)]
pub(super) fn may_be_call(task: Task, binprm: u64, comm: Comm, parent: Task) -> bool {
    is_any_open(Ring::Lifecycle)
        || class::is_named_plugin(comm)
        || class::is_named_caller(parent.comm())
        || has_no_arguments(binprm) && task.is_given_input()
}

#[inline(always)]
fn is_any_open(ring: Ring) -> bool {
    let Some(count) = CNI_OPEN.get_ptr(ring as u32) else { return false };
    // SAFETY: an array's value, one word.
    unsafe { count.read_volatile() != 0 }
}

/// Changes the number of open calls. Rust's core library has no atomic addition for eBPF.
#[inline(always)]
fn count(ring: Ring, change: i64) {
    let Some(count) = CNI_OPEN.get_ptr_mut(ring as u32) else { return };
    // SAFETY: an array's value, which programs on all CPUs change in this way alone.
    unsafe {
        asm!("lock *(u64 *)({0} + 0) += {1}", in(reg) count, in(reg) change, options(nostack, preserves_flags));
    }
}

#[inline(always)]
fn table_of(ring: Ring) -> &'static LruHashMap<TaskKey, u8> {
    match ring {
        Ring::Lifecycle => &CNI_CALLS,
        Ring::Bulk => &CNI_DELEGATES,
    }
}

/// Remembers that a process is a call, so that the same ring reports its end. A process that executes another
/// plugin is in the table already.
#[inline(always)]
fn begin(ring: Ring, key: TaskKey) {
    let table = table_of(ring);
    // Without room for it, the plugin's end is not reported.
    if table.get_ptr(key).is_none() && emit::keep(table, key, 1) {
        count(ring, 1);
    }
}

/// Returns the ring that reported the call, if the process that ends was one.
#[inline(always)]
pub(super) fn end(task: Task) -> Option<Ring> {
    [Ring::Lifecycle, Ring::Bulk].into_iter().find(|ring| ended(*ring, task))
}

#[inline(always)]
fn ended(ring: Ring, task: Task) -> bool {
    let was_call = is_any_open(ring) && table_of(ring).remove(task.key()).is_ok();
    if was_call {
        count(ring, -1);
    }
    was_call
}

/// Reports a CNI call, if `Environment::search` found one.
#[inline(always)]
pub(super) fn tell(task: Task, binprm: u64, class: Class) -> bool {
    let Some(env) = Environment::get() else { return false };
    let truncated = env.scanned < env.total;
    if truncated && env.present() & const { (1 << TRACEPARENT) - 1 } != 0 {
        emit::tally(|tally| tally.env_truncated += 1);
    }
    if env.has(COMMAND) == 0 || is_only_counted(env.command) {
        return false;
    }
    let caller = cni_caller(task.address());
    let host = caller != 0
        && !class.container.is_some()
        && task.is_root() == 1
        && task.pid_ns().1 == switch!(host_pid_ns)
        && task.mnt_ns() == Task::at(caller).mnt_ns();
    if !host && env.has(CONTAINERID) == 0 {
        return false;
    }
    let ring = if host { Ring::Lifecycle } else { Ring::Bulk };
    begin(ring, task.key());
    let flags = if host { flag::HOST } else { 0 } | if truncated { flag::ENV_TRUNCATED } else { 0 };
    cni_send(ring as u64, u64::from(flags), caller, binprm);
    true
}

/// `VERSION` and `STATUS` ask about the plugin and not for a pod.
#[inline(always)]
fn is_only_counted(command: u64) -> bool {
    const VERSION: u64 = u64::from_ne_bytes(*b"VERSION\0");
    const STATUS: u64 = u64::from_ne_bytes(*b"STATUS\0\0");
    const STATUS_MASK: u64 = u64::from_ne_bytes(*b"\xff\xff\xff\xff\xff\xff\xff\0");
    if command == VERSION {
        emit::tally(|tally| tally.cni_version += 1);
        true
    } else if command & STATUS_MASK == STATUS {
        emit::tally(|tally| tally.cni_status += 1);
        true
    } else {
        false
    }
}

/// Returns the nearest ancestor that is a known caller of the host, or null.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn cni_caller(task: u64) -> u64 {
    let mut ancestor = Task::at(task);
    for _ in 0..ANCESTORS {
        ancestor = ancestor.parent();
        if class::is_host_caller(ancestor) {
            return ancestor.address();
        }
    }
    0
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn cni_send(ring: u64, flags: u64, caller: u64, binprm: u64) -> u64 {
    let (Some(env), Some(scratch)) = (Environment::get(), CNI_SCRATCH.get_ptr_mut(0)) else { return 0 };
    // SAFETY: this CPU's value, which only one program uses: see the map.
    let scratch = unsafe { &mut *scratch };
    let filename_len = read_filename(&mut scratch.tail, binprm);
    scratch.end = filename_len;
    // Member by member: a body that is put together first would be on the stack as a whole.
    let body = &mut scratch.body;
    if caller == 0 {
        body.caller = TaskKey::default();
        body.caller_comm = Comm::default();
    } else {
        body.caller = Task::at(caller).key();
        body.caller_comm = Task::at(caller).comm();
    }
    body.header = emit::header::<event::CniCall>(kind::CNI_CALL, flags as u16);
    body.present = env.present() as u16;
    body.filename_len = filename_len as u16;
    copy::<COMMAND>(scratch, env);
    copy::<CONTAINERID>(scratch, env);
    copy::<NETNS>(scratch, env);
    copy::<IFNAME>(scratch, env);
    copy::<ARGS>(scratch, env);
    copy::<PATH>(scratch, env);
    copy::<TRACEPARENT>(scratch, env);
    copy::<TRACESTATE>(scratch, env);
    let len = size_of::<event::CniCall>() as u64 + (scratch.end & const { TAIL as u64 - 1 });
    scratch.body.header.len = len as u32;
    // SAFETY: body and tail are in one struct without padding between, and `len` counts what was written of
    // it.
    unsafe { emit::bytes(emit::ring(ring), kind::CNI_CALL, &raw const *scratch, len) };
    0
}

/// Copies a variable's value to the tail's end, and moves the end after it.
#[inline(always)]
fn copy<const VARIABLE: usize>(scratch: &mut Scratch, env: &Environment) {
    let (address, mut len) = env.value(VARIABLE);
    if len > NAMES[VARIABLE].1 as u64 {
        len = NAMES[VARIABLE].1 as u64;
    }
    let end = scratch.end & const { TAIL as u64 - 1 };
    // SAFETY: after the tail there is room for the longest value; any address may be read.
    unsafe {
        let to = scratch.tail.as_mut_ptr().add(end as usize);
        bpf_probe_read_user(to.cast::<c_void>(), len as u32, address as *const c_void);
    }
    scratch.body.lens[VARIABLE] = len as u16;
    scratch.end = end + len;
}
