//! `sandprobe findings` and `explain`: what is wrong on the node, as a running agent keeps it or a recording shows it.

mod explain;
mod list;
mod select;

pub(super) use explain::Explain;
pub(super) use list::Findings;
