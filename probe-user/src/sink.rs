//! Sinks turn the changes of a run into output.
//!
//! A sink only makes bytes or counts, and the owner of the destination writes them. So the live agent, a
//! replay and the tests use the same sinks, and no sink can delay the agent's loop.
//!
//! The other sinks share what is in [`render`], [`select`], [`state`] and [`net`].
//!
//! **Invariant:** no sink uses a source.

#[cfg(feature = "live")]
pub(crate) mod fleet;
#[cfg(feature = "live")]
pub(crate) mod kubernetes;
#[cfg(feature = "live")]
pub mod metrics;
#[cfg(feature = "live")]
pub(crate) mod net;
#[cfg(feature = "live")]
pub mod otlp;
pub mod render;
pub mod select;
#[cfg(feature = "live")]
pub mod serve;
pub(crate) mod state;
#[cfg(feature = "live")]
pub(crate) mod stream;
#[cfg(feature = "live")]
pub(crate) mod verdict;

pub use probe_engine::words::{escape, shell, span};

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
