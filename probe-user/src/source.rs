//! What brings facts in. Each source is a task that sends batches of observations on one bounded channel.
//!
//! The way out of a source is a [`channel::BatchSender`], which it holds as long as it runs; the way in is a
//! [`channel::Asks`] for those that answer questions, and a [`channel::CancellationToken`]. When it is told to stop, a source sends
//! what it still has and returns; when all have returned the channel is closed, and that is how the agent knows that
//! there is nothing more.
//!
//! **Invariant:** sources know neither each other nor any sink.

pub mod answer;
pub mod backfill;
pub(crate) mod boot;
pub mod buildinfo;
pub mod cgroup;
pub mod channel;
pub(crate) mod clock;
mod cri;
pub(crate) mod files;
pub mod host;
pub(crate) mod lack;
pub mod live;
pub(crate) mod message;
pub mod netlink;
pub(crate) mod own;
pub(crate) mod pressure;
pub(crate) mod ready;
pub(crate) mod release;
