//! What tells: each sink turns a change into its own form.
//!
//! A sink only makes bytes; who owns the place where they go writes them. So the same sinks serve the live agent,
//! a replay and the tests, and none of them can hold up the loop.
//!
//! **Invariant:** sinks know neither each other nor any source.

pub mod chart;
pub mod doctor;
pub mod escape;
pub mod evidence;
pub mod file;
pub mod filter;
#[cfg(feature = "live")]
pub mod findings_file;
#[cfg(feature = "live")]
mod folder;
pub mod history;
pub mod jsonl;
pub mod meaning;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "live")]
pub mod outlet;
pub mod page;
pub mod perfetto;
pub mod phase;
pub mod recovery;
pub mod repair;
pub mod select;
#[cfg(feature = "serve")]
pub mod serve;
pub mod span;
#[cfg(feature = "live")]
pub mod state_writes;
#[cfg(feature = "live")]
pub mod stream;
pub mod summary;
pub mod text;
pub mod verdict;
pub mod wall;
pub mod word;

use crate::model::{change::Change, time::Timestamp};

/// What the engine does not know and every line needs: which node, which boot, what the wall clock shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub node: String,
    /// The kernel's random id of the boot.
    pub boot_id: String,
    /// The wall clock's time at boot, nanoseconds since the epoch.
    pub boot_wall_ns: i64,
}

/// Who takes note of every change, whatever is asked for of the stream. It must not wait for anything.
pub trait Observer {
    fn hear(&mut self, change: &Change, label: &Label);
}

/// A form in which changes are told.
pub trait Sink {
    /// Appends `change` to `out`, as whole lines.
    fn tell(&mut self, change: &Change, label: &Label, out: &mut Vec<u8>);

    /// Appends a line that says that so many changes were not written before what comes next.
    fn missed(&mut self, count: u64, label: &Label, out: &mut Vec<u8>);
}

impl Label {
    /// Nanoseconds since the epoch.
    #[must_use]
    pub fn wall_ns(&self, at: Timestamp) -> i128 {
        i128::from(self.boot_wall_ns) + i128::from(at.0)
    }
}
