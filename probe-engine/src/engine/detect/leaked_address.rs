//! **Rule:** an address is leaked when its sandbox is over, no runtime has the sandbox on record any more,
//! and the IPAM's store still names the sandbox. If no DEL was called, libcni's cache counts as a store.
//! Runtime and kubelet have a grace period to clean up; after it everything is read again. If a network
//! namespace still has the address then, only a file keeps that namespace.
//!
//! Not flagged: a dead sandbox that its runtime still has on record (its DEL is still to come); a DEL with an
//! empty `CNI_NETNS` by itself (containerd calls one on every RemovePodSandbox); an address that another
//! sandbox got meanwhile; an address that its store allocates to a pod, until the pod is gone; a container
//! without a pod, as podman and nerdctl run them; an address in the store of a network that no configuration
//! names any more (`abandoned_store`), unless the agent saw how it leaked or had confirmed it before. No
//! finding opens while runtime or kubelet is down, or while the runtime's records cannot be read and no DEL
//! was seen, or by a record that the last reading of its store does not show; an open finding stays open
//! then. An address whose release waits in a queue of the plugin (`release_queued`) is confirmed once the
//! release has waited for the grace period. An address that the plugin may free by itself is confirmed only
//! after the time that it takes for that. A store that cannot be read is asked about single addresses; one
//! that has not answered about an address opens no finding and closes none.
//!
//! If no store can be read, nothing shows whether a DEL with an empty `CNI_NETNS` freed the address: that is
//! `unverified_release`.

pub(super) mod many;
mod words;

use std::{net::IpAddr, time::Duration};

use super::{
    Abandoned, DetectContext, Detection, Verdict,
    index::{AttachmentKey, Subjects},
    phantom_sandbox,
    rule::{Judged, Part, Rule},
};
use crate::{
    engine::world::{
        World,
        table::{
            attachment::{Attachment, Lease, Plugin},
            pod::Pod,
            record::HasRecord,
        },
    },
    model::{
        fact::{Bound, PodName, Reservation, Store, StoreKind},
        finding::{Cause, FindingKind, Key, LeakedAddress, Severity, Stage, StoreRef},
        id::ContainerId,
        time::Timestamp,
    },
};

/// An address that leaked or may have leaked.
#[derive(Clone, Debug)]
pub(super) struct Leak {
    attachment: AttachmentKey,
    address: IpAddr,
    network: Option<String>,
    /// The name of the network was inferred.
    inferred: bool,
    /// Records were lost while the attachment existed.
    gapped: bool,
    pub(super) cause: Cause,
    pub(super) since: Timestamp,
    pub(super) verdict: Verdict,
}

impl Rule for LeakedAddress {
    type Subject = ContainerId;
    type Part = Leak;
    const SUBJECTS: Subjects<ContainerId> = Subjects::ATTACHED;

    fn judge(ctx: &DetectContext<'_>, id: &ContainerId, found: &mut Vec<Leak>) {
        for row in ctx.world.attachments.of(id) {
            if row.is_loopback() || row.is_busy() || !row.leases.iter().any(Lease::may_be_on_record) {
                continue;
            }
            if !may_be_of_pod(ctx, row) {
                continue;
            }
            let Some(end) = sandbox_end(ctx, row) else { continue };
            for lease in row
                .leases
                .iter()
                .filter(|lease| is_held_by_records_only(lease, &end) && !is_reassigned(ctx, row, lease))
                .filter(|lease| lease.kernel.is_none() || !ctx.has_process(id))
                .filter(|lease| !is_kept_by_pod(ctx, row, lease))
            {
                let abandoned = is_in_abandoned_stores(ctx.abandoned, lease);
                let is_own = abandoned.is_some() && is_leak_by_itself(ctx, row, lease);
                match abandoned {
                    Some(true) if !is_own => {}
                    Some(false) if !is_own => {
                        let unsure = leak(ctx, row, lease, &end);
                        found.extend(unsure.map(|it| Leak { verdict: Verdict::Unsure, ..it }));
                    }
                    Some(_) | None => found.extend(leak(ctx, row, lease, &end)),
                }
            }
        }
    }
}

impl Part for Leak {
    fn due_at(&self) -> Option<Timestamp> {
        self.verdict.due_at()
    }
}

pub(super) fn gather(ctx: &DetectContext<'_>, judged: &Judged<LeakedAddress>, found: &mut Vec<Detection>) {
    many::gather(ctx, &judged.parts().collect::<Vec<_>>(), found);
}

/// The end of a sandbox.
struct SandboxEnd {
    /// When it ended. Zero: before this boot, or before the agent started.
    at: Timestamp,
    /// When the runtimes' records were read and no longer named it. None: they cannot be read.
    forgotten_at: Option<Timestamp>,
    /// The records cannot be read, and nothing else shows that the runtime is done with the sandbox.
    unsure: bool,
    /// Its runtime has it on record although its pod is gone, and that record still counts for a while.
    on_record: Option<Verdict>,
}

fn sandbox_end(ctx: &DetectContext<'_>, row: &Attachment) -> Option<SandboxEnd> {
    let known = ctx.world.sandboxes.get(&row.container).filter(|sandbox| !sandbox.is_stopped());
    if known.is_some_and(|sandbox| !sandbox.is_stillborn(row)) {
        return None;
    }
    let ended = ctx.world.sandboxes.recall(&row.container).and_then(|sandbox| sandbox.over_at());
    let ended = ended.or_else(|| known.map(|_stillborn| row.last_at));
    let mut record = ctx.has_record(&row.container);
    let mut on_record = None;
    if record == HasRecord::Yes {
        // If its pod is gone, nobody will remove the record, or free the address.
        let left = phantom_sandbox::is_left(ctx, &row.container)?;
        on_record = Some(left).filter(|left| *left != Verdict::Confirmed);
        record = ctx.world.records.absent();
    }
    let at = ended.unwrap_or(Timestamp::ZERO);
    match record {
        HasRecord::Yes => None,
        HasRecord::No { at: read_at } => {
            Some(SandboxEnd { at, forgotten_at: Some(read_at), unsure: false, on_record })
        }
        HasRecord::Unknown => {
            let unsure = !row.has_begun_del() || ended.is_none();
            Some(SandboxEnd { at, forgotten_at: None, unsure, on_record })
        }
    }
}

/// Whether only records hold an address. If a runtime's records cannot be read, a namespace that has the
/// address may be in use.
fn is_held_by_records_only(lease: &Lease, end: &SandboxEnd) -> bool {
    lease.may_be_on_record() && (end.forgotten_at.is_some() || end.unsure || lease.kernel.is_none())
}

/// Whether a store allocates the address to the pod, which is on the node or on record, or is not known.
fn is_kept_by_pod(ctx: &DetectContext<'_>, row: &Attachment, lease: &Lease) -> bool {
    let records = &ctx.world.records;
    let mut of_pods = records.stores.values().filter(|(_, read)| read.store.bound == Bound::Pod);
    if !of_pods.any(|(_, read)| lease.may_be_in(&read.store.path)) {
        return false;
    }
    let is_on_record = row.pod.uid.as_ref().is_some_and(|uid| records.on_record.of_pod(uid).next().is_some());
    let known = ctx.world.pods.find(&row.pod).and_then(|pod| ctx.world.pods.get(&pod));
    !row.pod.names_pod() || is_on_record || known.is_some_and(Pod::is_present)
}

/// Whether the attachment can be that of a pod's sandbox. Podman, nerdctl and others attach containers to the
/// same networks, and no pod runtime has these on record. Their ADD names no pod, nerdctl's ids belong to no
/// pod, and a monitor runs for them.
fn may_be_of_pod(ctx: &DetectContext<'_>, row: &Attachment) -> bool {
    row.pod != PodName::default()
        || ctx.world.sandboxes.recall(&row.container).is_some_and(|it| it.reported.pod != PodName::default())
        || !row.was_seen() && row.container.is_full() && !ctx.index.monitors.is_named(&row.container)
}

/// The reservations that no rule judges, with their stores: a person wrote into the record, or it names
/// something else than the sandbox of a pod, by what is known of the pods.
pub(in crate::engine) fn unjudged(world: &World) -> impl Iterator<Item = (&Store, &Reservation)> {
    let stores = world.records.stores.values();
    let all = stores.flat_map(|(_, read)| read.reservations().map(|it| (&read.store, it)));
    all.filter(|(_, it)| match &it.holder {
        Some(holder) => !holder.container.is_full() && !is_known_of_pod(world, &holder.container),
        None => it.in_words,
    })
}

fn is_known_of_pod(world: &World, id: &ContainerId) -> bool {
    world.records.is_on_record(id)
        || world.sandboxes.recall(id).is_some_and(|it| it.reported.pod != PodName::default())
        || world.attachments.of(id).any(|row| row.pod != PodName::default())
}

/// Whether all stores that name an address are abandoned. `Some(false)`: that is not certain.
fn is_in_abandoned_stores(abandoned: &Abandoned, lease: &Lease) -> Option<bool> {
    let mut is_sure = !lease.stores.is_empty();
    for path in &lease.stores {
        is_sure &= *abandoned.get(path.as_str())?;
    }
    (!lease.stores.is_empty()).then_some(is_sure)
}

/// Whether an address in the store of a network that is no longer configured is still a leak: the agent saw
/// how it leaked, or it was confirmed as a leak while the network was configured.
fn is_leak_by_itself(ctx: &DetectContext<'_>, row: &Attachment, lease: &Lease) -> bool {
    let cause = cause(ctx, row, lease);
    let network = row.network.as_deref().unwrap_or_default();
    let address = lease.address.to_string();
    let own = [network, &address, row.container.as_str()];
    let many = [network, cause.into_str()];
    cause != Cause::StaleRecord || is_confirmed(ctx, &own) || is_confirmed(ctx, &many)
}

/// Whether the finding with these parts in its key is open and confirmed.
fn is_confirmed(ctx: &DetectContext<'_>, parts: &[&str]) -> bool {
    let key = Key::new(FindingKind::LeakedAddress.into_str(), parts);
    ctx.findings.and_then(|all| all.get(&key)).is_some_and(|it| it.stage == Stage::Confirmed)
}

/// Whether an abandoned store's address is reported as a leak of its own.
pub(super) fn is_reported(ctx: &DetectContext<'_>, container: &ContainerId, address: IpAddr) -> bool {
    let mut rows = ctx.world.attachments.of(container);
    rows.any(|row| {
        let lease = row.leases.iter().find(|lease| lease.address == address);
        lease.is_some_and(|lease| may_be_of_pod(ctx, row) && is_leak_by_itself(ctx, row, lease))
    })
}

/// Whether another sandbox got the address later and has it in its namespace. Where the store has no times,
/// both may have been found at the same time.
fn is_reassigned(ctx: &DetectContext<'_>, row: &Attachment, lease: &Lease) -> bool {
    let all = ctx.index.addresses.by(&lease.address).filter_map(|key| ctx.world.attachments.get(key));
    let mut others = all
        .filter(|other| (&other.container, &other.ifname) != (&row.container, &row.ifname))
        .filter(|other| other.network == row.network);
    others.any(|other| {
        other
            .leases
            .iter()
            .any(|it| it.kernel.is_some() && it.address == lease.address && it.since >= lease.since)
    })
}

fn leak(ctx: &DetectContext<'_>, row: &Attachment, lease: &Lease, end: &SandboxEnd) -> Option<Leak> {
    let is_in_no_store = lease.stores.is_empty() && !lease.is_in_doubt();
    // A readable store decides: an operator may have freed the address by hand.
    if is_in_no_store && ctx.world.records.is_store_read(row, lease) {
        return None;
    }
    let cause = cause(ctx, row, lease);
    // libcni removes an attachment from its cache with the first DEL that succeeds.
    if is_in_no_store && !matches!(cause, Cause::DelMissing | Cause::DelFailed | Cause::RuntimeEnded) {
        return None;
    }
    let seen = !row.plugins.is_empty();
    // A lease that was made again after the sandbox had ended leaks since then.
    let since = end.at.max(lease.since).max(if seen { row.last_at } else { Timestamp::ZERO });
    let since = since.max(lease.queued_since.unwrap_or_default());
    let records = &ctx.world.records;
    let asked = records.network(row).and_then(|it| records.asked_store(it));
    let is_unasked = is_in_no_store && asked.is_some();
    let is_unsure = end.unsure || lease.is_in_doubt() || is_unasked;
    let verdict = match end.on_record {
        Some(watched) => watched,
        None if is_unsure => Verdict::Unsure,
        None => verified(ctx, row, lease, end, since),
    };
    Some(Leak {
        attachment: (row.container.clone(), row.ifname.clone()),
        address: lease.address,
        network: row.network.clone(),
        inferred: row.inferred,
        gapped: row.gapped,
        cause,
        since,
        verdict,
    })
}

impl Leak {
    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    pub(super) fn network(&self) -> Option<&str> {
        self.network.as_deref()
    }

    fn sandbox(&self) -> &ContainerId {
        &self.attachment.0
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.verdict == Verdict::Confirmed
    }

    /// Returns the attachment and the lease of this leak.
    fn row<'a>(&self, ctx: &DetectContext<'a>) -> Option<(&'a Attachment, &'a Lease)> {
        let row = ctx.world.attachments.get(&self.attachment)?;
        Some((row, row.leases.iter().find(|lease| lease.address == self.address)?))
    }

    /// Makes the detection of this leak alone.
    fn detection(&self, ctx: &DetectContext<'_>) -> Option<Detection> {
        let (row, lease) = self.row(ctx)?;
        let stores = ctx.world.records.stores.values().map(|(_, read)| &read.store);
        let stores = stores.filter(|store| lease.may_be_in(&store.path)).map(StoreRef::of).collect();
        let network = self.network().unwrap_or("");
        let kind = LeakedAddress {
            address: lease.address,
            network: row.network.clone(),
            inferred: row.inferred,
            ifname: row.ifname.clone(),
            plugin: row.plugin_of(lease).map(|plugin| plugin.name.clone()),
            cause: self.cause,
            stores,
            many: None,
        };
        let parts = [network, &lease.address.to_string(), row.container.as_str()];
        Some(Detection {
            pod: Some(row.pod.clone()).filter(|pod| pod.name.is_some() || pod.uid.is_some()),
            sandboxes: vec![row.container.clone()],
            gapped: row.gapped,
            ..Detection::new(kind, &parts, Severity::Warning, self.since, self.verdict)
        })
    }
}

/// Checks that the records are new enough. A candidate needs a reading after the sandbox's end, and a
/// confirmed leak one after the grace time. Runtimes are read before stores, so a sandbox that a runtime had
/// forgotten had had its last DEL when the store was read. A store is asked only about such sandboxes.
fn verified(
    ctx: &DetectContext<'_>,
    row: &Attachment,
    lease: &Lease,
    end: &SandboxEnd,
    since: Timestamp,
) -> Verdict {
    let records = &ctx.world.records;
    let read = lease.stores.iter().filter(|path| !records.links.contains_key(*path));
    let stores = read.filter_map(|path| records.stores.get(path)).map(|(at, _)| *at);
    let cached_at = if lease.cached { ctx.world.records.cached_at(row) } else { None };
    let read_at = stores.chain(cached_at).max().unwrap_or(Timestamp::ZERO);
    let forgotten_at = end.forgotten_at.unwrap_or(since);
    // Up to this time the stores are known to have been read after the runtimes.
    let fresh_at = if read_at >= forgotten_at { Some(forgotten_at) } else { None };
    // libcni's cache does not show what the plugin itself has freed. The world decides when to ask again.
    let (fresh_at, stale) = match lease.asked.as_ref().and_then(|it| it.answered_at) {
        Some(answered_at) => (Some(answered_at), Verdict::Unsure),
        None => (fresh_at, Verdict::Unverified),
    };
    let grace = grace(ctx, lease);
    let verdict = ctx.after_cleanup(since, grace);
    match verdict {
        Verdict::Watched { .. }
        | Verdict::Unsure
        | Verdict::Unverified
        | Verdict::Unlisted
        | Verdict::Passing { .. } => verdict,
        Verdict::Candidate { .. } if fresh_at >= Some(since) => verdict,
        Verdict::Confirmed => {
            let up = ctx.up.unwrap_or(since);
            let ready = since.max(up) + grace;
            if fresh_at >= Some(ready) { verdict } else { stale }
        }
        Verdict::Candidate { .. } => stale,
    }
}

/// Returns how long a leak must last: the plugin may free the address by itself.
fn grace(ctx: &DetectContext<'_>, lease: &Lease) -> Duration {
    let grace = ctx.limits.leak_grace;
    if grace.is_zero() {
        return grace;
    }
    kinds(ctx, lease).map(StoreKind::own_cleanup).fold(grace, Duration::max)
}

/// Returns the kinds of the stores that name an address.
fn kinds<'a>(ctx: &'a DetectContext<'_>, lease: &'a Lease) -> impl Iterator<Item = StoreKind> + 'a {
    lease.stores.iter().filter_map(|path| Some(ctx.world.records.stores.get(path)?.1.store.kind))
}

fn cause(ctx: &DetectContext<'_>, row: &Attachment, lease: &Lease) -> Cause {
    if lease.queued_since.is_some() {
        return Cause::ReleaseQueued;
    }
    let Some(plugin) = row.plugin_of(lease) else { return Cause::StaleRecord };
    let Plugin { add, del, del_without_netns, .. } = plugin;
    // A call that was not seen may have been any call.
    if row.gapped || del.unseen > 0 || del_without_netns.unseen > 0 {
        return Cause::StaleRecord;
    }
    if del.succeeded > 0 {
        // A DEL that came before the end of the ADD had nothing to free.
        let is_last = add.last_at <= del.last_at && lease.since <= del.last_at;
        let was_given_before = row.wrong_del.is_none() && is_last;
        return if was_given_before { Cause::DelHollow } else { Cause::StaleRecord };
    }
    if del_without_netns.succeeded > 0 {
        let is_freed_by_id = kinds(ctx, lease).any(StoreKind::is_freed_by_id);
        return if is_freed_by_id { Cause::DelHollow } else { Cause::DelBlind };
    }
    if del.has_broken_off() || del_without_netns.has_broken_off() {
        return Cause::DelFailed;
    }
    if ctx.world.sandboxes.recall(&row.container).is_some_and(|sandbox| sandbox.ending.is_abandoned) {
        return Cause::RuntimeEnded;
    }
    if row.plugins.iter().any(|plugin| plugin.add.has_broken_off() && plugin.add.succeeded == 0) {
        return Cause::AddFailed;
    }
    if add.begun > 0 { Cause::DelMissing } else { Cause::StaleRecord }
}
