//! What the logs of the node know of the past: why a call failed, what a start waited for, when a shutdown
//! was ordered.

pub(crate) mod boot;
pub(crate) mod plugin_log;
pub(crate) mod search;
