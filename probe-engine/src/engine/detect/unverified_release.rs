//! **Rule:** for sandboxes of a plugin, only DELs with an empty `CNI_NETNS` have succeeded, or none has by
//! the time that the attachment is forgotten, and no readable store shows whether their addresses were freed.
//!
//! This is not a leak: most plugins free addresses by container id. The finding names the plugin whose leaks
//! the agent would not see.
//!
//! Not flagged: networks whose store was read whole (`leaked_address` covers those); plugins and IPAMs that
//! are known to free by container id; sandboxes whose ADD was before the agent started, or during which
//! records were lost, since a DEL with a namespace may be among those; attachments without a DEL that
//! libcni's cache still names (`leaked_address`). The finding closes after an hour without a new such
//! sandbox.

use std::time::Duration;

use super::{DetectContext, Detection, Verdict};
use crate::{
    engine::world::table::release::MEMORY,
    model::{
        finding::{Explain, Severity, Thing, UnverifiedRelease},
        id::ContainerId,
    },
    words::{count::counted, escape::escaped, shell::lines},
};

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    let late = ctx.world.releases.values().filter(|row| ctx.now < row.last_at + MEMORY);
    found.extend(late.map(|row| {
        let kind =
            UnverifiedRelease { plugin: row.plugin.clone(), count: row.count, without_del: row.without_del };
        let verdict = Verdict::Passing { until: row.last_at + MEMORY };
        Detection::new(kind, &[&row.plugin], Severity::Info, row.since, verdict)
    }));
}

impl Explain for UnverifiedRelease {
    fn summary(&self) -> String {
        let all = counted(self.count.into(), "CNI attachment");
        let plugin = escaped(&self.plugin);
        match self.without_del {
            0 => format!("{all} released by {plugin} with an empty CNI_NETNS, and no IPAM store to check"),
            it if it == self.count => {
                format!("{all} of {plugin} released by no DEL, and no IPAM store to check")
            }
            it => format!(
                "{all} of {plugin} released with an empty CNI_NETNS or, {it} of them, by no DEL, and no IPAM store to check"
            ),
        }
    }

    fn cause(&self) -> &'static str {
        if self.without_del > 0 {
            "No DEL succeeded, or one only with an empty CNI_NETNS, and no IPAM store of the plugin can be read. Without \
             a DEL an address is freed only by a plugin that looks for leftovers itself."
        } else {
            "DEL was called only with an empty CNI_NETNS, and no IPAM store of the plugin can be read. Most plugins free \
             addresses by container id. A plugin that looks the address up in the network namespace frees nothing."
        }
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        lines(&[
            "# Ask the plugin's own tool which addresses it holds for pods of this node, or declare its store",
            "# (--ipam-store) so that sandprobe can see for itself.",
        ])
    }

    fn forget_numbers(&mut self) {
        self.count = 0;
        self.without_del = 0;
    }

    fn named(&self) -> Vec<Thing<'_>> {
        vec![Thing::Plugin(&self.plugin)]
    }

    fn rests_on(&self, _lasted: Duration) -> Option<String> {
        Some("how the plugin's attachments were released".to_owned())
    }
}
