//! The balance of each plugin and network: what became of the attachments that its ADDs made. It needs no
//! store, so it holds for plugins that keep nothing on the node.

use std::{collections::BTreeMap, time::Duration};

use super::{daemons, pod, record};
use crate::{
    engine::world::{
        World,
        table::{
            attachment::{Attachment, Fate, First, Plugin},
            balance::{BalanceView, OTHER},
            record::HasRecord,
        },
    },
    model::{id::ContainerId, time::Timestamp},
};

/// Returns whether a plugin has made no attachment yet for a sandbox and for its pod, in the network of the
/// attachment that it makes now.
pub(crate) fn first(world: &World, id: &ContainerId, ifname: &str, plugin: &str) -> First {
    let row = world.attachments.get(&(id.clone(), ifname.to_owned()));
    let network = row.and_then(|row| row.network.as_deref());
    let pod = world.sandboxes.recall(id).and_then(|row| row.pod);
    let mut others = pod.into_iter().flat_map(|pod| pod::sandboxes(world, pod));
    let sandbox = !has_entry(world, id, plugin, network);
    First { sandbox, pod: sandbox && !others.any(|row| has_entry(world, &row.id, plugin, network)) }
}

fn has_entry(world: &World, id: &ContainerId, plugin: &str, network: Option<&str>) -> bool {
    let plugins = world.attachments.of(id).flat_map(|row| &row.plugins);
    let entries = plugins.filter(|it| it.name == plugin).filter_map(|it| it.entry.as_ref());
    entries.map(|entry| entry.network.as_deref()).any(|it| it == network)
}

/// What became of an attachment whose runtime is done with it, and for which no DEL of this plugin has
/// succeeded.
pub(crate) fn fate_without_del(row: &Attachment, plugin: &Plugin) -> Fate {
    if row.gapped || plugin.has_unseen_del() { Fate::Unknown } else { Fate::Unreleased }
}

/// What became of the attachments of each plugin and network.
pub(crate) fn views(world: &World, now: Timestamp, grace: Duration) -> Vec<BalanceView> {
    let accounts = &world.accounts.0;
    let mut views: BTreeMap<_, _> =
        accounts.iter().map(|(key, account)| (key.clone(), account.view())).collect();
    let shared = (OTHER.to_owned(), None);
    for row in world.attachments.values() {
        for (plugin, network) in row.entries() {
            let own = (plugin.name.clone(), network.clone());
            let key = if views.contains_key(&own) { &own } else { &shared };
            let Some(view) = views.get_mut(key) else { continue };
            match fate(world, row, plugin, now, grace) {
                Fate::Live => view.live += 1,
                Fate::Ended => view.ended += 1,
                Fate::Unreleased => view.unreleased += 1,
                Fate::Released | Fate::ReleasedWithoutNetns | Fate::Unknown => view.unknown += 1,
            }
        }
    }
    views.into_values().collect()
}

/// What became of an attachment for which no DEL of this plugin has succeeded.
fn fate(world: &World, row: &Attachment, plugin: &Plugin, now: Timestamp, grace: Duration) -> Fate {
    let sandbox = world.sandboxes.recall(&row.container);
    if sandbox.is_some_and(|it| !it.is_stopped() && !it.is_stillborn(row)) {
        return Fate::Live;
    }
    // The runtime and the kubelet have the grace to clean up, while both are up.
    let up = daemons::cleaners_since(world).map(|up| up.max(world.node.woke_at));
    let over_at = sandbox.and_then(|it| it.over_at()).unwrap_or_default().max(row.last_at);
    match world.records.has_record(&row.container).unless(record::has_unread_runtime(world)) {
        HasRecord::No { at }
            if up.is_some_and(|up| at >= over_at && now >= over_at.max(up) + grace) && !row.is_busy() =>
        {
            fate_without_del(row, plugin)
        }
        HasRecord::Yes | HasRecord::No { .. } | HasRecord::Unknown => Fate::Ended,
    }
}
