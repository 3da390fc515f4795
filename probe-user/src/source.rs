//! Sources bring facts in. Each source is a task that sends batches of observations over one bounded channel.
//!
//! A source holds a [`channel::BatchSender`] as long as it runs. A source that answers questions reads them
//! from a [`channel::QuestionReceiver`]. A [`channel::CancellationToken`] tells it to stop: it then sends the
//! facts that it still has and returns. The channel closes when the last source returns, so the agent knows
//! that no more facts come.
//!
//! **Invariant:** sources know neither each other nor any sink.

pub mod answer;
pub mod backfill;
pub(crate) mod boot;
pub mod buildinfo;
pub mod cgroup;
pub mod channel;
pub(crate) mod clock;
pub mod cri;
pub(crate) mod files;
pub mod host;
mod image_work;
pub mod live;
pub(crate) mod machine_id;
pub(crate) mod missing_right;
pub(crate) mod name;
pub mod netlink;
pub(crate) mod netns_limit;
pub(crate) mod patience;
pub(crate) mod plugin_log;
pub(crate) mod pressure;
pub(crate) mod ready;
pub(crate) mod records_first;
pub(crate) mod release;
pub(crate) mod usage;
