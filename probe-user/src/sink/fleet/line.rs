//! A line from which rows are made, and functions that read its members.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;

use super::cell::{Cell, Kind};

/// Facts about a boot that the line itself does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) kernel: Option<String>,
    pub(crate) runtime: Option<String>,
    pub(crate) kubelet: Option<String>,
    pub(crate) labels: Arc<BTreeMap<String, String>>,
}

/// An object, with the boot that it belongs to.
pub(super) struct Line<'a> {
    pub(super) value: &'a Value,
    pub(super) context: &'a Context,
}

impl Context {
    /// Reads the context from the object of a boot.
    pub(crate) fn of(boot: &Value) -> Self {
        let labels = boot["labels"].as_object();
        let labels = labels
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        Self {
            kernel: text(&boot["kernel"]),
            runtime: text(&boot["runtime"]),
            kubelet: text(&boot["kubelet"]),
            labels: Arc::new(labels.collect()),
        }
    }

    /// Fills in what is not known from another source about the same boot.
    pub(crate) fn learn(&mut self, other: &Self) {
        for (known, new) in [
            (&mut self.kernel, &other.kernel),
            (&mut self.runtime, &other.runtime),
            (&mut self.kubelet, &other.kubelet),
        ] {
            if known.is_none() {
                known.clone_from(new);
            }
        }
        for (key, value) in &*other.labels {
            Arc::make_mut(&mut self.labels).entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

impl Line<'_> {
    pub(super) fn of_boot(&self, name: &str, kind: Kind) -> Cell {
        let Context { kernel, runtime, kubelet, labels } = self.context;
        match (kind, name) {
            (Kind::Map, _) => Cell::Map(Arc::clone(labels)),
            (_, "kernel") => kernel.clone().into(),
            (_, "runtime") => runtime.clone().into(),
            (_, "kubelet") => kubelet.clone().into(),
            _ => Cell::Null,
        }
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The value at a path of members, such as `pod.name`.
pub(super) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, member| value.get(member)).filter(|value| !value.is_null())
}

/// A number, also one that is a decimal string because it may pass 2^53.
pub(super) fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

/// Parses an RFC 3339 time; nanoseconds since the epoch.
pub(super) fn time(value: &Value) -> Option<i64> {
    let at: Timestamp = value.as_str()?.parse().ok()?;
    i64::try_from(at.as_nanosecond()).ok()
}

/// Reads a member that is nanoseconds since the epoch.
pub(super) fn wall(line: &Line<'_>, path: &str) -> Cell {
    at(line.value, path).and_then(integer).into()
}

/// Whether all times of a boot or a restart are those of events.
pub(super) fn is_exact(line: &Line<'_>) -> Cell {
    Cell::Flag(list(line.value, "inexact").is_empty())
}

/// The objects of a list.
pub(super) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// How many things are in a list.
pub(super) fn count(value: &Value, path: &str) -> Option<i64> {
    at(value, path).map(|_| i64::try_from(list(value, path).len()).unwrap_or(i64::MAX))
}

/// Maps the path of each executable in a list to its version. An unknown version is empty.
pub(super) fn programs(value: &Value, path: &str) -> Cell {
    let versions = list(value, path).iter().filter_map(|it| {
        let version = it["version"].as_str().unwrap_or_default();
        Some((it["path"].as_str()?.to_owned(), version.to_owned()))
    });
    Cell::Map(Arc::new(versions.collect()))
}

/// The version of the executable with this file name in a list.
pub(super) fn version<'a>(value: &'a Value, path: &str, name: &str) -> Option<&'a str> {
    let mut programs = list(value, path).iter();
    let program =
        programs.find(|it| it["path"].as_str().is_some_and(|path| path.rsplit('/').next() == Some(name)))?;
    program["version"].as_str()
}
