//! What can be wrong on the node: the kinds of findings, and the key by which each finding is known. A
//! [finding](super::change::Finding) is kept with the changes, because its evidence is changes.
//!
//! **Invariant:** a key says what is wrong with which thing, and nothing of when or by whom it was found: a restart
//! and a replay give the same key.

mod address;
mod blind;
mod kind;

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde_with::{DeserializeFromStr, SerializeDisplay};

pub use address::*;
pub use blind::Blind;
pub(crate) use blind::plural;
pub use kind::*;

use crate::model::id::{ContainerId, NotThat};

/// `KIND/…`, of what never changes: names, addresses, ids.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr, JsonSchema,
)]
pub struct Key(String);

closed_set! {
    /// How far it is with a finding.
    pub enum Stage {
        /// It may yet come right by itself.
        Candidate,
        Confirmed,
        /// What was wrong is so no longer.
        Closed,
    }
}

closed_set! {
    /// What to do about it.
    pub enum Severity {
        /// To be known.
        Info,
        /// To be looked at in working hours.
        Warning,
        /// Pods fail, or soon will.
        Critical,
    }
}

/// What one kind of finding says of itself, for people. Each kind has it beside its rule.
///
/// **Invariant:** a link is to the very problem, or there is none.
pub trait Explain {
    /// What is wrong, in one line, without the pod, which stands beside it.
    fn summary(&self) -> String;

    /// How it came about, as far as the evidence goes.
    fn cause(&self) -> &'static str;

    /// Where it is known: a specification's word, or the report of the very problem.
    fn known(&self) -> &'static [&'static str] {
        &[]
    }

    /// How to repair it ([`shell`](crate::words::shell)), by the finding's sandboxes and the sockets of the runtimes.
    fn repair(&self, sandboxes: &[ContainerId], runtimes: &[String]) -> Vec<String>;

    /// Takes away the numbers that change while the finding is open, so that the rest can be compared.
    fn forget_numbers(&mut self) {}

    /// Whether the sandboxes of such a finding are a changing sample of many.
    fn shows_some(&self) -> bool {
        false
    }
}

/// Numbers that change whenever a finding changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revision {
    /// Of how far it is with each: opened, confirmed, closed.
    pub stages: u64,
    /// Of what each means: also its severity, cause and sandboxes, but not what only counts.
    pub meaning: u64,
}

impl Key {
    /// `kind/part/part`; a slash within a part would make two of it.
    pub(crate) fn new(kind: &str, parts: &[&str]) -> Self {
        let mut text = kind.to_owned();
        for part in parts {
            text.push('/');
            text.extend(part.chars().map(|letter| if letter == '/' { ':' } else { letter }));
        }
        Self(text)
    }

    /// One that was written down before.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('/')?;
        (!kind.is_empty() && !rest.is_empty()).then(|| Self(text.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its first part.
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
    /// The page that says more.
    #[must_use]
    pub fn page(&self) -> String {
        format!("docs/findings/{}.md", self.into_str())
    }

    /// Whether it says the same as another one, but for numbers that move while it goes on.
    pub(crate) fn means(&self, other: &Self) -> bool {
        let lasting = |it: &Self| {
            let mut it = it.clone();
            it.explain_mut().forget_numbers();
            it
        };
        lasting(self) == lasting(other)
    }
}
