//! Comparisons without a jump.
//!
//! The verifier walks both sides of every jump, and what follows it once for each side if they left different values
//! behind: in a loop over ancestors that compares with a dozen names it would be at it for ever.

use core::arch::asm;

/// The same value, of which the compiler knows nothing. Without it, it sees through what stands below and makes jumps
/// of it again.
#[inline(always)]
fn opaque(mut value: u64) -> u64 {
    // SAFETY: a register is copied to itself. A comment alone would stand for no instruction, which the kernel refuses in
    // the line information.
    unsafe { asm!("{0} = {0}", inout(reg) value, options(pure, nomem, nostack, preserves_flags)) };
    value
}

/// 1 if the value is zero, else 0.
#[inline(always)]
pub(crate) fn is_zero(value: u64) -> u64 {
    // The sign of x | -x is set unless x is zero.
    1 ^ opaque(value | value.wrapping_neg()) >> 63
}

/// 1 if any of the names is this one, else 0.
#[inline(always)]
pub(crate) fn is_one_of<const N: usize>(name: [u64; 2], names: &'static [[u8; 16]; N]) -> u64 {
    let mut found = 0;
    let mut i = 0;
    while i < N {
        let other: [u64; 2] = zerocopy::transmute!(names[i]);
        found |= is_zero(name[0] ^ other[0] | name[1] ^ other[1]);
        i += 1;
    }
    found
}

/// `value` if `choice` is 1, `other` if it is 0.
#[inline(always)]
pub(crate) fn choose(choice: u64, value: u64, other: u64) -> u64 {
    // Not by a mask: newer kernels (6.18) take one of all bits or none apart, as if it were a jump.
    other ^ (value ^ other).wrapping_mul(opaque(choice))
}

/// 1 if `value` is less than `bound`, else 0; for numbers below 2^63.
#[inline(always)]
pub(crate) fn is_below(value: u64, bound: u64) -> u64 {
    opaque(value.wrapping_sub(bound)) >> 63
}
