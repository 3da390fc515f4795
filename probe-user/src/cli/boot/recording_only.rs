//! Without the feature `live`, boots come from recordings and from a history only.

use clap::Args;

use super::{Asked, Row};
use crate::{cli::args::StateArgs, sink::state::history::SavedHistory};

#[derive(Debug, Args)]
pub(super) struct HereArgs {}

#[expect(
    clippy::unused_self,
    clippy::unnecessary_wraps,
    reason = "the same functions as with the feature `live`"
)]
impl HereArgs {
    pub(super) fn rules(&self) -> anyhow::Result<Asked> {
        Ok(Asked::default())
    }

    pub(super) fn agent_history(&self, _: &StateArgs) -> anyhow::Result<Option<SavedHistory>> {
        Ok(None)
    }

    pub(super) fn row(&self, _: &SavedHistory, _: bool) -> anyhow::Result<Option<(Row, bool)>> {
        Ok(None)
    }
}
