//! Reads, again and again, what is only on record: the runtimes' sandboxes, libcni's cache, the network
//! configurations and the IPAM stores. Files that have not changed since the last reading are not read again.

use std::{collections::BTreeSet, mem};

use super::{
    Closed, Node, cni, hand_over,
    network::Configured,
    runtime::{self, daemon::Known},
    store::{self, Elsewhere},
};
use crate::{
    model::fact::{CacheFound, Observation, RuntimeSandbox},
    source::host::{memo::Memo, skipped::Skipped},
};

/// A smaller change of the wall clock is slewing, or the error of the reading, and is ignored. Otherwise the
/// times of all reservations would change in each reading.
const SLEW_NS: u64 = 1_000_000;
/// After such a change of the wall clock, earlier file times mean nothing.
const STEP_NS: u64 = 1_000_000_000;

/// What is remembered between the readings of one reader.
#[derive(Debug, Default)]
pub(crate) struct Records {
    daemons: Known,
    memory: Memory,
}

/// The parsed contents of files.
#[derive(Debug, Default)]
pub(super) struct Memory {
    clock: Option<Clock>,
    pub(super) cache: Memo<CacheFound>,
    pub(super) networks: Memo<Vec<Configured>>,
    pub(super) runtimes: Memo<Vec<RuntimeSandbox>>,
    pub(super) stores: store::Memory,
}

/// The wall clock's time at boot.
#[derive(Clone, Copy, Debug)]
struct Clock {
    boot_wall_ns: i64,
    /// The value when the memory was empty.
    first: i64,
}

impl Records {
    /// Begins with the stores of host-local that an earlier reader knew. No configuration may name them now.
    pub(crate) fn knowing(elsewhere: BTreeSet<Elsewhere>) -> Self {
        let mut records = Self::default();
        records.memory.stores.elsewhere = elsewhere;
        records
    }

    /// Returns the stores of host-local that the next reader is to know.
    pub(crate) fn elsewhere(&self) -> &BTreeSet<Elsewhere> {
        &self.memory.stores.elsewhere
    }

    /// Lists the records. Runtimes are read first. A sandbox that the runtime had forgotten by then had its
    /// last DEL before, so a reservation that names it when the stores are read is left over. A sandbox that
    /// is created in between is in no runtime's record yet, but its address is young.
    pub(crate) fn read(
        &mut self,
        node: Node<'_>,
        send_batch: &mut dyn FnMut(Vec<Observation>) -> Result<(), Closed>,
    ) -> Result<Skipped, Closed> {
        let Self { daemons, memory } = self;
        let node = Node { boot_wall_ns: memory.begin(node), ..node };
        let mut skipped = Skipped::default();
        let daemons = daemons.find(node.root, (node.clock)());
        hand_over(runtime::list(node, &daemons, &mut memory.runtimes), &mut skipped, send_batch)?;
        hand_over(cni::list(node, &mut memory.cache), &mut skipped, send_batch)?;
        let stores = store::list(node, &daemons, &mut memory.networks, &mut memory.stores);
        hand_over(stores, &mut skipped, send_batch)?;
        Ok(skipped)
    }
}

impl Memory {
    /// Begins a reading. Returns the wall clock's time at boot that the reading uses.
    fn begin(&mut self, node: Node<'_>) -> i64 {
        let now = node.boot_wall_ns;
        if self.clock.is_some_and(|clock| clock.first.abs_diff(now) >= STEP_NS) {
            let mut stores = mem::take(&mut self.stores);
            stores.clock_set();
            *self = Self { stores, ..Self::default() };
        }
        let clock = self.clock.get_or_insert(Clock { boot_wall_ns: now, first: now });
        if clock.boot_wall_ns.abs_diff(now) >= SLEW_NS {
            clock.boot_wall_ns = now;
        }
        let boot_wall_ns = clock.boot_wall_ns;
        let wall_ns = now.saturating_add_unsigned((node.clock)().0);
        self.cache.begin(wall_ns);
        self.networks.begin(wall_ns);
        self.runtimes.begin(wall_ns);
        self.stores.begin(wall_ns);
        boot_wall_ns
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Memory, Node, SLEW_NS, STEP_NS};
    use crate::{
        model::time::Timestamp,
        source::{host::HostRoot, node::cgroup::Hierarchy},
    };

    /// Files may have been written at times that come again.
    #[test]
    fn nothing_is_remembered_when_the_wall_clock_was_set() {
        let root = tempfile::tempdir().expect("a directory");
        fs::write(root.path().join("a"), "one").expect("a file");
        let host = HostRoot::open(root.path()).expect("the root");
        let folder = host.folder("/").expect("the root");
        let hierarchy = Hierarchy { id: 0, controllers: Vec::new(), mount: "/sys/fs/cgroup".to_owned() };
        let clock = || Timestamp(1_000_000_000_000);
        let mut memory = Memory::default();
        // Far in the future, so that the file is old.
        let first = i64::MAX / 2;
        let [slew, step] = [SLEW_NS, STEP_NS].map(|ns| i64::try_from(ns).expect("it fits"));
        for (boot_wall_ns, is_opened, used) in [
            (first, true, first),
            (first + slew - 1, false, first),
            (first - slew, false, first - slew),
            (first - step + 1, false, first - step + 1),
            (first - step, true, first - step),
            (first, true, first),
        ] {
            let node = Node { root: &host, hierarchy: &hierarchy, clock: &clock, boot_wall_ns, stores: &[] };
            assert_eq!(memory.begin(node), used);
            let mut opened = false;
            let read = memory.networks.of(&folder).read("a", 9, |_, _| {
                opened = true;
                Some(Vec::new())
            });
            assert_eq!((read.is_ok(), opened), (true, is_opened), "{}", boot_wall_ns - first);
        }
    }
}
