//! The only writer of the rings: whatever is sent or lost is counted here.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::{BPF_ANY, BPF_RB_FORCE_WAKEUP},
    helpers::generated::{bpf_get_smp_processor_id, bpf_ktime_get_boot_ns, bpf_ringbuf_output},
    macros::map,
    maps::{LruHashMap, PerCpuArray, RingBuf},
};
use probe_common::{
    event::{self, Header},
    table,
    tally::{Ring, Tally},
};
use zerocopy::IntoBytes;

use crate::kernel::{cgroup::Container, task::Task};

#[map]
static LIFECYCLE: RingBuf = RingBuf::with_byte_size(4 << 20, 0);

#[map]
static BULK: RingBuf = RingBuf::with_byte_size(8 << 20, 0);

#[map]
static TALLY: PerCpuArray<Tally> = PerCpuArray::with_max_entries(1, 0);

/// What each sender has lately put on the lifecycle ring.
#[map]
static BUDGETS: LruHashMap<u64, Budget> = LruHashMap::with_max_entries(table::BUDGETS, 0);

/// About a second, as a shift: 2^30 ns.
const SECOND: u32 = 30;
/// How many records one sender can put on the lifecycle ring in that time. The rest goes to the bulk ring.
const LIMIT: u64 = 64;

/// The limit that all kernel workers share if nobody knows for whom they work: many pods can end in one
/// second.
const SHARED_LIMIT: u64 = 1024;

/// What a sender has spent of its limit in the current `SECOND` (2^30 ns).
#[derive(Clone, Copy)]
struct Budget {
    second: u64,
    spent: u64,
}

/// Who pays for a record: the container that causes it, or the local users, or nobody, for what the node's
/// own programs do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner(u64);

// Ids of cgroups are counted up from 1 and stay far below these bits.
const NETNS: u64 = 1 << 63;
const COMMON: u64 = 1 << 62;

impl Owner {
    pub(crate) const NODE: Self = Self(0);
    /// Everything that is neither in a container nor root's: one budget, because a user can have many numbers
    /// and cgroups.
    const USERS: Self = Self(COMMON | 1);
    /// Network namespaces whose maker is no longer known.
    pub(crate) const UNKNOWN_NETNS: Self = Self(COMMON | 2);
    /// Cgroup events that no task asks for any more.
    const CGROUPS: Self = Self(COMMON | 3);

    #[inline(always)]
    pub(crate) fn of(task: Task) -> Self {
        let container = task.cgroup().container();
        if container.is_some() {
            Self(container.id())
        } else if task.is_root() == 1 {
            Self::NODE
        } else {
            Self::USERS
        }
    }

    /// Returns the owner for a network namespace that pays for itself.
    #[inline(always)]
    pub(crate) fn netns(inode: u32) -> Self {
        Self(NETNS | u64::from(inode))
    }

    /// Returns the owner with this `number()`.
    #[inline(always)]
    pub(crate) fn at(number: u64) -> Self {
        Self(number)
    }

    #[inline(always)]
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn ring(self) -> Ring {
        if self == Self::NODE { Ring::Lifecycle } else { ring_within_budget(self, LIMIT) }
    }
}

/// Returns the ring for what `task` does.
#[inline(always)]
pub(crate) fn ring_for(task: Task) -> Ring {
    Owner::of(task).ring()
}

/// Returns the ring for what was done by a task in `container`, or by one of the node's own.
#[inline(always)]
pub(crate) fn ring_for_container(container: Container) -> Ring {
    Owner(container.id()).ring()
}

/// Returns the ring for the end of a network namespace whose beginning was not seen or is forgotten.
#[inline(always)]
pub(crate) fn ring_for_unknown_netns() -> Ring {
    shared_ring(Owner::UNKNOWN_NETNS)
}

/// Returns the ring for cgroup events that the current task did not cause.
#[inline(always)]
pub(crate) fn ring_for_idle_cgroup() -> Ring {
    shared_ring(Owner::CGROUPS)
}

/// Returns the ring for what no single sender pays for.
#[inline(always)]
pub(crate) fn shared_ring(owner: Owner) -> Ring {
    ring_within_budget(owner, SHARED_LIMIT)
}

/// Two CPUs may count at the same time and lose one of their counts, which a limit of this kind can tolerate.
#[inline(always)]
fn ring_within_budget(owner: Owner, limit: u64) -> Ring {
    let second = now() >> SECOND;
    let Some(budget) = BUDGETS.get_ptr_mut(owner.0) else {
        // Without room for its entry, the owner merely has no limit.
        keep(&BUDGETS, owner.0, Budget { second, spent: 1 });
        return Ring::Lifecycle;
    };
    // SAFETY: a map's value stays readable and writable while the program runs, even if its entry is reused.
    let budget = unsafe { &mut *budget };
    if budget.second != second {
        *budget = Budget { second, spent: 0 };
    }
    budget.spent += 1;
    if budget.spent > limit { Ring::Bulk } else { Ring::Lifecycle }
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_ktime_get_boot_ns() }
}

/// Returns the header of a record of type `T` without a tail.
#[inline(always)]
pub(crate) fn header<T>(kind: u16, flags: u16) -> Header {
    Header {
        at: now(),
        len: const { size_of::<T>() as u32 },
        kind,
        flags,
        // SAFETY: a helper without arguments.
        cpu: unsafe { bpf_get_smp_processor_id() },
        hierarchy: crate::kernel::switch!(hierarchy),
        task: Task::current().describe(),
    }
}

/// Sends a record of fixed size.
#[inline(always)]
pub(crate) fn fixed<T: IntoBytes + 'static>(ring: Ring, kind: u16, record: T) {
    // The kernel wakes only a reader that has read and given back everything before.
    let wakes = kind == event::URGENT && matches!(ring, Ring::Lifecycle);
    let sent = match map_of(ring).reserve::<T>(0) {
        Some(mut entry) => {
            entry.write(record);
            entry.submit(if wakes { u64::from(BPF_RB_FORCE_WAKEUP) } else { 0 });
            true
        }
        None => false,
    };
    count(ring, kind, sent);
}

/// Sends the first `len` bytes of a record that was put together in a map's value.
///
/// # Safety
/// They lie within the value and have all been written.
#[inline(always)]
pub(crate) unsafe fn bytes<T>(ring: Ring, kind: u16, record: *const T, len: u64) {
    let map = (&raw const *map_of(ring)).cast_mut();
    // SAFETY: the caller's promise; the helper copies from `record` and keeps nothing.
    let result =
        unsafe { bpf_ringbuf_output(map.cast::<c_void>(), record.cast_mut().cast::<c_void>(), len, 0) };
    count(ring, kind, result == 0);
}

/// Returns the ring that was passed through a function as a number.
#[inline(always)]
pub(crate) fn ring(number: u64) -> Ring {
    if number == Ring::Bulk as u64 { Ring::Bulk } else { Ring::Lifecycle }
}

#[inline(always)]
fn map_of(ring: Ring) -> &'static RingBuf {
    match ring {
        Ring::Lifecycle => &LIFECYCLE,
        Ring::Bulk => &BULK,
    }
}

/// Counts a record in this CPU's tally. Where tracepoints may be preempted, another program on the same CPU
/// can make it miss one count.
#[inline(always)]
fn count(ring: Ring, kind: u16, sent: bool) {
    tally(|tally| {
        let counts = if sent { &mut tally.sent } else { &mut tally.lost };
        let counts = match ring {
            Ring::Lifecycle => &mut counts[0],
            Ring::Bulk => &mut counts[1],
        };
        if let Some(count) = counts.get_mut(kind as usize) {
            *count += 1;
        }
    });
}

/// Changes this CPU's tally.
#[inline(always)]
pub(crate) fn tally(change: impl FnOnce(&mut Tally)) {
    if let Some(tally) = TALLY.get_ptr_mut(0) {
        // SAFETY: this CPU's value, which lives as long as the map.
        change(unsafe { &mut *tally });
    }
}

/// Puts an entry into a table, and returns whether that worked; if not, it is counted. The tables are LRU:
/// programs in containers can fill them, and then the oldest entry is dropped, never the newest
/// (`probe_common::table`).
#[inline(always)]
pub(crate) fn keep<K, V>(table: &LruHashMap<K, V>, key: K, value: V) -> bool {
    let kept = table.insert(key, value, u64::from(BPF_ANY)).is_ok();
    if !kept {
        tally(|tally| tally.not_kept += 1);
    }
    kept
}
