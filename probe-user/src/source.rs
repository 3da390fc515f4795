//! What brings facts in. Each source is a task that sends batches of observations on one bounded channel.
//!
//! The way out of a source is a [`channel::BatchSender`], which it holds as long as it runs; the way in is a
//! [`channel::Asks`] for those that answer questions, and a [`channel::CancellationToken`]. When it is told to stop, a source sends
//! what it still has and returns; when all have returned the channel is closed, and that is how the agent knows that
//! there is nothing more.
//!
//! **Invariant:** sources know neither each other nor any sink.

#[cfg(feature = "host")]
pub mod answer;
#[cfg(feature = "host")]
pub mod backfill;
#[cfg(feature = "host")]
pub mod boot;
#[cfg(feature = "host")]
pub mod buildinfo;
#[cfg(feature = "host")]
pub mod cgroup;
#[cfg(feature = "live")]
pub mod channel;
#[cfg(feature = "live")]
pub mod clock;
#[cfg(feature = "cri")]
mod cri;
#[cfg(feature = "live")]
pub mod files;
#[cfg(feature = "host")]
pub mod host;
#[cfg(feature = "live")]
pub mod lack;
#[cfg(feature = "live")]
pub mod live;
#[cfg(feature = "host")]
pub mod message;
#[cfg(feature = "live")]
pub mod netlink;
#[cfg(feature = "live")]
pub mod own;
#[cfg(feature = "host")]
pub mod pressure;
#[cfg(feature = "live")]
pub mod ready;
#[cfg(feature = "host")]
pub mod release;
pub mod replay;
