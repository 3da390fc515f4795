//! One thing that was looked at, and how it is.

use serde::Serialize;

/// How much can be seen. The worst of all checks is the report's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Grade {
    Full,
    Degraded,
    /// sandprobe cannot run here.
    Cannot,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) grade: Grade,
    pub(super) found: String,
    /// What to change for more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}

impl Check {
    pub(super) fn full(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, grade: Grade::Full, found: found.into(), advice: None }
    }

    pub(super) fn degraded(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, grade: Grade::Degraded, found: found.into(), advice: Some(advice.into()) }
    }

    /// What was found says what to do: it is the line with which `run` ends here.
    pub(super) fn cannot(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, grade: Grade::Cannot, found: found.into(), advice: None }
    }

    pub(super) fn advised(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}
