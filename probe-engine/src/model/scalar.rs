//! Scalars that JSON does not have: large numbers as strings, and closed sets of names.

use std::{borrow::Cow, fmt::Display, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_with::{DeserializeAs, DisplayFromStr};
use strum::VariantNames;

/// A number that can exceed 2^53, which many readers of JSON cannot hold. It is written as a decimal string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal<T>(pub T);

impl<T: Display> Serialize for Decimal<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Decimal<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        DisplayFromStr::deserialize_as(from).map(Self)
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

/// Returns a number for which 0 means "not given".
#[must_use]
pub(crate) fn known(number: u64) -> Option<Decimal<u64>> {
    (number != 0).then_some(Decimal(number))
}

/// Whether a member is left out because it is 0, false or empty.
pub(crate) fn is_default<T: Default + PartialEq>(member: &T) -> bool {
    *member == T::default()
}

/// Returns the schema of a member whose value is one of a type's names.
pub fn names<T: VariantNames>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": T::VARIANTS })
}
