//! The report on what can be seen on a node, how, and what to change to see more.

use schemars::JsonSchema;
use serde::Serialize;

use super::jsonl::Version;
use crate::model::fact::Signal;

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub checks: Vec<Check>,
    pub signals: Vec<Row>,
    /// How to get everything that somebody can grant; `None` if nothing of that is missing.
    pub cure: Option<String>,
}

/// No finding depends on these signals. Without them some times are unknown, which is shown with those times.
const OPTIONAL_SIGNALS: [Signal; 2] = [Signal::CgroupReleased, Signal::Listening];

impl Report {
    /// The signals that no hook sees and without which findings are missed. They do not change while the
    /// agent runs.
    pub(crate) fn unseen(&self) -> impl Iterator<Item = &Row> {
        self.signals.iter().filter(|row| {
            row.mechanism.is_none() && !OPTIONAL_SIGNALS.iter().any(|signal| signal.into_str() == row.signal)
        })
    }
}

/// The report as a JSON object.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Report")]
pub struct Object<'a> {
    schema: Version,
    /// The version of sandprobe.
    version: &'static str,
    grade: Grade,
    checks: &'a [Check],
    signals: &'a [Row],
    /// What to do to see everything that can be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<&'a str>,
}

impl Report {
    #[must_use]
    pub(crate) fn grade(&self) -> Grade {
        let checks = self.checks.iter().map(|check| check.grade);
        checks.chain(self.signals.iter().map(|row| row.grade)).max().unwrap_or(Grade::Full)
    }

    /// The report as a JSON object, to be written alone or within another.
    #[must_use]
    pub fn object(&self) -> Object<'_> {
        Object {
            schema: Version,
            version: env!("CARGO_PKG_VERSION"),
            grade: self.grade(),
            checks: &self.checks,
            signals: &self.signals,
            cure: self.cure.as_deref(),
        }
    }
}

/// How much can be seen. The grade of the report is the worst grade of its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    Full,
    Degraded,
    /// sandprobe cannot run here.
    Cannot,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Check {
    pub name: &'static str,
    pub grade: Grade,
    pub found: String,
    /// What to change to see more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Check {
    #[must_use]
    pub fn full(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, grade: Grade::Full, found: found.into(), advice: None }
    }

    #[must_use]
    pub fn degraded(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, grade: Grade::Degraded, found: found.into(), advice: Some(advice.into()) }
    }

    /// A check that failed. `found` names the remedy itself, because `run` ends with the same line.
    #[must_use]
    pub(crate) fn cannot(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, grade: Grade::Cannot, found: found.into(), advice: None }
    }

    #[must_use]
    pub(crate) fn advised(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// How a signal is seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Signal")]
pub struct Row {
    pub signal: &'static str,
    pub grade: Grade,
    /// Absent if the signal is not seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<&'static str>,
    pub programs: Vec<&'static str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The missing requirements that somebody could grant, by name: `CAP_SYSLOG`. Empty if there are none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lacks: String,
    pub missed: Vec<Missed>,
}

/// A better mechanism, and why it is not used here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "MissedMechanism")]
pub struct Missed {
    pub mechanism: &'static str,
    pub why: String,
}
