//! What can be seen on a node, how, and what to change to see more.

use schemars::JsonSchema;
use serde::Serialize;

use super::jsonl::Version;

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub checks: Vec<Check>,
    pub signals: Vec<Row>,
    /// What to do to have all that somebody can give; none if nothing of that is lacking.
    pub cure: Option<String>,
}

/// The report, as an object.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Report")]
pub struct Object<'a> {
    schema: Version,
    /// Of sandprobe.
    version: &'static str,
    grade: Grade,
    checks: &'a [Check],
    signals: &'a [Row],
    /// What to do so that all is seen that can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<&'a str>,
}

impl Report {
    #[must_use]
    pub fn grade(&self) -> Grade {
        let checks = self.checks.iter().map(|check| check.grade);
        checks.chain(self.signals.iter().map(|row| row.grade)).max().unwrap_or(Grade::Full)
    }

    /// As an object, to be written or to be put into another.
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

/// How much can be seen. The worst of all checks is the report's.
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
    /// What to change for more.
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

    /// What was found says what to do: it is the line with which `run` ends here.
    #[must_use]
    pub fn cannot(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, grade: Grade::Cannot, found: found.into(), advice: None }
    }

    #[must_use]
    pub fn advised(mut self, advice: impl Into<String>) -> Self {
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
    /// Absent: it is not seen at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<&'static str>,
    pub programs: Vec<&'static str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// What could be given so that it is seen, or seen better, by name: `CAP_SYSLOG`. Empty if nothing could.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lacks: String,
    pub missed: Vec<Missed>,
}

/// A better mechanism, and what stands against it here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "MissedMechanism")]
pub struct Missed {
    pub mechanism: &'static str,
    pub why: String,
}
