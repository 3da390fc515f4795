//! Finds what runtime and kubelet did for a container or a sandbox before its first sign: in their logs, and in the files in
//! which containerd keeps what it fetched.
//!
//! containerd and CRI-O log when they begin and end to pull an image and to make a container; the kubelet logs when it
//! refuses to pull, and when the runtime failed, of which CRI-O logs nothing. None of them logs when an image is fetched and
//! only unpacked from then on, but a file of containerd's has the date of the last layer. The kubelet also logs requests to the
//! API server that it held back.
//!
//! **Invariant:** one search serves all that are asked about together; a bounded part of the logs is read.

mod content;
mod held;
mod reference;
mod told;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use super::{
    host::HostRoot,
    plugin_log::{self, Line, Place, Window},
};
use crate::model::{
    fact::{HeldRequests, ImageWork, PodName},
    id::ContainerId,
    time::Timestamp,
};
use held::Held;
use told::Told;
use words::Said;

/// Pulls that began so long before the time that is asked about, µs, are found, if they are under way then.
const LOOK_BACK: u64 = 5 * 60 * 1_000_000;
/// A line may be logged so long after what it tells of, µs.
const SLACK: u64 = 1_000_000;
/// The most steps of the work that are taken of the logs, the newest.
const STEPS: usize = 8192;

/// The most requests that were held back, likewise.
const REQUESTS: usize = 8192;

/// What is asked about.
#[derive(Debug, Default)]
pub(crate) struct Search {
    pub(crate) containers: Vec<Asked>,
    pub(crate) sandboxes: Vec<AskedSandbox>,
}

/// What is told of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) images: Vec<ImageWork>,
    pub(crate) held: Vec<HeldRequests>,
}

/// A container that is asked about, or a sandbox that waits for its next container.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) container: ContainerId,
    /// It is a sandbox: its next container is not made yet.
    pub(crate) is_sandbox: bool,
    /// The names of its image in its bundle.
    pub(crate) images: Vec<String>,
    pub(crate) pod: PodName,
    /// Its name in the pod's specification.
    pub(crate) name: Option<String>,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

/// A sandbox that is asked about. Its pod needs something of the API server.
#[derive(Debug)]
pub(crate) struct AskedSandbox {
    pub(crate) sandbox: ContainerId,
    /// Its pod's namespace.
    pub(crate) namespace: Option<String>,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

/// Searches the logs once for all of them; those of which nothing is told have no answer. `roots` gives the directories of
/// the node's containerds, where they are needed.
pub(crate) fn find(
    root: &HostRoot,
    search: &Search,
    boot_wall_ns: i64,
    roots: impl FnOnce() -> Vec<PathBuf>,
) -> Found {
    let containers = search.containers.iter().map(|it| (it.from, it.until));
    let times = || containers.clone().chain(search.sandboxes.iter().map(|it| (it.from, it.until)));
    let (Some(from), Some(until)) = (times().map(|it| it.0).min(), times().map(|it| it.1).max()) else {
        return Found::default();
    };
    let wall = |at: Timestamp| boot_wall_ns.saturating_add_unsigned(at.0).max(0).unsigned_abs() / 1000;
    let since_boot = |us: u64| {
        let ns = i128::from(us) * 1000 - i128::from(boot_wall_ns);
        Timestamp(u64::try_from(ns).unwrap_or(0))
    };
    let window = Window { from: wall(from).saturating_sub(LOOK_BACK), until: wall(until) + SLACK };
    let heard = Heard::of(root, window);
    let held: Vec<_> = heard.held.iter().map(|(at, held)| held.request(since_boot(*at))).collect();
    let held = search.sandboxes.iter().filter_map(|it| held::of(it, &held)).collect();
    let since =
        heard.oldest.iter().map(|(place, at)| (*place, since_boot((*at).max(heard.cut).max(window.from))));
    let mut told = Told::beginning(since.collect());
    for (at, said, place) in heard.steps {
        told.add(since_boot(at), said, place);
    }
    let stores = if told.has_manifests() { roots() } else { Vec::new() };
    let fetched = |manifest: &str| {
        let wall_ns = content::fetched(root, &stores, manifest)?;
        u64::try_from(wall_ns / 1000).ok().map(since_boot)
    };
    Found { images: search.containers.iter().filter_map(|it| told.of(it, &fetched)).collect(), held }
}

/// What the logs say.
#[derive(Debug, Default)]
struct Heard {
    steps: BTreeSet<(u64, Said, Place)>,
    /// The oldest line at each place, µs since 1970.
    oldest: BTreeMap<Place, u64>,
    /// Older steps than this are left out.
    cut: u64,
    held: BTreeSet<(u64, Held)>,
}

impl Heard {
    fn of(root: &HostRoot, window: Window) -> Self {
        let mut heard = Self::default();
        plugin_log::lines(root, window, &mut |Line { place, at, text, is_kubelets }| {
            let at = plugin_log::written_at(text).filter(|at| window.has(*at)).unwrap_or(at);
            let oldest = heard.oldest.entry(place).or_insert(at);
            *oldest = at.min(*oldest);
            let mut is_told = false;
            for said in words::read(text) {
                is_told |= said.is_runtimes_work();
                heard.add(at, said, place);
            }
            if let Some(held) = held::read(text).filter(|_| is_kubelets) {
                heard.hold(at, held);
            }
            is_told
        });
        heard
    }

    fn add(&mut self, at: u64, said: Said, place: Place) {
        self.steps.insert((at, said, place));
        if self.steps.len() > STEPS
            && let Some((at, ..)) = self.steps.pop_first()
        {
            self.cut = self.cut.max(at);
        }
    }

    fn hold(&mut self, at: u64, held: Held) {
        self.held.insert((at, held));
        if self.held.len() > REQUESTS {
            self.held.pop_first();
        }
    }
}

#[cfg(test)]
mod tests;
