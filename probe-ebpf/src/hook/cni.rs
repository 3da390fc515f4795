//! A CNI call: an exec with `CNI_COMMAND` in its environment.
//!
//! Whether the node's own runtime made the call is decided by what a container cannot arrange: it is in the host's
//! pid namespace, in no container's cgroup, root's in the initial user namespace, and descends from a known caller (root's
//! too, by a program that lends nobody root's rights) with the same mount namespace. What else looks like a call may be a CNI daemon's delegate, and is told of without `flag::HOST`.
//!
//! A plugin's children (`iptables`) inherit the variables and are told of too: only `CNI_PATH` and the filename tell
//! them from plugins, which is compared where strings are cheap.

use core::ffi::c_void;

use aya_ebpf::{
    helpers::generated::bpf_probe_read_user,
    macros::map,
    maps::{LruHashMap, PerCpuArray},
};
use probe_common::{
    event::{
        self,
        cni::{ARGS, COMMAND, CONTAINERID, IFNAME, NAMES, NETNS, PATH, VARIABLES},
        exec::FILENAME,
        flag, kind,
    },
    id::TaskKey,
    table,
    tally::Ring,
    text::Comm,
};

use super::environment::Environment;
use crate::{
    class::{self, Class},
    emit,
    kernel::{binprm::read_filename, switch, task::Task},
};

/// CNI plugins that run, and the ring that told of each.
#[map]
pub(super) static CNI_TASKS: LruHashMap<TaskKey, u32> = LruHashMap::with_max_entries(table::CNI_TASKS, 0);

/// What is too large for a program's stack. No other program uses it: where tracepoints may be preempted, another program
/// can run on this CPU in between, but not the same one.
#[map]
static CNI_SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// How many ancestors may be between a plugin and the runtime: a plugin may call plugins.
const ANCESTORS: u32 = 8;

/// Room for the tail, a power of two, so that a mask keeps what is written within it: the verifier need not know the
/// sum of the lengths.
const TAIL: usize = 4096;

/// Behind it, room for one more of the longest value.
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
    /// The end of what has been copied to the tail, and whether something was cut.
    end: u64,
    cut: u64,
}

/// Tells of a CNI call, if `Environment::search` found one.
#[inline(always)]
pub(super) fn tell(task: Task, binprm: u64, class: Class) -> bool {
    let Some(env) = Environment::get() else { return false };
    let truncated = env.scanned < env.total;
    if truncated && env.present() != 0 {
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
    // The exit is told of on the same ring; without room for it a plugin's end is not.
    emit::keep(&CNI_TASKS, task.key(), ring as u32);
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

/// The nearest ancestor that is a known caller of the host, or null.
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
    // SAFETY: this CPU's value, used by one program alone: see the map.
    let scratch = unsafe { &mut *scratch };
    let (filename_len, cut) = read_filename(&mut scratch.tail, binprm);
    scratch.cut = u64::from(cut);
    scratch.end = filename_len;
    // Member by member: put together first, it would be on the stack as a whole.
    let body = &mut scratch.body;
    if caller == 0 {
        body.caller = TaskKey::default();
        body.caller_comm = Comm::default();
    } else {
        body.caller = Task::at(caller).key();
        body.caller_comm = Task::at(caller).comm();
    }
    body.header = emit::header::<event::CniCall>(kind::CNI_CALL, flags as u16);
    body.env_total = env.total as u32;
    body.env_scanned = env.scanned as u32;
    body.present = env.present() as u16;
    body.filename_len = filename_len as u16;
    copy::<COMMAND>(scratch, env);
    copy::<CONTAINERID>(scratch, env);
    copy::<NETNS>(scratch, env);
    copy::<IFNAME>(scratch, env);
    copy::<ARGS>(scratch, env);
    copy::<PATH>(scratch, env);
    scratch.body.header.flags |= scratch.cut as u16 * flag::TRUNCATED;
    let len = size_of::<event::CniCall>() as u64 + (scratch.end & const { TAIL as u64 - 1 });
    scratch.body.header.len = len as u32;
    // SAFETY: body and tail are in one struct without padding between, and `len` counts what was written of it.
    unsafe { emit::bytes(emit::ring(ring), kind::CNI_CALL, &raw const *scratch, len) };
    0
}

/// Copies a variable's value to the tail's end and moves that behind it.
#[inline(always)]
fn copy<const VARIABLE: usize>(scratch: &mut Scratch, env: &Environment) {
    let (address, mut len) = env.value(VARIABLE);
    if len > NAMES[VARIABLE].1 as u64 {
        scratch.cut = 1;
        len = NAMES[VARIABLE].1 as u64;
    }
    let end = scratch.end & const { TAIL as u64 - 1 };
    // SAFETY: behind the tail there is room for the longest value; any address may be read.
    unsafe {
        let to = scratch.tail.as_mut_ptr().add(end as usize);
        bpf_probe_read_user(to.cast::<c_void>(), len as u32, address as *const c_void);
    }
    scratch.body.lens[VARIABLE] = len as u16;
    scratch.end = end + len;
}
