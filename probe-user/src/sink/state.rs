//! The agent's directory of state: its files, the threads that write them, and the results of the writes.
//!
//! Without the feature `live` the files are only read.

#[cfg(feature = "live")]
pub(crate) mod background;
pub(crate) mod file;
#[cfg(feature = "live")]
pub(crate) mod findings_file;
#[cfg(feature = "live")]
pub(crate) mod folder;
pub(crate) mod history;
#[cfg(feature = "live")]
pub(crate) mod state_writes;
