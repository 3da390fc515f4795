//! **Rule:** an address is leaked when its sandbox is over, no runtime has the sandbox on record any more, and the IPAM's
//! store (or, of what no DEL was called for, libcni's cache) still names the sandbox, all of it read anew after the grace
//! that runtime and kubelet have to clean up. A namespace that still has the address then is kept by a file alone.
//!
//! Not flagged: a dead sandbox that its runtime still has on record (to be cleaned up: a DEL is still to come); a DEL
//! with an empty `CNI_NETNS` as such (containerd calls one on every RemovePodSandbox); an address that another sandbox
//! was given meanwhile; a container of no pod, as podman and nerdctl run them; what is in the store of a network that is
//! no more (`abandoned_store`); anything while runtime or kubelet is down, or whose runtime's records cannot be read and
//! for which no DEL was seen (but what is open then stays so).
//!
//! Where no store can be read, nothing says whether a blind DEL freed the address: that is `unverified_release`.

pub(super) mod many;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    DetectContext, Detection, Verdict,
    abandoned_store::{self, Abandoned},
};
use crate::{
    engine::world::{
        attachment::{Attachment, Lease, Plugin},
        record::Kept,
        sandbox::Sandbox,
    },
    model::{
        fact::PodName,
        finding::{Cause, Key, Kind, LeakedAddress, Severity},
        id::ContainerId,
        time::Timestamp,
    },
};

/// An address that is leaked, or may be.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Leak<'a> {
    row: &'a Attachment,
    lease: &'a Lease,
    pub(super) cause: Cause,
    pub(super) since: Timestamp,
    pub(super) standing: Verdict,
}

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    many::gather(ctx, ctx.leaks(), found);
}

/// Every address that is leaked, or may be.
pub(super) fn leaks<'a>(ctx: &DetectContext<'a>) -> Vec<Leak<'a>> {
    let mut found = Vec::new();
    let held = held(ctx);
    let monitored = ctx.world.monitored();
    let abandoned = abandoned_store::abandoned(ctx);
    for row in ctx.world.attachments.values() {
        if row.is_loopback() || row.is_busy() || !row.leases.iter().any(Lease::is_on_record) {
            continue;
        }
        if !may_be_pods(ctx, row, &monitored) {
            continue;
        }
        let Some(over) = over(ctx, row) else { continue };
        for lease in row.leases.iter().filter(|lease| is_loose(lease, &over) && !is_taken(&held, row, lease))
        {
            match in_abandoned(&abandoned, lease) {
                Some(true) => {}
                Some(false) => {
                    let unsure = leak(ctx, row, lease, &over);
                    found.extend(unsure.map(|it| Leak { standing: Verdict::Unsure, ..it }));
                }
                None => found.extend(leak(ctx, row, lease, &over)),
            }
        }
    }
    found
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
    let ended = ctx.world.sandboxes.recall(&row.container).and_then(|attempt| attempt.over_at());
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
fn may_be_pods(ctx: &DetectContext<'_>, row: &Attachment, monitored: &BTreeSet<&ContainerId>) -> bool {
    let of_attempt =
        || ctx.world.sandboxes.recall(&row.container).is_some_and(|it| it.told.pod != PodName::default());
    row.pod != PodName::default()
        || of_attempt()
        || !row.was_seen() && row.container.is_full() && !monitored.contains(&row.container)
}

/// Whether all stores that name an address are of networks that are no more, and whether that is sure.
fn in_abandoned(abandoned: &Abandoned<'_>, lease: &Lease) -> Option<bool> {
    let mut is_sure = !lease.stores.is_empty();
    for path in &lease.stores {
        is_sure &= *abandoned.get(path.as_str())?;
    }
    (!lease.stores.is_empty()).then_some(is_sure)
}

/// What lives in a namespace, by address.
type Held<'a> = BTreeMap<IpAddr, Vec<(&'a Attachment, &'a Lease)>>;

fn held<'a>(ctx: &DetectContext<'a>) -> Held<'a> {
    let mut held = Held::new();
    for row in ctx.world.attachments.values() {
        for lease in row.leases.iter().filter(|lease| lease.kernel.is_some()) {
            held.entry(lease.address).or_default().push((row, lease));
        }
    }
    held
}

/// Whether another sandbox was given it later.
fn is_taken(held: &Held<'_>, row: &Attachment, lease: &Lease) -> bool {
    held.get(&lease.address).into_iter().flatten().any(|(other, it)| {
        (&other.container, &other.ifname) != (&row.container, &row.ifname)
            && other.network == row.network
            && it.since > lease.since
    })
}

fn leak<'a>(ctx: &DetectContext<'_>, row: &'a Attachment, lease: &'a Lease, over: &Over) -> Option<Leak<'a>> {
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
    Some(Leak { row, lease, cause, since, standing })
}

impl Leak<'_> {
    pub(super) fn address(&self) -> IpAddr {
        self.lease.address
    }

    pub(super) fn network(&self) -> Option<&str> {
        self.row.network.as_deref()
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.standing == Verdict::Confirmed
    }

    /// A finding of its own.
    fn detection(&self, ctx: &DetectContext<'_>) -> Detection {
        let Self { row, lease, cause, since, standing } = *self;
        let stores = ctx.world.records.stores.values().map(|(_, read)| &read.store);
        let stores = stores.filter(|store| lease.stores.contains(&store.path)).cloned().collect();
        let network = self.network().unwrap_or("");
        let kind = Kind::LeakedAddress(LeakedAddress {
            address: lease.address,
            network: row.network.clone(),
            inferred: row.inferred,
            ifname: row.ifname.clone(),
            plugin: row.plugin_of(lease).map(|plugin| plugin.name.clone()),
            cause,
            stores,
            many: None,
        });
        Detection {
            key: Key::new(kind.into_str(), &[network, &lease.address.to_string(), row.container.as_str()]),
            kind,
            severity: Severity::Warning,
            since,
            pod: Some(row.pod.clone()).filter(|pod| pod.name.is_some() || pod.uid.is_some()),
            sandboxes: vec![row.container.clone()],
            gapped: row.gapped,
            standing,
        }
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
    if ctx.world.sandboxes.recall(&row.container).is_some_and(|attempt| attempt.ending.is_abandoned) {
        return Cause::RuntimeEnded;
    }
    let failed = |plugin: &Plugin| plugin.add.failed > 0 && plugin.add.succeeded == 0;
    if row.plugins.iter().any(failed) {
        return Cause::AddFailed;
    }
    if add.begun > 0 { Cause::DelMissing } else { Cause::StaleRecord }
}
