//! What the agent does so that the next one of the same boot goes on from it, and goes on from the last one
//! itself: the kept state, what waits for it, and the records that were left. docs/takeover.md has the whole.

pub(crate) mod checkpoint;
pub(crate) mod delivery;
pub(crate) mod replay_backlog;
