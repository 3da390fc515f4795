//! Sources bring facts in. Each source is a task that sends batches of observations over one bounded channel.
//!
//! A source holds a [`BatchSender`](task::channel::BatchSender) as long as it runs. A source that answers
//! questions reads them from a [`QuestionReceiver`](task::channel::QuestionReceiver). A
//! [`CancellationToken`](task::channel::CancellationToken) tells it to stop: it then sends the facts that it
//! still has and returns. The channel closes when the last source returns, so the agent knows that no more
//! facts come.
//!
//! **Invariant:** sources know neither each other nor any sink.

pub mod backfill;
pub mod cri;
pub mod files;
pub mod host;
pub(crate) mod ledger;
pub mod live;
pub(crate) mod logs;
pub mod netlink;
pub mod node;
pub mod task;
