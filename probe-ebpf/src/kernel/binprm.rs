//! `struct linux_binprm`: the program that a task is about to become.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_kernel_str;
use probe_common::event::exec::FILENAME;

use super::{offset, read};

/// Whether the program is executed without arguments: `argv` holds its own name alone. A script's name
/// follows that of its interpreter and at most one argument of the interpreter.
#[inline(always)]
pub(crate) fn has_no_arguments(binprm: u64) -> bool {
    let argc: u32 = read(binprm, offset!(binprm_argc));
    argc <= 1 || argc <= 3 && is_script(binprm)
}

/// Whether the kernel executes an interpreter for the file.
#[inline(always)]
fn is_script(binprm: u64) -> bool {
    read::<u64>(binprm, offset!(binprm_filename)) != read::<u64>(binprm, offset!(binprm_interp))
}

/// Copies `linux_binprm.filename` without its NUL, and returns its length, which is less than `FILENAME`. A
/// longer one is cut.
#[inline(always)]
pub(crate) fn read_filename(to: &mut [u8], binprm: u64) -> u64 {
    let filename: u64 = read(binprm, offset!(binprm_filename));
    // SAFETY: both tails have room for `FILENAME` bytes at their beginning; any address may be read.
    let len = unsafe {
        bpf_probe_read_kernel_str(
            to.as_mut_ptr().cast::<c_void>(),
            FILENAME as u32,
            filename as *const c_void,
        )
    };
    if len < 1 {
        return 0;
    }
    (len - 1) as u64 & (FILENAME as u64 - 1)
}
