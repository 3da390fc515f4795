//! Searches the logs of the runtime and the kubelet: what they did for a container or a sandbox before its
//! first sign, what they say about a pod that waits, and with what they ended.
//!
//! containerd and CRI-O log the begin and the end of pulling an image and of making a container. The kubelet
//! logs when it refuses to pull, and when the runtime failed, which CRI-O does not log. None of them logs
//! when an image is fetched and only unpacking is left, but the last layer's file in containerd's store has
//! that date. The kubelet also logs requests to the API server that it held back.
//!
//! **Invariant:** one search serves all containers, sandboxes and pods that are asked about together; a
//! bounded part of the logs is read.

mod content;
mod held;
mod log_line;
mod pull_history;
mod reference;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use super::plugin_log::{self, Line, Place, Unreadable, Window};
use crate::{
    model::{
        fact::{Fact, HeldRequests, ImageWork, PodName},
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
    source::{host::HostRoot, node::clock},
};
use held::Held;
use log_line::Step;
use pull_history::PullHistory;
use words::Words;

/// A pull that is under way in the wanted time is found if it began at most this long before, µs.
const LOOK_BACK: u64 = 5 * 60 * 1_000_000;
/// A line may be logged this long after what it describes, µs.
const SLACK: u64 = 1_000_000;
/// The most steps of the work that are kept: the newest.
const MAX_STEPS: usize = 8192;

/// The most held requests that are kept: the newest.
const MAX_REQUESTS: usize = 8192;

/// The containers and sandboxes that are asked about.
#[derive(Debug, Default)]
pub(crate) struct Search {
    pub(crate) containers: Vec<Asked>,
    pub(crate) sandboxes: Vec<AskedSandbox>,
    /// The pods, and since when each waits.
    pub(crate) pods: Vec<(AskedPod, Timestamp)>,
    /// The daemons that do not come up, by name, and since when.
    pub(crate) daemons: Vec<(String, Timestamp)>,
}

/// The answers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) images: Vec<ImageWork>,
    pub(crate) held: Vec<HeldRequests>,
    /// `DaemonWordsFound`, `WordsFound`, and `PodFound` where a pod's name was not known.
    pub(crate) words: Vec<Fact>,
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
    /// The container's name in the pod's specification.
    pub(crate) name: Option<String>,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

/// A sandbox that is asked about. Its pod needs something from the API server.
#[derive(Debug)]
pub(crate) struct AskedSandbox {
    pub(crate) sandbox: ContainerId,
    /// Its pod's namespace.
    pub(crate) namespace: Option<String>,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

/// A pod that is asked about.
#[derive(Clone, Debug)]
pub struct AskedPod {
    pub uid: PodUid,
    pub namespace: Option<String>,
    pub name: Option<String>,
    /// Its latest sandboxes.
    pub sandboxes: Vec<ContainerId>,
    /// The name of the container whose own log is searched too.
    pub container: Option<String>,
}

/// Searches the logs once for all of them. A container or sandbox that the logs do not mention has no answer.
/// `roots` returns the directories of the node's containerds; it is called only if needed.
pub(crate) fn find(
    root: &HostRoot,
    search: &Search,
    boot_wall_ns: i64,
    now: Timestamp,
    roots: impl FnOnce() -> Vec<PathBuf>,
) -> Found {
    let mut words = Words::default();
    let recent = now.saturating_sub(words::RECENT);
    for (pod, since) in &search.pods {
        words.add(pod, *since, clock::wall_us((*since).max(recent), boot_wall_ns));
    }
    for (daemon, since) in &search.daemons {
        words.add_daemon(daemon, *since, clock::wall_us((*since).max(recent), boot_wall_ns));
    }
    let containers = search.containers.iter().map(|it| (it.from, it.until));
    let sandboxes = search.sandboxes.iter().map(|it| (it.from, it.until));
    let spoken = if words.is_empty() { None } else { Some((recent, now)) };
    let times = containers.chain(sandboxes).chain(spoken);
    let Some((from, until)) = times.reduce(|all, it| (all.0.min(it.0), all.1.max(it.1))) else {
        return Found::default();
    };
    let window = Window {
        from: clock::wall_us(from, boot_wall_ns).saturating_sub(LOOK_BACK),
        until: clock::wall_us(until, boot_wall_ns) + SLACK,
    };
    let (logged, mut not) = Logged::of(root, window, &mut words);
    words.read_containers(root, &mut not);
    let held: Vec<_> =
        logged.held.iter().map(|(at, held)| held.request(since_boot(*at, boot_wall_ns))).collect();
    let held = search.sandboxes.iter().filter_map(|it| held::of(it, &held)).collect();
    let since = logged
        .oldest
        .iter()
        .map(|(place, at)| (*place, since_boot((*at).max(logged.cut).max(window.from), boot_wall_ns)));
    let mut history = PullHistory::beginning(since.collect());
    for (at, step, place) in logged.steps {
        history.add(since_boot(at, boot_wall_ns), step, place);
    }
    let stores = if history.has_manifests() { roots() } else { Vec::new() };
    let images = search.containers.iter().filter_map(|it| {
        history.of(it, &|manifest| {
            let wall_ns = content::fetched(root, &stores, manifest)?;
            Some(since_boot(u64::try_from(wall_ns / 1000).ok()?, boot_wall_ns))
        })
    });
    Found { images: images.collect(), held, words: words.answers(&not) }
}

/// Converts microseconds since 1970 to boot time; zero if it was before this boot.
fn since_boot(us: u64, boot_wall_ns: i64) -> Timestamp {
    let ns = i128::from(us) * 1000 - i128::from(boot_wall_ns);
    Timestamp(u64::try_from(ns).unwrap_or(0))
}

/// The contents of the logs.
#[derive(Debug, Default)]
struct Logged {
    steps: BTreeSet<(u64, Step, Place)>,
    /// The oldest line at each place, µs since 1970.
    oldest: BTreeMap<Place, u64>,
    /// Older steps than this are left out.
    cut: u64,
    held: BTreeSet<(u64, Held)>,
}

impl Logged {
    fn of(root: &HostRoot, window: Window, words: &mut Words<'_>) -> (Self, Unreadable) {
        let mut logged = Self::default();
        let not = plugin_log::lines(root, window, &mut |Line { place, at, text, is_from_kubelet }, file| {
            let at = plugin_log::written_at(text).filter(|at| window.has(*at)).unwrap_or(at);
            let oldest = logged.oldest.entry(place).or_insert(at);
            *oldest = at.min(*oldest);
            let mut is_work = false;
            for step in log_line::read(text) {
                is_work |= step.is_runtimes_work();
                logged.add(at, step, place);
            }
            if is_from_kubelet && let Some(held) = held::read(text) {
                logged.hold(at, held);
            }
            words.read(at, text, file, is_from_kubelet);
            // A kubelet may log to a file of its own while the runtime logs to the journal.
            is_work && words.is_empty()
        });
        (logged, not)
    }

    fn add(&mut self, at: u64, step: Step, place: Place) {
        self.steps.insert((at, step, place));
        if self.steps.len() > MAX_STEPS
            && let Some((at, ..)) = self.steps.pop_first()
        {
            self.cut = self.cut.max(at);
        }
    }

    fn hold(&mut self, at: u64, held: Held) {
        self.held.insert((at, held));
        if self.held.len() > MAX_REQUESTS {
            self.held.pop_first();
        }
    }
}

#[cfg(test)]
mod tests;
