//! The words of closed sets in the JSON stream and in the text.

use strum::VariantNames;

use crate::model::phase::Kind;

/// The names of all phases of a start, in their order.
pub(crate) const PHASES: &[&str] = Kind::VARIANTS.split_last().expect("there are phases").1;
