//! A line of which rows are made, and how its members are read.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;

use super::cell::{Cell, Kind};

/// What is known of a boot beyond the line.
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
    /// Of a boot's object.
    pub(crate) fn of(boot: &Value) -> Self {
        let own = |member: &str| boot[member].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let labels = boot["labels"].as_object();
        let labels = labels
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        Self {
            kernel: own("kernel"),
            runtime: own("runtime"),
            kubelet: own("kubelet"),
            labels: Arc::new(labels.collect()),
        }
    }

    /// Fills in what is not known from what another source says of the same boot.
    pub(crate) fn learn(&mut self, other: &Self) {
        let fill = |known: &mut Option<String>, new: &Option<String>| {
            if known.is_none() {
                known.clone_from(new);
            }
        };
        fill(&mut self.kernel, &other.kernel);
        fill(&mut self.runtime, &other.runtime);
        fill(&mut self.kubelet, &other.kubelet);
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

/// The value at a path of members, as `pod.name`.
pub(super) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, member| value.get(member)).filter(|value| !value.is_null())
}

/// A number, or one that is a decimal string because it may pass 2^53.
pub(super) fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

/// Nanoseconds since the epoch, of a time as RFC 3339.
pub(super) fn time(value: &Value) -> Option<i64> {
    let at: Timestamp = value.as_str()?.parse().ok()?;
    i64::try_from(at.as_nanosecond()).ok()
}

/// A member of nanoseconds since the epoch.
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

/// Executables of a list by their paths. A version that is not known is empty.
pub(super) fn programs(value: &Value, path: &str) -> Cell {
    let version = |it: &Value| {
        let version = it["version"].as_str().unwrap_or_default();
        Some((it["path"].as_str()?.to_owned(), version.to_owned()))
    };
    Cell::Map(Arc::new(list(value, path).iter().filter_map(version).collect()))
}

/// The version of the executable with this file name among those of a list.
pub(super) fn version<'a>(value: &'a Value, path: &str, name: &str) -> Option<&'a str> {
    let is_its = |it: &&Value| it["path"].as_str().is_some_and(|path| path.rsplit('/').next() == Some(name));
    list(value, path).iter().find(is_its)?["version"].as_str()
}
