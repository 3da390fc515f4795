//! The page that the agent, which reads the rings, shares with its programs. It stays in the kernel with them
//! when the agent ends, and the next agent goes on from it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The version of everything that one agent leaves in the kernel for the next: records, tables, counters and
/// this module. An agent of another version cannot read what is left. The version is computed from the
/// sources of these, so that nobody can change a layout, a name or a number and leave the version as it is.
pub const VERSION: u32 = version(&SOURCES);

/// What decides how the next agent reads what is left.
const SOURCES: [&str; 14] = [
    include_str!("event.rs"),
    include_str!("event/address.rs"),
    include_str!("event/cgroup.rs"),
    include_str!("event/cni.rs"),
    include_str!("event/exec.rs"),
    include_str!("event/listen.rs"),
    include_str!("event/netns.rs"),
    include_str!("event/task.rs"),
    include_str!("id.rs"),
    include_str!("netns.rs"),
    include_str!("reader_page.rs"),
    include_str!("table.rs"),
    include_str!("tally.rs"),
    include_str!("text.rs"),
];

/// Returns a hash (32-bit FNV-1a) of sources, without their comments, spaces and tests.
const fn version(sources: &[&str]) -> u32 {
    let mut hash = 0x811c_9dc5;
    let mut number = 0;
    while number < sources.len() {
        let source = sources[number].as_bytes();
        let mut at = 0;
        while at < source.len() && !begins(source, at, b"#[cfg(test)]") {
            if begins(source, at, b"//") {
                while at < source.len() && source[at] != b'\n' {
                    at += 1;
                }
            } else {
                if !source[at].is_ascii_whitespace() {
                    hash = (hash ^ source[at] as u32).wrapping_mul(0x0100_0193);
                }
                at += 1;
            }
        }
        number += 1;
    }
    hash
}

/// Whether a text has these bytes at this place.
const fn begins(text: &[u8], at: usize, bytes: &[u8]) -> bool {
    let mut number = 0;
    while number < bytes.len() {
        if at + number >= text.len() || text[at + number] != bytes[number] {
            return false;
        }
        number += 1;
    }
    true
}

/// The value of the `READER` array's only entry, which the agent has in its memory.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Reader {
    /// When the agent last read, in nanoseconds of `CLOCK_MONOTONIC`, which stands still while the node is
    /// suspended.
    pub read_at: u64,
    /// The number of the last event that was reported.
    pub told: u64,
    /// These hooks report what happened from then on, in nanoseconds since boot.
    pub since: u64,
}

/// The length of the `REPORT` array's only entry: how each signal is seen, as text that ends with the first
/// zero.
pub const REPORT: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::{SOURCES, version};

    #[test]
    fn another_layout_name_or_number_is_another_version() {
        let version = |source| version(&[source]);
        let before = version("pub struct Exit {\n    pub status: u32,\n}\n");
        for other in [
            "pub struct Exit { pub status: u64, }",
            "pub struct Exit { pub state: u32, }",
            "pub struct Exit { pub status: u32, pub class: u32, }",
            "pub struct End { pub status: u32, }",
        ] {
            assert_ne!(version(other), before, "{other}");
        }
        for same in [
            "/// How a process ended.\npub struct Exit { pub status: u32, } // both",
            "pub struct Exit{pub status:u32,} #[cfg(test)] mod tests {}",
        ] {
            assert_eq!(version(same), before, "{same}");
        }
    }

    /// What only one side needs does not count: settings, and the names of programs.
    #[test]
    fn each_module_that_both_sides_share_decides_the_version() {
        let own = ["knob", "name", "runtime", "event"];
        let modules = |text: &'static str| {
            text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        };
        let shared = modules(include_str!("lib.rs")).filter(|name| !own.contains(name));
        assert_eq!(shared.count() + modules(include_str!("event.rs")).count() + 1, SOURCES.len());
    }
}
