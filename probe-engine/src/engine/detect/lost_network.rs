//! **Rule:** an address that a CNI ADD of the runtime gave to a sandbox was removed, and ten seconds later
//! the sandbox is there without it, and a container has run in it since.
//!
//! Not flagged: an address that is back in the namespace, on whatever interface (KubeVirt moves it to another
//! one); an address that the runtime took before a container ran (gVisor), and a sandbox whose network
//! another kernel has (gVisor, Kata Containers); a sandbox that the runtime has begun to stop, as each DEL of
//! it does; interfaces that another plugin added (Multus), since they may be taken away from a running pod;
//! other addresses of the pod, such as virtual IPs; addresses of IPv6 with a lifetime; a sandbox about which
//! records are missing by then, since the DEL may be among them.

use std::time::Duration;

use super::{DetectContext, Detection, Verdict, index::Subjects, rule::Rule};
use crate::{
    engine::world::table::{
        attachment::{Attachment, Lease, lease::Removed},
        sandbox::Sandbox,
    },
    model::{
        fact::List,
        finding::{Explain, LostNetwork, Severity},
        id::ContainerId,
        process::Process,
    },
    words::{
        escape::escaped,
        shell::{asked, lines},
    },
};

/// By then an address that is only moved or replaced is back, and the record of a stop that was under way is
/// there.
pub(super) const SETTLE: Duration = Duration::from_secs(10);

/// The interface that containerd and CRI-O themselves ask for.
const OWN: &str = "eth0";

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
    if row.is_busy() {
        return None;
    }
    let mut lost: Vec<(&Removed, &Lease)> = Vec::new();
    for lease in &row.leases {
        if let Some(removed) = &lease.removed
            && (lease.plugin.is_some() || row.ifname == OWN)
            && (lease.may_be_on_record() || !lease.stored)
        {
            lost.push((removed, lease));
        }
    }
    lost.sort_by_key(|(removed, lease)| (removed.at, lease.address));
    let (first, _) = lost.first()?;
    let mut runs = sandbox.containers().iter();
    let has_run = runs.any(|run| run.ended.as_ref().is_none_or(|ended| ended.at > first.at));
    if !has_run || !sandbox.is_known_until(first.at) {
        return None;
    }
    let settled = ctx.awake(first.at) + SETTLE;
    let netns = sandbox.network.netns.and_then(|life| ctx.world.netns.get(life));
    let known_at = netns.and_then(|netns| netns.relisted_at).max(Some(first.at));
    let verdict = if ctx.world.lists.in_doubt_until(List::Addresses) > known_at {
        // The record that the address is back may be among those that were lost.
        Verdict::Watched { until: Some(ctx.now + SETTLE) }
    } else if ctx.now < settled {
        Verdict::Watched { until: Some(settled) }
    } else {
        Verdict::Confirmed
    };
    let plugin = row.plugins.iter().find(|plugin| plugin.add.succeeded > 0);
    let kind = LostNetwork {
        ifname: row.ifname.clone(),
        addresses: lost.iter().map(|(_, lease)| lease.address).collect(),
        network: row.network.clone(),
        plugin: plugin.map(|it| it.name.clone()),
        by: first.by.clone(),
        by_pod: first.by.as_ref().map(|_| first.by_pod),
    };
    let parts = [row.container.as_str(), &row.ifname];
    Some(Detection {
        pod: Some(sandbox.reported.pod.clone()),
        sandboxes: vec![row.container.clone()],
        ..Detection::new(kind, &parts, Severity::Warning, first.at, verdict)
    })
}

impl LostNetwork {
    /// Returns the program that removed the address, if a hook saw it and it was not the kernel itself.
    fn program(&self) -> Option<&Process> {
        self.by.as_ref().filter(|by| !by.is_kernel_thread())
    }
}

impl Explain for LostNetwork {
    fn summary(&self) -> String {
        let ifname = escaped(&self.ifname);
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let them = if addresses.len() == 1 { "it" } else { "them" };
        let addresses = addresses.join(" and ");
        let Some(by) = self.program() else {
            return format!("the pod runs without {addresses}: {ifname} lost {them}");
        };
        let inside = if self.by_pod == Some(true) { " in the pod" } else { "" };
        let who = format!("{}[{}]{inside}", escaped(&by.comm), by.key.pid);
        format!("the pod runs without {addresses}: {who} removed {them} from {ifname}")
    }

    fn cause(&self) -> &'static str {
        if self.by_pod == Some(true) {
            "A program in a container of the pod removed an address that the CNI plugin had given to the pod, or the \
             interface with it. Nobody reaches the pod at this address. Without a probe over the network it stays ready."
        } else if self.program().is_some() {
            "A program outside the pod removed an address that the CNI plugin had given to the pod, or the interface with \
             it, and the runtime had called no DEL. Nobody reaches the pod at this address. Without a probe over the \
             network it stays ready."
        } else if self.by.is_some() {
            "The kernel itself removed an address that the CNI plugin had given to the pod, as it does when the network \
             namespace with the other end of the veth pair ends, and the runtime had called no DEL. Nobody reaches the pod \
             at this address. Without a probe over the network it stays ready."
        } else {
            "An address that the CNI plugin had given to the pod was removed, or the interface with it, and the runtime had \
             called no DEL. No hook saw who did it. Nobody reaches the pod at this address. Without a probe over the \
             network it stays ready."
        }
    }

    fn repair(&self, sandboxes: &[ContainerId], runtimes: &[String]) -> Vec<String> {
        let mut all =
            lines(&["# Change nothing if a virtual machine in the pod has taken over the address."]);
        if let Some(by) = self.program() {
            all.push(format!(
                "# Keep {} from doing it again. If it still runs, or what started it:",
                escaped(&by.comm)
            ));
            let pids = [by.key.pid, by.parent.pid].into_iter().filter(|pid| *pid != 0);
            let pids: Vec<String> = pids.map(|pid| pid.to_string()).collect();
            all.push(format!("ps -o pid,lstart,args --pid {}", pids.join(",")));
        }
        all.extend(lines(&[
            "# Only a new sandbox gets a new network. Delete the pod if a controller makes it again: its containers then get",
            "# their grace period. Or stop its sandbox, which kills them at once, and the kubelet makes another one:",
        ]));
        all.extend(asked(runtimes, "stopp", sandboxes));
        all
    }
}
