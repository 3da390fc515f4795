//! **Rule:** two sandboxes that live have the same address in the same network, each by an ADD that succeeded, and for
//! neither has the runtime begun a DEL.
//!
//! Not flagged: an address that is handed out again once DEL of its last holder has begun, however quickly; loopback
//! and link-local addresses, which mean something within one link only; a network whose name was only inferred;
//! attachments during which records were lost, since the DEL may have been among them.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use super::{DetectContext, Detection};
use crate::{
    engine::world::attachment::{Attachment, Lease},
    model::finding::{Key, Kind, Severity},
};

/// By then a DEL or an end that came before has been told, however late its record.
pub(super) const SETTLE: Duration = Duration::from_secs(10);

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    let mut held: BTreeMap<(&str, IpAddr), Vec<(&Attachment, &Lease)>> = BTreeMap::new();
    // Of thousands of records that nobody holds each is passed by at once.
    let granted = |row: &&Attachment| row.leases.iter().any(|lease| is_granted(row, lease));
    for row in ctx.world.attachments.values().filter(granted).filter(|row| is_held(ctx, row)) {
        let Some(network) = row.network.as_deref() else { continue };
        for lease in row.leases.iter().filter(|lease| is_granted(row, lease)) {
            held.entry((network, lease.address)).or_default().push((row, lease));
        }
    }
    for ((network, address), mut holders) in held {
        holders.sort_by_key(|(row, lease)| (lease.since, &row.container));
        holders.dedup_by_key(|(row, _)| &row.container);
        let [_, (later, lease), ..] = holders.as_slice() else { continue };
        let kind = Kind::DuplicateAddress { network: Some(network.to_owned()), address };
        found.push(Detection {
            key: Key::new(kind.into_str(), &[network, &address.to_string()]),
            kind,
            severity: Severity::Critical,
            since: lease.since,
            pod: Some(later.pod.clone()),
            sandboxes: holders.iter().map(|(row, _)| row.container.clone()).collect(),
            gapped: false,
            standing: ctx.after(lease.since, SETTLE),
        });
    }
}

/// Its sandbox lives, and nobody has begun to take it away.
fn is_held(ctx: &DetectContext<'_>, row: &Attachment) -> bool {
    let lives = |row: &Attachment| {
        ctx.world.sandboxes.get(&row.container).is_some_and(|it| !it.is_stopped() && it.presence.is_alive())
    };
    !row.gapped && !row.inferred && !row.is_being_deleted() && lives(row)
}

/// libcni writes down only what an ADD gave that succeeded.
fn is_granted(row: &Attachment, lease: &Lease) -> bool {
    let by_add = row.is_added() && (lease.kernel.is_some() || lease.cached);
    let before_us = !row.was_seen() && lease.cached;
    (by_add || before_us) && !is_local(lease.address)
}

fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => it.is_loopback() || it.is_link_local(),
        IpAddr::V6(it) => it.is_loopback() || it.is_unicast_link_local(),
    }
}
