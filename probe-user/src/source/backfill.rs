//! Reads the node as it is now: what was there before the first event, and again after events were lost.
//!
//! One pass makes one list after another, names first, so that what follows is told with its name. Every fact of
//! a list is stamped just before it was read: a thing may have begun in the moment between, but none that had
//! ended by then is brought back. What could not be read is counted and makes its list incomplete.
//!
//! **Invariant:** reads files only, all through [`HostRoot`], and of runtimes asks which sandboxes they have; changes
//! nothing on the node and enters no namespace.

mod address;
pub mod allocation;
pub mod bundle;
mod cgroupfs;
mod cni;
mod daemon;
mod docker;
pub mod kubelet;
pub mod log;
mod netns;
mod network;
mod proc;
mod process;
mod runtime;
pub mod store;

use std::{collections::BTreeSet, path::PathBuf};

use super::{
    cgroup::Hierarchy,
    host::{HostRoot, ReadError, skipped::Skipped},
};
use crate::model::{
    fact::{Fact, List, Observation, Origin},
    time::Timestamp,
};
use store::Declared;

/// What a pass needs to know of the node.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    pub root: &'a HostRoot,
    /// The one whose ids the hooks give.
    pub hierarchy: &'a Hierarchy,
    /// The hooks' clock.
    pub clock: &'a dyn Fn() -> Timestamp,
    /// What the wall clock, by which files are dated, showed at boot.
    pub boot_wall_ns: i64,
    /// The stores that the configuration names.
    pub stores: &'a [Declared],
}

impl Node<'_> {
    /// A time on the wall clock as boot time; zero if it was before this boot, or if the clock has been set since.
    fn boot_time(&self, wall_ns: i64) -> Timestamp {
        let since =
            wall_ns.checked_sub(self.boot_wall_ns).and_then(|ns| u64::try_from(ns).ok()).map(Timestamp);
        since.filter(|at| *at <= (self.clock)()).unwrap_or(Timestamp::ZERO)
    }
}

/// The engine takes nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

/// One pass over everything. `tell` is given a batch for each list.
pub fn read(
    node: Node<'_>,
    tell_batch: &mut dyn FnMut(Vec<Observation>) -> Result<(), Closed>,
) -> Result<Skipped, Closed> {
    let mut skipped = present(node, tell_batch)?;
    skipped.append(records(node, tell_batch)?);
    Ok(skipped)
}

/// A pass over what is there now: pods and containers, cgroups, processes, namespaces and their addresses.
pub fn present(
    node: Node<'_>,
    tell_batch: &mut dyn FnMut(Vec<Observation>) -> Result<(), Closed>,
) -> Result<Skipped, Closed> {
    let mut skipped = Skipped::default();
    let mut tell = |list| hand_over(list, &mut skipped, tell_batch);
    let pods = log::list(node);
    let (cgroups, containers) = cgroupfs::list(node);
    tell(pods)?;
    tell(bundle::list(node, &containers))?;
    tell(cgroups)?;
    let (processes, table) = process::list(node);
    tell(processes)?;
    let (netns, namespaces) = netns::list(node, &table);
    tell(netns)?;
    tell(address::list(node, &table, &namespaces))?;
    Ok(skipped)
}

/// A list is at its end: what it found is told, what it missed is counted.
fn hand_over(
    list: Listing<'_>,
    skipped: &mut Skipped,
    tell_batch: &mut dyn FnMut(Vec<Observation>) -> Result<(), Closed>,
) -> Result<(), Closed> {
    let (batch, missed) = list.end();
    skipped.append(missed);
    tell_batch(batch)
}

/// A pass over what is kept on record alone: the runtimes' sandboxes, libcni's cache, the networks' configuration, and
/// the IPAM stores. Runtimes are read first: a sandbox that a runtime had forgotten by then had had its last DEL, and
/// what names it still when the stores are read stays. One that is made meanwhile is in no runtime's record yet, but
/// its address is young.
pub fn records(
    node: Node<'_>,
    tell_batch: &mut dyn FnMut(Vec<Observation>) -> Result<(), Closed>,
) -> Result<Skipped, Closed> {
    let mut skipped = Skipped::default();
    let mut tell = |list| hand_over(list, &mut skipped, tell_batch);
    let daemons = daemon::look(node.root);
    tell(runtime::list(node, &daemons))?;
    tell(cni::list(node))?;
    tell(store::list(node, &daemons))?;
    Ok(skipped)
}

/// Whether the hierarchy has a container in it, by which the one to use is chosen.
#[must_use]
pub fn has_container(root: &HostRoot, hierarchy: &Hierarchy) -> bool {
    let clock = || Timestamp::ZERO;
    let node = Node { root, hierarchy, clock: &clock, boot_wall_ns: 0, stores: &[] };
    !cgroupfs::list(node).1.is_empty()
}

/// The files to which daemons of the node write their output, if to any.
pub(super) fn outputs(root: &HostRoot) -> BTreeSet<PathBuf> {
    daemon::outputs(root)
}

/// One list in the making.
struct Listing<'a> {
    clock: &'a dyn Fn() -> Timestamp,
    list: List,
    batch: Vec<Observation>,
    skipped: Skipped,
    /// Something may be there that this list does not name.
    partial: bool,
}

impl<'a> Listing<'a> {
    fn begin(list: List, node: Node<'a>) -> Self {
        Self::begin_at((node.clock)(), list, node)
    }

    /// One that is made from what was read since `at`.
    fn begin_at(at: Timestamp, list: List, node: Node<'a>) -> Self {
        let mut listing =
            Self { clock: node.clock, list, batch: Vec::new(), skipped: Skipped::default(), partial: false };
        listing.found(at, Fact::ListBegun(list));
        listing
    }

    /// To be taken before reading what is then found.
    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    fn found(&mut self, at: Timestamp, fact: Fact) {
        self.batch.push(Observation { at, origin: Origin::Listed, fact });
    }

    /// What was there could not be read, and what it would have told is missing from the list.
    fn skip(&mut self, path: impl Into<PathBuf>, why: ReadError) {
        let path = path.into();
        if why != ReadError::Absent {
            self.partial = true;
            self.skipped.partial.entry(self.list).or_insert_with(|| (path.clone(), why));
        }
        self.skipped.add(path, why);
    }

    /// One file could not be read, and the list is whole without it: either it is told by its name what is not known, or
    /// its name shows that it is nothing that the list is about.
    fn set_aside(&mut self, path: impl Into<PathBuf>, why: ReadError) {
        self.skipped.add(path, why);
    }

    /// The value; a failure is noted, and one of absence is none.
    fn take<T>(&mut self, path: impl Into<PathBuf>, read: Result<T, ReadError>) -> Option<T> {
        read.map_err(|why| self.skip(path, why)).ok()
    }

    fn end(mut self) -> (Vec<Observation>, Skipped) {
        self.found(self.now(), Fact::ListEnded { list: self.list, complete: !self.partial });
        (self.batch, self.skipped)
    }
}
