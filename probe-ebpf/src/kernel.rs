//! Kernel memory, read through offsets that the loader took from the running kernel's BTF.

pub(crate) mod address;
pub(crate) mod binprm;
pub(crate) mod cgroup;
pub(crate) mod net;
pub(crate) mod sock;
pub(crate) mod task;

use core::{ffi::c_void, mem::MaybeUninit};

use aya_ebpf::{
    Global,
    helpers::generated::{bpf_probe_read_kernel, bpf_probe_read_kernel_str},
};
use probe_common::knob::{Offsets, Switches};
use zerocopy::FromBytes;

#[unsafe(no_mangle)]
pub(crate) static OFFSETS: Global<Offsets> = Global::new(Offsets::NONE);

#[unsafe(no_mangle)]
pub(crate) static SWITCHES: Global<Switches> = Global::new(Switches::NONE);

/// Reads one field of a global. `Global::load` would copy the whole struct at each use.
macro_rules! field {
    ($global:ident as $type:ty, $field:ident) => {{
        let global = (&raw const $crate::kernel::$global).cast::<$type>();
        // SAFETY: the global is a `$type`, always initialised; volatile since the loader changes it.
        unsafe { core::ptr::read_volatile(&raw const (*global).$field) }
    }};
}

/// Reads the offset of a kernel struct's member.
macro_rules! offset {
    ($field:ident) => {
        $crate::kernel::field!(OFFSETS as probe_common::knob::Offsets, $field)
    };
}

/// Reads what the loader found out or was asked for.
macro_rules! switch {
    ($field:ident) => {
        $crate::kernel::field!(SWITCHES as probe_common::knob::Switches, $field)
    };
}

pub(crate) use {field, offset, switch};

/// Returns the value at `base + offset`; zeroes if that address is not mapped.
#[inline(always)]
pub(crate) fn read<T: FromBytes>(base: u64, offset: u32) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the helper writes all of `value`, which may hold any bytes: zeroes where it cannot read. It
    // takes any address to read from. (If it were zeroed before, a value of many words would be a call of
    // `memset`, which takes a frame of the stack.)
    unsafe {
        bpf_probe_read_kernel(
            value.as_mut_ptr().cast::<c_void>(),
            const { size_of::<T>() as u32 },
            base.wrapping_add(offset as u64) as *const c_void,
        );
        value.assume_init()
    }
}

/// Copies a string of at most `N` bytes with its NUL. Returns how many bytes that were; less than 1 if the
/// address is not mapped.
#[inline(always)]
pub(crate) fn read_str<const N: usize>(to: &mut [u8; N], from: u64) -> i64 {
    // SAFETY: the helper writes at most the `N` bytes of `to`, and takes any address to read from.
    unsafe {
        bpf_probe_read_kernel_str(to.as_mut_ptr().cast::<c_void>(), const { N as u32 }, from as *const c_void)
    }
}

/// Like `read_str`, for the length alone: nobody reads what it leaves in `unread`, so any program may write
/// there at any time.
#[inline(always)]
pub(crate) fn str_len<const N: usize>(from: u64, unread: *mut [u8; N]) -> i64 {
    // SAFETY: the helper writes at most `N` bytes, where there is room for them, and takes any address to
    // read from.
    unsafe { bpf_probe_read_kernel_str(unread.cast::<c_void>(), const { N as u32 }, from as *const c_void) }
}
