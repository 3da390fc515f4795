//! Findings about calls of CNI plugins.

use std::{net::IpAddr, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use crate::model::{
    fact::{CniCommand, ProcessState, RunState, ThreadState},
    process::Process,
    time::Nanoseconds,
};

/// CNI ADD or DEL fails and is tried again.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CniFailing {
    pub plugin: String,
    #[serde(default)]
    pub command: CniCommand,
    /// Calls that failed, of all sandboxes.
    pub attempts: u32,
    /// Pods that still wait for one to succeed.
    pub pods: u32,
    /// How long the failed calls ran, together.
    #[serde(rename = "wasted_ns")]
    #[serde_as(as = "Nanoseconds")]
    #[schemars(with = "Nanoseconds")]
    pub wasted: Duration,
    #[serde(rename = "exit_code")]
    pub code: Option<u32>,
    /// The latest message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// If the pods' messages differ: each of them, the most frequent first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<SaidOften>,
}

/// A message of a plugin, and for how many pods it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SaidOften {
    pub text: String,
    pub pods: u32,
}

/// The runtime called a DEL that cannot be right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CniWrongDel {
    pub how: WrongDelForm,
    /// The plugin whose DEL was called first.
    pub plugin: String,
    pub ifname: String,
    /// To how many sandboxes it happened within ten minutes. DELs after an ADD that was killed are one
    /// finding.
    #[serde(default = "one")]
    pub count: u32,
    /// The namespace that the DEL was given, if it is not the sandbox's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// The addresses that the DEL may have freed, and that may be in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
}

fn one() -> u32 {
    1
}

closed_set! {
    pub enum WrongDelForm {
        /// An ADD of the same sandbox and interface was still running.
        AddOpen,
        /// The last ADD was killed before it could answer.
        AddKilled,
        /// The network namespace is that of another sandbox that lives.
        ForeignNetns,
        /// The network namespace is the node's own.
        NodeNetns,
    }
}

/// What a plugin said, or why that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    pub text: Option<String>,
    pub source: String,
}

/// A call of a CNI plugin takes, or took, long.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CniSlow {
    pub plugin: String,
    /// ADD or DEL.
    pub command: String,
    #[serde(rename = "took_ns")]
    #[serde_as(as = "Nanoseconds")]
    #[schemars(with = "Nanoseconds")]
    pub took: Duration,
    /// It still runs.
    pub open: bool,
    /// What the call waits for, if it still runs and that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<CniWait>,
}

/// What a call waits for: the plugin's process, or the program that it runs.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CniWait {
    pub process: Process,
    /// How long the call had run when it was looked at.
    #[serde(rename = "after_ns", default)]
    #[serde_as(as = "Nanoseconds")]
    #[schemars(with = "Nanoseconds")]
    pub after: Duration,
    /// The program has ended since, though the call still runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    #[serde(rename = "for")]
    pub form: CniWaitForm,
    /// The function of the kernel in which it waits (`wchan`). None: it runs, or the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
}

closed_set! {
    pub enum CniWaitForm {
        /// A signal or a debugger has stopped it.
        Continue,
        /// Its cgroup is frozen.
        Thaw,
        /// The kernel's lock of the network configuration (rtnl).
        NetworkLock,
        /// Something in the kernel, most likely a disk or a file server.
        Kernel,
        /// A file lock that another process holds.
        FileLock,
        /// Nothing: it works.
        Nothing,
        /// Input from a pipe. A plugin gets its configuration from one.
        Input,
        /// The end of a program that it started.
        Program,
        /// The answer of another process, or another event.
        Answer,
        /// The end of a pause that it makes.
        Pause,
    }
}

/// The functions of the kernel (5.10 to 7.2) in which a thread waits for something that has a name, by a part
/// of their names.
const WAITS: [(&str, Option<CniWaitForm>); 18] = [
    ("rtnl", Some(CniWaitForm::NetworkLock)),
    ("rtnetlink", Some(CniWaitForm::NetworkLock)),
    ("lock_inode_wait", Some(CniWaitForm::FileLock)),
    ("setlk", Some(CniWaitForm::FileLock)),
    ("pipe_read", Some(CniWaitForm::Input)),
    // A thread that waits for another one says nothing.
    ("futex", None),
    ("do_wait", Some(CniWaitForm::Program)),
    ("wait4", Some(CniWaitForm::Program)),
    ("poll", Some(CniWaitForm::Answer)),
    ("select", Some(CniWaitForm::Answer)),
    ("unix_stream", Some(CniWaitForm::Answer)),
    ("unix_wait", Some(CniWaitForm::Answer)),
    ("sk_wait", Some(CniWaitForm::Answer)),
    ("inet_wait", Some(CniWaitForm::Answer)),
    ("inet_csk", Some(CniWaitForm::Answer)),
    ("wait_for_more_packets", Some(CniWaitForm::Answer)),
    ("wait_woken", Some(CniWaitForm::Answer)),
    ("nanosleep", Some(CniWaitForm::Pause)),
];

impl CniWait {
    /// Returns what a process waits for, by what its threads do. The threads of one program wait for
    /// different things, and the first form of [`CniWaitForm`] counts.
    pub(crate) fn of(process: &Process, after: Duration, seen: &ProcessState) -> Option<Self> {
        let all = seen.threads.iter().filter_map(|it| Some((form(seen.state, it)?, &it.function)));
        let (form, function) = all.min_by_key(|(form, _)| *form)?;
        Some(Self { process: process.clone(), after, ended: false, form, function: function.clone() })
    }

    /// Whether it may wait for the end or the output of a program that it started.
    pub(crate) fn may_be_for_program(&self) -> bool {
        let function = self.function.as_deref().unwrap_or_default();
        match self.form {
            CniWaitForm::Program | CniWaitForm::Input => true,
            CniWaitForm::Answer => function.contains("poll") || function.contains("select"),
            CniWaitForm::Continue
            | CniWaitForm::Thaw
            | CniWaitForm::NetworkLock
            | CniWaitForm::Kernel
            | CniWaitForm::FileLock
            | CniWaitForm::Nothing
            | CniWaitForm::Pause => false,
        }
    }
}

fn form(process: RunState, it: &ThreadState) -> Option<CniWaitForm> {
    if matches!(process, RunState::Stopped | RunState::Traced) {
        return Some(CniWaitForm::Continue);
    }
    if it.is_frozen() {
        return Some(CniWaitForm::Thaw);
    }
    let function = it.function.as_deref().unwrap_or_default();
    let known = WAITS.iter().find(|(part, _)| function.contains(part)).and_then(|(_, form)| *form);
    match it.state {
        RunState::Uninterruptible => known.or(Some(CniWaitForm::Kernel)),
        RunState::Running => Some(CniWaitForm::Nothing),
        RunState::Sleeping | RunState::Stopped | RunState::Traced | RunState::Ended | RunState::Other => {
            known
        }
    }
}

/// Many CNI plugins run at once, and the oldest of them does not end.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CniQueue {
    pub waiting: u32,
    #[serde(rename = "oldest_ns")]
    #[serde_as(as = "Nanoseconds")]
    #[schemars(with = "Nanoseconds")]
    pub oldest: Duration,
    /// The plugin of the oldest call.
    pub plugin: String,
}
