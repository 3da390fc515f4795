//! Applies a reading of the records, and decides when they are read again.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::Duration,
};

use probe_common::runtime::DOCKER;

use super::{HasRecord, Waiting};
use crate::{
    engine::{
        timer,
        world::{EventContext, World, ipam_store::IpamStore, presence::Voucher, sandbox::Group},
    },
    model::{
        change::Question,
        fact::{
            NetworksRead, PodName, ProgramFound, RuntimeChanged, RuntimeKind, RuntimeRead, StoreChanged,
            StoreRead,
        },
        id::ContainerId,
        time::Timestamp,
    },
};

/// An operation of CNI shows on disk after this time.
const SETTLE: Duration = Duration::from_secs(1);
/// The records are not read more often than this, because reading a large store takes a while.
pub(in crate::engine) const BETWEEN: Duration = Duration::from_secs(5);
/// How often the records are read while a sandbox waits for them.
pub(in crate::engine) const POLL: Duration = Duration::from_secs(60);
/// The records are read less often for each such number of attachments.
const MUCH: usize = 8192;
/// The times above are multiplied by at most this.
const RAREST: usize = 5;
/// The versions of at most this many executables are remembered.
pub(in crate::engine::world) const PROGRAMS: usize = 256;

impl World {
    pub(in crate::engine::world) fn store_read(&mut self, ctx: EventContext, read: StoreRead) {
        // A store can have tens of thousands of records. If the reading is the same as before, none is applied again.
        if let Some((at, known)) = self.records.stores.get_mut(&read.store.path)
            && known.complete
            && known.says(&read)
        {
            *at = ctx.at;
            return;
        }
        for holder in read.reservations.iter().filter_map(|it| it.holder.as_ref()) {
            self.sandboxes.vouch(&holder.container, Voucher::Cni, ctx.at);
        }
        let before = self.records.stores.get(&read.store.path).map_or(Timestamp::ZERO, |(at, _)| *at);
        self.leases_in_store(ctx, &read, before);
        self.leases_dated(ctx, &read.reservations);
        self.records.stores.insert(read.store.path.clone(), (ctx.at, IpamStore::of(read)));
    }

    /// Takes in what changed in a store: the rest of it was read again, and is as it was.
    pub(in crate::engine::world) fn store_changed(&mut self, ctx: EventContext, it: StoreChanged) {
        let Some((at, kept)) = self.records.stores.get_mut(&it.path) else { return };
        let read_before = mem::replace(at, ctx.at);
        if it.came.is_empty() && it.gone.is_empty() {
            return;
        }
        let before = kept.change(&it);
        // Which interface has an address may depend on everything else that is known. And who had an address whose
        // holder could not be read is not known here.
        let is_whole = !kept.names_interfaces()
            || before.iter().any(|it| it.holder.as_ref().is_none_or(|holder| holder.ifname.is_empty()));
        let read = if is_whole {
            kept.to_reading()
        } else {
            StoreRead { store: kept.store.clone(), reservations: it.came.clone(), complete: false }
        };
        for holder in it.came.iter().filter_map(|it| it.holder.as_ref()) {
            self.sandboxes.vouch(&holder.container, Voucher::Cni, ctx.at);
        }
        self.schedule_reap(ctx.at);
        if is_whole {
            self.leases_in_store(ctx, &read, read_before);
        } else {
            before.iter().for_each(|before| self.attachments.lease_left_store(&it, before, read_before));
            self.leases_came(ctx, &read);
        }
        self.leases_dated(ctx, &it.came);
    }

    pub(in crate::engine::world) fn runtime_read(&mut self, ctx: EventContext, read: RuntimeRead) {
        for it in &read.sandboxes {
            if let Some(pod) = &it.pod {
                self.attachments_named(&it.id, pod);
            }
        }
        for it in &read.sandboxes {
            // A pod has not left while a sandbox of it is on record.
            if let Some(pod) = self.pod_of_record(&it.id, it.pod.as_ref())
                && self.pods.get(&pod).is_some_and(|row| row.left_at.is_some())
            {
                self.pods.left(pod, ctx.at);
            }
        }
        self.records.add_runtime(ctx.at, read);
        self.note_absence(ctx.at, None);
    }

    /// Takes in what changed in a runtime's records: the rest of them was read again, and is as it was.
    pub(in crate::engine::world) fn runtime_changed(&mut self, ctx: EventContext, it: RuntimeChanged) {
        if !self.records.runtimes.contains_key(&it.place) {
            return;
        }
        for it in &it.came {
            if let Some(pod) = &it.pod {
                self.attachments_named(&it.id, pod);
            }
        }
        let place = it.place.clone();
        let ids = self.records.change_runtime(ctx.at, it);
        // Of attachments that came since the reading before, the records may have named the pod already.
        if let Some(row) = self.records.runtimes.get(&place) {
            let named = self
                .attachments
                .unnamed()
                .filter_map(|id| Some((id.clone(), row.sandboxes.get(id)?.clone()?)));
            for (id, pod) in named.collect::<Vec<_>>() {
                self.attachments_named(&id, &pod);
            }
        }
        for pod in self.pods_that_left_on_record(&place) {
            self.pods.left(pod, ctx.at);
        }
        self.note_absence(ctx.at, Some(ids));
    }

    /// The pods that have left, but for a sandbox that this runtime has on record.
    fn pods_that_left_on_record(&self, place: &str) -> Vec<u64> {
        let Some(runtime) = self.records.runtimes.get(place) else { return Vec::new() };
        let has_on_record = |pod: u64| {
            let is_of_pod = |id: &ContainerId| {
                let named = runtime.sandboxes.get(id);
                named.is_some_and(|named| self.pod_of_record(id, named.as_ref()) == Some(pod))
            };
            let uid = self.pods.get(&pod).and_then(|row| row.named.uid.as_ref());
            uid.is_some_and(|uid| self.records.on_record.of_pod(uid).any(is_of_pod))
                || self.sandboxes.group(Group::Pod(pod)).any(|row| is_of_pod(&row.id))
        };
        self.pods.that_left().filter(|pod| has_on_record(*pod)).collect()
    }

    /// Notes which sandboxes the runtimes' records do not have. `changed`: only these, and sandboxes that are new, can
    /// have come on record or left it since this was noted last.
    fn note_absence(&mut self, at: Timestamp, changed: Option<BTreeSet<ContainerId>>) {
        let was_noted = self.records.is_absence_noted;
        self.records.is_absence_noted = matches!(self.records.absent(), HasRecord::No { .. });
        // While records cannot be read, absence was not noted.
        let changed = changed.filter(|_| was_noted || !self.records.is_absence_noted);
        let records = &self.records;
        self.sandboxes.note_records(at, changed, |id| match records.has_record(id) {
            HasRecord::Yes => Some(true),
            HasRecord::No { .. } => Some(false),
            HasRecord::Unknown => None,
        });
    }

    fn pod_of_record(&self, id: &ContainerId, named: Option<&PodName>) -> Option<u64> {
        let by_uid = named.and_then(|pod| pod.uid.as_ref()).and_then(|uid| self.pods.by_uid(uid));
        by_uid.or_else(|| self.sandboxes.get(id)?.pod)
    }

    /// Whether a runtime runs whose records were not read. A sandbox that is in no other record may be in those.
    pub(in crate::engine) fn has_unread_runtime(&self) -> bool {
        self.records.of_kind(RuntimeKind::Docker).next().is_none()
            && self.daemons_named(|comm| DOCKER.cri_server == Some(comm)).next().is_some()
    }

    pub(in crate::engine::world) fn networks_read(&mut self, ctx: EventContext, read: NetworksRead) {
        let is_configured = !read.networks.is_empty() || !read.complete && read.undecodable.is_empty();
        if is_configured {
            if self.records.unconfigured_since.take().is_some() {
                self.records.reconfigured_at = Some(ctx.at);
            }
        } else {
            self.records.unconfigured_since.get_or_insert(ctx.at);
        }
        let since = self.records.without_runtimes_since.unwrap_or(ctx.at);
        self.records.without_runtimes_since = self.records.runtimes.is_empty().then_some(since);
        self.network_configured(ctx.at, read.written.filter(|_| is_configured));
        self.records.networks = Some((ctx.at, read));
    }

    pub(in crate::engine::world) fn program_found(&mut self, ctx: EventContext, it: ProgramFound) {
        if self.records.programs.len() < PROGRAMS || self.records.programs.contains_key(&it.path) {
            self.records.programs.insert(it.path, it.version);
            // It may be a runtime, or the kubelet.
            self.version_found(ctx.at);
        }
    }

    /// Removes the stores and runtimes that a complete listing no longer has.
    pub(in crate::engine::world) fn stores_not_listed(&mut self, ctx: EventContext, begun: Timestamp) {
        let all = mem::take(&mut self.records.stores);
        let (kept, gone) = all.into_iter().partition(|(_, (at, _))| *at >= begun);
        self.records.stores = kept;
        let gone: BTreeMap<String, (Timestamp, IpamStore)> = gone;
        for (at, IpamStore { store, .. }) in gone.into_values() {
            self.leases_in_store(ctx, &StoreRead { store, reservations: Vec::new(), complete: true }, at);
        }
    }

    pub(in crate::engine::world) fn runtimes_not_listed(&mut self, ctx: EventContext, begun: Timestamp) {
        self.records.drop_runtimes(ctx.at, begun);
        self.judge_abandoned(ctx);
    }

    /// Something changed that the records will show, so they are read again soon.
    pub(in crate::engine) fn records_changed(&mut self, at: Timestamp) {
        let soonest = self.records.asked_at.map_or(at, |asked| asked + BETWEEN * self.reading_takes());
        self.timers.arm_earlier(timer::Name::Records, (at + SETTLE).max(soonest));
    }

    /// Reads the records from time to time while a sandbox waits for them, until a runtime forgets it, and while a store is
    /// to be repaired.
    pub(in crate::engine) fn poll_records(&mut self, now: Timestamp, waiting: &Waiting) {
        let again = self.records.asked_at.unwrap_or(now) + POLL * self.reading_takes();
        let is_ownerless = |(_, read): &(Timestamp, IpamStore)| read.ownerless().next().is_some();
        if !waiting.holding.is_empty() || self.records.stores.values().any(is_ownerless) {
            self.timers.arm_earlier(timer::Name::Records, again);
        }
        if let Some(due) = self.abandoned_due(&waiting.making) {
            let is_asked = self.records.asked_at.is_some_and(|asked| asked >= due);
            self.timers.arm_earlier(timer::Name::Records, if is_asked { again } else { due.max(now) });
        }
    }

    /// The factor by which the records are read less often, because there are many.
    fn reading_takes(&self) -> u32 {
        let times = (1 + self.attachments.len() / MUCH).min(RAREST);
        u32::try_from(times).unwrap_or(1)
    }

    pub(in crate::engine::world) fn ask_records(&mut self, now: Timestamp) {
        self.records.asked_at = Some(now);
        self.ask(Question::Records);
    }
}
