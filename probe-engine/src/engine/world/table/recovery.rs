//! The recovery of the node in this boot, and the restarts of its daemons.

use std::time::Duration;

use crate::{
    engine::boot::WINDOW,
    model::{
        fact::PodName,
        id::ContainerId,
        recovery::{LONGEST_SHUTDOWN, Pod, RecoveredPod, Recovery, Rules},
        time::Timestamp,
    },
};

/// At most this many interfaces of a pod are noted.
pub(crate) const INTERFACES: usize = 32;

/// At most this many pods are noted as back.
pub(crate) const PODS: usize = 1024;

/// The networks of at most this many sandboxes are noted.
pub(crate) const TRIES: usize = 1024;

/// A restart begins within this time after its order, unless it was ordered for later.
pub(crate) const WITHOUT_EFFECT: Duration = Duration::from_secs(2 * 60);

/// The recovery of the node in this boot, and the rules by which it is judged.
#[derive(Debug, Default)]
pub(crate) struct Boot {
    pub(crate) recovery: Recovery,
    pub(crate) rules: Rules,
}

impl Boot {
    /// Goes on with other rules.
    pub(in crate::engine) fn adopt(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// The wall clock was set, so the time since the order has changed.
    pub(in crate::engine::world) fn clock_set(&mut self, boot_wall_ns: i64) {
        if let Some(boot) = &mut self.recovery.boot {
            let step = boot.boot_wall_ns.abs_diff(boot_wall_ns);
            boot.boot_wall_ns = boot_wall_ns;
            // Small corrections of the clock happen all the time, so they make no new revision.
            self.recovery.revision = self.recovery.revision.wrapping_add(u64::from(step >= 1_000_000_000));
        }
    }

    pub(in crate::engine::world) fn by_rules(&mut self) {
        let Rules { quiet, recovered, target, .. } = self.rules;
        let recovery = &mut self.recovery;
        (recovery.quiet, recovery.recovered, recovery.target) = (quiet, recovered, Some(target));
    }

    /// Whether this boot's sources report listening sockets.
    pub(in crate::engine::world) fn listening_seen(&mut self, is_seen: bool) {
        self.recovery.hears = is_seen;
    }

    /// Whether this pod ran before the restart and is not back.
    pub(crate) fn is_awaited(&self, named: &PodName, now: Timestamp) -> bool {
        let recovery = &self.recovery;
        let expected = recovery.expected().unwrap_or_default();
        expected.iter().any(|pod| {
            pod.has(named.namespace.as_ref(), named.name.as_ref(), named.uid.as_ref())
                && !recovery.is_back(pod, now)
        })
    }

    /// The pods that ran before the restart and are not back.
    pub(crate) fn awaited(&self, now: Timestamp) -> Vec<&Pod> {
        let recovery = &self.recovery;
        recovery.expected().unwrap_or_default().iter().filter(|pod| !recovery.is_back(pod, now)).collect()
    }

    /// Notes that a pod is back. Returns the pod if it belongs to the recovery and there is no room for it.
    pub(in crate::engine::world) fn note_back(
        &mut self,
        back: RecoveredPod,
        first: Timestamp,
    ) -> Option<RecoveredPod> {
        let in_time = back.mark.at <= Timestamp::ZERO + WINDOW;
        if !in_time && !(self.recovery.expected().unwrap_or_default().iter().any(|pod| pod.is(&back.pod))) {
            return None;
        }
        let pods = &mut self.recovery.pods;
        let Some(known) = pods.iter_mut().find(|known| known.pod.is(&back.pod)) else {
            if pods.len() >= PODS {
                return Some(back);
            }
            pods.push(back);
            return None;
        };
        // In the same life of the pod, the container that started first may turn out to be an init container.
        let same = known.pod.uid == back.pod.uid;
        if back.mark.at < known.mark.at || same && first <= known.mark.at {
            // The container that listened may turn out to be an init container as well.
            (known.mark, known.listened) = (back.mark, back.listened);
        }
        known.listened = known.listened.or(back.listened);
        known.pod.listens = known.listened.is_some();
        let Pod { namespace, name, uid, kind, listens: _, interfaces } = back.pod;
        known.pod.interfaces.extend(interfaces);
        known.pod.interfaces.sort_unstable();
        known.pod.interfaces.dedup();
        known.pod.interfaces.truncate(INTERFACES);
        known.pod.namespace = known.pod.namespace.take().or(namespace);
        known.pod.name = known.pod.name.take().or(name);
        known.pod.uid = known.pod.uid.take().or(uid);
        known.pod.kind = kind;
        None
    }

    /// The ADD for this sandbox that began at this time has ended, or is known to have begun at another.
    pub(in crate::engine::world) fn network_not_trying(&mut self, id: &ContainerId, began: Timestamp) {
        self.recovery.trying.retain(|it| it.sandbox != *id || it.began != began);
    }

    /// Whether a restart goes on.
    pub(crate) fn is_restarting(&self) -> bool {
        !self.recovery.restarts.open.is_empty()
    }

    /// Whether the node is being shut down.
    pub(crate) fn is_going_down(&self, at: Timestamp) -> bool {
        self.recovery.order.as_ref().is_some_and(|order| at < order.at + LONGEST_SHUTDOWN)
    }

    /// A pod by its name. None: it has none.
    pub(crate) fn pod_named(&self, named: &PodName) -> Option<Pod> {
        let PodName { namespace, name, uid } = named.clone();
        if name.is_none() && uid.is_none() {
            return None;
        }
        let kind = Pod::kind_of(namespace.as_deref(), uid.as_ref(), &self.rules);
        Some(Pod { namespace, name, uid, kind, listens: false, interfaces: Vec::new() })
    }
}
