//! **Rule:** an address is leaked when its sandbox is over, no runtime has the sandbox on record any more, and the
//! IPAM's store still names the sandbox. If no DEL was called, libcni's cache counts as a store. Runtime and kubelet
//! have a grace to clean up; after it everything is read again. A network namespace that still has the address is then
//! kept by a file alone.
//!
//! Not flagged: a dead sandbox that its runtime still has on record (its DEL is still to come); a DEL with an empty
//! `CNI_NETNS` by itself (containerd calls one on every RemovePodSandbox); an address that another sandbox got
//! meanwhile; a container without a pod, as podman and nerdctl run them; an address in the store of a network that no
//! configuration names any more (`abandoned_store`). No finding opens while runtime or kubelet is down, or while the
//! runtime's records cannot be read and no DEL was seen; an open finding stays open then.
//!
//! Where no store can be read, nothing shows whether a DEL with an empty `CNI_NETNS` freed the address: that is
//! `unverified_release`.

pub(super) mod many;
mod words;

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    DetectContext, Detection, Verdict,
    abandoned_store::Abandoned,
    index::{AttachmentKey, Marks},
    rule::{Judged, Part, Rule},
};
use crate::{
    engine::world::{
        attachment::{Attachment, Lease, Plugin},
        record::Kept,
        sandbox::Sandbox,
    },
    model::{
        fact::PodName,
        finding::{Cause, Key, Kind, LeakedAddress, Severity, StoreRef},
        id::ContainerId,
        time::Timestamp,
    },
};

/// An address that is leaked, or may be.
#[derive(Clone, Debug)]
pub(super) struct Leak {
    attachment: AttachmentKey,
    address: IpAddr,
    network: Option<String>,
    pub(super) cause: Cause,
    pub(super) since: Timestamp,
    pub(super) standing: Verdict,
}

impl Rule for LeakedAddress {
    type Subject = ContainerId;
    type Part = Leak;

    fn subjects(ctx: &DetectContext<'_>) -> BTreeSet<ContainerId> {
        ctx.world.attachments.keys().map(|(id, _)| id.clone()).collect()
    }

    fn marked(marks: &Marks) -> &BTreeSet<ContainerId> {
        &marks.sandboxes
    }

    fn judge(ctx: &DetectContext<'_>, id: &ContainerId, found: &mut Vec<Leak>) {
        for row in ctx.world.attachments_of(id) {
            if row.is_loopback() || row.is_busy() || !row.leases.iter().any(Lease::is_on_record) {
                continue;
            }
            if !may_be_pods(ctx, row) {
                continue;
            }
            let Some(over) = over(ctx, row) else { continue };
            for lease in
                row.leases.iter().filter(|lease| is_loose(lease, &over) && !is_taken(ctx, row, lease))
            {
                match in_abandoned(ctx.abandoned, lease) {
                    Some(true) => {}
                    Some(false) => {
                        let unsure = leak(ctx, row, lease, &over);
                        found.extend(unsure.map(|it| Leak { standing: Verdict::Unsure, ..it }));
                    }
                    None => found.extend(leak(ctx, row, lease, &over)),
                }
            }
        }
    }
}

impl Part for Leak {
    fn again(&self) -> Option<Timestamp> {
        self.standing.again()
    }
}

pub(super) fn gather(ctx: &DetectContext<'_>, judged: &Judged<LeakedAddress>, found: &mut Vec<Detection>) {
    many::gather(ctx, &judged.parts().collect::<Vec<_>>(), found);
}

/// A sandbox that is over.
struct Over {
    /// When it ended; zero if that was before this boot, or before anybody looked.
    at: Timestamp,
    /// When a runtime's records were read to have it no more; none if they cannot be read.
    forgotten_at: Option<Timestamp>,
    /// They cannot be, and nothing else shows that the runtime is done with it.
    unsure: bool,
}

fn over(ctx: &DetectContext<'_>, row: &Attachment) -> Option<Over> {
    let known = ctx.world.sandboxes.get(&row.container).filter(|sandbox| !sandbox.is_stopped());
    // One that never came to have a process or a namespace ends with the ADD that failed, and nothing tells of it.
    let is_stillborn = |sandbox: &Sandbox| {
        sandbox.up_since.is_none() && sandbox.network.netns.is_none() && row.was_seen() && !row.is_added()
    };
    if known.is_some_and(|sandbox| !is_stillborn(sandbox)) {
        return None;
    }
    let ended = ctx.world.sandboxes.recall(&row.container).and_then(|sandbox| sandbox.over_at());
    let ended = ended.or_else(|| known.map(|_stillborn| row.last_at));
    match ctx.kept(&row.container) {
        Kept::Yes => None,
        Kept::No { at } => {
            Some(Over { at: ended.unwrap_or(Timestamp::ZERO), forgotten_at: Some(at), unsure: false })
        }
        Kept::Unknown => {
            let unsure = !row.is_being_deleted() || ended.is_none();
            Some(Over { at: ended.unwrap_or(Timestamp::ZERO), forgotten_at: None, unsure })
        }
    }
}

/// Whether records alone hold an address: where a runtime's cannot be read, a namespace that has it may be in use.
fn is_loose(lease: &Lease, over: &Over) -> bool {
    lease.is_on_record() && (over.forgotten_at.is_some() || over.unsure || lease.kernel.is_none())
}

/// Whether it can be a pod's sandbox. Podman, nerdctl and others attach containers to the same networks, and no runtime
/// of pods has those on record: their ADD names no pod, nerdctl's ids are none of a pod's, and a monitor holds them.
fn may_be_pods(ctx: &DetectContext<'_>, row: &Attachment) -> bool {
    let of_attempt =
        || ctx.world.sandboxes.recall(&row.container).is_some_and(|it| it.told.pod != PodName::default());
    row.pod != PodName::default()
        || of_attempt()
        || !row.was_seen() && row.container.is_full() && !ctx.index.monitors.is_named(&row.container)
}

/// Whether all stores that name an address are of networks that are no more, and whether that is sure.
fn in_abandoned(abandoned: &Abandoned, lease: &Lease) -> Option<bool> {
    let mut is_sure = !lease.stores.is_empty();
    for path in &lease.stores {
        is_sure &= *abandoned.get(path.as_str())?;
    }
    (!lease.stores.is_empty()).then_some(is_sure)
}

/// Whether another sandbox was given it later, and has it in its namespace.
fn is_taken(ctx: &DetectContext<'_>, row: &Attachment, lease: &Lease) -> bool {
    let all = ctx.index.addresses.by(&lease.address).filter_map(|key| ctx.world.attachments.get(key));
    let mut others = all
        .filter(|other| (&other.container, &other.ifname) != (&row.container, &row.ifname))
        .filter(|other| other.network == row.network);
    others.any(|other| {
        other
            .leases
            .iter()
            .any(|it| it.kernel.is_some() && it.address == lease.address && it.since > lease.since)
    })
}

fn leak(ctx: &DetectContext<'_>, row: &Attachment, lease: &Lease, over: &Over) -> Option<Leak> {
    // Where the store can be read it has the last word: somebody may have freed the address by hand.
    if lease.stores.is_empty() && ctx.world.is_store_read(row, lease) {
        return None;
    }
    let cause = cause(ctx, row, lease);
    // libcni forgets an attachment with its first DEL that succeeds.
    if lease.stores.is_empty() && !matches!(cause, Cause::DelMissing | Cause::DelFailed | Cause::RuntimeEnded)
    {
        return None;
    }
    let seen = !row.plugins.is_empty();
    let since = if seen { over.at.max(row.last_at) } else { over.at.max(lease.since) };
    let standing = if over.unsure { Verdict::Unsure } else { verified(ctx, row, lease, over, since) };
    Some(Leak {
        attachment: (row.container.clone(), row.ifname.clone()),
        address: lease.address,
        network: row.network.clone(),
        cause,
        since,
        standing,
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
        self.standing == Verdict::Confirmed
    }

    /// Where it stands in the world.
    fn row<'a>(&self, ctx: &DetectContext<'a>) -> Option<(&'a Attachment, &'a Lease)> {
        let row = ctx.world.attachments.get(&self.attachment)?;
        Some((row, row.leases.iter().find(|lease| lease.address == self.address)?))
    }

    /// A finding of its own.
    fn detection(&self, ctx: &DetectContext<'_>) -> Option<Detection> {
        let (row, lease) = self.row(ctx)?;
        let stores = ctx.world.records.stores.values().map(|(_, read)| &read.store);
        let stores = stores.filter(|store| lease.stores.contains(&store.path)).map(StoreRef::of).collect();
        let network = self.network().unwrap_or("");
        let kind = Kind::from(LeakedAddress {
            address: lease.address,
            network: row.network.clone(),
            inferred: row.inferred,
            ifname: row.ifname.clone(),
            plugin: row.plugin_of(lease).map(|plugin| plugin.name.clone()),
            cause: self.cause,
            stores,
            many: None,
        });
        Some(Detection {
            key: Key::new(kind.into_str(), &[network, &lease.address.to_string(), row.container.as_str()]),
            kind,
            severity: Severity::Warning,
            since: self.since,
            pod: Some(row.pod.clone()).filter(|pod| pod.name.is_some() || pod.uid.is_some()),
            sandboxes: vec![row.container.clone()],
            gapped: row.gapped,
            standing: self.standing,
        })
    }
}

/// It is told only of what the records said after the sandbox's end, and confirmed only by what they said after the
/// grace. Runtimes are read before stores: what a runtime had forgotten by then had had its last DEL.
fn verified(
    ctx: &DetectContext<'_>,
    row: &Attachment,
    lease: &Lease,
    over: &Over,
    since: Timestamp,
) -> Verdict {
    let records = &ctx.world.records;
    let stores = lease.stores.iter().filter_map(|path| records.stores.get(path)).map(|(at, _)| *at);
    let read_at = stores.chain(row.cached_at.filter(|_| lease.cached)).max().unwrap_or(Timestamp::ZERO);
    let forgotten_at = over.forgotten_at.unwrap_or(since);
    let is_fresh = |at: Timestamp| read_at >= forgotten_at && forgotten_at >= at;
    let standing = ctx.after_cleanup(since, ctx.limits.leak_grace);
    match standing {
        Verdict::Watched { .. }
        | Verdict::Unsure
        | Verdict::Unverified
        | Verdict::Unlisted
        | Verdict::Passing { .. } => standing,
        Verdict::Candidate { .. } if is_fresh(since) => standing,
        Verdict::Confirmed => {
            let up = ctx.up.unwrap_or(since);
            let ready = since.max(up) + ctx.limits.leak_grace;
            if is_fresh(ready) { standing } else { Verdict::Unverified }
        }
        Verdict::Candidate { .. } => Verdict::Unverified,
    }
}

fn cause(ctx: &DetectContext<'_>, row: &Attachment, lease: &Lease) -> Cause {
    let Some(plugin) = row.plugin_of(lease) else { return Cause::StaleRecord };
    let Plugin { add, del, blind, .. } = plugin;
    // What was not seen may have been anything.
    if row.gapped || del.unseen > 0 || blind.unseen > 0 {
        return Cause::StaleRecord;
    }
    if del.succeeded > 0 {
        // It was given back, and the store still names it.
        return Cause::StaleRecord;
    }
    if blind.succeeded > 0 {
        return Cause::DelBlind;
    }
    if del.failed > 0 || blind.failed > 0 {
        return Cause::DelFailed;
    }
    if ctx.world.sandboxes.recall(&row.container).is_some_and(|sandbox| sandbox.ending.is_abandoned) {
        return Cause::RuntimeEnded;
    }
    let failed = |plugin: &Plugin| plugin.add.failed > 0 && plugin.add.succeeded == 0;
    if row.plugins.iter().any(failed) {
        return Cause::AddFailed;
    }
    if add.begun > 0 { Cause::DelMissing } else { Cause::StaleRecord }
}
