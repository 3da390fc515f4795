//! **Rule:** host-local's folder of a network still counts addresses as allocated. The node's CNI
//! configuration was read whole and names other networks, but not this one. No sandbox that the folder names
//! runs or is on record.
//!
//! Such a folder stays after another network plugin was installed. No pod needs its addresses, so the folder
//! is one finding of severity info. Its addresses are not reported as leaks, except those that the agent saw
//! leak, or had confirmed as leaks before: renaming a network does not repair them.
//!
//! Not flagged: a network of which a sandbox runs or is on record; any network while none is configured, or
//! while a plugin is configured that takes networks from elsewhere (multus: from the API). While the
//! configuration or the runtimes' records cannot be read whole, no such finding opens or closes, and no leak
//! in such a store is reported.

use std::time::Duration;

use probe_common::runtime;

use super::{Abandoned, DetectContext, Detection, Verdict, leaked_address};
use crate::{
    engine::world::table::{ipam_store::IpamStore, record::HasRecord},
    model::{
        fact::StoreKind,
        finding::{AbandonedStore, Explain, Severity},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        count::counted,
        escape::escaped,
        shell::{UNPRINTABLE, crictl, lines, quoted},
    },
};

/// Plugins that attach pods to networks that no file on the node has to name.
const BROKERS: [&str; 4] = ["multus", "multus-shim", "danm", "genie"];

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    for (path, is_sure) in ctx.abandoned {
        let Some((read_at, read)) = ctx.world.records.stores.get(path) else { continue };
        found.extend(detection(ctx, *read_at, read, *is_sure));
    }
}

pub(super) fn abandoned(ctx: &DetectContext<'_>) -> Abandoned {
    let records = &ctx.world.records;
    let Some((_, configured)) = &records.networks else { return Abandoned::new() };
    let mut plugins = configured.networks.iter().flat_map(|network| &network.plugins);
    if configured.networks.is_empty() || plugins.any(|plugin| BROKERS.contains(&plugin.as_str())) {
        return Abandoned::new();
    }
    let mut abandoned = Abandoned::new();
    for (path, (_, read)) in &records.stores {
        let Some(name) = &read.store.network else { continue };
        if read.store.kind == StoreKind::HostLocal
            && read.reservations().len() > 0
            && configured.networks.iter().all(|network| network.name != *name)
            && let Some(is_sure) = is_vacant(ctx, read)
        {
            abandoned.insert(path.clone(), is_sure && read.complete && configured.complete);
        }
    }
    abandoned
}

/// Whether it is certain that every sandbox in the store is over and on no record. None: one is not.
fn is_vacant(ctx: &DetectContext<'_>, read: &IpamStore) -> Option<bool> {
    let mut is_sure = true;
    for id in read.reservations().filter_map(|it| it.holder.as_ref()).map(|it| &it.container) {
        // Containers of Podman and nerdctl are not sandboxes, and no record that the agent reads has them.
        let is_other = ctx.world.sandboxes.recall(id).is_none() && ctx.index.monitors.is_named(id);
        let lives = is_other || ctx.world.sandboxes.get(id).is_some_and(|it| !it.is_stopped());
        match ctx.has_record(id) {
            HasRecord::Yes => return None,
            HasRecord::Unknown | HasRecord::No { .. } if lives => return None,
            HasRecord::Unknown => is_sure = false,
            HasRecord::No { .. } => {}
        }
    }
    Some(is_sure)
}

fn detection(
    ctx: &DetectContext<'_>,
    read_at: Timestamp,
    read: &IpamStore,
    is_sure: bool,
) -> Option<Detection> {
    let network = read.store.network.clone()?;
    let since = read.reservations().map(|it| it.since).max()?;
    let (configured_at, _) = ctx.world.records.networks.as_ref()?;
    let mut verdict = ctx.after_cleanup(since, ctx.limits.leak_grace);
    if !is_sure {
        verdict = Verdict::Unsure;
    } else if verdict == Verdict::Confirmed {
        let ready = since.max(ctx.up?) + ctx.limits.leak_grace;
        if read_at.min(*configured_at) < ready {
            verdict = Verdict::Unverified;
        }
    }
    let own = read.reservations().filter(|it| {
        let holder = it.holder.as_ref();
        !holder.is_some_and(|holder| leaked_address::is_reported(ctx, &holder.container, it.address))
    });
    let count = u32::try_from(own.count()).unwrap_or(u32::MAX);
    if count == 0 {
        return None;
    }
    let kind = AbandonedStore { path: read.store.path.clone(), network, count };
    Some(Detection::new(kind, &[&read.store.path], Severity::Info, since, verdict))
}

impl Explain for AbandonedStore {
    fn summary(&self) -> String {
        let Self { path, network, count } = self;
        format!(
            "{} allocated in {} for the network {}, which no CNI configuration names",
            counted((*count).into(), "address"),
            escaped(path),
            escaped(network)
        )
    }

    fn cause(&self) -> &'static str {
        "No CNI configuration names the network of this store any more, and no running sandbox has an address of \
         it. That the store still counts them as allocated takes them from nobody. But a sandbox whose DEL was never \
         called may have left more than its address: where portmap was in the chain, a rule that sends a port of the node \
         to that address, before the rule of a pod that has the port now."
    }

    /// The commands only show the state. The operator must know whether the network will come back before
    /// removing the folder.
    fn repair(&self, _sandboxes: &[ContainerId], runtimes: &[String]) -> Vec<String> {
        let (Some(network), Some(path)) = (quoted(&self.network), quoted(&self.path)) else {
            return lines(&[UNPRINTABLE]);
        };
        let mut all = lines(&[
            "# No pod needs these addresses. If the network will not come back, the folder can be removed, but only if the",
            "# first command prints nothing (no configuration names the network), and the third command prints \"asked\" at the",
            "# end, and before it none of the sandbox ids that the second command prints:",
        ]);
        let folders: Vec<&str> = runtime::of_distributions(|row| row.networks).copied().collect();
        all.push(format!("grep -rsF -- {network} {}", folders.join(" ")));
        all.push(format!("find {path} -type f -name '[0-9]*' -exec head -qn 1 {{}} +"));
        let asked = crictl(runtimes).map(|crictl| format!("{crictl} pods -q --no-trunc && "));
        all.push(format!("{}echo asked", asked.collect::<String>()));
        let Some(rule) = quoted(&format!("dnat name: \\\"{}\\\"", self.network)) else { return all };
        all.extend(lines(&[
            "# Whether portmap left rules for ports of the node. Each is removed by the same line with -D in place of -A, after",
            "# \"iptables -t nat\" (or ip6tables):",
        ]));
        all.push(format!("for it in iptables ip6tables; do $it -t nat -S CNI-HOSTPORT-DNAT 2>/dev/null | grep -F -- {rule}; done"));
        all
    }

    fn forget_numbers(&mut self) {
        self.count = 0;
    }

    fn rests_on(&self, _lasted: Duration) -> Option<String> {
        Some("the records of an IPAM store".to_owned())
    }
}
