//! Without the readers of a node's files, pods are listed from recordings alone.

use anyhow::anyhow;
use clap::Args;

use super::{Pods, Seen};

#[derive(Debug, Args)]
pub(super) struct NodeArgs {}

pub(super) fn look(_: &Pods) -> anyhow::Result<Seen> {
    Err(anyhow!("built without what reads this node: give --recording"))
}
