//! What a story did and what has come of it: what findings are compared with.

use std::{collections::BTreeMap, net::Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::{
    cgroupfs::CgroupId,
    keyed::{Attachment, Counts},
    kubelet::{Sandbox, Step},
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    pub pods: Vec<PodTruth>,
    /// In order, but for what several pods did at a time.
    pub acts: Vec<Done>,
    /// What the store still names, and did not before the story.
    pub held: BTreeMap<Ipv4Addr, Attachment>,
    /// Of our own plugin: none with another.
    pub calls: Counts,
    /// The pods' sandboxes that the runtime still lists.
    pub known: Vec<String>,
    /// The process that played, and so the killer of what was killed.
    pub driver: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodTruth {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub cgroups: Vec<CgroupId>,
    /// Those that ran, by attempt.
    pub sandboxes: Vec<Sandbox>,
    /// Those whose CNI ADD failed.
    pub failed_sandboxes: Vec<String>,
}

/// A step of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    MakeCgroup,
    RunSandbox,
    RunContainer,
    /// The container's program has ended, and the runtime knows.
    WaitForExit,
    StopSandbox,
    RemoveSandbox,
    RemoveCgroup,
    /// All in the sandbox's cgroup, by none of the runtime's.
    KillSandbox,
    /// By the kernel, for want of memory in the sandbox's cgroup.
    StarveSandbox,
    /// The file that its network namespace is bound to.
    LoseNetns,
    /// To another file.
    BindNetns,
    EndRuntime,
    KillRuntime,
    ForgetAll,
    StartRuntime,
}

/// An act that took place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    pub act: Act,
    /// The uid; none of what is done to the runtime.
    pub pod: Option<String>,
    pub sandbox: Option<String>,
    #[serde(flatten)]
    pub step: Step,
    /// What was said of it, where it failed as it was meant to.
    pub failure: Option<String>,
}

impl Truth {
    /// What the store names for sandboxes that the runtime does not know.
    pub fn leaked(&self) -> BTreeMap<Ipv4Addr, &Attachment> {
        let is_known = |holder: &Attachment| self.known.contains(&holder.container);
        let leaked = self.held.iter().filter(|(_, holder)| !is_known(holder));
        leaked.map(|(address, holder)| (*address, holder)).collect()
    }

    /// When this was done, in order.
    pub fn steps(&self, act: Act) -> Vec<Step> {
        self.acts.iter().filter(|done| done.act == act).map(|done| done.step).collect()
    }
}
