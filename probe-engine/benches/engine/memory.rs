//! Counts allocations.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE_BYTES: AtomicU64 = AtomicU64::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// There is one thread, so a load and a store lose nothing, and cost less than an atomic addition.
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
}

// SAFETY: every call goes on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(&ALLOCATIONS, 1);
        add(&LIVE_BYTES, layout.size() as u64);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(&LIVE_BYTES, (layout.size() as u64).wrapping_neg());
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`, and `alloc` above used the same
        // allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(&ALLOCATIONS, 1);
        add(&LIVE_BYTES, (size as u64).wrapping_sub(layout.size() as u64));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`, and `alloc` above used the same
        // allocator.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Returns the number of allocations until now.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.load(Relaxed)
}

/// Returns the bytes that are allocated now.
pub(crate) fn live_bytes() -> u64 {
    LIVE_BYTES.load(Relaxed)
}
