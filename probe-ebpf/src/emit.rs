//! The only writer of the rings: whatever is sent or lost is counted here.

use core::ffi::c_void;

use aya_ebpf::{
    helpers::generated::{bpf_get_smp_processor_id, bpf_ktime_get_boot_ns, bpf_ringbuf_output},
    maps::RingBuf,
};
use probe_common::{event::Header, tally::Ring};
use zerocopy::IntoBytes;

use crate::{
    kernel::{cgroup::Container, net::Net, task::Task},
    map::{self, BUDGETS, BULK, LIFECYCLE, TALLY},
};

/// Records on the lifecycle ring in a second, about, that one container can cause, or one network namespace. What is
/// more goes to the bulk ring.
const SECOND: u32 = 30;
const LIMIT: u64 = 64;

/// What a container has spent of its `LIMIT` in the current `SECOND` (2^30 ns).
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    second: u64,
    spent: u64,
}

/// The ring for what was done by a task in `container`.
#[inline(always)]
pub(crate) fn ring_for_container(container: Container) -> Ring {
    if container.is_some() { ring_within_budget(container.id()) } else { Ring::Lifecycle }
}

/// The ring for what was done to `net`. Not by its maker: addresses come and go in the context of workers too.
#[inline(always)]
pub(crate) fn ring_for_net(net: Net) -> Ring {
    // Ids of cgroups are counted up from 1 and stay far below this bit.
    const NETNS: u64 = 1 << 63;
    if net.is_initial() { Ring::Lifecycle } else { ring_within_budget(NETNS | u64::from(net.inode())) }
}

/// Two CPUs may count at the same time and lose one of their counts, which a limit of this kind can bear.
#[inline(always)]
fn ring_within_budget(owner: u64) -> Ring {
    let second = now() >> SECOND;
    let Some(budget) = BUDGETS.get_ptr_mut(owner) else {
        // Without room for it the owner merely stays without a limit.
        map::keep(&BUDGETS, owner, Budget { second, spent: 1 });
        return Ring::Lifecycle;
    };
    // SAFETY: a map's value stays readable and writable while the program runs, even if its entry is reused.
    let budget = unsafe { &mut *budget };
    if budget.second != second {
        *budget = Budget { second, spent: 0 };
    }
    budget.spent += 1;
    if budget.spent > LIMIT { Ring::Bulk } else { Ring::Lifecycle }
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_ktime_get_boot_ns() }
}

/// The header of a record of type `T` without tail.
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
    let sent = match map_of(ring).reserve::<T>(0) {
        Some(mut entry) => {
            entry.write(record);
            entry.submit(0);
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

/// A ring that went through a function as a number.
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

/// Counts a record by this CPU's tally. A program on the same CPU in the middle of this line can cost one count
/// where tracepoints may be preempted.
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
pub(crate) fn tally(change: impl FnOnce(&mut probe_common::tally::Tally)) {
    if let Some(tally) = TALLY.get_ptr_mut(0) {
        // SAFETY: this CPU's value, which lives as long as the map.
        change(unsafe { &mut *tally });
    }
}
