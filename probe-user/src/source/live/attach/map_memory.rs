//! Checks `docs/commands.md`: how much kernel memory the maps of one set of hooks take, by the number of CPUs
//! that the machine can have.

use std::collections::BTreeMap;

use aya_obj::{Map, Object};
use probe_common::table;

use super::object;

/// Types of maps (`enum bpf_map_type`).
const ARRAY: u32 = 2;
const PERCPU_ARRAY: u32 = 6;
const LRU_HASH: u32 = 9;
const RING: u32 = 27;

/// The size of `struct htab_elem` without key and value, and of `struct bucket`, on a 64-bit kernel.
const ELEMENT: u64 = 48;
const BUCKET: u64 = 16;

/// Rounds a size up: keys and values begin at a multiple of eight.
fn padded(size: u32) -> u64 {
    u64::from(size).next_multiple_of(8)
}

/// Returns the memory that the kernel allocates for a map when it makes it (`map_mem_usage`), except for a
/// few pages of its own. The rings are left out: their size is an option of the load.
fn bytes(map: &Map, cpus: u32) -> u64 {
    match map.map_type() {
        LRU_HASH => {
            let entries = u64::from(table::size(map.max_entries(), cpus));
            let element = ELEMENT + padded(map.key_size()) + padded(map.value_size());
            entries * element + entries.next_power_of_two() * BUCKET
        }
        ARRAY => u64::from(map.max_entries()) * padded(map.value_size()),
        PERCPU_ARRAY => u64::from(map.max_entries()) * padded(map.value_size()) * u64::from(cpus),
        RING => 0,
        other => panic!("a map of type {other}, whose memory nobody has counted"),
    }
}

#[test]
fn what_the_documentation_says_of_the_maps_memory_is_so() {
    let maps: BTreeMap<String, Map> =
        Object::parse(&object()).expect("the built-in object").maps.into_iter().collect();
    for (name, entries) in table::ALL {
        let map = maps.get(name).unwrap_or_else(|| panic!("no map {name}"));
        assert_eq!((map.map_type(), map.max_entries()), (LRU_HASH, entries), "{name}");
    }
    let tables = maps.values().filter(|map| map.map_type() == LRU_HASH).count();
    assert_eq!(tables, table::ALL.len(), "a table is not in `table::ALL`");

    let told = [2, 64, 256].map(|cpus| {
        let all: u64 = maps.values().map(|map| bytes(map, cpus)).sum();
        format!("{:.1} MB with {cpus}", all as f64 / 1e6)
    });
    let told = told.join(", ");
    let page = include_str!("../../../../../docs/commands.md").replace('\n', " ");
    assert!(page.contains(&told), "docs/commands.md does not say that they take {told}");
}
