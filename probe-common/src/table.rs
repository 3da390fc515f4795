//! The kernel's tables that forget what was used longest ago (LRU hashes), and how many entries each must
//! have room for.
//!
//! Programs in containers can fill them, and then the oldest entry must be dropped, never the newest. Each
//! CPU sets free entries aside for itself, up to [`PER_CPU`]. Before Linux 6.16 a table that is smaller than
//! what all CPUs together set aside runs dry while most of it is unused, and takes back what another CPU has
//! just put in. So the loader adds that many entries for each CPU that the machine can have.
//!
//! Since Linux 6.16 all CPUs together set aside no more than half of a small table, which never runs dry.
//! With what the loader adds, a table has room for all its entries there too.

/// How many free entries one CPU sets aside (`LOCAL_FREE_TARGET` in the kernel's `bpf_lru_list.c`).
pub const PER_CPU: u32 = 128;

pub const BUDGETS: u32 = 4096;
pub const TOPS: u32 = 8192;
pub const CNI_CALLS: u32 = 1024;
pub const CNI_DELEGATES: u32 = 4096;
pub const CONTAINERS: u32 = 8192;
pub const NETNS: u32 = 16384;
pub const TRACKED: u32 = 4096;
pub const UNSHARING: u32 = 1024;
pub const ADDRESSES: u32 = 16384;

/// All tables, by the names of the maps.
pub const ALL: [(&str, u32); 9] = [
    ("BUDGETS", BUDGETS),
    ("TOPS", TOPS),
    ("CNI_CALLS", CNI_CALLS),
    ("CNI_DELEGATES", CNI_DELEGATES),
    ("CONTAINERS", CONTAINERS),
    ("NETNS", NETNS),
    ("TRACKED", TRACKED),
    ("UNSHARING", UNSHARING),
    ("ADDRESSES", ADDRESSES),
];

/// Returns how large a table must be made to hold `entries` on a machine that can have `cpus`.
#[must_use]
pub const fn size(entries: u32, cpus: u32) -> u32 {
    entries.saturating_add(PER_CPU.saturating_mul(cpus))
}

#[cfg(test)]
mod tests {
    use super::{ALL, PER_CPU, size};

    #[test]
    fn what_all_cpus_set_aside_leaves_room_for_the_entries() {
        for (name, entries) in ALL {
            for cpus in [1, 2, 64, 256] {
                let size = size(entries, cpus);
                assert_eq!(size - PER_CPU * cpus, entries, "{name} with {cpus} CPUs");
                assert!(size / cpus >= PER_CPU, "{name} with {cpus} CPUs: {size}");
            }
        }
        assert_eq!(size(1024, 1), 1152);
        assert_eq!(size(1024, 256), 33_792);
        assert_eq!(size(1024, u32::MAX), u32::MAX);
    }
}
