//! A hash that is the same for all versions, machines and runs, for names and checksums that are kept. It is
//! not cryptographic.

/// Computes FNV-1a, 64 bits (draft-eastlake-fnv, section 2).
#[must_use]
pub fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::fnv;

    /// The test vectors of the draft.
    #[test]
    fn it_is_the_published_hash() {
        assert_eq!((fnv(b""), fnv(b"foobar")), (0xcbf2_9ce4_8422_2325, 0x8594_4171_f739_67e8));
    }
}
