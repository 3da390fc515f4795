//! Comparisons without a jump.
//!
//! The verifier walks both sides of every jump. If the two sides leave different values behind, it walks what
//! follows once for each. For a loop over ancestors that compares with a dozen names it would never end.

use core::arch::asm;

use probe_common::text::Comm;

/// Hides a value from the compiler, which would otherwise turn the functions below into jumps again.
#[inline(always)]
fn opaque(mut value: u64) -> u64 {
    // SAFETY: a register is copied to itself. A comment alone would be no instruction, which the kernel
    // refuses in the line information.
    unsafe { asm!("{0} = {0}", inout(reg) value, options(pure, nomem, nostack, preserves_flags)) };
    value
}

/// Returns 1 if the value is zero, else 0.
#[inline(always)]
pub(crate) fn is_zero(value: u64) -> u64 {
    // The sign of x | -x is set unless x is zero.
    1 ^ opaque(value | value.wrapping_neg()) >> 63
}

/// Names to compare with. The name of every process of the node is compared with them, and nearly all
/// processes have another name, which one bit says first.
pub(crate) struct Names<const N: usize> {
    names: [[u64; 2]; N],
    /// Bit n is set if one of the names has the hash n.
    hashes: u64,
}

impl<const N: usize> Names<N> {
    pub(crate) const fn new(names: &[[u8; 16]; N]) -> Self {
        let mut these = Self { names: [[0; 2]; N], hashes: 0 };
        let mut i = 0;
        while i < N {
            these.names[i] = zerocopy::transmute!(names[i]);
            these.hashes |= 1 << hash(these.names[i]);
            i += 1;
        }
        these
    }

    /// Returns 1 if any of the names is this one, else 0.
    #[inline(always)]
    pub(crate) fn contain(&self, name: Comm) -> u64 {
        let name: [u64; 2] = zerocopy::transmute!(name.0);
        if self.hashes >> hash(name) & 1 == 0 {
            return 0;
        }
        let mut found = 0;
        let mut i = 0;
        while i < N {
            let other = self.names[i];
            found |= is_zero(name[0] ^ other[0] | name[1] ^ other[1]);
            i += 1;
        }
        found
    }
}

/// Returns a number below 64, made of a name's first eight bytes.
#[inline(always)]
const fn hash(name: [u64; 2]) -> u64 {
    // The golden ratio spreads similar names.
    name[0].wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58
}

/// Returns `value` if `choice` is 1, `other` if it is 0.
#[inline(always)]
pub(crate) fn choose(choice: u64, value: u64, other: u64) -> u64 {
    // Not by a mask: newer kernels (6.18) distinguish a value of all bits from one of none, as if it were a
    // jump.
    other ^ (value ^ other).wrapping_mul(opaque(choice))
}

/// Returns 1 if `value` is less than `bound`, else 0; for numbers below 2^63.
#[inline(always)]
pub(crate) fn is_below(value: u64, bound: u64) -> u64 {
    opaque(value.wrapping_sub(bound)) >> 63
}
