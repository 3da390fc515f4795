//! The first line: where the recording was made, and what replay must know before the first call.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use super::VERSION;
use crate::engine::Settings;

/// The header of a recording.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of sandprobe that made it.
    pub made_by: String,
    pub node: String,
    /// The kernel's random id of the boot. Times and sequence numbers are comparable within one boot.
    pub boot_id: String,
    /// The kernel's release.
    pub kernel: String,
    /// The wall clock at boot, nanoseconds since the epoch, as known when the recording began.
    #[serde_as(as = "DisplayFromStr")]
    pub boot_wall_ns: i64,
    pub settings: Settings,
}

/// The member by which a recording is recognized; its value is the version of the format.
#[derive(Deserialize)]
pub(super) struct Mark {
    /// 64 bits, since the version of a newer format may be any number.
    pub(super) sandprobe_recording: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Line<'a> {
    sandprobe_recording: u32,
    #[serde(flatten)]
    pub(super) header: Cow<'a, Header>,
}

impl<'a> Line<'a> {
    pub(super) fn of(header: &'a Header) -> Self {
        Self { sandprobe_recording: VERSION, header: Cow::Borrowed(header) }
    }
}
