//! The scalars of the JSON form that are not JSON's own: large numbers and times as strings, and closed sets of names.

use std::{borrow::Cow, fmt::Display, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use strum::VariantNames;

use super::SCHEMA;
use crate::sink::wall::Rfc3339;

/// A number that may pass 2^53, which many readers of JSON cannot hold: a decimal string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal<T>(pub(crate) T);

/// The version of the form, which every line and document begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version;

impl<T: Display> Serialize for Decimal<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<T> JsonSchema for Decimal<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Decimal".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^-?[0-9]+$" })
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u32(SCHEMA)
    }
}

impl JsonSchema for Version {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Version".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "const": SCHEMA })
    }
}

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl JsonSchema for Rfc3339 {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Rfc3339".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// The schema of a member that has one of a type's names.
pub(crate) fn names<T: VariantNames>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": T::VARIANTS })
}

pub(super) fn nanos(span: Duration) -> Decimal<u128> {
    Decimal(span.as_nanos())
}

/// A number for which 0 stands for "not given".
pub(super) fn known(number: u64) -> Option<Decimal<u64>> {
    (number != 0).then_some(Decimal(number))
}

pub(super) fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}
