//! Scalars of the output that JSON itself does not have. The scalars of findings are in the model.

use std::{borrow::Cow, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::SCHEMA;
pub(crate) use crate::model::scalar::{Decimal, is_default, names};

/// The version of the schema. Every line and document begins with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version;

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

pub(super) fn nanos(span: Duration) -> Decimal<u128> {
    Decimal(span.as_nanos())
}
