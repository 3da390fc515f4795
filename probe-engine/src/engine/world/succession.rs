//! A new agent goes on with the state of the last one.

use crate::engine::world::World;

impl World {
    /// Ends what was so only of the last agent: the files at which its readers hung.
    pub(super) fn begin_agent(&mut self) {
        // The readers of the new agent tell at which files they hang.
        self.coverage.hanging.clear();
    }
}
