//! Notices of the event stream about itself, among the events.

use schemars::JsonSchema;
use serde::Serialize;

use super::scalar::{Decimal, Version};

/// A notice of the stream about itself. It is not an event: it has no `seq`, `at` or `origin`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct StreamNotice<'a> {
    pub(crate) schema: Version,
    pub(crate) node: &'a str,
    pub(crate) boot_id: &'a str,
    pub(crate) event: StreamEvent,
    pub(crate) stream: StreamState<'a>,
}

/// The kind of the notice.
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

#[serde_with::skip_serializing_none]
#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct StreamState<'a> {
    /// The run of the agent that numbers these events. Only the API has it.
    pub(crate) instance: Option<&'a str>,
    /// The client's position, which it sends as `since` when it comes back. Only the API has it.
    pub(crate) since: Option<String>,
    /// Why events are missing.
    pub(crate) why: Option<MissedBecause>,
    /// How many events are missing. Absent if they are of another run.
    pub(crate) missed: Option<Decimal<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissedBecause {
    /// The client came back after the events had left the buffer.
    Late,
    /// The client did not keep up; or standard output or the log file could not be written, as on a full
    /// disk.
    Slow,
    /// There were more events than `--event-rate` allows.
    Rate,
    /// The client's position is of another run of the agent.
    OtherRun,
}
