//! `sandprobe findings` and `sandprobe explain`: what is wrong on the node, from the running agent or a
//! recording.

pub(super) mod explain;
pub(super) mod list;
mod select;

pub(super) use explain::Explain;
pub(super) use list::Findings;
