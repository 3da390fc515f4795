//! The actions of a story and their results, for tests to compare findings with.

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
    /// In order. The actions of several pods at a time may overlap.
    pub actions: Vec<Done>,
    /// The addresses in the store that were not there before the story.
    pub held: BTreeMap<Ipv4Addr, Attachment>,
    /// The calls of the tests' own plugin. Zero with another plugin.
    pub calls: Counts,
    /// The pods' sandboxes that the runtime still lists.
    pub known: Vec<String>,
    /// The process that ran the story, and so the killer of what was killed.
    pub driver: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodTruth {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub cgroups: Vec<CgroupId>,
    /// The sandboxes that ran, by attempt.
    pub sandboxes: Vec<Sandbox>,
    /// The sandboxes whose CNI ADD failed.
    pub failed_sandboxes: Vec<String>,
}

/// An action of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    MakeCgroup,
    RunSandbox,
    RunContainer,
    /// The container's program has ended, and the runtime knows that.
    WaitForExit,
    StopSandbox,
    RemoveSandbox,
    RemoveCgroup,
    /// Something other than the runtime kills all processes in the sandbox's cgroup.
    KillSandbox,
    /// The kernel kills pause, because the sandbox's cgroup has no memory left.
    StarveSandbox,
    /// The file to which the network namespace is bound is removed.
    LoseNetns,
    /// The network namespace is bound to another file.
    BindNetns,
    EndRuntime,
    KillRuntime,
    ForgetAll,
    StartRuntime,
}

/// A finished action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    pub action: Action,
    /// The pod's UID. `None` for an action on the runtime.
    pub pod: Option<String>,
    pub sandbox: Option<String>,
    #[serde(flatten)]
    pub step: Step,
    /// The error's text, if the action failed as intended.
    pub failure: Option<String>,
}

impl Truth {
    /// Returns the addresses in the store whose sandboxes the runtime does not know.
    pub fn leaked(&self) -> BTreeMap<Ipv4Addr, &Attachment> {
        let is_known = |holder: &Attachment| self.known.contains(&holder.container);
        let leaked = self.held.iter().filter(|(_, holder)| !is_known(holder));
        leaked.map(|(address, holder)| (*address, holder)).collect()
    }

    /// Returns the times of this action, in order.
    pub fn steps(&self, action: Action) -> Vec<Step> {
        self.actions.iter().filter(|done| done.action == action).map(|done| done.step).collect()
    }
}
