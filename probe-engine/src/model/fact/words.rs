//! What the programs of the node say about a pod, according to their logs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::{EnumString, IntoStaticStr};

use crate::model::{id::PodUid, time::Timestamp};

/// A program of the node that says what it waits for, or why it failed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, EnumString, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Speaker {
    Plugin,
    Runtime,
    Kubelet,
}

impl Speaker {
    /// Whether a pattern for its words may match those of the other one: the kubelet repeats the runtime's
    /// errors.
    pub(crate) fn repeats(self, other: Self) -> bool {
        (self == Self::Plugin) == (other == Self::Plugin)
    }
}

/// An error that a program of the node logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Said {
    pub by: Speaker,
    /// One line of at most 512 bytes.
    pub text: String,
    /// When it was logged last: RFC 3339, by the node's clock.
    pub at: String,
    /// The file that has it.
    pub source: String,
}

/// What a runtime or a kubelet that does not come up said lately.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonWordsFound {
    /// The name of its program.
    pub daemon: String,
    /// As it was asked.
    pub since: Timestamp,
    /// The most telling one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<Said>,
    /// Why there is none, if there is none: the places that were searched.
    pub unsaid: Option<String>,
}

/// What was said about a pod lately.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WordsFound {
    pub uid: PodUid,
    /// As it was asked.
    pub since: Timestamp,
    /// The most telling one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<Said>,
    /// Why there is none, if there is none: the places that were searched.
    pub unsaid: Option<String>,
}
