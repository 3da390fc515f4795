//! Lists the state of the node as it is now: at the start, and again after events were lost.
//!
//! One pass makes several lists. Names come first, so that later entries are reported with them. Each fact is
//! stamped just before it was read: the thing may have begun a moment later, but it had not ended by then. A
//! file that cannot be read is counted, and its list is marked incomplete.
//!
//! **Invariant:** a pass reads files through [`HostRoot`] and asks runtimes for their sandboxes; it does
//! nothing else. It changes nothing on the node and enters no namespace.

mod address;
pub(crate) mod allocation;
pub(crate) mod bundle;
mod cgroupfs;
mod cni;
pub(crate) mod log;
mod netns;
mod network;
mod proc;
mod process;
mod process_state;
mod records;
mod runtime;
mod spec;
pub mod store;

use std::{collections::BTreeSet, path::PathBuf};

use super::{
    host::{HostRoot, ReadError, skipped::Skipped},
    node::cgroup::Hierarchy,
};
use crate::model::{
    fact::{Fact, List, Observation, Origin},
    time::Timestamp,
};
pub(crate) use process::netns_of;
pub(crate) use process_state::process_state;
pub(crate) use records::Records;
pub(crate) use runtime::{containerd_roots, kubelet};
use store::Declared;

/// The facts about the node that a pass needs.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    pub root: &'a HostRoot,
    /// The hierarchy whose ids the hooks report.
    pub hierarchy: &'a Hierarchy,
    /// The clock of the hooks.
    pub clock: &'a dyn Fn() -> Timestamp,
    /// The wall clock's time at boot. Files are dated by the wall clock.
    pub boot_wall_ns: i64,
    /// The address stores that the configuration names.
    pub stores: &'a [Declared],
}

impl Node<'_> {
    /// Converts a time of the wall clock to boot time; zero if it was before this boot, or if the clock has
    /// been set since.
    fn boot_time(&self, wall_ns: i64) -> Timestamp {
        let since =
            wall_ns.checked_sub(self.boot_wall_ns).and_then(|ns| u64::try_from(ns).ok()).map(Timestamp);
        since.filter(|at| *at <= (self.clock)()).unwrap_or(Timestamp::ZERO)
    }
}

/// The engine no longer accepts facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

/// Makes all lists. `send_batch` receives one batch for each list.
pub fn read(
    node: Node<'_>,
    send_batch: &mut dyn FnMut(Vec<Observation>) -> Result<(), Closed>,
) -> Result<Skipped, Closed> {
    let mut skipped = present(node, send_batch)?;
    skipped.append(records(node, send_batch)?);
    Ok(skipped)
}

/// Lists what exists now: pods, containers, cgroups, processes, namespaces and their addresses.
pub fn present(
    node: Node<'_>,
    send_batch: &mut dyn FnMut(Vec<Observation>) -> Result<(), Closed>,
) -> Result<Skipped, Closed> {
    let mut skipped = Skipped::default();
    let pods = log::list(node);
    let (cgroups, containers) = cgroupfs::list(node);
    hand_over(pods, &mut skipped, send_batch)?;
    hand_over(bundle::list(node, &containers), &mut skipped, send_batch)?;
    hand_over(cgroups, &mut skipped, send_batch)?;
    let (processes, table) = process::list(node);
    hand_over(processes, &mut skipped, send_batch)?;
    let (netns, namespaces) = netns::list(node, &table);
    hand_over(netns, &mut skipped, send_batch)?;
    hand_over(address::list(node, &table, &namespaces), &mut skipped, send_batch)?;
    Ok(skipped)
}

/// Ends a list: sends its facts and counts the entries that were skipped.
fn hand_over(
    list: Listing<'_>,
    skipped: &mut Skipped,
    send_batch: &mut dyn FnMut(Vec<Observation>) -> Result<(), Closed>,
) -> Result<(), Closed> {
    let (batch, missed) = list.end();
    skipped.append(missed);
    send_batch(batch)
}

/// Lists what is only on record, once: see [`Records`].
pub fn records(
    node: Node<'_>,
    send_batch: &mut dyn FnMut(Vec<Observation>) -> Result<(), Closed>,
) -> Result<Skipped, Closed> {
    Records::default().read(node, send_batch)
}

/// Returns whether the hierarchy has a container in it. This decides which hierarchy is used.
#[must_use]
pub fn has_container(root: &HostRoot, hierarchy: &Hierarchy) -> bool {
    let node = Node { root, hierarchy, clock: &|| Timestamp::ZERO, boot_wall_ns: 0, stores: &[] };
    !cgroupfs::list(node).1.is_empty()
}

/// Returns the cgroup of the node's only runtime in a hierarchy.
pub(super) fn runtime_cgroup(root: &HostRoot, hierarchy: u32) -> Option<String> {
    runtime::daemon::runtime_cgroup(root, hierarchy)
}

/// Returns whether a cgroup's path is the path of a container's cgroup, or below one.
pub(super) fn is_in_container(path: &str) -> bool {
    cgroupfs::container(path).is_some()
}

/// Returns the files to which daemons of the node write their output.
pub(super) fn outputs(root: &HostRoot) -> BTreeSet<PathBuf> {
    runtime::daemon::outputs(root)
}

/// A list that is being made.
struct Listing<'a> {
    clock: &'a dyn Fn() -> Timestamp,
    list: List,
    batch: Vec<Observation>,
    skipped: Skipped,
    /// The list may miss something that exists.
    partial: bool,
}

impl<'a> Listing<'a> {
    fn begin(list: List, node: Node<'a>) -> Self {
        Self::begin_at((node.clock)(), list, node)
    }

    /// Begins a list that is read at `at` or later.
    fn begin_at(at: Timestamp, list: List, node: Node<'a>) -> Self {
        let mut listing =
            Self { clock: node.clock, list, batch: Vec::new(), skipped: Skipped::default(), partial: false };
        listing.found(at, Fact::ListBegun(list));
        listing
    }

    /// Returns the time now. Take it before reading, and stamp with it what was read.
    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    fn found(&mut self, at: Timestamp, fact: Fact) {
        self.batch.push(Observation { at, origin: Origin::Listed, fact });
    }

    /// Records an entry that could not be read, so the list is incomplete.
    fn skip(&mut self, path: impl Into<PathBuf>, why: ReadError) {
        let path = path.into();
        if why != ReadError::Absent {
            self.partial = true;
            self.skipped.partial.entry(self.list).or_insert_with(|| (path.clone(), why));
        }
        self.skipped.add(path, why);
    }

    /// Records a file that could not be read although the list stays complete: either its name is reported as
    /// unread, or its name shows that it does not belong in the list.
    fn set_aside(&mut self, path: impl Into<PathBuf>, why: ReadError) {
        self.skipped.set_aside(path, why);
    }

    /// Returns the value that was read. Records a failure; an absent file is not a failure.
    fn take<T>(&mut self, path: impl Into<PathBuf>, read: Result<T, ReadError>) -> Option<T> {
        read.map_err(|why| self.skip(path, why)).ok()
    }

    fn end(mut self) -> (Vec<Observation>, Skipped) {
        self.found(self.now(), Fact::ListEnded { list: self.list, complete: !self.partial });
        (self.batch, self.skipped)
    }
}
