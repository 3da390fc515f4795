//! Which pods run: those that are to be back after a restart.

use std::{collections::BTreeSet, time::Duration};

use super::PODS;
use crate::{
    engine::world::{World, container, sandbox},
    model::{
        fact::PodName,
        id::PodUid,
        recovery::{Pod, RunningPods},
        time::Timestamp,
    },
};

/// A pod that ended at most this long before the node may have ended with it.
const GONE_WITH: Duration = Duration::from_secs(30);

impl World {
    /// The pods of which a container runs now, or ran until a moment ago.
    pub(in crate::engine) fn running_pods(&self, now: Timestamp) -> RunningPods {
        let since = now.saturating_sub(GONE_WITH);
        let mut pods: Vec<Pod> = Vec::new();
        for row in self.pods.values() {
            let stands = self.sandboxes.group(sandbox::Group::Pod(row.id)).any(|it| match it.state {
                sandbox::State::Ready { .. } => true,
                sandbox::State::Created => false,
                sandbox::State::Stopped { at, .. } => at >= since,
                sandbox::State::Remembered { .. } => false,
            });
            let containers = || self.containers.group(container::Group::Pod(row.id));
            let PodName { namespace, name, uid } = row.named.clone();
            if name.is_none() && uid.is_none()
                || !stands && !containers().any(container::Container::is_running)
            {
                continue;
            }
            let kind = Pod::kind_of(namespace.as_deref(), uid.as_ref(), &self.boot.rules);
            let mut interfaces = BTreeSet::new();
            for it in self
                .sandboxes
                .group(sandbox::Group::Pod(row.id))
                .filter(|it| it.over_at().is_none_or(|at| at >= since))
            {
                interfaces.extend(self.interfaces_of(it));
            }
            let interfaces = interfaces.into_iter().collect();
            let mut pod = Pod { namespace, name, uid, kind, listens: false, interfaces };
            // If an earlier run of the agent saw the container listen, only the recovery's pods still show that.
            let mut back = self.boot.recovery.pods.iter();
            pod.listens = containers().any(|it| it.run.listening.is_some())
                || back.any(|it| it.pod.listens && it.pod.is(&pod));
            pods.push(pod);
        }
        let pods_left_out = only_once(&mut pods);
        RunningPods { pods, pods_left_out }
    }
}

/// Keeps each pod once, in the order of their names, and as many as there is room for. Gives the number of the others.
fn only_once(pods: &mut Vec<Pod>) -> u32 {
    fn name(pod: &Pod) -> (&Option<String>, &Option<String>, &Option<PodUid>) {
        (&pod.namespace, &pod.name, &pod.uid)
    }
    pods.sort_by(|one, other| name(one).cmp(&name(other)));
    pods.dedup_by(|later, first| later.is(first));
    // One without a name may be one of those with a name.
    let named = |pod: &&Pod| pod.name.is_some();
    let known: BTreeSet<PodUid> = pods.iter().filter(named).filter_map(|pod| pod.uid.clone()).collect();
    pods.retain(|pod| pod.name.is_some() || pod.uid.as_ref().is_none_or(|uid| !known.contains(uid)));
    let left_out = pods.len().saturating_sub(PODS);
    pods.truncate(PODS);
    u32::try_from(left_out).unwrap_or(u32::MAX)
}
