//! The table of sandboxes by id, with remembered ones.

use std::{collections::BTreeSet, mem};

use crate::{
    engine::{
        grouped::Groups,
        world::{
            EventContext,
            table::{
                container::Container,
                presence::Voucher,
                sandbox::{Group, Sandbox},
            },
        },
    },
    model::{
        fact::{PodName, Span},
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
};

/// At most this many sandboxes are remembered.
const REMEMBERED: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Groups<ContainerId, Sandbox>,
    /// The sandboxes that came since it was last noted which ones the runtimes have on record.
    unnoted: BTreeSet<ContainerId>,
}

impl Table {
    /// The sandboxes that may have changed since the last call.
    pub(in crate::engine::world) fn take_changed(&mut self) -> BTreeSet<ContainerId> {
        self.rows.take_changed()
    }

    pub(in crate::engine::world) fn len(&self) -> usize {
        self.rows.len()
    }

    /// A sandbox that lives or has just stopped.
    pub(crate) fn get(&self, id: &ContainerId) -> Option<&Sandbox> {
        self.recall(id).filter(|row| !row.is_remembered())
    }

    pub(crate) fn contains_key(&self, id: &ContainerId) -> bool {
        self.get(id).is_some()
    }

    /// The sandboxes that live or have just stopped.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Sandbox> {
        self.all().filter(|row| !row.is_remembered())
    }

    /// The sandboxes of a group that live or have just stopped.
    pub(crate) fn group(&self, group: Group) -> impl Iterator<Item = &Sandbox> {
        self.rows.of(group).filter(|row| !row.is_remembered())
    }

    /// The sandboxes of a group, with remembered ones.
    pub(crate) fn all_of(&self, group: Group) -> impl Iterator<Item = &Sandbox> {
        self.rows.of(group)
    }

    /// The groups that have more than one sandbox.
    pub(crate) fn shared_groups(&self) -> impl Iterator<Item = Group> {
        self.rows.shared()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values().next().is_none()
    }

    /// A sandbox that lives, has stopped or is remembered.
    pub(crate) fn recall(&self, id: &ContainerId) -> Option<&Sandbox> {
        self.rows.get(id)
    }

    /// All sandboxes, with remembered ones.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Sandbox> {
        self.rows.values()
    }

    pub(in crate::engine::world) fn get_mut(&mut self, id: &ContainerId) -> Option<&mut Sandbox> {
        self.recall_mut(id).filter(|row| !row.is_remembered())
    }

    pub(in crate::engine::world) fn recall_mut(&mut self, id: &ContainerId) -> Option<&mut Sandbox> {
        self.rows.get_mut(id)
    }

    /// A row without a mark, for a change that no verdict is made of.
    pub(in crate::engine::world) fn recall_unmarked(&mut self, id: &ContainerId) -> Option<&mut Sandbox> {
        self.rows.get_mut_unmarked(id)
    }

    /// The row of a sandbox that shows a sign of life: a new row, or the remembered one.
    ///
    /// `is_gapped`: records were lost that may be about it, as it may have existed by then.
    pub(in crate::engine::world) fn begin(
        &mut self,
        ctx: EventContext,
        id: &ContainerId,
        is_gapped: bool,
    ) -> &mut Sandbox {
        if !self.rows.contains_key(id) {
            self.unnoted.insert(id.clone());
        }
        let row = self.rows.entry(id.clone()).or_insert_with(|| {
            let mut row = Sandbox::new(id.clone(), ctx);
            (row.gapped, row.work.is_unsure) = (is_gapped, is_gapped);
            row.gapped_since = is_gapped.then_some(Timestamp::ZERO);
            row
        });
        row.come_back(ctx.at);
        row
    }

    /// Restores a row from a checkpoint.
    pub(in crate::engine::world) fn insert(&mut self, row: Sandbox) {
        self.rows.insert(row.id.clone(), row);
    }

    /// Adds a voucher to a sandbox that is already known.
    pub(in crate::engine::world) fn vouch(&mut self, id: &ContainerId, by: Voucher, at: Timestamp) {
        if self.get(id).is_some_and(|row| !row.presence.is_vouched(by, at))
            && let Some(row) = self.get_mut(id)
        {
            row.presence.vouch(by, at);
        }
    }

    pub(in crate::engine::world) fn withdraw(&mut self, id: &ContainerId, by: Voucher) {
        if let Some(row) = self.get_mut(id) {
            row.presence.withdraw(by);
        }
    }

    pub(in crate::engine::world) fn set_pod(&mut self, id: &ContainerId, pod: Option<u64>) {
        if self.get(id).is_some_and(|row| pod.is_some() && row.pod != pod)
            && let Some(row) = self.get_mut(id)
        {
            row.pod = pod;
        }
    }

    /// The programs of the sandbox's containers are no processes of the node.
    pub(in crate::engine::world) fn hide_programs(&mut self, id: &ContainerId) {
        if self.recall(id).is_some_and(|row| !row.hides_programs)
            && let Some(row) = self.recall_mut(id)
        {
            row.hides_programs = true;
        }
    }

    /// Two rows of pods turned out to be one pod.
    pub(in crate::engine::world) fn replace_pod(&mut self, keep: u64, other: u64) {
        self.rows.update(|_, row| {
            let is_other = row.pod == Some(other);
            if is_other {
                row.pod = Some(keep);
            }
            is_other
        });
    }

    /// The start of the sandbox's pod counts as complete.
    pub(in crate::engine::world) fn start_reported(&mut self, id: &ContainerId, at: Timestamp) {
        if let Some(row) = self.recall_mut(id) {
            row.work.started_at = Some(at);
        }
    }

    /// The kubelet held requests back before the sandbox's first sign.
    pub(in crate::engine::world) fn waited(&mut self, id: &ContainerId, held: Vec<Span>) {
        if let Some(row) = self.recall_mut(id) {
            row.work.requests_held = held;
        }
    }

    /// The logs are searched for pulls for which it may wait.
    pub(in crate::engine::world) fn pulls_asked(&mut self, id: &ContainerId, at: Timestamp) {
        if let Some(row) = self.recall_mut(id) {
            row.work.pulls_asked_at = Some(at);
        }
    }

    /// A pull for which it may wait was under way.
    pub(in crate::engine::world) fn pulls(&mut self, id: &ContainerId, at: Timestamp) {
        if let Some(row) = self.recall_mut(id) {
            row.work.pulling_at = Some(at);
        }
    }

    /// The start of the sandbox's pod counted as complete, and continues.
    pub(in crate::engine::world) fn start_revised(&mut self, id: &ContainerId) {
        if let Some(row) = self.recall_mut(id) {
            (row.work.started_at, row.work.is_revised) = (None, true);
        }
    }

    /// The runtimes' records were read. `changed` has the sandboxes of which they may say something else than
    /// before, beside new sandboxes. None: any. `is_on_record` says whether a sandbox is on record. None:
    /// not all records could be read.
    pub(in crate::engine::world) fn note_records(
        &mut self,
        at: Timestamp,
        changed: Option<BTreeSet<ContainerId>>,
        is_on_record: impl Fn(&ContainerId) -> Option<bool>,
    ) {
        let unnoted = mem::take(&mut self.unnoted);
        let Some(mut changed) = changed else {
            self.rows.update(|_, row| {
                let since = forgotten_at(row, is_on_record(&row.id), at);
                mem::replace(&mut row.ending.forgotten_at, since) != since
            });
            return;
        };
        changed.extend(unnoted);
        for id in changed {
            let Some(row) = self.rows.get(&id) else { continue };
            let since = forgotten_at(row, is_on_record(&row.id), at);
            if row.ending.forgotten_at != since
                && let Some(row) = self.rows.get_mut(&id)
            {
                row.ending.forgotten_at = since;
            }
        }
    }

    /// Records were lost: anything may have happened to a sandbox unseen since then.
    pub(in crate::engine::world) fn mark_gapped(&mut self, since: Timestamp) {
        self.rows.update(|_, row| {
            let before = (row.gapped, row.gapped_since, row.work.is_unsure);
            row.gapped = true;
            row.gapped_since = Some(row.gapped_since.map_or(since, |at| at.min(since)));
            // No container runs in it after its end.
            row.work.is_unsure |= !row.is_known();
            before != (row.gapped, row.gapped_since, row.work.is_unsure)
        });
    }

    /// A container that has ended is forgotten, and in which sandbox it ran was never known.
    pub(in crate::engine::world) fn note_unplaced(&mut self, container: &Container) {
        let Some(pod) = container.pod else { return };
        let all: Vec<ContainerId> = self.group(Group::Pod(pod)).map(|row| row.id.clone()).collect();
        for id in all {
            if let Some(row) = self.get_mut(&id)
                && row.may_have_run(container)
            {
                row.work.is_unsure = true;
            }
        }
    }

    /// A listing shows that the sandbox did not change when records were lost.
    pub(in crate::engine::world) fn heal(&mut self, id: &ContainerId) {
        if self.recall(id).is_some_and(|row| row.gapped)
            && let Some(row) = self.recall_mut(id)
        {
            (row.gapped, row.gapped_since) = (false, None);
        }
    }

    /// Marks the sandboxes as remembered that have stopped and that no late record can be about.
    pub(in crate::engine::world) fn remember(&mut self, now: Timestamp, is_over: impl Fn(&Sandbox) -> bool) {
        self.rows.update(|_, row| is_over(row) && row.remember(now));
    }

    /// Drops the evidence that no verdict can need any more.
    pub(in crate::engine::world) fn drop_evidence(&mut self, is_settled: impl Fn(&Sandbox) -> bool) {
        self.rows.update(|_, row| {
            let is_dropped = !row.reported.evidence.is_empty() && is_settled(row);
            if is_dropped {
                row.reported.evidence = Vec::new();
            }
            is_dropped
        });
    }

    /// Forgets the remembered sandboxes that nothing needs, and the oldest ones if there are too many.
    pub(in crate::engine::world) fn forget(&mut self, is_needed: impl Fn(&Sandbox) -> bool) {
        self.rows.retain(|_, row| !row.is_remembered() || is_needed(row));
        let rows = &self.rows;
        self.unnoted.retain(|id| rows.contains_key(id));
        let mut over: BTreeSet<(Timestamp, ContainerId)> = BTreeSet::new();
        let excess = self.rows.len().saturating_sub(REMEMBERED);
        if excess > 0 {
            let remembered = self.rows.values().filter(|row| row.is_remembered());
            over.extend(remembered.filter_map(|row| Some((row.over_at()?, row.id.clone()))));
        }
        for (_, id) in over.into_iter().take(excess) {
            self.rows.remove(&id);
        }
    }

    /// The sandboxes of each pod that has several, with remembered ones, oldest first.
    pub(crate) fn successive(&self) -> Vec<Vec<&Sandbox>> {
        let of_pods = self.shared_groups().filter(|group| matches!(group, Group::Uid(_)));
        of_pods
            .map(|group| {
                let mut rows: Vec<&Sandbox> = self.all_of(group).collect();
                rows.sort_by_key(|row| (row.first_at, &row.id));
                rows
            })
            .collect()
    }

    /// The name of a pod whose own row is forgotten, and when the pod was made, as its sandboxes keep them.
    pub(crate) fn forgotten_pod(&self, uid: &PodUid) -> (PodName, Option<Timestamp>) {
        let mut named = PodName::default();
        let mut made_at = None;
        for row in self.all_of(Group::Uid(uid.clone())) {
            named.learn(&row.reported.pod);
            made_at = made_at.into_iter().chain(row.pod_made_at).min();
        }
        (named, made_at)
    }

    /// An ADD has ended that ran when a listing found it.
    pub(in crate::engine::world) fn found_add_ended(&mut self, id: Option<&ContainerId>) {
        if let Some(row) = id.and_then(|id| self.get_mut(id)) {
            row.network.found_add_ended = true;
        }
    }

    /// `CNI_NETNS` names the path of the sandbox's namespace.
    pub(in crate::engine::world) fn netns_named(&mut self, id: &ContainerId, path: &str) -> bool {
        let Some(row) = self.get(id) else { return false };
        if row.network.netns_path.as_deref() != Some(path)
            && let Some(row) = self.get_mut(id)
        {
            row.network.netns_path = Some(path.to_owned());
        }
        true
    }

    /// A namespace that was taken for this sandbox's belongs to another.
    pub(in crate::engine::world) fn had_no_netns(&mut self, id: &ContainerId) {
        if let Some(row) = self.recall_mut(id) {
            (row.network.netns, row.network.netns_created_at) = (None, None);
        }
    }
}

/// Returns since when a sandbox is not on record. `is_on_record`: what a reading at `at` shows.
fn forgotten_at(row: &Sandbox, is_on_record: Option<bool>, at: Timestamp) -> Option<Timestamp> {
    match is_on_record {
        Some(false) => row.ending.forgotten_at.or(Some(at)),
        Some(true) => None,
        None => row.ending.forgotten_at,
    }
}
