//! Attributes of spans, events and log records.
//!
//! **Invariant:** a list of attributes is sorted by key and has each key once, as the protocol requires.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, KeyValue, KeyValueList, any_value::Value,
};
use serde_json::Value as Json;

use super::key;
use crate::model::{
    change::{CniCall, ContainerRef, End, Finding},
    fact::PodName,
    finding::FindingKind,
    id::ContainerId,
};

/// Values by key. An absent value is left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Attributes(BTreeMap<String, Value>);

impl Attributes {
    pub(super) fn text(self, key: &str, value: impl Into<String>) -> Self {
        self.some_text(key, Some(value))
    }

    pub(super) fn some_text(self, key: &str, value: Option<impl Into<String>>) -> Self {
        self.put(key, value.map(|text| Value::StringValue(text.into())))
    }

    pub(super) fn number(self, key: &str, value: impl TryInto<i64>) -> Self {
        self.put(key, Some(Value::IntValue(value.try_into().unwrap_or(i64::MAX))))
    }

    /// Adds the number, unless it is zero.
    pub(super) fn count(self, key: &str, value: u32) -> Self {
        if value == 0 { self } else { self.number(key, value) }
    }

    pub(super) fn flag(self, key: &str, value: bool) -> Self {
        self.put(key, Some(Value::BoolValue(value)))
    }

    /// Adds the flag, unless it is false.
    pub(super) fn mark(self, key: &str, value: bool) -> Self {
        if value { self.flag(key, true) } else { self }
    }

    /// Adds the list, unless it is empty.
    pub(super) fn texts(self, key: &str, values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let values = values.into_iter().map(|text| any(Value::StringValue(text.into()))).collect::<Vec<_>>();
        let list = (!values.is_empty()).then_some(Value::ArrayValue(ArrayValue { values }));
        self.put(key, list)
    }

    pub(super) fn json(self, key: &str, value: Json) -> Self {
        self.put(key, of_json(value))
    }

    pub(super) fn pod(self, pod: &PodName) -> Self {
        self.some_text(key::NAMESPACE, pod.namespace.as_deref())
            .some_text(key::POD, pod.name.as_deref())
            .some_text(key::POD_UID, pod.uid.as_ref().map(ToString::to_string))
    }

    pub(super) fn sandbox(self, id: &ContainerId) -> Self {
        self.text(key::SANDBOX, id.to_string())
    }

    pub(super) fn container(self, container: &ContainerRef) -> Self {
        self.text(key::CONTAINER_ID, container.id.to_string())
            .some_text(key::CONTAINER, container.name.as_deref())
    }

    pub(super) fn call(self, call: &CniCall) -> Self {
        self.text(key::PLUGIN, call.plugin.as_str())
            .text(key::COMMAND, call.command.as_str())
            .some_text(key::INTERFACE, call.ifname.as_deref())
            .some_text(key::CALLED_BY, call.called_by.as_deref())
    }

    pub(super) fn end(self, end: Option<&End>) -> Self {
        match end {
            Some(end) => self.number(key::EXIT_CODE, end.code),
            None => self,
        }
    }

    /// Adds what identifies a finding, and its state.
    pub(super) fn finding(self, it: &Finding) -> Self {
        self.text(key::FINDING, it.key.as_str())
            .text(key::KIND, FindingKind::from(&it.kind).into_str())
            .text(key::STAGE, it.stage.into_str())
            .text(key::SEVERITY, it.severity.into_str())
    }

    pub(super) fn into_list(self) -> Vec<KeyValue> {
        self.0.into_iter().map(|(key, value)| pair(key, any(value))).collect()
    }

    fn put(mut self, key: &str, value: Option<Value>) -> Self {
        if let Some(value) = value {
            self.0.insert(key.to_owned(), value);
        }
        self
    }
}

pub(super) fn any(value: Value) -> AnyValue {
    AnyValue { value: Some(value) }
}

fn pair(key: String, value: AnyValue) -> KeyValue {
    KeyValue { key, value: Some(value), ..KeyValue::default() }
}

/// Converts a JSON value; `None` for null, which the protocol expresses by an absent value.
fn of_json(value: Json) -> Option<Value> {
    Some(match value {
        Json::Null => return None,
        Json::Bool(it) => Value::BoolValue(it),
        Json::String(it) => Value::StringValue(it),
        Json::Number(it) => match it.as_i64() {
            Some(whole) => Value::IntValue(whole),
            None => Value::DoubleValue(it.as_f64().unwrap_or(f64::NAN)),
        },
        Json::Array(items) => {
            let values = items.into_iter().map(|item| AnyValue { value: of_json(item) }).collect();
            Value::ArrayValue(ArrayValue { values })
        }
        Json::Object(members) => {
            let values = members.into_iter().filter_map(|(key, item)| Some(pair(key, any(of_json(item)?))));
            Value::KvlistValue(KeyValueList { values: values.collect() })
        }
    })
}
