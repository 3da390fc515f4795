//! Writes cpio's "newc" format, the only one that a kernel unpacks as its initramfs.

use std::fmt::Write as _;

const FILE: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const TRAILER: &str = "TRAILER!!!";

/// An archive in memory. Folders must be added before what is in them.
pub(super) struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new(), inode: 0 }
    }

    pub(super) fn directory(&mut self, path: &str) {
        self.add(path, DIRECTORY | 0o755, &[]);
    }

    pub(super) fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.add(path, FILE | mode, content);
    }

    pub(super) fn link(&mut self, path: &str, to: &str) {
        self.add(path, LINK | 0o777, to.as_bytes());
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.add(TRAILER, 0, &[]);
        self.bytes
    }

    /// Adds thirteen numbers of eight hexadecimal digits, the name with a zero, and the content; the last two
    /// are padded to 4 bytes.
    fn add(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.inode += 1;
        let mut header = String::from("070701");
        let numbers = [
            self.inode as usize,
            mode as usize,
            0, // user
            0, // group
            1, // links
            0, // time
            content.len(),
            0, // device, major
            0, // and minor
            0, // device that the file is, major
            0, // and minor
            path.len() + 1,
            0, // checksum, which this format does not use
        ];
        for number in numbers {
            let _ = write!(header, "{number:08x}");
        }
        self.bytes.extend(header.as_bytes());
        self.bytes.extend(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_cpio_writes_it() {
        let mut archive = Archive::new();
        archive.file("a", 0o644, b"hello");
        let bytes = archive.finish();
        let header = "070701000000010000".to_owned() + "81a40000000000000000000000010000000000000005";
        assert!(bytes.starts_with(header.as_bytes()));
        assert_eq!(&bytes[110..120], b"a\0hello\0\0\0");
        assert_eq!(&bytes[120..126], b"070701");
        assert!(bytes.ends_with(b"TRAILER!!!\0\0\0\0"));
        assert_eq!(bytes.len() % 4, 0);
    }
}
