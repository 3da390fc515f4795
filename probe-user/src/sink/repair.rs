//! How to repair what a finding says: for whoever reads it to run, never run here.
//!
//! Every command first looks whether things still are as the finding says, under the plugin's own lock where there is
//! one, and leaves alone what is not.
//!
//! **Invariant:** text from the node gets into a command only between quotes, and not at all if a terminal could act
//! upon it. Nothing is deleted by a command that has not checked.

mod quote;
mod script;

pub(crate) use script::{function, release, script};

use probe_common::runtime;

use crate::model::{
    change::Finding,
    fact::StoreKind,
    finding::{Kind, LeakedAddress},
    id::ContainerId,
};
use quote::{UNPRINTABLE, quoted};

/// Lines: comments begin with `#`, the others are commands for a shell of root on the node.
#[must_use]
pub(crate) fn repair(finding: &Finding) -> Vec<String> {
    match &finding.kind {
        Kind::LeakedAddress(it) if it.many.is_some() => said(&[
            "# This looks at the node anew, lists every address that is leaked, and writes a script that frees them one",
            "# by one, each after a check of its own. Read it before it is run.",
            "sandprobe leaks --repair-script > free.sh",
        ]),
        Kind::LeakedAddress(it) => leaked(it, finding),
        Kind::AbandonedStore { path, network, .. } => abandoned(path, network),
        Kind::UnverifiedRelease { .. } => said(&[
            "# Ask the plugin's own tool which addresses it holds for pods of this node, or declare its store",
            "# (--ipam-store) so that sandprobe can see for itself.",
        ]),
        Kind::DuplicateSandbox { .. } => {
            let mut lines = said(&[
                "# The kubelet removes the extra sandbox by itself. If it stays: see which is the pod's, and stop the",
                "# other one. crictl refuses what still runs containers only if it is not forced: do not force.",
            ]);
            lines.extend(asked(finding, "inspectp", &finding.sandboxes));
            lines
        }
        Kind::TeardownOutOfOrder { .. } => said(&[
            "# What is done cannot be undone; the runtime cleans the rest up. Find who killed it (the killer above),",
            "# and see whether an address was leaked by it:",
            "sandprobe findings --kind leaked_address",
        ]),
        Kind::OrphanNetns { mounts, .. } => orphan(mounts),
        Kind::StuckNetnsTeardown { .. } => said(&[
            "# The kernel's worker says where it is; \"waiting for DEV to become free\" names a leaked device.",
            "dmesg | grep -F 'unregister_netdevice: waiting for'",
            "grep -l cleanup_net /proc/[0-9]*/stack 2>/dev/null | while read -r it; do cat \"$it\"; done",
        ]),
        Kind::StuckCgroup { path, .. } => stuck(path),
        Kind::OrphanSandbox { process } => {
            let mut lines = vec![
                "# See what it is before anything is done to it; a runtime that restarts may take it up again."
                    .to_owned(),
                format!("ps -o pid,ppid,lstart,cgroup,args -p {}", process.key.pid),
            ];
            lines.extend(crictl(&finding.runtimes).map(|crictl| format!("{crictl} pods")));
            lines
        }
        Kind::DuplicateContainer { containers, .. } => {
            let mut lines = said(&["# The kubelet knows the newer one; the older is left over."]);
            lines.extend(asked(finding, "inspect", containers));
            lines
        }
        Kind::DuplicateAddress { address, .. } => vec![
            "# Delete the newer of the two pods: its address is then given out anew. Then see who frees addresses"
                .to_owned(),
            "# behind the plugin's back.".to_owned(),
            format!("kubectl get pods -A -o wide --field-selector status.podIP={address}"),
        ],
        Kind::CniFailing(_) | Kind::CniSlow { .. } | Kind::CniQueue { .. } => {
            let units = runtime::of_runtimes(|row| row.units).chain(runtime::of_distributions(|row| row.units));
            let units: String = units.map(|unit| format!("-u {unit} ")).collect();
            vec![
                "# The plugin's own words are in the runtime's log:".to_owned(),
                format!("journalctl {units}--since -15min | grep -i cni"),
            ]
        }
        Kind::PoolExhaustion(_) => said(&[
            "# Free what is leaked, each after a check of its own:",
            "sandprobe leaks --repair-script",
        ]),
        Kind::BlindSpot { .. } => said(&["# What is missing, and how to get it:", "sandprobe doctor"]),
    }
}

/// What to look at: the folder is removed by whoever knows that the network will not come back.
fn abandoned(path: &str, network: &str) -> Vec<String> {
    let mut lines = said(&[
        "# Nobody waits for these addresses. If the network will not come back, the folder can be removed once the",
        "# first command prints nothing (no configuration names it), and no id that the second one prints is among the",
        "# sandboxes that the third one prints:",
    ]);
    match (quoted(network), quoted(path)) {
        (Some(network), Some(path)) => {
            let folders: Vec<&str> = runtime::of_distributions(|row| row.networks).copied().collect();
            lines.push(format!("grep -rsF -- {network} {}", folders.join(" ")));
            lines.push(format!("find {path} -type f -name '[0-9]*' -exec head -qn 1 {{}} +"));
            lines.push("crictl pods -q --no-trunc".to_owned());
            lines
        }
        _ => said(&[UNPRINTABLE]),
    }
}

fn said(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// crictl as it asks each of the node's runtimes: its own default is none of them on k3s, for instance. Where no socket is
/// known, crictl is to know.
fn crictl(runtimes: &[String]) -> impl Iterator<Item = String> {
    let at = |socket: &String| {
        // What cannot be asked by name must not pass for an answer.
        quoted(&format!("unix://{socket}"))
            .map_or_else(|| "false".to_owned(), |socket| format!("crictl --runtime-endpoint {socket}"))
    };
    let default = runtimes.is_empty().then(|| "crictl".to_owned());
    default.into_iter().chain(runtimes.iter().map(at).collect::<Vec<_>>())
}

/// Each of these asked for of each runtime.
fn asked(finding: &Finding, verb: &str, ids: &[ContainerId]) -> Vec<String> {
    let of = |id: &ContainerId| {
        crictl(&finding.runtimes).map(|crictl| format!("{crictl} {verb} {id}")).collect::<Vec<_>>()
    };
    ids.iter().flat_map(of).collect()
}

fn leaked(it: &LeakedAddress, finding: &Finding) -> Vec<String> {
    let Some(sandbox) = finding.sandboxes.first() else { return Vec::new() };
    if it.stores.is_empty() {
        return said(&[
            "# libcni's cache alone names it. Runtimes with GC of CNI 1.1 forget it by themselves; whether the IPAM",
            "# still holds the address only its own tool can say.",
        ]);
    }
    let mut lines = Vec::new();
    for store in &it.stores {
        match store.kind {
            StoreKind::HostLocal => {
                lines.extend(function(&finding.runtimes));
                lines.push(release(&store.path, it.address, sandbox));
            }
            StoreKind::AwsIpamd => lines.extend(restart_ipamd()),
            StoreKind::Declared => {
                lines.push(
                    "# The store is the plugin's own, and so is the way to free from it; this is the record:"
                        .to_owned(),
                );
                let file = quoted(&format!("{}/{}", store.path.trim_end_matches('/'), it.address));
                lines.push(file.map_or_else(|| UNPRINTABLE.to_owned(), |file| format!("cat -- {file}")));
            }
        }
    }
    lines
}

/// How ipamd is made to look again.
#[must_use]
pub(crate) fn restart_ipamd() -> Vec<String> {
    said(&[
        "# ipamd drops what has no interface on the node when it reads its checkpoint, at its start. Pods keep",
        "# running meanwhile; new ones wait. $NODE_NAME is this node's name in the cluster.",
        "kubectl -n kube-system delete pod -l k8s-app=aws-node --field-selector \"spec.nodeName=$NODE_NAME\"",
    ])
}

fn orphan(mounts: &[String]) -> Vec<String> {
    let mut lines = said(&[
        "# Only if no process is in it. The mount is all that keeps it; rm removes the empty file beneath, and fails",
        "# as long as something is mounted there.",
    ]);
    for mount in mounts {
        lines.push(quoted(mount).map_or_else(
            || UNPRINTABLE.to_owned(),
            |at| {
                format!(
                    "in=$(ip netns pids \"$(basename -- {at})\") && [ -z \"$in\" ] && umount -- {at} && rm -- {at}"
                )
            },
        ));
    }
    lines
}

fn stuck(path: &str) -> Vec<String> {
    let at = quoted(&format!("/sys/fs/cgroup{path}"));
    let Some(at) = at else { return said(&[UNPRINTABLE]) };
    vec![
        "# Whose processes are still in it; rmdir fails, and harms nothing, as long as there is one."
            .to_owned(),
        format!("find {at} -name cgroup.procs -exec cat {{}} +"),
        format!("find {at} -depth -type d -exec rmdir {{}} +"),
    ]
}
