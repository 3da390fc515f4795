//! Every map. The loader may set the sizes of the rings, and sets those of the hashes; nothing else here is written by user
//! space.
//!
//! The hashes are LRU: what runs in containers can fill them, and then the oldest entry goes, never the newest
//! (`probe_common::table`).

use aya_ebpf::{
    bindings::BPF_ANY,
    macros::map,
    maps::{Array, LruHashMap, PerCpuArray, RingBuf},
};
use probe_common::{
    id::{NetnsKey, TaskKey},
    knob::NETS_MAX,
    table,
    tally::Tally,
};

use crate::{
    emit::{self, Budget},
    hook::{
        cgroup::Scratch as CgroupScratch,
        cni::Scratch as CniScratch,
        environment::Environment,
        exec::Scratch as ExecScratch,
        netns::Known,
        netns_scan::{Ending, Slot},
    },
    kernel::cgroup::Name,
};

#[map]
pub(crate) static LIFECYCLE: RingBuf = RingBuf::with_byte_size(4 << 20, 0);

#[map]
pub(crate) static BULK: RingBuf = RingBuf::with_byte_size(8 << 20, 0);

#[map]
pub(crate) static TALLY: PerCpuArray<Tally> = PerCpuArray::with_max_entries(1, 0);

/// What each sender has lately put on the lifecycle ring.
#[map]
pub(crate) static BUDGETS: LruHashMap<u64, Budget> = LruHashMap::with_max_entries(table::BUDGETS, 0);

/// How many programs a process has begun as the top of a container.
#[map]
pub(crate) static TOPS: LruHashMap<TaskKey, u32> = LruHashMap::with_max_entries(table::TOPS, 0);

/// CNI plugins that run, and the ring that told of each.
#[map]
pub(crate) static CNI_TASKS: LruHashMap<TaskKey, u32> = LruHashMap::with_max_entries(table::CNI_TASKS, 0);

/// Network namespaces by inode, from creation or drop until they are freed.
#[map]
pub(crate) static NETNS: LruHashMap<u32, Known> = LruHashMap::with_max_entries(table::NETNS, 0);

/// Network namespaces to look at when some of them end; only in the tier without kprobes and fentry.
#[map]
pub(crate) static NETS: Array<Slot> = Array::with_max_entries(NETS_MAX, 0);

/// Those that are in `NETS`, by the address of `struct net`.
#[map]
pub(crate) static TRACKED: LruHashMap<u64, NetnsKey> = LruHashMap::with_max_entries(table::TRACKED, 0);

/// Puts an entry into a table, or counts that it could not.
#[inline(always)]
pub(crate) fn keep<K, V>(table: &LruHashMap<K, V>, key: K, value: V) {
    if table.insert(key, value, u64::from(BPF_ANY)).is_err() {
        emit::tally(|tally| tally.not_kept += 1);
    }
}

#[map]
pub(crate) static ENDING: Array<Ending> = Array::with_max_entries(1, 0);

/// Threads in `unshare(CLONE_NEWNET)`.
#[map]
pub(crate) static UNSHARING: LruHashMap<u64, u8> = LruHashMap::with_max_entries(table::UNSHARING, 0);

/// Addresses that have been told of, by the address of their struct, and what they were.
#[map]
pub(crate) static ADDRESSES: LruHashMap<u64, u64> = LruHashMap::with_max_entries(table::ADDRESSES, 0);

/// What is too large for a program's stack, for each program its own: where tracepoints may be preempted, another
/// program can run on this CPU in between, but not the same one.
#[map]
pub(crate) static EXEC_SCRATCH: PerCpuArray<ExecScratch> = PerCpuArray::with_max_entries(1, 0);

#[map]
pub(crate) static CNI_SCRATCH: PerCpuArray<CniScratch> = PerCpuArray::with_max_entries(1, 0);

#[map]
pub(crate) static ENVIRONMENT: PerCpuArray<Environment> = PerCpuArray::with_max_entries(1, 0);

/// Where the names of cgroups are copied to be measured: for all programs, since nobody reads it.
#[map]
pub(crate) static NAME: PerCpuArray<Name> = PerCpuArray::with_max_entries(1, 0);

/// By kind, from `CGROUP_CREATED`.
#[map]
pub(crate) static CGROUP_SCRATCH: PerCpuArray<CgroupScratch> = PerCpuArray::with_max_entries(5, 0);
