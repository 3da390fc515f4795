//! Pods that came back with less network than they had.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{model::recovery::LessNetwork, sink::recovery};

/// A pod that is back, and the interfaces that it had before the restart and no longer has.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BootLessNetwork")]
pub(super) struct LessNetworkLine<'a> {
    pod: String,
    missing: &'a [String],
}

impl<'a> LessNetworkLine<'a> {
    pub(super) fn all(less: &'a [LessNetwork]) -> Vec<Self> {
        less.iter().map(|it| Self { pod: recovery::name(&it.pod), missing: &it.missing }).collect()
    }
}
