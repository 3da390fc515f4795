//! Without the feature `live`, pods are listed from recordings only.

use anyhow::anyhow;
use clap::Args;

use super::{Pods, Seen};

#[derive(Debug, Args)]
pub(super) struct NodeArgs {}

pub(super) fn list(_: &Pods) -> anyhow::Result<Seen> {
    Err(anyhow!("built without what reads this node: give --recording"))
}
