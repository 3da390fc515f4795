//! The numbers of releases that nothing verifies. The runtime called DEL only when the namespace was gone,
//! and the plugin succeeded. No store could be read that shows whether the address was freed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::time::Timestamp;

/// A plugin, and the number of its releases that nothing verifies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    pub(crate) plugin: String,
    pub(crate) count: u32,
    /// How many of these had no DEL that succeeded.
    #[serde(default)]
    pub(crate) without_del: u32,
    pub(crate) since: Timestamp,
    pub(crate) last_at: Timestamp,
}

/// How an attachment was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// Only by a DEL without a namespace.
    WithoutNetns,
    /// By no DEL.
    Never,
}

/// If no new one came for this long, the count begins anew.
pub(crate) const MEMORY: Duration = Duration::from_secs(60 * 60);
