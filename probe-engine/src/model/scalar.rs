//! Scalars that JSON does not have: large numbers as strings, and closed sets of names.

use std::{fmt::Display, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_with::{DeserializeAs, DisplayFromStr};
use strum::VariantNames;

/// A number that can exceed 2^53, which many readers of JSON cannot hold. It is written as a decimal string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String", inline, description = "", extend("pattern" = "^-?[0-9]+$"))]
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

/// Returns a number for which 0 means "not given".
#[must_use]
pub(crate) fn known(number: u64) -> Option<Decimal<u64>> {
    (number != 0).then_some(Decimal(number))
}

/// Whether a member is left out because it is 0, false or empty.
#[must_use]
pub fn is_default<T: Default + PartialEq>(member: &T) -> bool {
    *member == T::default()
}

/// Returns the schema of a member whose value is one of a type's names.
pub fn names<T: VariantNames>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": T::VARIANTS })
}
