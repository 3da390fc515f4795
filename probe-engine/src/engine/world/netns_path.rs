//! The path of the file that holds a network namespace. `CNI_NETNS`, the mount table and libcni's cache spell
//! it in different ways.

use std::borrow::Cow;

/// The path with `/var/run` replaced by `/run`: the two are the same directory on every known node.
pub(in crate::engine) fn plain(path: &str) -> Cow<'_, str> {
    match path.strip_prefix("/var/run/") {
        Some(rest) => Cow::Owned(["/run/", rest].concat()),
        None => Cow::Borrowed(path),
    }
}

/// Two spellings of one path differ in their length.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    one == other || one.len() != other.len() && plain(one) == plain(other)
}

/// The pid in `/proc/PID/ns/net`.
pub(super) fn process_of(path: &str) -> Option<u32> {
    path.strip_prefix("/proc/")?.strip_suffix("/ns/net")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{is_same, process_of};

    #[test]
    fn a_path_is_the_same_under_both_names_of_run() {
        assert!(is_same("/var/run/netns/cni-1", "/run/netns/cni-1"));
        assert!(!is_same("/var/run/netns/cni-1", "/run/netns/cni-2"));
    }

    #[test]
    fn a_process_can_stand_for_its_namespace() {
        assert_eq!(process_of("/proc/42/ns/net"), Some(42));
        for other in ["/proc/x/ns/net", "/proc/42/ns/mnt", "/run/netns/a", "/proc/99999999999/ns/net", ""] {
            assert_eq!(process_of(other), None, "{other}");
        }
    }
}
