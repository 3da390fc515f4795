//! **Rule:** a plugin that the runtime called fails its ADD, and the pod has no network by a later one: for one pod
//! twice, or for two pods within a minute.
//!
//! Each try of containerd's is a new sandbox with a new namespace; others try again in the same one. Either way it is
//! the pod that waits. The plugin is the one that the runtime called: what it called itself has failed before it.
//!
//! Not flagged: one failure after which the next try succeeds (the stream tells it); a pod that is gone; CHECK and DEL;
//! a call that names no pod. What failed before records were lost keeps a finding open and opens none: the success may
//! be among what was lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{DetectContext, Detection, Verdict};
use crate::{
    engine::world::{
        World,
        attachment::{Attachment, LATELY, Plugin},
        pod,
    },
    model::{
        fact::PodName,
        finding::{CniFailing, Key, Kind, Severity},
        time::Timestamp,
    },
};

/// Failures of two pods are one problem if they are so close to each other.
pub(super) const TOGETHER: Duration = Duration::from_secs(60);
/// What goes on for so long, or so often, is no accident.
pub(super) const LONG: Duration = Duration::from_secs(30);
const OFTEN: u32 = 3;
/// So many pods without a network are to be looked at now.
pub(super) const MANY: u32 = 3;
/// Between two tries nothing of a pod may be there, where its cgroup cannot be seen.
pub(super) const ABSENT: Duration = Duration::from_secs(30);
/// So many sandboxes, the latest, are shown as evidence.
const SHOWN: usize = 16;

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    let world = ctx.world;
    let mut failed: BTreeMap<&str, BTreeMap<&PodName, Pod<'_>>> = BTreeMap::new();
    for row in world.attachments.values().filter(|row| names_pod(&row.pod)) {
        for plugin in row.plugins.iter().filter(|plugin| plugin.add.failed > 0) {
            if ctx.now < plugin.add.last_at + LATELY {
                failed
                    .entry(&plugin.name)
                    .or_default()
                    .entry(&row.pod)
                    .or_default()
                    .tries
                    .push((row, plugin));
            }
        }
    }
    if failed.is_empty() {
        return;
    }
    let pods: BTreeSet<&PodName> = failed.values().flat_map(BTreeMap::keys).copied().collect();
    let connected = Connected::of(world, &pods);
    let gone: BTreeMap<&PodName, Timestamp> = gone(world, &pods);
    for (name, mut waiting) in failed {
        waiting.retain(|pod, it| {
            it.gone_at = gone.get(pod).copied();
            it.tries.retain(|(row, plugin)| !connected.has(row, plugin));
            !it.tries.is_empty() && it.gone_at.is_none_or(|at| ctx.now < at + ABSENT)
        });
        found.extend(detection(ctx, name, &waiting));
    }
}

/// The pods and the plugins whose ADD has failed for them.
pub(super) fn all_failed(world: &World) -> BTreeSet<(&PodName, &str)> {
    let rows = world.attachments.values().filter(|row| names_pod(&row.pod));
    let plugins = rows.flat_map(|row| row.plugins.iter().map(move |plugin| (row, plugin)));
    let failed = plugins.filter(|(_, plugin)| plugin.add.failed > 0);
    failed.map(|(row, plugin)| (&row.pod, plugin.name.as_str())).collect()
}

/// A pod that waits for its network.
#[derive(Default)]
struct Pod<'a> {
    tries: Vec<(&'a Attachment, &'a Plugin)>,
    /// Since when it is not there; zero: it is forgotten; none: it is there.
    gone_at: Option<Timestamp>,
}

impl Pod<'_> {
    fn attempts(&self) -> u32 {
        self.tries.iter().map(|(_, plugin)| plugin.failures()).fold(0, u32::saturating_add)
    }

    fn last_at(&self) -> Timestamp {
        self.tries.iter().map(|(_, plugin)| plugin.add.last_at).max().unwrap_or(Timestamp::ZERO)
    }

    /// Whether it would have been seen if it had its network by now.
    fn is_sure(&self) -> bool {
        self.tries.iter().any(|(row, _)| !row.gapped)
    }
}

fn detection(
    ctx: &DetectContext<'_>,
    name: &str,
    waiting: &BTreeMap<&PodName, Pod<'_>>,
) -> Option<Detection> {
    let mut tries: Vec<_> = waiting.values().flat_map(|pod| &pod.tries).copied().collect();
    tries.sort_by_key(|(row, plugin)| (plugin.add.last_at, &row.container));
    let (_, last) = *tries.last()?;
    let since = tries.iter().map(|(_, plugin)| plugin.first_try()).min()?;
    let attempts = tries.iter().map(|(_, plugin)| plugin.failures()).fold(0, u32::saturating_add);
    let pods = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
    let said = tries.iter().rev().filter_map(|(row, _)| row.message.as_ref());
    let wasted = tries.iter().map(|(_, plugin)| plugin.wasted());
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
    Some(Detection {
        key: Key::new(kind.into_str(), &[name]),
        kind,
        severity: if pods >= MANY { Severity::Critical } else { Severity::Warning },
        since,
        pod: waiting.keys().next().filter(|_| pods == 1).map(|pod| (*pod).clone()),
        sandboxes: shown.map(|(row, _)| row.container.clone()).collect(),
        gapped: tries.iter().any(|(row, _)| row.gapped),
        standing: standing(ctx, waiting, since, attempts),
    })
}

fn standing(
    ctx: &DetectContext<'_>,
    waiting: &BTreeMap<&PodName, Pod<'_>>,
    since: Timestamp,
    attempts: u32,
) -> Verdict {
    let sure = || waiting.values().filter(|pod| pod.is_sure());
    let mut times: Vec<Timestamp> = sure().map(Pod::last_at).collect();
    times.sort_unstable();
    let several = times.windows(2).any(|pair| pair[1].since(pair[0]) <= TOGETHER);
    let until = next(ctx, waiting);
    if !several && sure().all(|pod| pod.attempts() < 2) {
        return Verdict::Watched { until: Some(until) };
    }
    let confirmed_at = ctx.awake(since) + LONG;
    if attempts >= OFTEN || ctx.now >= confirmed_at {
        Verdict::Passing { until }
    } else {
        Verdict::Candidate { until: Some(until.min(confirmed_at)) }
    }
}

/// When the first of them waits no longer, if nothing more happens.
fn next(ctx: &DetectContext<'_>, waiting: &BTreeMap<&PodName, Pod<'_>>) -> Timestamp {
    let times = waiting.values().map(|pod| {
        let forgotten = pod.tries.iter().map(|(_, plugin)| plugin.add.last_at + LATELY);
        let absent = pod.gone_at.map(|at| at + ABSENT);
        forgotten.chain(absent).min().unwrap_or(ctx.now)
    });
    times.min().unwrap_or(ctx.now)
}

/// When pods last got their network, by pod and interface.
struct Connected<'a>(BTreeMap<(&'a PodName, &'a str), Success<'a>>);

#[derive(Default)]
struct Success<'a> {
    /// By all plugins of a chain.
    whole: Option<Timestamp>,
    by_plugin: BTreeMap<&'a str, Timestamp>,
}

impl<'a> Connected<'a> {
    fn of(world: &'a World, pods: &BTreeSet<&PodName>) -> Self {
        let mut all: BTreeMap<(&PodName, &str), Success<'_>> = BTreeMap::new();
        for row in world.attachments.values().filter(|row| pods.contains(&row.pod)) {
            let Some(at) = row.plugins.iter().map(|it| it.add.last_at).max() else { continue };
            if !row.plugins.iter().any(|it| it.add.succeeded > 0) {
                continue;
            }
            let success = all.entry((&row.pod, &row.ifname)).or_default();
            if row.is_added() {
                success.whole = success.whole.max(Some(at));
            }
            for plugin in row.plugins.iter().filter(|it| it.add.succeeded > 0) {
                let known = success.by_plugin.entry(&plugin.name).or_insert(at);
                *known = at.max(*known);
            }
        }
        Self(all)
    }

    /// Whether the pod got its network after this failure, in this sandbox or in another.
    fn has(&self, row: &Attachment, failed: &Plugin) -> bool {
        let later = |success: &Success<'_>| {
            let last = success.whole.max(success.by_plugin.get(failed.name.as_str()).copied());
            last.is_some_and(|at| at > failed.add.last_at)
        };
        failed.add.succeeded > 0 || self.0.get(&(&row.pod, row.ifname.as_str())).is_some_and(later)
    }
}

/// Since when each of the pods that are not there is gone; zero: it is forgotten.
fn gone<'a>(world: &World, pods: &BTreeSet<&'a PodName>) -> BTreeMap<&'a PodName, Timestamp> {
    let mut by_name: BTreeMap<(&Option<String>, &Option<String>), &pod::Pod> = BTreeMap::new();
    for row in world.pods.rows.values() {
        by_name.entry((&row.namespace, &row.name)).or_insert(row);
    }
    let state = |pod: &PodName| match pod.uid.as_ref().and_then(|uid| world.pods.by_uid(uid)) {
        Some(id) => world.pods.rows.get(&id).map(|row| row.state),
        None => by_name.get(&(&pod.namespace, &pod.name)).map(|row| row.state),
    };
    let at = |pod: &&'a PodName| match state(pod) {
        Some(pod::State::Present) => None,
        Some(pod::State::Gone { at }) => Some((*pod, at)),
        None => Some((*pod, Timestamp::ZERO)),
    };
    pods.iter().filter_map(at).collect()
}

fn names_pod(pod: &PodName) -> bool {
    pod.uid.is_some() || pod.name.is_some() && pod.namespace.is_some()
}
