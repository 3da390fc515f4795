//! What sinks that run beside the agent's loop share: files that are read again, and the queue to the loop.

pub(crate) mod loop_queue;
pub(crate) mod reloading_files;
