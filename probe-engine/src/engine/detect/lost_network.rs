//! **Rule:** an address that a CNI ADD gave to a sandbox was removed while a container of the sandbox ran,
//! and ten seconds later the sandbox runs on without it. The runtime called no DEL since the ADD.
//!
//! Not flagged: an address that is back in the namespace, on whatever interface (KubeVirt moves it to another
//! one); a sandbox whose network another kernel has (gVisor takes the addresses away as it starts, Kata
//! Containers); a sandbox that the runtime has begun to stop; other addresses of the pod, such as virtual
//! IPs; a sandbox about which records are missing by then, since the DEL may be among them.

use std::{fmt::Write as _, net::IpAddr, time::Duration};

use super::{DetectContext, Detection, Verdict, index::Subjects, rule::Rule};
use crate::{
    engine::world::table::{
        attachment::{Attachment, lease::Removed},
        sandbox::Sandbox,
    },
    model::{
        finding::{Explain, Key, Kind, LostNetwork, Severity},
        id::ContainerId,
    },
    words::{
        escape::escaped,
        shell::{asked, lines},
    },
};

/// By then an address that is only moved or replaced is back, and the record of a stop that was under way is
/// there.
pub(super) const SETTLE: Duration = Duration::from_secs(10);

impl Rule for LostNetwork {
    type Subject = ContainerId;
    type Part = Detection;
    const SUBJECTS: Subjects<ContainerId> = Subjects::ATTACHED;

    fn judge(ctx: &DetectContext<'_>, id: &ContainerId, found: &mut Vec<Detection>) {
        let Some(sandbox) = ctx.world.sandboxes.get(id) else { return };
        let runs = !sandbox.is_stopped() && sandbox.ending.stop_at.is_none() && sandbox.presence.is_alive();
        if runs && !sandbox.hides_programs {
            found.extend(ctx.world.attachments.of(id).filter_map(|row| judged(ctx, sandbox, row)));
        }
    }
}

fn judged(ctx: &DetectContext<'_>, sandbox: &Sandbox, row: &Attachment) -> Option<Detection> {
    if row.is_loopback() || row.is_busy() || row.plugins.iter().any(|plugin| plugin.del.begun > 0) {
        return None;
    }
    let ran_at = sandbox.containers().iter().map(|it| it.started_at).min()?;
    let netns = ctx.world.netns.get(sandbox.network.netns?)?;
    let mut lost: Vec<(&Removed, IpAddr)> = Vec::new();
    for lease in &row.leases {
        if let Some(removed) = &lease.removed
            && removed.at > ran_at
            && netns.addresses.iter().all(|it| it.address.address != lease.address)
        {
            lost.push((removed, lease.address));
        }
    }
    lost.sort_by_key(|(removed, address)| (removed.at, *address));
    let (first, _) = lost.first()?;
    if !netns.is_live() || !sandbox.is_known_until(first.at) {
        return None;
    }
    let settled = ctx.awake(first.at) + SETTLE;
    let is_settled = ctx.now >= settled;
    let verdict = if is_settled { Verdict::Confirmed } else { Verdict::Watched { until: Some(settled) } };
    let plugin = row.plugins.iter().find(|plugin| plugin.add.succeeded > 0);
    let kind = Kind::from(LostNetwork {
        ifname: row.ifname.clone(),
        addresses: lost.iter().map(|(_, address)| *address).collect(),
        network: row.network.clone(),
        plugin: plugin.map(|it| it.name.clone()),
        by: first.by.clone().filter(|by| !by.is_kernel_thread()),
        by_container: first.by_container,
    });
    Some(Detection {
        key: Key::new(kind.into_str(), &[row.container.as_str(), &row.ifname]),
        kind,
        severity: Severity::Warning,
        since: first.at,
        pod: Some(sandbox.reported.pod.clone()),
        sandboxes: vec![row.container.clone()],
        gapped: false,
        verdict,
    })
}

impl Explain for LostNetwork {
    fn summary(&self) -> String {
        let ifname = escaped(&self.ifname);
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let mut text = format!("the pod runs without {}, which {ifname} lost", addresses.join(" and "));
        if let Some(by) = &self.by {
            let inside = if self.by_container { " in a container" } else { "" };
            _ = write!(text, ": {}[{}]{inside} removed it", escaped(&by.comm), by.key.pid);
        }
        text
    }

    fn cause(&self) -> &'static str {
        if self.by_container {
            "A program in a container removed an address that the CNI plugin had given to the pod, or the interface with \
             it. The kubelet and the runtime do not notice: the pod stays ready, and nobody reaches it at this address."
        } else {
            "A program of the node removed an address that the CNI plugin had given to a running pod, or the interface with \
             it, and the runtime had called no DEL. The kubelet and the runtime do not notice: the pod stays ready, and \
             nobody reaches it at this address."
        }
    }

    fn repair(&self, sandboxes: &[ContainerId], runtimes: &[String]) -> Vec<String> {
        let mut all = Vec::new();
        if let Some(by) = &self.by {
            let program = escaped(&by.comm);
            all.push(format!("# Keep {program} from doing it again. Its past, as far as it is known:"));
            all.push(format!("ps -o pid,lstart,args --pid {} --pid {}", by.key.pid, by.parent.pid));
        }
        all.extend(lines(&[
            "# Only a new sandbox gets a new network. Delete the pod if a controller makes it again: its containers then get",
            "# their grace period. Or stop its sandbox, which kills them at once, and the kubelet makes another one:",
        ]));
        all.extend(asked(runtimes, "stopp", sandboxes));
        all
    }
}
