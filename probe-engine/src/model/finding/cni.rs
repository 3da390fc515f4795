//! Findings about calls of CNI plugins.

use std::{net::IpAddr, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use crate::model::{fact::CniCommand, time::Nanoseconds};

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
    /// The folders of host-local that are not in its usual one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stores: Vec<String>,
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
