//! **Rule:** two sandboxes that run have the same address in the same network, each by an ADD that succeeded,
//! and the runtime has begun a DEL for neither. A DEL that began counts for ten seconds: if a process of the
//! sandbox runs on then, and the kernel still has the address, the sandbox has it, whatever the plugin said.
//!
//! Not flagged: an address that is given out again once DEL of its last holder has begun, however quickly;
//! loopback and link-local addresses, which are valid on one link only; a network whose name was only
//! inferred; attachments during which records were lost, since the record of the DEL may be among them.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use super::{DetectContext, Detection, Verdict, index::Subjects, rule::Rule};
use crate::{
    engine::world::table::attachment::{Attachment, Lease},
    model::{
        finding::{DuplicateAddress, Explain, Severity, Thing},
        id::ContainerId,
        time::Timestamp,
    },
};

/// After this time the agent has the record of an earlier DEL or end, however late that record came.
pub(super) const SETTLE: Duration = Duration::from_secs(10);
/// A sandbox that still has processes and its address this long after the first DEL is not being removed.
pub(super) const REMOVED: Duration = Duration::from_secs(10);

impl Rule for DuplicateAddress {
    type Subject = IpAddr;
    type Part = Detection;
    const SUBJECTS: Subjects<IpAddr> = Subjects {
        all: |ctx| ctx.index.addresses.things().copied().collect(),
        marked: |marks| &marks.addresses,
    };

    fn judge(ctx: &DetectContext<'_>, address: &IpAddr, found: &mut Vec<Detection>) {
        let mut held: BTreeMap<&str, Vec<(&Attachment, &Lease)>> = BTreeMap::new();
        for row in ctx.index.addresses.by(address).filter_map(|key| ctx.world.attachments.get(key)) {
            let Some(network) = row.network.as_deref() else { continue };
            let lease = row.leases.iter().find(|it| it.address == *address && is_granted(row, it));
            if let Some(lease) = lease.filter(|lease| is_held(ctx, row, lease)) {
                held.entry(network).or_default().push((row, lease));
            }
        }
        for (network, mut holders) in held {
            holders.sort_by_key(|(row, lease)| (lease.since, &row.container));
            holders.dedup_by_key(|(row, _)| &row.container);
            let [_, (later, lease), ..] = holders.as_slice() else { continue };
            let del_counts_until = holders.iter().filter_map(|(row, _)| Some(row.first_del_at()? + REMOVED));
            let removing: Vec<Timestamp> = del_counts_until.filter(|until| ctx.now < *until).collect();
            let verdict = match removing.iter().min() {
                // An open finding stays open, and no finding opens.
                Some(until) if holders.len() - removing.len() < 2 => Verdict::Watched { until: Some(*until) },
                Some(_) | None => ctx.after(lease.since, SETTLE),
            };
            let kind = Self { network: Some(network.to_owned()), address: *address };
            let parts = [network, &address.to_string()];
            found.push(Detection {
                pod: Some(later.pod.clone()),
                sandboxes: holders.iter().map(|(row, _)| row.container.clone()).collect(),
                ..Detection::new(kind, &parts, Severity::Critical, lease.since, verdict)
            });
        }
    }
}

/// Whether the sandbox has the address: it lives and has not lost it, or a DEL has begun and the kernel still
/// shows the sandbox's address and a process.
fn is_held(ctx: &DetectContext<'_>, row: &Attachment, lease: &Lease) -> bool {
    if row.gapped || row.inferred || lease.removed.is_some() {
        return false;
    }
    if row.has_begun_del() {
        return lease.kernel.is_some() && ctx.has_process(&row.container);
    }
    let sandbox = ctx.world.sandboxes.get(&row.container);
    sandbox.is_some_and(|it| !it.is_stopped() && it.presence.is_alive())
}

/// Whether an ADD gave the address. libcni's cache has only results of ADDs that succeeded.
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

impl Explain for DuplicateAddress {
    fn summary(&self) -> String {
        format!("{} was given to two sandboxes", self.address)
    }

    fn cause(&self) -> &'static str {
        "CNI ADD gave one address to two sandboxes of the same network, and both have it: processes of both run, and CNI DEL \
         has begun for neither, or left the address where it was."
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        vec![
            "# Delete the newer of the two pods: its replacement gets another address. Then find out why the IPAM plugin"
                .to_owned(),
            "# took the address for free.".to_owned(),
            format!("kubectl get pods -A -o wide --field-selector status.podIP={}", self.address),
        ]
    }

    fn named(&self) -> Vec<Thing<'_>> {
        vec![Thing::Address(self.address)]
    }
}
