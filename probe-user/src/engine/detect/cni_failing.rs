//! **Rule:** a plugin that the runtime called fails its ADD, and the pod has no network by a later one: for one pod
//! twice, or for two pods within a minute.
//!
//! Each try of containerd's is a new sandbox with a new namespace; others try again in the same one. Either way it is
//! the pod that waits. The plugin is the one that the runtime called: what it called itself has failed before it.
//!
//! Not flagged: one failure after which the next try succeeds (the stream tells it); a pod that is gone; CHECK and DEL;
//! a call that names no pod. What failed before records were lost keeps a finding open and opens none: the success may
//! be among what was lost.

use std::{collections::BTreeMap, time::Duration};

use super::{Sight, Sighting, Standing};
use crate::engine::{
    fact::PodName,
    finding::{CniFailing, Key, Kind, Severity},
    time::Timestamp,
    world::{
        World,
        attachment::{Attachment, LATELY, Plugin},
        pod,
    },
};

/// Failures of two pods are one problem if they are so close to each other.
const TOGETHER: Duration = Duration::from_secs(60);
/// What goes on for so long, or so often, is no accident.
const LONG: Duration = Duration::from_secs(30);
const OFTEN: u32 = 3;
/// So many pods without a network are to be looked at now.
const MANY: u32 = 3;
/// Between two tries nothing of a pod may be there, where its cgroup cannot be seen.
const ABSENT: Duration = Duration::from_secs(30);
/// So many sandboxes, the latest, are shown as evidence.
const SHOWN: usize = 16;

pub(super) fn look(sight: &Sight<'_>, found: &mut Vec<Sighting>) {
    let world = sight.world;
    let mut failed: BTreeMap<&str, Vec<(&Attachment, &Plugin)>> = BTreeMap::new();
    for row in world.attachments.values().filter(|row| names_pod(&row.pod)) {
        for plugin in row.plugins.iter().filter(|plugin| plugin.add.failed > 0) {
            failed.entry(&plugin.name).or_default().push((row, plugin));
        }
    }
    for (name, all) in failed {
        let mut waiting: BTreeMap<&PodName, Pod<'_>> = BTreeMap::new();
        for (row, plugin) in all {
            let is_past = sight.now >= plugin.add.last_at + LATELY;
            if !is_past && !is_absent(sight, &row.pod) && !is_connected(world, row, plugin) {
                waiting.entry(&row.pod).or_default().tries.push((row, plugin));
            }
        }
        found.extend(sighting(sight, name, &waiting));
    }
}

/// Whether an ADD of a plugin has failed for a pod.
pub(super) fn has_failed(world: &World, pod: &PodName, plugin: &str) -> bool {
    let failed = |it: &Plugin| it.name == plugin && it.add.failed > 0;
    names_pod(pod) && world.attachments.values().any(|row| row.pod == *pod && row.plugins.iter().any(failed))
}

/// A pod that waits for its network.
#[derive(Default)]
struct Pod<'a> {
    tries: Vec<(&'a Attachment, &'a Plugin)>,
}

impl Pod<'_> {
    fn attempts(&self) -> u32 {
        self.tries.iter().map(|(_, plugin)| plugin.add.failed).fold(0, u32::saturating_add)
    }

    fn last_at(&self) -> Timestamp {
        self.tries.iter().map(|(_, plugin)| plugin.add.last_at).max().unwrap_or(Timestamp::ZERO)
    }

    /// Whether it would have been seen if it had its network by now.
    fn is_sure(&self) -> bool {
        self.tries.iter().any(|(row, _)| !row.gapped)
    }
}

fn sighting(sight: &Sight<'_>, name: &str, waiting: &BTreeMap<&PodName, Pod<'_>>) -> Option<Sighting> {
    let mut tries: Vec<_> = waiting.values().flat_map(|pod| &pod.tries).copied().collect();
    tries.sort_by_key(|(row, plugin)| (plugin.add.last_at, &row.container));
    let (_, last) = *tries.last()?;
    let since = tries.iter().map(|(_, plugin)| plugin.add.first_at).min()?;
    let attempts = tries.iter().map(|(_, plugin)| plugin.add.failed).fold(0, u32::saturating_add);
    let pods = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
    let said = tries.iter().rev().filter_map(|(row, _)| row.message.as_ref());
    let wasted = tries.iter().map(|(_, plugin)| plugin.add.wasted);
    let kind = Kind::CniFailing(CniFailing {
        plugin: name.to_owned(),
        attempts,
        pods,
        wasted: wasted.fold(Duration::ZERO, Duration::saturating_add),
        code: last.add.code,
        // What the plugin said is worth more than why the latest could not be read.
        message: said.clone().find(|it| it.text.is_some()).or_else(|| said.clone().next()).cloned(),
    });
    let shown = tries.iter().skip(tries.len().saturating_sub(SHOWN));
    Some(Sighting {
        key: Key::new(kind.name(), &[name]),
        kind,
        severity: if pods >= MANY { Severity::Critical } else { Severity::Warning },
        since,
        pod: waiting.keys().next().filter(|_| pods == 1).map(|pod| (*pod).clone()),
        sandboxes: shown.map(|(row, _)| row.container.clone()).collect(),
        gapped: tries.iter().any(|(row, _)| row.gapped),
        standing: standing(sight, waiting, since, attempts),
    })
}

fn standing(
    sight: &Sight<'_>,
    waiting: &BTreeMap<&PodName, Pod<'_>>,
    since: Timestamp,
    attempts: u32,
) -> Standing {
    let sure = || waiting.values().filter(|pod| pod.is_sure());
    let mut times: Vec<Timestamp> = sure().map(Pod::last_at).collect();
    times.sort_unstable();
    let several = times.windows(2).any(|pair| pair[1].since(pair[0]) <= TOGETHER);
    let until = next(sight, waiting);
    if !several && sure().all(|pod| pod.attempts() < 2) {
        return Standing::Watched { until: Some(until) };
    }
    let confirmed_at = sight.awake(since) + LONG;
    if attempts >= OFTEN || sight.now >= confirmed_at {
        Standing::Passing { until }
    } else {
        Standing::Candidate { until: Some(until.min(confirmed_at)) }
    }
}

/// When the first of them waits no longer, if nothing more happens.
fn next(sight: &Sight<'_>, waiting: &BTreeMap<&PodName, Pod<'_>>) -> Timestamp {
    let times = waiting.iter().map(|(name, pod)| {
        let forgotten = pod.tries.iter().map(|(_, plugin)| plugin.add.last_at + LATELY);
        let absent = gone_at(sight.world, name).map(|at| at + ABSENT);
        forgotten.chain(absent).min().unwrap_or(sight.now)
    });
    times.min().unwrap_or(sight.now)
}

/// Whether the pod got its network by a later ADD, in this sandbox or in another.
fn is_connected(world: &World, row: &Attachment, failed: &Plugin) -> bool {
    let succeeded = |other: &Attachment| {
        let of_it = other.plugins.iter().find(|it| it.name == failed.name);
        other.is_added() || of_it.is_some_and(|it| it.add.succeeded > 0)
    };
    let is_later = |other: &Attachment| {
        let adds = other.plugins.iter().map(|it| it.add.last_at);
        adds.max().is_some_and(|at| at > failed.add.last_at)
    };
    failed.add.succeeded > 0
        || world.attachments.values().any(|other| {
            other.pod == row.pod && other.ifname == row.ifname && succeeded(other) && is_later(other)
        })
}

fn is_absent(sight: &Sight<'_>, name: &PodName) -> bool {
    gone_at(sight.world, name).is_some_and(|at| sight.now >= at + ABSENT)
}

/// Since when a pod is not there; zero: it is forgotten.
fn gone_at(world: &World, name: &PodName) -> Option<Timestamp> {
    let by_uid = name.uid.as_ref().and_then(|uid| world.pods.by_uid(uid));
    let row = match by_uid {
        Some(id) => world.pods.rows.get(&id),
        None => world.pods.rows.values().find(|row| row.name == name.name && row.namespace == name.namespace),
    };
    match row.map(|row| row.state) {
        Some(pod::State::Present) => None,
        Some(pod::State::Gone { at }) => Some(at),
        None => Some(Timestamp::ZERO),
    }
}

fn names_pod(pod: &PodName) -> bool {
    pod.uid.is_some() || pod.name.is_some() && pod.namespace.is_some()
}
