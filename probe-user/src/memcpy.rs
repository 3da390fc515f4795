//! The `memcpy` and `memmove` of a program that is linked with musl, because musl's own begin with string
//! instructions on x86-64: those need some thirty cycles before the first byte. Most of what the engine moves
//! is a row or a fact of a few hundred bytes, and that took 13 % of the agent's time while pods came and
//! went. A program that is not optimized has musl's, for the code below would call `memcpy` itself.

use std::arch::{asm, x86_64::__m128i};

/// How many bytes are copied at once if there are more.
const BLOCK: usize = 64;

/// Copies `len` bytes; ISO C, 7.24.2.1.
///
/// # Safety
///
/// `from` is valid for reads of `len` bytes, and `to` for writes.
#[cfg_attr(all(target_env = "musl", optimized), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { copy(to, from, len) };
    to
}

/// Copies `len` bytes to a place that may overlap with their source; ISO C, 7.24.2.2.
///
/// # Safety
///
/// As for [`memcpy`].
#[cfg_attr(all(target_env = "musl", optimized), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { copy(to, from, len) };
    to
}

#[inline(always)]
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: each arm reads and writes within `len` bytes.
    unsafe {
        match len {
            0 => {}
            1 => *to = *from,
            2..=3 => ends::<u16>(to, from, len),
            4..=7 => ends::<u32>(to, from, len),
            8..=15 => ends::<u64>(to, from, len),
            16..=31 => ends::<__m128i>(to, from, len),
            32..=63 => ends::<[__m128i; 2]>(to, from, len),
            BLOCK..=128 => ends::<[__m128i; 4]>(to, from, len),
            _ => blocks(to, from, len),
        }
    }
}

/// Copies a `T` at the beginning and one at the end. `len` is the length of one `T` to two. Both are read
/// before any is written.
#[inline(always)]
unsafe fn ends<T: Copy>(to: *mut u8, from: *const u8, len: usize) {
    let last = len - size_of::<T>();
    // SAFETY: both end within `len` bytes.
    unsafe {
        let first = from.cast::<T>().read_unaligned();
        let end = from.add(last).cast::<T>().read_unaligned();
        to.cast::<T>().write_unaligned(first);
        to.add(last).cast::<T>().write_unaligned(end);
    }
}

/// Copies more than a block: whole blocks, from the end at which none is written before it is read, and the
/// rest last, which is read first. A loop in Rust would become a call of `memcpy`.
#[inline(always)]
unsafe fn blocks(to: *mut u8, from: *const u8, len: usize) {
    let whole = (len - 1) / BLOCK;
    let last = len - BLOCK;
    let is_behind = to.addr().wrapping_sub(from.addr()) < len;
    let rest = if is_behind { 0 } else { last };
    let (first, step) = if is_behind { (last, -BLOCK.cast_signed()) } else { (0, BLOCK.cast_signed()) };
    // SAFETY: the blocks and the rest are within `len` bytes, and more than `whole` blocks would not be.
    unsafe {
        let kept = from.add(rest).cast::<[__m128i; 4]>().read_unaligned();
        asm!(
            "2:",
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + 48], {d}",
            "add {from}, {step}",
            "add {to}, {step}",
            "dec {whole}",
            "jnz 2b",
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            from = inout(reg) from.add(first) => _,
            to = inout(reg) to.add(first) => _,
            step = in(reg) step,
            whole = inout(reg) whole => _,
            options(nostack),
        );
        to.add(rest).cast::<[__m128i; 4]>().write_unaligned(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::{memcpy, memmove};

    const ROOM: usize = 700;

    fn bytes() -> Vec<u8> {
        (0..ROOM).map(|n| u8::try_from(n * 31 % 251).expect("below 251")).collect()
    }

    #[test]
    fn every_length_is_copied_and_nothing_beside_it() {
        let from = bytes();
        for len in 0..ROOM - 2 {
            for at in 0..2 {
                let mut to = vec![0xee; ROOM];
                // SAFETY: both have room for `len` bytes from there on.
                let given = unsafe { memcpy(to.as_mut_ptr().add(1), from.as_ptr().add(at), len) };
                assert_eq!(given, to[1..].as_mut_ptr());
                assert_eq!(to[1..=len], from[at..at + len], "{len} bytes");
                assert!(to[0] == 0xee && to[len + 1..].iter().all(|byte| *byte == 0xee), "{len} bytes");
            }
        }
    }

    #[test]
    fn what_overlaps_is_moved_whole_in_both_directions() {
        for len in 0..ROOM / 2 {
            for distance in [0, 1, 7, 15, 16, 33, 63, 64, 65, 127, 128, 200] {
                for (from, to) in [(0, distance), (distance, 0)] {
                    let mut moved = bytes();
                    let mut expected = bytes();
                    expected.copy_within(from..from + len, to);
                    let start = moved.as_mut_ptr();
                    // SAFETY: `len` and `distance` together are less than there is.
                    unsafe { memmove(start.add(to), start.add(from), len) };
                    assert_eq!(moved, expected, "{len} bytes from {from} to {to}");
                }
            }
        }
    }
}
