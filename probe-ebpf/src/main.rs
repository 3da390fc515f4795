//! sandprobe's eBPF programs: what containers, their namespaces and their cgroups do, timestamped in the
//! kernel.
//!
//! A program's name is what the loader and `bpftool` know it by. For a signal with several programs the
//! loader attaches one of the tiers, best first, and loads nothing of the others: the table of signals and
//! programs is `probe-user/src/source/live/plan.rs`. A map is defined next to the programs that use it.
//!
//! **Invariant:** no struct offset is written here (`kernel::OFFSETS`), and no filter depends on what user
//! space fills in while the programs run: which processes and cgroups matter is decided from what the kernel
//! itself has.
//!
//! **Invariant:** only helpers of Linux 5.10. The result of a read is not branched on: a failed read fills
//! with zeroes, and a branch at each would multiply the paths that the verifier has to walk.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "lengths are bounded where they arise, and a checked conversion would be one more branch to verify"
)]

mod branchless;
mod class;
mod emit;
mod hook;
mod kernel;
mod reader_page;

/// Never runs: the verifier refuses a program that could reach it.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The helpers that read kernel memory ask for a licence compatible with the GPL.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
