//! Which pods run: those that are to be back after a restart.

use std::{collections::BTreeSet, time::Duration};

use super::PODS;
use crate::{
    engine::world::{World, container, sandbox},
    model::{
        fact::PodName,
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
        let mut pods_left_out = 0_u32;
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
            if pods.iter().any(|known| known.is(&pod)) {
                continue;
            }
            if pods.len() < PODS {
                pods.push(pod);
            } else {
                pods_left_out = pods_left_out.saturating_add(1);
            }
        }
        pods.sort_by(|one, other| {
            (&one.namespace, &one.name, &one.uid).cmp(&(&other.namespace, &other.name, &other.uid))
        });
        RunningPods { pods, pods_left_out }
    }
}
