//! What hooks know of network namespaces and of open CNI calls goes over to the hooks that replace them. These would not see
//! the end of a namespace that is about to end, because nothing happens any more in it that makes it known; nor the end of
//! a call that another plugin made.
//!
//! The hooks that are replaced run on meanwhile, and tell what happens in this time.

use std::{os::fd::AsFd as _, sync::atomic::Ordering};

use aya::{
    Ebpf, Pod,
    maps::{Array, HashMap, Map, MapData, MapError},
};
use probe_common::{
    id::{NetnsKey, TaskKey},
    netns::{Known, Slot},
    table,
    tally::Ring,
};
use tracing::debug;

use super::{ring_map::Mapping, support::page_size};
use crate::source::live::pin::Folder;

/// aya copies map values only as types with its own marker trait.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Value<T>(T);

// SAFETY: it is `repr(C)`, without padding, and any bytes are one (zerocopy's `IntoBytes` and `FromBytes`).
unsafe impl Pod for Value<Known> {}
// SAFETY: as above.
unsafe impl Pod for Value<Slot> {}
// SAFETY: as above.
unsafe impl Pod for Value<NetnsKey> {}
// SAFETY: as above.
unsafe impl Pod for Value<TaskKey> {}
// SAFETY: as above.
unsafe impl Pod for Value<u8> {}

/// `BPF_NOEXIST`: what the new hooks have seen themselves is newer.
const IF_UNKNOWN: u64 = 1;

/// Gives to the hooks `to` what the pinned ones know. `room`: how many slots the hooks use.
pub(super) fn hand_over(from: &Folder, to: &mut Ebpf, room: u32) {
    if let Err(error) = known(from, to).and_then(|()| tracked(from, to, room)) {
        debug!(%error, "what earlier hooks know of namespaces cannot be handed over");
    }
    for (ring, table, most) in [
        (Ring::Lifecycle, "CNI_CALLS", table::CNI_CALLS),
        (Ring::Bulk, "CNI_DELEGATES", table::CNI_DELEGATES),
    ] {
        if let Err(error) = calls(from, to, ring, table, most) {
            debug!(%error, "what earlier hooks know of calls cannot be handed over");
        }
    }
}

fn known(from: &Folder, to: &mut Ebpf) -> Result<(), MapError> {
    let earlier = open::<u32, Known>(from, "NETNS")?;
    let Some(map) = to.map_mut("NETNS") else { return Ok(()) };
    let mut own = HashMap::<_, u32, Value<Known>>::try_from(map)?;
    for (inode, known) in entries(&earlier, table::NETNS) {
        // It is there already, or the table is full.
        own.insert(inode, known, IF_UNKNOWN).ok();
    }
    Ok(())
}

fn tracked(from: &Folder, to: &mut Ebpf, room: u32) -> Result<(), MapError> {
    let earlier = open::<u64, NetnsKey>(from, "TRACKED")?;
    let mut left = Vec::new();
    let Some(map) = to.map_mut("TRACKED") else { return Ok(()) };
    let mut own = HashMap::<_, u64, Value<NetnsKey>>::try_from(map)?;
    for (net, key) in entries(&earlier, table::TRACKED) {
        if own.insert(net, key, IF_UNKNOWN).is_ok() {
            left.push(Slot { net, key: key.0, dropped: 0 });
        }
    }
    let Some(map) = to.map_mut("NETS") else { return Ok(()) };
    let mut slots = Array::<_, Value<Slot>>::try_from(map)?;
    for slot in left {
        let place = |i: u32| Slot::first(slot.net).wrapping_add(i) & room.wrapping_sub(1);
        let is_free = |at: &u32| slots.get(at, 0).is_ok_and(|Value(found)| found.net == 0);
        // Without room rtnetlink tells of it.
        let Some(free) = (0..room).map(place).find(is_free) else { break };
        slots.set(free, Value(slot), 0)?;
    }
    Ok(())
}

/// The processes of open calls. The count of a ring is never below the entries of its table, so it changes first.
fn calls(from: &Folder, to: &mut Ebpf, ring: Ring, name: &str, most: u32) -> Result<(), MapError> {
    let earlier = open::<Value<TaskKey>, u8>(from, name)?;
    let Some(Map::Array(counts)) = to.map("CNI_OPEN") else { return Ok(()) };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let counts = Mapping::new(counts.fd().as_fd(), page_size() as usize, 0, access)?;
    let count = counts.word(ring as usize * size_of::<u64>());
    let Some(map) = to.map_mut(name) else { return Ok(()) };
    let mut own = HashMap::<_, Value<TaskKey>, Value<u8>>::try_from(map)?;
    for (task, one) in entries(&earlier, most) {
        count.fetch_add(1, Ordering::SeqCst);
        let is_known = own.insert(task, one, IF_UNKNOWN).is_err();
        // Only the earlier hooks saw an end meanwhile.
        if is_known || (earlier.get(&task, 0).is_err() && own.remove(&task).is_ok()) {
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }
    Ok(())
}

fn open<K: Pod, V>(from: &Folder, name: &str) -> Result<HashMap<MapData, K, Value<V>>, MapError>
where
    Value<V>: Pod,
{
    HashMap::try_from(Map::LruHashMap(MapData::from_pin(from.map(name))?))
}

/// The entries of a table that changes meanwhile: the kernel begins anew behind an entry that has gone.
fn entries<K: Pod, V: Pod>(table: &HashMap<MapData, K, V>, most: u32) -> impl Iterator<Item = (K, V)> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    table.iter().take(most.saturating_mul(2)).filter_map(Result::ok)
}
