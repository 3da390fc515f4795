//! Handles bytes as a runtime's answers, without a runtime. It is for fuzzing.

use prost::{DecodeError, Message as _};

use super::{
    message::{Containers, Sandboxes},
    statuses::{Changed, Statuses, stated},
};
use crate::model::fact::RuntimeStatus;

#[derive(Debug, Default)]
pub struct DetachedRuntime(Statuses);

impl DetachedRuntime {
    /// Returns what would be reported for these answers to `ListPodSandbox` and `ListContainers`; `None` if
    /// they are too long.
    pub fn tell(
        &mut self,
        sandboxes: &[u8],
        containers: &[u8],
        boot_wall_ns: i64,
    ) -> Result<Option<RuntimeStatus>, DecodeError> {
        let Sandboxes { items: sandboxes } = Sandboxes::decode(sandboxes)?;
        let Containers { items: containers } = Containers::decode(containers)?;
        let Some(all) = stated(sandboxes, containers, boot_wall_ns) else { return Ok(None) };
        let Changed { whole, came, gone } = self.0.update(all);
        Ok(Some(RuntimeStatus { socket: "/run/detached.sock".to_owned(), whole, came, gone }))
    }
}
