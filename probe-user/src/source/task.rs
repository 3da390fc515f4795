//! How every source runs: its channels to the agent, its waits, and the order of listings after records.

pub mod channel;
pub(crate) mod patience;
pub(crate) mod ready;
pub(crate) mod records_first;
