//! What the stream of events says about itself, among the events.

use schemars::JsonSchema;
use serde::Serialize;

use super::scalar::{Decimal, Version};

/// What the stream says about itself. It is no event: it has no `seq`, `at` or `origin`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct StreamNotice<'a> {
    pub(crate) schema: Version,
    pub(crate) node: &'a str,
    pub(crate) boot_id: &'a str,
    pub(crate) event: StreamEvent,
    pub(crate) stream: StreamState<'a>,
}

/// What kind of notice it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum StreamEvent {
    /// Events follow from here on.
    #[serde(rename = "stream.opened")]
    Opened,
    /// Events are missing at this place.
    #[serde(rename = "stream.missed")]
    Missed,
    /// Nothing has happened for 15 s, and the stream is still there.
    #[serde(rename = "stream.alive")]
    Alive,
}

#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct StreamState<'a> {
    /// The run of the agent that counts these events. Only the API gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instance: Option<&'a str>,
    /// Where the client stands: to be given as `since` when it comes back. Only the API gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<String>,
    /// Why events are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<MissedBecause>,
    /// How many events are missing. Of another run this is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) missed: Option<Decimal<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissedBecause {
    /// The client came back when they had left the buffer.
    Late,
    /// The client did not keep up; or standard output or the log file could not be written, as on a full disk.
    Slow,
    /// There were more events than `--event-rate` allows.
    Rate,
    /// The place that the client gave is of another run of the agent.
    OtherRun,
}
