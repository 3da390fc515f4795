//! **Rule:** the directory of a pod's cgroup stays although its sandbox, which had been ready, is over, nothing of the
//! pod runs, and no runtime has a sandbox of it on record any more.
//!
//! Not flagged: a pod that has not had a sandbox yet (the kubelet makes its directory before it waits for volumes, for
//! as long as that takes); a pod whose dead sandbox its runtime still has on record; any pod where no kubelet runs,
//! since nobody else removes these directories; a directory that is removed and that the kernel still keeps for the
//! memory charged to it. A runtime's record that no source names may be of a pod that was there before it: then nothing is
//! told of that pod.

use std::cell::OnceCell;

use super::{DetectContext, Detection, Verdict};
use crate::{
    engine::world::{
        cgroup::Cgroup,
        pod::Pod,
        record::{Kept, pods::PodsKept},
    },
    model::{
        fact::PodName,
        finding::{Key, Kind, Severity},
    },
};

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    if !ctx.world.has_kubelet() {
        return;
    }
    let pods = OnceCell::new();
    for pod in ctx.world.pods.rows.values() {
        found.extend(stuck(ctx, pod, &pods));
    }
}

fn stuck<'a>(ctx: &DetectContext<'a>, pod: &Pod, pods: &OnceCell<PodsKept<'a>>) -> Option<Detection> {
    let since = pod.left_at?;
    let uid = pod.uid.as_ref()?;
    let rows = pod.cgroups.iter().filter_map(|key| ctx.world.cgroups.get(key));
    // One that was made later waits for its first sandbox.
    let is_left = |row: &&Cgroup| row.is_live() && row.created_at.is_none_or(|made| made < since);
    let cgroup = rows.filter(is_left).max_by_key(|row| row.found_at)?;
    let runs = ctx.world.containers.values().any(|row| row.pod == Some(pod.id) && row.is_running())
        || ctx.world.sandboxes.values().any(|row| row.pod == Some(pod.id) && !row.is_stopped());
    if runs {
        return None;
    }
    let standing = match ctx.pod_kept(pods, uid) {
        Kept::Yes => return None,
        Kept::Unknown => Verdict::Unsure,
        Kept::No { at } => ctx.left_over(since, at, cgroup.found_at)?,
    };
    let kind = Kind::StuckCgroup { path: cgroup.path.clone(), populated: cgroup.populated };
    let attempts = ctx.world.sandboxes.all().filter(|row| row.told.pod.uid.as_ref() == Some(uid));
    let last = attempts.max_by_key(|row| row.first_at);
    Some(Detection {
        key: Key::new(kind.into_str(), &[uid.as_str()]),
        kind,
        severity: Severity::Warning,
        since,
        pod: Some(PodName { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }),
        sandboxes: last.map(|row| row.id.clone()).into_iter().collect(),
        gapped: false,
        standing,
    })
}
