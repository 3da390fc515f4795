//! What the report on the node's recovery needs of the network: its configuration, each sandbox's ADD, the interfaces that
//! a sandbox has, and when the kubelet listens.

use std::collections::BTreeSet;

use super::TRIES;
use crate::{
    engine::{
        boot::WINDOW,
        world::{EventContext, World, call::Call, sandbox::Sandbox},
    },
    model::{
        fact::Reservation,
        id::ContainerId,
        recovery::{KubeletListens, NetworkAttempt, OpenAttempt, Recovery, Source, TimedSource},
        time::Timestamp,
    },
};

/// At most this many interfaces of a pod are noted.
pub(super) const INTERFACES: usize = 32;

impl World {
    /// The kubelet begins to listen at one of its ports.
    pub(in crate::engine::world) fn kubelet_listens(&mut self, at: Timestamp, port: u16) {
        let is_over = self.is_recovered(at);
        let ports = &mut self.boot.recovery.kubelet_listens;
        let place = ports.partition_point(|it| it.port < port);
        // After a later start of the kubelet it listens again.
        if !is_over && ports.get(place).is_none_or(|it| it.port != port) {
            ports.insert(place, KubeletListens { port, at });
            self.noted(at);
        }
    }

    /// The networks' configurations were read, one of which was written in this boot.
    pub(in crate::engine::world) fn network_configured(&mut self, at: Timestamp, written: Option<Timestamp>) {
        // A clock that was wrong at first dates a file into the future.
        let Some(written) = written.filter(|it| *it <= at && !self.is_recovered(at)) else { return };
        let before = self.boot.recovery.network_configured;
        let mark = TimedSource { at: written, source: Source::FileTime };
        TimedSource::offer(&mut self.boot.recovery.network_configured, mark);
        if before != self.boot.recovery.network_configured {
            self.noted(at);
        }
    }

    /// The runtime calls ADD.
    pub(in crate::engine::world) fn network_trying(&mut self, call: &Call) {
        let Some(sandbox) = call.container.clone() else { return };
        if is_loopback(call) || !self.is_try(&sandbox, call) {
            return;
        }
        let trying = &mut self.boot.recovery.trying;
        if trying.len() < TRIES {
            trying.push(OpenAttempt { sandbox, began: call.at });
            self.boot.recovery.revision = self.boot.recovery.revision.wrapping_add(1);
        }
    }

    /// An ADD that the runtime called has ended.
    pub(in crate::engine::world) fn network_tried(&mut self, at: Timestamp, call: &Call, succeeded: bool) {
        let Some(id) = &call.container else { return };
        self.boot.network_not_trying(id, call.at);
        let failed = (!succeeded).then(|| call.call.plugin.clone());
        let recovery = &self.boot.recovery;
        // The first success ends the time without a network, whenever it comes.
        let has_waited = !recovery.tries.is_empty() || !recovery.trying.is_empty();
        let is_first = succeeded && has_waited && recovery.tries.iter().all(|it| it.failed.is_some());
        // The plugins of a chain are called one after the other, and the next may fail.
        let same = |it: &NetworkAttempt| it.sandbox == *id && it.failed.is_none();
        let known = recovery.tries.iter().rposition(same);
        if is_loopback(call) || !is_first && known.is_none() && !self.is_try(id, call) {
            return;
        }
        let Recovery { tries, tries_left_out, .. } = &mut self.boot.recovery;
        if let Some(known) = known.and_then(|place| tries.get_mut(place)) {
            known.ended = known.ended.max(at);
            known.failed = failed;
        } else {
            if is_first && tries.len() >= TRIES {
                tries.pop();
                *tries_left_out = tries_left_out.saturating_add(1);
            }
            if tries.len() < TRIES {
                tries.push(NetworkAttempt { sandbox: id.clone(), began: call.at, ended: at, failed });
            } else {
                *tries_left_out = tries_left_out.saturating_add(1);
            }
        }
        self.noted(at);
    }

    /// Whether this ADD is one of the recovery's: any while pods come back, and later only that of a pod that is still awaited. A
    /// pod that went to another node meanwhile is awaited for ever.
    fn is_try(&self, id: &ContainerId, call: &Call) -> bool {
        if call.at <= Timestamp::ZERO + WINDOW {
            return true;
        }
        let mut named = call.pod.clone();
        if let Some(row) = self.sandboxes.get(id) {
            named.learn(&row.reported.pod);
            row.pod.and_then(|pod| self.pods.get(&pod)).into_iter().for_each(|pod| named.learn(&pod.named));
        }
        self.boot.is_awaited(&named, call.at)
    }

    /// The oldest address in a store gives the time of the network's first success, if that was before the agent
    /// started.
    pub(in crate::engine::world) fn leases_dated(&mut self, ctx: EventContext, reservations: &[Reservation]) {
        let dates = reservations.iter().map(|it| it.since).filter(|at| *at > Timestamp::ZERO);
        let oldest = dates.chain(self.boot.recovery.leased_since).min();
        if oldest != self.boot.recovery.leased_since {
            self.boot.recovery.leased_since = oldest;
            self.noted(ctx.at);
        }
    }

    /// The sandbox's interfaces: those that a plugin made, and those that have an address, whoever made them.
    pub(super) fn interfaces_of(&self, row: &Sandbox) -> BTreeSet<String> {
        let added = self.attachments.of(&row.id).filter(|it| it.is_added()).map(|it| &it.ifname);
        let netns = row.network.netns.and_then(|key| self.netns.get(key));
        let addressed = netns.into_iter().flat_map(|netns| &netns.addresses).map(|it| &it.ifname);
        let names: BTreeSet<&String> = added.chain(addressed).filter(|name| *name != "lo").collect();
        names.into_iter().take(INTERFACES).cloned().collect()
    }
}

/// The loopback's ADD connects nothing, and never fails.
fn is_loopback(call: &Call) -> bool {
    call.call.ifname.as_deref() == Some("lo")
}
