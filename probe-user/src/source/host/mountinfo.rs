//! Parses `/proc/PID/mountinfo` (proc(5)): where cgroup hierarchies are mounted, and which files hold a
//! namespace.
//!
//! procfs-core is not used: one broken line, or one mount point that is not UTF-8, fails the whole file, and
//! it does not decode escapes.

use super::lines;

/// The needed fields of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The mount's root: a directory of the mounted file system, or `net:[INODE]` for a namespace's file.
    pub root: String,
    /// The mount point, seen from the process's root.
    pub point: String,
    pub fs_type: String,
    /// The options of the superblock. A cgroup v1 mount has its controllers here.
    pub options: String,
}

pub(crate) fn parse(bytes: &[u8]) -> Vec<Mount> {
    lines(bytes).filter_map(|line| mount(&line)).collect()
}

/// Parses `36 35 98:0 /root /point rw,noatime master:1 - ext4 /dev/root rw,errors=continue`.
fn mount(line: &str) -> Option<Mount> {
    // Any number of optional fields is between the sixth field and the hyphen.
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let root = unescape(left.next()?);
    let point = unescape(left.next()?);
    let mut right = right.splitn(3, ' ');
    let fs_type = right.next()?.to_owned();
    let options = right.nth(1).unwrap_or_default().to_owned();
    Some(Mount { root, point, fs_type, options })
}

/// Decodes space, tab, newline and backslash, which are written as a backslash and three octal digits.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                plain.extend_from_slice(&part.as_bytes()[3..]);
            }
            None => {
                plain.push(b'\\');
                plain.extend_from_slice(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Mount, parse};

    #[test]
    fn mounts_are_read_whatever_their_optional_fields() {
        let text = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
            573 25 0:4 net:[4026532177] /run/netns/a\\040b rw shared:7 master:1 - nsfs nsfs rw\n\
            35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
            broken line\n";
        let mount = |root: &str, point: &str, fs_type: &str, options: &str| Mount {
            root: root.to_owned(),
            point: point.to_owned(),
            fs_type: fs_type.to_owned(),
            options: options.to_owned(),
        };
        assert_eq!(
            parse(text),
            [
                mount("/", "/proc", "proc", "rw"),
                mount("net:[4026532177]", "/run/netns/a b", "nsfs", "rw"),
                mount("/", "/sys/fs/cgroup/memory", "cgroup", "rw,memory"),
            ]
        );
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(bytes: Vec<u8>, text in "([0-9/ :\\\\-]|net){0,80}") {
            parse(&bytes);
            parse(text.as_bytes());
        }
    }
}
