//! Reads how many network namespaces the kernel allows. It counts them for each user that makes them, in each
//! user namespace up to the first, and refuses a namespace beyond any of these limits (ENOSPC).

use std::{fs::File, os::unix::fs::FileExt as _};

/// The limit in the reader's own user namespace.
const FILE: &str = "/proc/sys/user/max_net_namespaces";

/// The kernel's file, which stays open: a confined thread may not open it.
#[derive(Debug)]
pub(crate) struct NetnsLimit(Option<File>);

impl NetnsLimit {
    #[must_use]
    pub(crate) fn open() -> Self {
        Self(File::open(FILE).ok())
    }

    /// Reads the limit as it is now. `None` if the file cannot be read, or if this kernel has none.
    #[must_use]
    pub(crate) fn read(&self) -> Option<u64> {
        let mut bytes = [0; 32];
        let length = self.0.as_ref()?.read_at(&mut bytes, 0).ok()?;
        number(bytes.get(..length)?)
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    str::from_utf8(bytes).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{NetnsLimit, number};

    #[test]
    fn the_limit_is_read_again_from_the_open_file() {
        let limit = NetnsLimit::open();
        assert!(limit.read().is_some_and(|limit| limit > 0));
        assert_eq!(limit.read(), limit.read());
        assert_eq!(NetnsLimit(None).read(), None);
    }

    #[test]
    fn only_a_number_is_a_limit() {
        assert_eq!(number(b"96365\n"), Some(96_365));
        assert_eq!([&b""[..], b"-1\n", b"many\n", b"\xff"].map(number), [None; 4]);
    }
}
