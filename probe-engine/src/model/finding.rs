//! What can be wrong on the node: the kinds of findings, and the key of each finding. A
//! [finding](super::change::Finding) is in the module of changes, because its evidence is changes.
//!
//! **Invariant:** a key says what is wrong with what, and not when or by which agent it was found: a restart
//! and a replay give the same key.

mod address;
mod blind;
mod cni;
mod kind;

use std::{fmt, net::IpAddr, str::FromStr, time::Duration};

use schemars::JsonSchema;
use serde_with::{DeserializeFromStr, SerializeDisplay};

pub use address::*;
pub(crate) use blind::plural;
pub use blind::{Blind, BlindSpot};
pub use cni::*;
pub use kind::*;

use crate::model::{
    fact::Said,
    id::{ContainerId, NotThat},
};

/// `KIND/…`, made of parts that never change: names, addresses, ids.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr, JsonSchema,
)]
pub struct Key(String);

closed_set! {
    /// The state of a finding.
    pub enum Stage {
        /// The problem may yet resolve itself.
        Candidate,
        Confirmed,
        /// The problem is over.
        Closed,
    }
}

closed_set! {
    /// What to do about it.
    pub enum Severity {
        /// Good to know.
        Info,
        /// Look at it in working hours.
        Warning,
        /// Pods fail, or soon will.
        Critical,
    }
}

/// A thing that several findings can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing<'a> {
    Sandbox(&'a ContainerId),
    Plugin(&'a str),
    Network(&'a str),
    Address(IpAddr),
    /// The node itself, for findings that affect every pod.
    Node,
}

/// What one kind of finding says. Each kind implements it beside its rule.
pub trait Explain {
    /// What is wrong, in one line, without the pod, which is shown beside it.
    fn summary(&self) -> String;

    /// How it came about, as far as the evidence goes.
    fn cause(&self) -> &'static str;

    /// Commands for the repair ([`shell`](crate::words::shell)), for the finding's sandboxes and the
    /// runtimes' sockets.
    fn repair(&self, sandboxes: &[ContainerId], runtimes: &[String]) -> Vec<String>;

    /// Clears the numbers that change while the finding is open, so that the rest can be compared.
    fn forget_numbers(&mut self) {}

    /// Returns the finding with its largest totals, of now and of those before. None: it has no totals.
    fn worst(&self, _before: &Kind) -> Option<Kind> {
        None
    }

    /// The errors that the runtime and the kubelet logged about it, the most telling one first.
    fn said(&self) -> &[Said] {
        &[]
    }

    /// Whether it is about the worst of several subjects, and began when that one did.
    fn follows_worst(&self) -> bool {
        false
    }

    /// Whether the finding's sandboxes are a changing sample of many.
    fn shows_some(&self) -> bool {
        false
    }

    /// Returns the things that it names, by which it leads to other findings or they to it.
    fn named(&self) -> Vec<Thing<'_>> {
        Vec::new()
    }

    /// Returns what it rests on if that is no events of sandboxes. It has lasted for `lasted`.
    fn rests_on(&self, _lasted: Duration) -> Option<String> {
        None
    }
}

/// Counters that change whenever a finding changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revision {
    /// Changes when a finding is opened, confirmed or closed.
    pub stages: u64,
    /// Also changes with a finding's severity, cause and sandboxes, but not with its counts.
    pub meaning: u64,
}

impl Key {
    /// Makes `kind/part/part`. A slash within a part becomes a colon, since it would split the part.
    pub(crate) fn new(kind: &str, parts: &[&str]) -> Self {
        let mut text = kind.to_owned();
        for part in parts {
            text.push('/');
            text.extend(part.chars().map(|letter| if letter == '/' { ':' } else { letter }));
        }
        Self(text)
    }

    /// Parses a key that was written before.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('/')?;
        (!kind.is_empty() && !rest.is_empty()).then(|| Self(text.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns its first part.
    pub(crate) fn kind(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }
}

impl FromStr for Key {
    type Err = NotThat;

    fn from_str(text: &str) -> Result<Self, NotThat> {
        Self::parse(text).ok_or(NotThat::KEY)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Kind {
    /// Returns the path of the documentation page.
    #[must_use]
    pub fn page(&self) -> String {
        format!("docs/findings/{}.md", self.into_str())
    }

    /// Returns the errors that the runtime and the kubelet logged about it, the most telling one first.
    #[must_use]
    pub fn said(&self) -> &[Said] {
        self.explain().said()
    }

    /// Whether both say the same, except for numbers that change while the finding is open.
    pub(crate) fn means(&self, other: &Self) -> bool {
        self.without_numbers() == other.without_numbers()
    }

    fn without_numbers(&self) -> Self {
        let mut it = self.clone();
        it.explain_mut().forget_numbers();
        it
    }
}
