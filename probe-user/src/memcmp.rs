//! The `memcmp` of a program that is linked with musl, because musl's own compares byte by byte. The engine's
//! maps compare paths and names that begin alike; that took 30 % of the agent's time while the ADDs of 110
//! pods failed.

use std::ffi::c_int;

const WORD: usize = size_of::<u64>();

/// Compares eight bytes at a time; ISO C, 7.24.4.1.
///
/// # Safety
///
/// Both pointers are valid for reads of `len` bytes.
#[cfg_attr(target_env = "musl", unsafe(no_mangle))]
#[inline(never)]
pub(crate) unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, len: usize) -> c_int {
    let mut at = 0;
    while len - at >= WORD {
        // SAFETY: both words end within `len` bytes.
        let (left, right) = unsafe { (word(one, at), word(other, at)) };
        if left != right {
            return if left < right { -1 } else { 1 };
        }
        at += WORD;
    }
    while at < len {
        // SAFETY: `at` is below `len`.
        let (left, right) = unsafe { (*one.add(at), *other.add(at)) };
        if left != right {
            return c_int::from(left) - c_int::from(right);
        }
        at += 1;
    }
    0
}

/// Reads the word that begins `at` bytes after `from`.
///
/// # Safety
///
/// `from` is valid for reads of the bytes up to the word's end.
#[inline(always)]
unsafe fn word(from: *const u8, at: usize) -> u64 {
    // SAFETY: the caller's promise.
    u64::from_be(unsafe { from.add(at).cast::<u64>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::memcmp;

    #[test]
    fn it_orders_as_bytes_do() {
        let text: Vec<u8> = (0..40_u8).map(|n| n.wrapping_mul(97)).collect();
        for len in 0..text.len() {
            for at in 0..len {
                for byte in [0, text[at].wrapping_add(1), u8::MAX] {
                    let mut other = text.clone();
                    other[at] = byte;
                    // One of them is not at the start of a word.
                    let (one, other) = (&text[..len], &other[..len]);
                    // SAFETY: both have `len` bytes.
                    let found = unsafe { memcmp(one.as_ptr(), other.as_ptr(), len) };
                    assert_eq!(found.cmp(&0), one.iter().cmp(other), "{one:?} {other:?}");
                }
            }
            // SAFETY: both have `len` bytes.
            let same = unsafe { memcmp(text.as_ptr(), text.as_ptr(), len) };
            assert_eq!(same.cmp(&0), Ordering::Equal);
        }
    }
}
