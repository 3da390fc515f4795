//! **Rule:** a store that is a directory (host-local's, or a declared one) has a file for an address, and the
//! file names no sandbox: it is empty, cut off, too large, or not a regular file. DEL frees the address of
//! the sandbox that it is called for, so no DEL frees this one, and ADD does not give it out again. Runtime
//! and kubelet have been up for the grace period since the file was written, and the store was read again.
//! All such addresses of a store are one finding.
//!
//! Not flagged: a file with text by which somebody reserved the address; a file that is being written; an
//! address that a sandbox's network namespace has, or that libcni's cache names; the store of a network that
//! no configuration names any more (`abandoned_store`). If records were lost, a sandbox may have an address
//! unseen: no such finding opens or closes then. An open one stays open while its store cannot be read whole.

use std::{net::IpAddr, time::Duration};

use super::{DetectContext, Detection, Verdict};
use crate::{
    engine::world::table::ipam_store::IpamStore,
    model::{
        fact::{List, Reservation, StoreKind},
        finding::{Explain, FindingKind, Key, OwnerlessReservation, Severity, Thing},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        count::counted,
        escape::escaped,
        release::{self, Functions},
        shell::{UNPRINTABLE, lines, quoted},
    },
};

/// A finding names this many addresses.
pub(super) const FIRST: usize = 16;

/// A plugin has written into its new file within this time.
const WRITTEN: Duration = Duration::from_secs(1);

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    for (path, (read_at, read)) in &ctx.world.records.stores {
        if !read.store.kind.is_directory() || ctx.abandoned.contains_key(path) {
            continue;
        }
        let key = Key::new(FindingKind::OwnerlessReservation.into(), &[path]);
        let detection = detection(ctx, key.clone(), *read_at, read);
        found.extend(detection.or_else(|| if read.complete { None } else { unreadable(ctx, &key) }));
    }
}

/// An address that its store counts as allocated without a holder.
struct Ownerless {
    address: IpAddr,
    since: Timestamp,
    verdict: Verdict,
}

fn detection(ctx: &DetectContext<'_>, key: Key, read_at: Timestamp, read: &IpamStore) -> Option<Detection> {
    let all = read.ownerless().filter(|it| !is_held(ctx, read, it.address));
    let all: Vec<Ownerless> = all.map(|it| judged(ctx, read_at, it)).collect();
    let (old, young): (Vec<&Ownerless>, Vec<&Ownerless>) =
        all.iter().partition(|it| it.verdict == Verdict::Confirmed);
    // A younger one does not change the verdict on the others, but must be judged again.
    let is_unverified = young.iter().any(|it| it.verdict == Verdict::Unverified);
    let next = young.iter().filter_map(|it| it.verdict.due_at()).min();
    let shown = if old.is_empty() { young } else { old };
    let first = shown.iter().min_by_key(|it| it.since)?;
    let verdict = match (first.verdict, next) {
        _ if ctx.world.lists.is_gapped(List::Netns) => Verdict::Unsure,
        _ if is_unverified => Verdict::Unverified,
        (Verdict::Confirmed, Some(until)) => Verdict::Passing { until },
        (verdict, _) => verdict,
    };
    // Without a tracker all of them are wanted, as for leaks.
    let most = if ctx.findings.is_some() { FIRST } else { usize::MAX };
    let kind = OwnerlessReservation {
        kind: read.store.kind,
        path: read.store.path.clone(),
        network: read.store.network.clone(),
        count: u32::try_from(shown.len()).unwrap_or(u32::MAX),
        first: shown.iter().map(|it| it.address).take(most).collect(),
    };
    Some(Detection::keyed(key, kind, Severity::Warning, first.since, verdict))
}

/// Judges an address. It is confirmed only if the store was read at the end of the grace period or later. A
/// file that was just made when the store was read may have been written since.
fn judged(ctx: &DetectContext<'_>, read_at: Timestamp, it: &Reservation) -> Ownerless {
    let mut verdict = ctx.after_cleanup(it.since, ctx.limits.leak_grace);
    let ready = ctx.up.map(|up| ctx.awake(it.since).max(up) + ctx.limits.leak_grace);
    if verdict == Verdict::Confirmed && ready > Some(read_at) {
        verdict = Verdict::Unverified;
    }
    if matches!(verdict, Verdict::Candidate { .. }) && read_at < it.since + WRITTEN {
        verdict = Verdict::Unverified;
    }
    Ownerless { address: it.address, since: it.since, verdict }
}

/// Whether a sandbox has the address according to anything but this store.
fn is_held(ctx: &DetectContext<'_>, read: &IpamStore, address: IpAddr) -> bool {
    let rows = ctx.index.addresses.by(&address).filter_map(|key| ctx.world.attachments.get(key));
    let here = rows.filter(|row| row.network == read.store.network || row.network.is_none());
    let mut leases = here.flat_map(|row| &row.leases);
    leases.any(|lease| lease.address == address && (lease.kernel.is_some() || lease.is_on_record()))
}

/// Returns the open finding of a store that cannot be read whole at the moment.
fn unreadable(ctx: &DetectContext<'_>, key: &Key) -> Option<Detection> {
    ctx.open().find(|it| it.key == *key).map(Detection::unsure)
}

impl Explain for OwnerlessReservation {
    fn summary(&self) -> String {
        let Self { path, count, first, .. } = self;
        let which = match (count, first.first()) {
            (1, Some(address)) => address.to_string(),
            _ => counted((*count).into(), "address"),
        };
        format!("{which} allocated in {} to no sandbox: no DEL frees it", escaped(path))
    }

    fn cause(&self) -> &'static str {
        "The plugin makes a file for an address and then writes into it whose it is. A power loss, a full disk or a kill in \
         between leaves the file without that. DEL looks for the files of its sandbox, so none frees the address, and ADD \
         takes it for allocated. Somebody may also have made the file by hand, to keep the address from pods."
    }

    fn repair(&self, _sandboxes: &[ContainerId], runtimes: &[String]) -> Vec<String> {
        match self.kind {
            StoreKind::HostLocal => {
                let mut all = lines(&[
                    "# Run this only if nobody reserved the address on purpose: a file that was made by hand looks the same.",
                    "# Each file is removed only if it is empty or cut off within an id that no runtime has, under the plugin's own",
                    "# lock. If it is kept, look at what is in it:",
                    "# head -- FILE",
                ]);
                all.extend(release::functions(Functions::FreeOwnerless, runtimes));
                all.extend(self.first.iter().map(|address| release::free_ownerless_of(&self.path, *address)));
                all
            }
            StoreKind::Declared
            | StoreKind::AwsIpamd
            | StoreKind::AzureCns
            | StoreKind::AzureVnetIpam
            | StoreKind::AzureVnet
            | StoreKind::Cilium
            | StoreKind::UcloudIpamd
            | StoreKind::Calico => {
                let Some(path) = quoted(&self.path) else { return lines(&[UNPRINTABLE]) };
                let mut all = lines(&[
                    "# The store is the plugin's own, and so is the way to free from it. What is in the files:",
                ]);
                all.extend(self.first.iter().map(|address| format!("head -v -- {path}/{address}")));
                all
            }
        }
    }

    fn forget_numbers(&mut self) {
        self.count = 0;
        self.first.clear();
    }

    fn named(&self) -> Vec<Thing<'_>> {
        self.network.iter().map(|it| Thing::Network(it)).collect()
    }

    fn rests_on(&self, _lasted: Duration) -> Option<String> {
        Some("the records of an IPAM store".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{Explain as _, OwnerlessReservation, StoreKind};

    #[test]
    fn the_repair_asks_whether_somebody_reserved_the_address_on_purpose() {
        let it = OwnerlessReservation {
            kind: StoreKind::HostLocal,
            path: "/var/lib/cni/networks/podnet".to_owned(),
            network: None,
            count: 1,
            first: vec!["10.88.0.7".parse().expect("an address")],
        };
        assert!(it.repair(&[], &[])[0].contains("only if nobody reserved the address on purpose"));
        assert!(it.cause().contains("made the file by hand"));
    }
}
