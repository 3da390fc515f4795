//! A value of a row, and the types that values have.

use std::{collections::BTreeMap, sync::Arc};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A text with few different values.
    Name,
    /// Any other text.
    Text,
    Integer,
    /// A boolean; false if the line does not have it.
    Flag,
    /// Nanoseconds since the epoch.
    Time,
    /// Texts by name.
    Map,
}

/// A value. A time is an integer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cell {
    Null,
    Text(String),
    Integer(i64),
    Flag(bool),
    /// Shared, because many rows have the same map.
    Map(Arc<BTreeMap<String, String>>),
}

impl From<Option<String>> for Cell {
    fn from(text: Option<String>) -> Self {
        text.map_or(Self::Null, Self::Text)
    }
}

impl From<Option<i64>> for Cell {
    fn from(number: Option<i64>) -> Self {
        number.map_or(Self::Null, Self::Integer)
    }
}
