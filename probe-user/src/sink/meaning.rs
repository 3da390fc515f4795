//! What a finding means, in a few sentences: how it comes about, where it is known, which page says more.
//!
//! **Invariant:** a link is to the very problem, or there is none.

use crate::model::finding::{Cause, Duplicate, Kind, OutOfOrder};

/// How it came about, as far as the evidence goes.
#[must_use]
pub(crate) fn cause(kind: &Kind) -> &'static str {
    match kind {
        Kind::LeakedAddress(it) => match it.cause {
            Cause::DelMissing => {
                "The sandbox is over and nobody knows it any more, but the plugin was never called with DEL for it: \
                 its address stays given out."
            }
            Cause::DelBlind => {
                "DEL was called only after the network namespace had gone, with an empty CNI_NETNS. The plugin \
                 answered that all is well, and its store still names the sandbox: it finds the address through the \
                 namespace, and there was none."
            }
            Cause::DelFailed => {
                "Every DEL for the sandbox failed, and the runtime has stopped trying: it no longer has the sandbox \
                 on record."
            }
            Cause::AddFailed => {
                "An ADD reserved the address and then failed, and no DEL was called to give it back."
            }
            Cause::RuntimeEnded => {
                "The runtime ended after the plugin had given out the address and before it had the sandbox on \
                 record. The runtime that runs now does not know the sandbox, and will never call DEL for it."
            }
            Cause::StaleRecord => {
                "The store names a sandbox that no runtime has on record. How that came about was not seen: it was \
                 before sandprobe ran, before the last boot, or while records were lost."
            }
        },
        Kind::AbandonedStore { .. } => {
            "The store is of a network that no configuration names any more, and no sandbox that lives holds an \
             address of it: what it still counts as given out is in nobody's way."
        }
        Kind::UnverifiedRelease { .. } => {
            "DEL was called with an empty CNI_NETNS alone, and no store of the plugin can be read: many plugins free \
             by container id and are safe, some look the address up in the namespace and are not."
        }
        Kind::DuplicateSandbox { form, .. } => match form {
            Duplicate::Concurrent => "Two sandboxes of one pod have their network at the same time.",
            Duplicate::AfterCompletion => {
                "All containers of the pod had ended with success, and the kubelet made another sandbox, in which \
                 nothing ever ran. It takes an address, and is torn down by a path of its own."
            }
            Duplicate::UnusedRebuild => {
                "After a sandbox that ran containers, one sandbox after the other was made in which none ran."
            }
        },
        Kind::TeardownOutOfOrder { how, .. } => match how {
            OutOfOrder::PauseKilled => {
                "What holds the sandbox was killed before the runtime began to stop it, and not by the runtime. DEL \
                 then finds no process, and where the namespace goes with it, no namespace."
            }
            OutOfOrder::PauseOutOfMemory => {
                "The kernel killed what holds the sandbox because memory had run out, before the runtime began to \
                 stop it."
            }
            OutOfOrder::NetnsGone => {
                "The sandbox's network namespace went before the runtime began to stop the sandbox: somebody else \
                 removed what kept it. The DEL that follows is a blind one."
            }
        },
        Kind::OrphanNetns { .. } => {
            "The namespace was a sandbox's; no process and no sandbox uses it, and a mount keeps it."
        }
        Kind::StuckNetnsTeardown { .. } => {
            "The last reference to the namespace is gone, and the kernel has not finished taking it apart. There is \
             one worker for all of them: others wait behind it."
        }
        Kind::StuckCgroup { .. } => "The pod is gone and its cgroup directory is still there.",
        Kind::OrphanSandbox { .. } => {
            "The process that holds a sandbox lives, and no runtime has that sandbox on record: nobody will stop it."
        }
        Kind::DuplicateContainer { .. } => "Two containers of the same name run in one sandbox.",
        Kind::DuplicateAddress { .. } => {
            "The plugin gave one address to two sandboxes of the same network, and neither has begun to give it back."
        }
        Kind::CniFailing(_) => {
            "The plugin's ADD fails and is tried again, each time for a new sandbox: pods do not start."
        }
        Kind::CniSlow { .. } => "One call of the plugin takes longer than pods should have to wait.",
        Kind::CniQueue { .. } => "Plugins wait for each other, most often for one lock.",
        Kind::PoolExhaustion(_) => "Addresses of the range run out; new pods will fail with the next ADD.",
        Kind::BlindSpot { .. } => {
            "Something of the node cannot be seen. What is concluded without it is weaker, or not concluded at all."
        }
    }
}

/// Where it is known: a specification's word, or the report of the very problem.
#[must_use]
pub(crate) fn known(kind: &Kind) -> &'static [&'static str] {
    match kind {
        Kind::LeakedAddress(it) => match it.cause {
            Cause::DelBlind => &[
                "containerd calls DEL with an empty CNI_NETNS on purpose when the namespace is gone: \
                 https://github.com/containerd/containerd/issues/8303",
                "the specification allows it, and asks plugins to clean up as far as they can: \
                 https://www.cni.dev/docs/spec/#del-remove-container-from-network-or-un-apply-modifications",
            ],
            Cause::AddFailed => &[
                "containerd gave up a sandbox whose ADD had failed without a DEL that succeeded: \
                 https://github.com/containerd/containerd/issues/5768",
                "its DEL after a failed ADD was canceled with the request (fixed in 1.5.3): \
                 https://github.com/containerd/containerd/pull/5569",
            ],
            Cause::RuntimeEnded => {
                &["containerd made its record of a sandbox only after the sandbox's network: \
                 https://github.com/containerd/containerd/issues/5768"]
            }
            Cause::StaleRecord => &["host-local's records outlive a reboot: \
                 https://github.com/containernetworking/plugins/issues/252"],
            Cause::DelMissing | Cause::DelFailed => &[],
        },
        Kind::DuplicateSandbox { form: Duplicate::AfterCompletion, .. } => &[
            "kubelet makes an extra sandbox after a Job's pod succeeded: \
             https://github.com/kubernetes/kubernetes/issues/75441",
            "the same with restartPolicy OnFailure, and its repair: \
             https://github.com/kubernetes/kubernetes/pull/92614",
        ],
        Kind::DuplicateSandbox { form: Duplicate::Concurrent | Duplicate::UnusedRebuild, .. }
        | Kind::AbandonedStore { .. }
        | Kind::UnverifiedRelease { .. }
        | Kind::TeardownOutOfOrder { .. }
        | Kind::OrphanNetns { .. }
        | Kind::StuckNetnsTeardown { .. }
        | Kind::StuckCgroup { .. }
        | Kind::OrphanSandbox { .. }
        | Kind::DuplicateContainer { .. }
        | Kind::DuplicateAddress { .. }
        | Kind::CniFailing(_)
        | Kind::CniSlow { .. }
        | Kind::CniQueue { .. }
        | Kind::PoolExhaustion(_)
        | Kind::BlindSpot { .. } => &[],
    }
}

/// The page that says more.
#[must_use]
pub(crate) fn page(kind: &Kind) -> String {
    format!("docs/findings/{}.md", kind.into_str())
}
