//! Sinks turn the changes of a run into output.
//!
//! A sink only makes bytes or counts, and the owner of the destination writes them. So the live agent, a
//! replay and the tests use the same sinks, and no sink can delay the agent's loop.
//!
//! **Invariant:** no sink uses another sink or a source.

#[cfg(feature = "live")]
pub(crate) mod authorities;
#[cfg(feature = "live")]
pub(crate) mod background;
pub mod chart;
pub mod doctor;
pub(crate) mod evidence;
pub(crate) mod file;
pub mod filter;
#[cfg(feature = "live")]
pub(crate) mod findings_file;
#[cfg(feature = "live")]
pub(crate) mod fleet;
#[cfg(feature = "live")]
pub(crate) mod folder;
pub(crate) mod history;
pub mod jsonl;
#[cfg(feature = "live")]
pub(crate) mod kubernetes;
pub(crate) mod lines;
#[cfg(feature = "live")]
pub(crate) mod log_file;
#[cfg(feature = "live")]
pub(crate) mod loop_queue;
#[cfg(feature = "live")]
pub mod metrics;
#[cfg(feature = "live")]
pub mod otlp;
pub mod page;
#[cfg(feature = "live")]
pub(crate) mod pem;
pub mod perfetto;
pub(crate) mod phase;
pub(crate) mod rate;
pub(crate) mod recovery;
#[cfg(feature = "live")]
pub(crate) mod reloading_files;
#[cfg(feature = "live")]
pub(crate) mod retry_after;
pub(crate) mod select;
#[cfg(feature = "live")]
pub mod serve;
#[cfg(feature = "live")]
pub(crate) mod state_writes;
#[cfg(feature = "live")]
pub(crate) mod stream;
pub(crate) mod summary;
pub mod text;
#[cfg(feature = "live")]
pub(crate) mod url;
#[cfg(feature = "live")]
pub(crate) mod verdict;
pub(crate) mod wall_clock;
#[cfg(feature = "live")]
pub(crate) mod write_queue;

pub use probe_engine::words::{escape, span};

use crate::model::{change::Change, time::Timestamp};

/// The facts that every line needs besides its change: the node, the boot, and the wall clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub node: String,
    /// The kernel's random id of the boot.
    pub boot_id: String,
    /// The wall clock's time at boot, nanoseconds since the epoch.
    pub boot_wall_ns: i64,
}

/// Receives every change of a run. It must not wait for anything.
pub trait Sink {
    fn on_change(&mut self, change: &Change, label: &Label);
}

/// A form in which changes are written.
pub trait Format {
    /// Appends `change` to `out`, as whole lines.
    fn write(&mut self, change: &Change, label: &Label, out: &mut Vec<u8>);

    /// Appends a line that says how many changes are missing before the next one, and why.
    fn missed(&mut self, count: u64, why: Missing, label: &Label, out: &mut Vec<u8>);
}

/// Why changes are missing in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Nobody read them, or they could not be written.
    Unwritten,
    /// There were more than the rate allows.
    Rate,
}

impl Label {
    /// Nanoseconds since the epoch.
    #[must_use]
    pub(crate) fn wall_ns(&self, at: Timestamp) -> i128 {
        i128::from(self.boot_wall_ns) + i128::from(at.0)
    }
}
