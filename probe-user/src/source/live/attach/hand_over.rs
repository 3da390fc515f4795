//! Copies what hooks know of network namespaces and of open CNI calls to the hooks that replace them.
//! Otherwise the new hooks would not see the end of a namespace that is about to end, because nothing happens
//! in it any more that makes it known; nor the end of a call that another plugin made.
//!
//! Meanwhile the old hooks still run, and report what happens.

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

// SAFETY: the type is `repr(C)`, without padding, and any bytes are a valid value (zerocopy's `IntoBytes` and
// `FromBytes`).
unsafe impl Pod for Value<Known> {}
// SAFETY: as above.
unsafe impl Pod for Value<Slot> {}
// SAFETY: as above.
unsafe impl Pod for Value<NetnsKey> {}
// SAFETY: as above.
unsafe impl Pod for Value<TaskKey> {}
// SAFETY: as above.
unsafe impl Pod for Value<u8> {}

/// `BPF_NOEXIST`: entries that the new hooks made themselves are newer.
const IF_UNKNOWN: u64 = 1;

/// Copies to the hooks `to` what the pinned ones know. `room`: how many slots the hooks use. Returns the
/// number of namespaces for which there was no slot.
pub(super) fn hand_over(from: &Folder, to: &mut Ebpf, room: u32) -> u64 {
    let untracked = known(from, to).and_then(|()| tracked(from, to, room)).unwrap_or_else(|error| {
        debug!(%error, "what earlier hooks know of namespaces cannot be handed over");
        0
    });
    for (ring, table, most) in [
        (Ring::Lifecycle, "CNI_CALLS", table::CNI_CALLS),
        (Ring::Bulk, "CNI_DELEGATES", table::CNI_DELEGATES),
    ] {
        if let Err(error) = calls(from, to, ring, table, most) {
            debug!(%error, "what earlier hooks know of calls cannot be handed over");
        }
    }
    untracked
}

fn known(from: &Folder, to: &mut Ebpf) -> Result<(), MapError> {
    let earlier = open::<u32, Known>(from, "NETNS")?;
    let Some(map) = to.map_mut("NETNS") else { return Ok(()) };
    let mut own = HashMap::<_, u32, Value<Known>>::try_from(map)?;
    for (inode, known) in entries(&earlier, table::NETNS) {
        // The entry exists already, or the table is full.
        own.insert(inode, known, IF_UNKNOWN).ok();
    }
    Ok(())
}

fn tracked(from: &Folder, to: &mut Ebpf, room: u32) -> Result<u64, MapError> {
    let earlier = open::<u64, NetnsKey>(from, "TRACKED")?;
    let mut nets = None;
    let mut tracked = None;
    for (name, map) in to.maps_mut() {
        match name {
            "NETS" => nets = Some(map),
            "TRACKED" => tracked = Some(map),
            _ => {}
        }
    }
    let Some((nets, tracked)) = nets.zip(tracked) else { return Ok(0) };
    let mut own = Own { slots: Array::try_from(nets)?, tracked: HashMap::try_from(tracked)? };
    let all = entries(&earlier, table::TRACKED).map(|(net, Value(key))| Slot { net, key, dropped: 0 });
    Ok(track(all, room, &mut own))
}

/// The new hooks' tables of tracked namespaces. The hooks use them meanwhile.
trait Tables {
    fn is_tracked(&self, net: u64) -> bool;
    /// Returns the namespace in a slot, 0 if the slot is free.
    fn net(&self, at: u32) -> Result<u64, MapError>;
    /// Tracks a namespace in a slot.
    fn track(&mut self, at: u32, slot: Slot) -> Result<(), MapError>;
}

struct Own<'a> {
    slots: Array<&'a mut MapData, Value<Slot>>,
    tracked: HashMap<&'a mut MapData, u64, Value<NetnsKey>>,
}

impl Tables for Own<'_> {
    fn is_tracked(&self, net: u64) -> bool {
        self.tracked.get(&net, 0).is_ok()
    }

    fn net(&self, at: u32) -> Result<u64, MapError> {
        self.slots.get(&at, 0).map(|Value(slot)| slot.net)
    }

    /// Writes the slot last: from then on the hooks see the namespace's end, and remove both.
    fn track(&mut self, at: u32, slot: Slot) -> Result<(), MapError> {
        self.tracked.insert(slot.net, Value(slot.key), IF_UNKNOWN)?;
        let placed = self.slots.set(at, Value(slot), 0);
        if placed.is_err() {
            self.tracked.remove(&slot.net)?;
        }
        placed
    }
}

/// Tracks the namespaces that get a slot. A namespace that was tracked without a slot would never get one.
/// Returns the number of namespaces without a slot: the hooks track them when there is room, and a process in
/// them forks or ends.
fn track(left: impl Iterator<Item = Slot>, room: u32, own: &mut impl Tables) -> u64 {
    let mut untracked = 0;
    for slot in left {
        if own.is_tracked(slot.net) {
            continue;
        }
        // If all slots are taken, none is tried: all of them would be read for each further namespace.
        let tries = if untracked == 0 { room } else { 0 };
        let found = (0..tries).find_map(|i| {
            let at = Slot::first(slot.net).wrapping_add(i) & room.wrapping_sub(1);
            let net = own.net(at).ok()?;
            (net == 0 || net == slot.net).then_some((at, net == 0))
        });
        let is_tracked = match found {
            Some((at, true)) => own.track(at, slot).is_ok() || own.is_tracked(slot.net),
            // The hooks have just tracked it.
            Some((_, false)) => true,
            None => false,
        };
        untracked += u64::from(!is_tracked);
    }
    untracked
}

/// Copies the processes of open calls. The count of a ring is never below the entries of its table, so it
/// changes first.
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
        // If the call has ended meanwhile, only the earlier hooks saw it.
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

/// Returns the entries of a table that changes meanwhile: if an entry was removed, the kernel starts again at
/// the beginning.
fn entries<K: Pod, V: Pod>(table: &HashMap<MapData, K, V>, most: u32) -> impl Iterator<Item = (K, V)> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    table.iter().take(most.saturating_mul(2)).filter_map(Result::ok)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{MapError, NetnsKey, Slot, Tables, track};

    struct Fake {
        slots: Vec<u64>,
        tracked: BTreeSet<u64>,
    }

    impl Tables for Fake {
        fn is_tracked(&self, net: u64) -> bool {
            self.tracked.contains(&net)
        }

        fn net(&self, at: u32) -> Result<u64, MapError> {
            Ok(self.slots[at as usize])
        }

        fn track(&mut self, at: u32, slot: Slot) -> Result<(), MapError> {
            self.slots[at as usize] = slot.net;
            self.tracked.insert(slot.net);
            Ok(())
        }
    }

    /// Returns a namespace that the hooks search first in the slot of this `number`, modulo the number of
    /// slots.
    fn net(number: u64) -> u64 {
        0xffff_8880_0000_0000 | number << 6
    }

    fn handed_over(numbers: &[u64], fake: &mut Fake) -> u64 {
        let room = u32::try_from(fake.slots.len()).expect("few");
        let slot = |number: &u64| Slot { net: net(*number), key: NetnsKey::new(1, *number), dropped: 0 };
        track(numbers.iter().map(slot), room, fake)
    }

    #[test]
    fn what_is_tracked_has_a_slot_and_the_rest_is_counted() {
        let mut fake = Fake { slots: vec![0, 0, 0, net(7)], tracked: BTreeSet::from([net(7)]) };
        assert_eq!(handed_over(&[3, 7, 1, 5, 9, 13], &mut fake), 2);
        assert_eq!(fake.slots, [net(3), net(1), net(5), net(7)]);
        assert_eq!(fake.tracked, fake.slots.iter().copied().collect());
    }

    #[test]
    fn a_namespace_that_the_hooks_have_just_found_keeps_its_slot() {
        let mut fake = Fake { slots: vec![0, net(5), 0, 0], tracked: BTreeSet::new() };
        assert_eq!(handed_over(&[5, 1], &mut fake), 0);
        assert_eq!(fake.slots, [0, net(5), net(1), 0]);
        assert_eq!(fake.tracked, BTreeSet::from([net(1)]));
    }
}
