//! Pods that came back with less network than they had.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{engine::boot::report::RecoveryReport, sink::recovery};

/// A pod that is back, and the interfaces that it had before the restart and has not now.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BootLessNetwork")]
pub(super) struct LessNetworkLine<'a> {
    pod: String,
    missing: &'a [String],
}

impl<'a> LessNetworkLine<'a> {
    pub(super) fn all(study: &'a RecoveryReport) -> Vec<Self> {
        let less = study.less_network.iter();
        less.map(|it| Self { pod: recovery::name(&it.pod), missing: &it.missing }).collect()
    }
}
